# AutoRAG, now AI Search: documents of one account, among them pages of web sites. No tool writes. Cloudflare calls this
# server deprecated.

service "cloudflare-autorag" {
  output   = "sensitive raw"
  audience = "sensitive"

  reads = ["list_rags", "search", "ai_search"]

  setup {
    title   = "Cloudflare AutoRAG"
    summary = "Search in documents of one account"

    remote {
      url     = "https://autorag.mcp.cloudflare.com/mcp"
      sign_in = "oauth"
    }
  }
}
