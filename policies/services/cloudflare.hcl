# Cloudflare's server for Workers and their storage. Queries return data that visitors of a Worker wrote. Other servers
# of Cloudflare are services of their own, such as cloudflare-docs. The server of the whole API, mcp.cloudflare.com, is
# none of them: pfar add takes its address.

service "cloudflare" {
  output   = "sensitive raw"
  audience = "sensitive"

  reads = [
    "accounts_list", "workers_list", "workers_get_worker", "workers_get_worker_code", "kv_namespaces_list",
    "kv_namespace_get", "r2_buckets_list", "r2_bucket_get", "d1_databases_list", "d1_database_get",
    "hyperdrive_configs_list", "hyperdrive_config_get", "search_cloudflare_documentation",
  ]

  setup {
    title   = "Cloudflare"
    summary = "Workers, KV, R2, D1 and Hyperdrive of one account"

    remote {
      url     = "https://bindings.mcp.cloudflare.com/mcp"
      sign_in = "oauth"
    }
  }
}
