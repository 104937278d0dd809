# Airtable. Forms bring in what strangers wrote, and who a base or a view of it is shared with reads at once what comes there.
# Whoever shares nothing says trust { dangerous_writes = false } in the declaration; its forms stay open.

service "airtable" {
  packages = ["airtable-mcp-server"]
  output   = "sensitive raw"
  audience = "sensitive"

  reads        = ["list_*", "search_records", "describe_table", "get_record"]
  irreversible = ["create_*", "update_*", "upload_attachment", "delete_records"]

  setup {
    title     = "Airtable"
    summary   = "Bases, tables and records"
    label     = "internal"
    package   = "npm:airtable-mcp-server@1.14.0"
    integrity = "sha512-OYUwkrIhXsYRqx39wQ5R7OAM5R0RdDWJRb8CBMLFU8OGPAB1Jmm4oOrLtaH3Qmtd+UG2IAT+nFlFrqfs//2klA=="
    domains   = ["api.airtable.com", "content.airtable.com"]

    remote { url = "https://mcp.airtable.com/mcp" }

    secret "AIRTABLE_API_KEY" {
      key      = "airtable_token"
      deliver  = "broker"
      hosts    = ["api.airtable.com", "content.airtable.com"]
      prefixes = ["pat"]
      pattern  = "pat[A-Za-z0-9]{14}\\.[0-9a-f]{64}"
      where    = "Create a personal access token and copy it."
      url      = "https://airtable.com/create/tokens/new"
      scopes   = ["data.records:read", "data.records:write", "schema.bases:read"]
    }

    test "list_bases" {
      arguments = {}
    }
  }
}
