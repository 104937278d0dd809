# Asana. Guests of other firms, and forms, write there, and who follows a task gets a mail of what is written into it. To take
# something off a task tells nobody anything.

service "asana" {
  packages = ["@roychri/mcp-server-asana"]
  output   = "internal raw"
  audience = "internal"

  reads        = ["asana_get_*", "asana_list_*", "asana_search_*"]
  reversible   = ["asana_remove_*"]
  irreversible = ["asana_create_*", "asana_update_*", "asana_add_*", "asana_set_*", "asana_delete_*"]
}
