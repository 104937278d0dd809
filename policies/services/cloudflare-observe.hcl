# Logs and metrics of Cloudflare Workers. Anybody can send a request to a Worker, and the log holds its path, its
# headers and the text that the code prints of it. No tool writes. cloudflare-observability is too long for a name.

service "cloudflare-observe" {
  output   = "sensitive raw"
  audience = "sensitive"

  reads = [
    "workers_list", "workers_get_worker", "workers_get_worker_code", "query_worker_observability",
    "observability_keys", "observability_values", "search_cloudflare_documentation",
    "migrate_pages_to_workers_guide",
  ]

  setup {
    title   = "Cloudflare Observability"
    summary = "Logs and metrics of Workers"

    remote {
      url     = "https://observability.mcp.cloudflare.com/mcp"
      sign_in = "oauth"
    }
  }
}
