# Airtable. Forms bring in what strangers wrote.

service "airtable" {
  packages = ["airtable-mcp-server"]
  output   = "sensitive raw"
  audience = "sensitive"

  reads = ["list_*", "search_records", "describe_table", "get_record"]
  reversible = ["create_*", "update_*", "upload_attachment"]
  irreversible = ["delete_records"]
}
