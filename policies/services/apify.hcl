# Apify: programs of strangers that scrape the web. A tool that opens an address sends it to the owner of that host.
# An Actor that is an MCP server has a host below apify.actor, and the server sends it the token. The setup allows no
# such host.

service "apify" {
  packages = ["@apify/actors-mcp-server"]
  output   = "public raw"
  audience = "public"

  reads    = ["search-*", "fetch-*", "get-*"]
  forwards = ["fetch-*", "get-html-skeleton"]
  reversible = ["add-actor", "abort-actor-run"]
  irreversible = ["call-actor*"]

  # Later versions need Node.js 22, which Debian 12 and 13 do not have.
  setup {
    title     = "Apify"
    summary   = "Actors that collect data from the web"
    label     = "internal"
    package   = "npm:@apify/actors-mcp-server@0.10.6"
    integrity = "sha512-JnD0k54RJlwKhJouP+IU3+oLLHh9oxG0BiB+FjIrp4DeGsvfL8CmJ6yOBbxwtU0hlGinuo/ImcNdRi1HecGvrQ=="
    env       = { TELEMETRY_ENABLED = "false" }
    domains   = ["api.apify.com"]

    remote {
      url   = "https://mcp.apify.com"
      token = "APIFY_TOKEN"
    }

    secret "APIFY_TOKEN" {
      key      = "apify_token"
      deliver  = "broker"
      prefixes = ["apify_api_"]
      pattern  = "apify_api_[A-Za-z0-9]{36}"
      where    = "Open Settings, API & Integrations, and copy the token."
      url      = "https://console.apify.com/account/integrations"
    }
  }
}
