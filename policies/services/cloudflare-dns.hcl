# DNS of a Cloudflare account: its zones, their settings and counts of queries. The settings are no secret, and still
# not for everybody. No tool writes. cloudflare-dns-analytics is too long for a name.

service "cloudflare-dns" {
  output   = "internal raw"
  audience = "internal"

  reads = ["zones_list", "zone_details", "dns_report", "show_account_dns_settings", "show_zone_dns_settings"]

  setup {
    title   = "Cloudflare DNS Analytics"
    summary = "Zones, DNS settings and reports of DNS queries"
    label   = "internal"

    remote {
      url     = "https://dns-analytics.mcp.cloudflare.com/mcp"
      sign_in = "oauth"
    }
  }
}
