# HubSpot. It holds customers, and what they wrote; mails to them are filled in from it, workflows send those when
# something in it changes, and agencies have accounts there. hubspot-get-user-details sends the token in a body, and
# the bridge refuses that: a server that may put a token into a body can also write it into a note. The test needs the
# right to read contacts.

service "hubspot" {
  packages = ["@hubspot/mcp-server"]
  output   = "sensitive raw"
  audience = "sensitive"

  reads = ["hubspot-get-*", "hubspot-list-*", "hubspot-search-objects", "hubspot-batch-read-objects"]
  irreversible = [
    "hubspot-create-*", "hubspot-update-*", "hubspot-batch-create-*", "hubspot-batch-update-*",
    "hubspot-generate-feedback-link",
  ]

  setup {
    title     = "HubSpot"
    summary   = "Contacts, companies and deals"
    label     = "sensitive"
    package   = "npm:@hubspot/mcp-server@0.4.0"
    integrity = "sha512-nNNrqysJrCkPb8XWl3wd2d61nTLf8IAnfWOHag4FCSRKRjSXuIE/2h4GVUcPmVhJVaN7RsIq8C43BMFV+EI9GA=="
    domains   = ["api.hubspot.com"]

    remote { url = "https://mcp.hubspot.com" }

    secret "PRIVATE_APP_ACCESS_TOKEN" {
      key      = "hubspot_token"
      deliver  = "broker"
      prefixes = ["pat-na1-", "pat-eu1-"]
      pattern  = "pat-(?:na|eu|ap)[0-9]-[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
      where    = "In HubSpot, open Settings, Integrations, Private Apps, create an app and copy its access token."
      url      = "https://developers.hubspot.com/docs/api/private-apps"
      scopes   = ["crm.objects.contacts.read", "crm.objects.companies.read", "crm.objects.deals.read"]
    }

    test "hubspot-list-objects" {
      arguments = { objectType = "contacts", limit = 1 }
    }
  }
}
