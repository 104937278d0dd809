# Cloudflare's documentation, which Cloudflare writes and anybody may propose changes to. Cloudflare gets the question.

service "cloudflare-docs" {
  output   = "public raw"
  audience = "public"

  reads = ["search_cloudflare_documentation", "migrate_pages_to_workers_guide"]

  setup {
    title   = "Cloudflare Docs"
    summary = "Documentation of Cloudflare"
    label   = "public"

    remote {
      url     = "https://docs.mcp.cloudflare.com/mcp"
      sign_in = "none"
    }
  }
}
