# Cloudflare Radar: traffic, routes, attacks and domains of the Internet, and a scanner of web pages. Anybody can name a
# bot or a network, and a scan holds text of the page. A scan opens any address, and everybody can see the scan unless
# it is unlisted. The account may have unlisted scans, so scans are internal. The set-up has no label: it would replace
# theirs. Cloudflare calls this server deprecated.

service "cloudflare-radar" {
  output   = "public raw"
  audience = "public"

  reads        = ["get_*", "list_*", "search_url_scans"]
  irreversible = ["create_url_scan"]

  tool "get_url_scan*"    { output = "internal raw" }
  tool "search_url_scans" { output = "internal raw" }

  setup {
    title   = "Cloudflare Radar"
    summary = "Internet traffic, routes, attacks and domains, and scans of web pages"

    remote {
      url     = "https://radar.mcp.cloudflare.com/mcp"
      sign_in = "oauth"
    }
  }
}
