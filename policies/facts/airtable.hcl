# Airtable. Forms bring in what strangers wrote, and who a base or a view of it is shared with reads at once what comes there.
# Whoever shares nothing says trust { dangerous_writes = false } in the declaration; its forms stay open.

service "airtable" {
  packages = ["airtable-mcp-server"]
  output   = "sensitive raw"
  audience = "sensitive"

  reads        = ["list_*", "search_records", "describe_table", "get_record"]
  irreversible = ["create_*", "update_*", "upload_attachment", "delete_records"]
}
