# HubSpot. It holds customers, and what they wrote; mails to them are filled in from it, workflows send those when something in it
# changes, and agencies have accounts there.

service "hubspot" {
  packages = ["@hubspot/mcp-server"]
  output   = "sensitive raw"
  audience = "sensitive"

  reads = ["hubspot-get-*", "hubspot-list-*", "hubspot-search-objects", "hubspot-batch-read-objects"]
  irreversible = [
    "hubspot-create-*", "hubspot-update-*", "hubspot-batch-create-*", "hubspot-batch-update-*",
    "hubspot-generate-feedback-link",
  ]
}
