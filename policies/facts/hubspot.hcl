# HubSpot. It holds customers, and what they wrote.

service "hubspot" {
  packages = ["@hubspot/mcp-server"]
  output   = "sensitive raw"
  audience = "sensitive"

  reads = ["hubspot-get-*", "hubspot-list-*", "hubspot-search-objects", "hubspot-batch-read-objects"]
  reversible = ["hubspot-create-*", "hubspot-update-*", "hubspot-batch-create-*", "hubspot-batch-update-*"]
  irreversible = ["hubspot-generate-feedback-link"]
}
