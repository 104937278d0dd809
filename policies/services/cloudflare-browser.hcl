# Browser Run: Cloudflare opens any page of the web. A page brings anything in, and its address carries data out to
# whoever it names. The key addresses is not set: Cloudflare opens the page, so the hosts of the declaration do not
# bound it. A crawl goes on by itself, and an ended crawl or session does not come back. Crawls and sessions of the
# account are internal. The set-up has no label: it would replace theirs.

service "cloudflare-browser" {
  output   = "public raw"
  audience = "public"

  reads = [
    "get_crawl_result", "list_browser_sessions", "get_url_html_content", "get_url_markdown",
    "get_url_screenshot", "get_url_pdf", "get_url_snapshot", "get_url_json", "get_url_links", "scrape_url_elements",
  ]
  forwards     = ["get_url_*", "scrape_url_elements"]
  irreversible = ["start_crawl", "cancel_crawl", "kill_browser_session"]

  tool "get_crawl_result"      { output = "internal raw" }
  tool "list_browser_sessions" { output = "internal raw" }

  setup {
    title   = "Cloudflare Browser Run"
    summary = "Web pages as text, pictures and PDF"

    remote {
      url     = "https://browser.mcp.cloudflare.com/mcp"
      sign_in = "oauth"
    }
  }
}
