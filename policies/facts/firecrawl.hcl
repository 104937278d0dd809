# Scraping of the web. interact fills in forms.

service "firecrawl" {
  packages = ["firecrawl-mcp"]
  output   = "public raw"
  audience = "public"

  reads = [
    "firecrawl_scrape", "firecrawl_search", "firecrawl_map", "firecrawl_crawl", "firecrawl_check_crawl_status",
    "firecrawl_extract", "firecrawl_parse", "firecrawl_research_*", "firecrawl_monitor_get", "firecrawl_monitor_list",
    "firecrawl_monitor_check*", "firecrawl_agent_status",
  ]
  reversible = ["firecrawl_monitor_create", "firecrawl_monitor_update", "firecrawl_interact_stop"]
  irreversible = [
    "firecrawl_interact", "firecrawl_agent", "firecrawl_feedback", "firecrawl_search_feedback",
    "firecrawl_monitor_delete", "firecrawl_monitor_run",
  ]
}
