# monday.com. Forms bring in what strangers wrote; guests have boards that are shared with them, and read at once what comes there.

service "monday" {
  packages = ["@mondaydotcomorg/monday-api-mcp"]
  output   = "internal raw"
  audience = "internal"

  reads = ["get_*", "list_*", "search_*", "read_*", "*_info", "board_insights"]
  irreversible = [
    "create_*", "update_*", "change_*", "move_*", "add_*", "delete_*", "all_monday_api", "manage_*",
  ]
}
