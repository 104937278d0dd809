# Cloudflare One CASB: accounts, files and shares in the SaaS applications of an organization. Anybody who can share a
# file with a colleague gives it its name. No tool writes.

service "cloudflare-casb" {
  output   = "sensitive raw"
  audience = "sensitive"

  reads = [
    "integrations_list", "integration_by_id", "assets_list", "assets_search", "asset_by_id",
    "assets_by_integration_id", "assets_by_category_id", "asset_categories_list", "asset_categories_by_vendor",
    "asset_categories_by_type", "asset_categories_by_vendor_and_type",
  ]

  setup {
    title   = "Cloudflare One CASB"
    summary = "Integrations and assets of SaaS applications"

    remote {
      url     = "https://casb.mcp.cloudflare.com/mcp"
      sign_in = "oauth"
    }
  }
}
