# Apify: programs of strangers that scrape the web.

service "apify" {
  packages = ["@apify/actors-mcp-server"]
  output   = "public raw"
  audience = "public"

  reads = ["search-*", "fetch-*", "get-*"]
  reversible = ["add-actor", "abort-actor-run"]
  irreversible = ["call-actor*"]
}
