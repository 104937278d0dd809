# Search and extraction on the web. A tool that opens an address sends it to the owner of that host.

service "tavily" {
  packages = ["tavily-mcp"]
  output   = "public raw"
  audience = "public"

  reads    = ["tavily*search", "tavily*extract", "tavily*crawl", "tavily*map", "tavily*research"]
  forwards = ["tavily*extract", "tavily*crawl", "tavily*map", "tavily*research"]

  setup {
    title     = "Tavily"
    summary   = "Web search and extraction"
    label     = "public"
    package   = "npm:tavily-mcp@0.2.22"
    integrity = "sha512-w2pmmmn/JKcNavylDoiNtNPflWt6SK2G1SVUvg0VvdvFJQUaOzEdanAm1VUWBOhUCqmVoBYVPstGcOoWvh8RQQ=="
    domains   = ["api.tavily.com"]

    remote {
      url   = "https://mcp.tavily.com/mcp/"
      token = "TAVILY_API_KEY"
    }

    secret "TAVILY_API_KEY" {
      key      = "tavily_api_key"
      deliver  = "broker"
      in       = ["header:authorization", "body"]
      prefixes = ["tvly-"]
      where    = "Copy the API key."
      url      = "https://app.tavily.com/home"
    }

    test "tavily_search" {
      arguments = { query = "pfar", max_results = 1 }
    }
  }
}
