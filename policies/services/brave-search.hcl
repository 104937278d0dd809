# Search on the web.

service "brave-search" {
  packages = ["@brave/brave-search-mcp-server", "@modelcontextprotocol/server-brave-search"]
  output   = "public raw"
  audience = "public"

  reads = ["brave_*"]

  setup {
    title     = "Brave Search"
    summary   = "Web search"
    label     = "public"
    package   = "npm:@brave/brave-search-mcp-server@2.1.4"
    integrity = "sha512-a34HBs6os4Ilp0yHPV/j3UrgBQH1uTDLsNA9y5IlO30RCYUFm9QPfC0coh2c7WEDxKcHuWjVsrfuXIJNheu9YA=="
    domains   = ["api.search.brave.com"]

    secret "BRAVE_API_KEY" {
      key     = "brave_api_key"
      deliver = "broker"
      in      = ["header:x-subscription-token"]
      where   = "Subscribe to a plan, create a key and copy it."
      url     = "https://api-dashboard.search.brave.com/app/keys"
    }

    test "brave_web_search" {
      arguments = { query = "pfar", count = 1 }
    }
  }
}
