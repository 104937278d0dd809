# Asana. Guests of other firms, and forms, write there.

service "asana" {
  packages = ["@roychri/mcp-server-asana"]
  output   = "internal raw"
  audience = "internal"

  reads = ["asana_get_*", "asana_list_*", "asana_search_*"]
  reversible = ["asana_create_*", "asana_update_*", "asana_add_*", "asana_remove_*", "asana_set_*"]
  irreversible = ["asana_delete_*"]
}
