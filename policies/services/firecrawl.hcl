# Scraping of the web. A tool that opens an address sends it to the owner of that host. A search may open
# each page that it finds, with a script of the caller's. interact fills in forms.

service "firecrawl" {
  packages = ["firecrawl-mcp"]
  output   = "public raw"
  audience = "public"

  reads = [
    "firecrawl_scrape", "firecrawl_search", "firecrawl_map", "firecrawl_crawl", "firecrawl_check_crawl_status",
    "firecrawl_extract", "firecrawl_parse", "firecrawl_research_*", "firecrawl_monitor_get",
    "firecrawl_monitor_list", "firecrawl_monitor_check*", "firecrawl_agent_status", "firecrawl_credit_usage",
    "firecrawl_developer_search", "firecrawl_find_tools",
  ]
  forwards = [
    "firecrawl_scrape", "firecrawl_map", "firecrawl_crawl", "firecrawl_extract", "firecrawl_parse",
    "firecrawl_search",
  ]
  reversible = ["firecrawl_monitor_create", "firecrawl_monitor_update", "firecrawl_interact_stop"]
  irreversible = [
    "firecrawl_interact", "firecrawl_agent", "firecrawl_feedback", "firecrawl_search_feedback",
    "firecrawl_monitor_delete", "firecrawl_monitor_run",
  ]

  setup {
    title     = "Firecrawl"
    summary   = "Web pages as text"
    label     = "public"
    package   = "npm:firecrawl-mcp@3.26.0"
    integrity = "sha512-aJPkPDSeQAIvA1RthFsLStXf5GHWE6hZa8MC36fk3JXC9etj0kUwBF1CFl3th0DmaFTZ0gZ9+eSvauyEDdPDwA=="
    domains   = ["api.firecrawl.dev"]

    remote {
      url   = "https://mcp.firecrawl.dev/v2/mcp"
      token = "FIRECRAWL_API_KEY"
    }

    secret "FIRECRAWL_API_KEY" {
      key      = "firecrawl_api_key"
      deliver  = "broker"
      prefixes = ["fc-"]
      where    = "Create an API key and copy it."
      url      = "https://www.firecrawl.dev/app/api-keys"
    }

    test "firecrawl_credit_usage" {
      arguments = {}
    }
  }
}
