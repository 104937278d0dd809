# Apify: programs of strangers that scrape the web. An Actor that is an MCP server has a host
# below apify.actor, and the server sends it the token. The setup allows no such host.

service "apify" {
  packages = ["@apify/actors-mcp-server"]
  output   = "public raw"
  audience = "public"

  reads = ["search-*", "fetch-*", "get-*"]
  reversible = ["add-actor", "abort-actor-run"]
  irreversible = ["call-actor*"]

  setup {
    title     = "Apify"
    summary   = "Actors that collect data from the web"
    label     = "internal"
    package   = "npm:@apify/actors-mcp-server@0.16.0"
    integrity = "sha512-Ky5vckfWAQW27NZQPAC+2mWUjD8cc6EP8HoZyOblifgZm2KbCwC9LwP7WVwUfxDrisaeeT5+QZ+u4mm7cJ9pNg=="
    env       = { TELEMETRY_ENABLED = "false" }
    domains   = ["api.apify.com"]
    remote    = "https://mcp.apify.com"

    secret "APIFY_TOKEN" {
      key      = "apify_token"
      deliver  = "broker"
      prefixes = ["apify_api_"]
      where    = "Open Settings, API & Integrations, and copy the token."
      url      = "https://console.apify.com/account/integrations"
    }
  }
}
