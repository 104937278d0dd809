# monday.com. Forms bring in what strangers wrote.

service "monday" {
  packages = ["@mondaydotcomorg/monday-api-mcp"]
  output   = "internal raw"
  audience = "internal"

  reads = ["get_*", "list_*", "search_*", "read_*", "*_info", "board_insights"]
  reversible = ["create_*", "update_*", "change_*", "move_*", "add_*"]
  irreversible = ["delete_*", "all_monday_api", "manage_*"]
}
