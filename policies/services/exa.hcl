# Search on the web. A tool that opens an address sends it to the owner of that host.

service "exa" {
  packages = ["exa-mcp-server"]
  output   = "public raw"
  audience = "public"

  reads    = ["*_exa", "deep_researcher_check"]
  forwards = ["crawling_exa", "*fetch*", "*crawl*", "*contents*", "*similar*", "*research*", "*scrape*"]
  irreversible = ["deep_researcher_start", "agent_run"]

  setup {
    title     = "Exa"
    summary   = "Web search"
    label     = "public"
    package   = "npm:exa-mcp-server@3.4.1"
    integrity = "sha512-X6g4J9LXLJZ0uK52G8KE/KCaxpaD+wkEHzjkoDTYkC+afxfm5xqWgih3i0hgTfyufl6PggkLeR0L6rDAxW6ETg=="
    domains   = ["api.exa.ai"]

    remote {
      url   = "https://mcp.exa.ai/mcp"
      token = "EXA_API_KEY"
      in    = ["header:x-api-key"]
    }

    secret "EXA_API_KEY" {
      key     = "exa_api_key"
      deliver = "broker"
      in      = ["header:x-api-key"]
      where   = "Create a key and copy it."
      url     = "https://dashboard.exa.ai/api-keys"
    }

    test "web_search_exa" {
      arguments = { query = "pfar", numResults = 1 }
    }
  }
}
