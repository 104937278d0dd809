# monday.com. Forms bring in what strangers wrote; guests have boards that are shared with them, and read at once what comes there.

service "monday" {
  packages = ["@mondaydotcomorg/monday-api-mcp"]
  output   = "internal raw"
  audience = "internal"

  reads = [
    "get_*", "list_*", "search_*", "read_*", "*_info", "board_insights", "agent_catalog", "all_widgets_schema",
    "check_template_status", "fetch_custom_activity", "fetch_file_content", "search",
  ]
  irreversible = [
    "create_*", "update_*", "change_*", "move_*", "add_*", "delete_*", "all_monday_api", "manage_*", "all_api_read",
    "all_api_write", "configure_ai_column", "finalize_asset_upload", "form_questions_editor",
    "link_board_items_workflow", "plan_workflow", "publish_workflow", "remove_ai_from_column",
    "set_object_schema_column_active_state", "submit_bug_or_feature_request", "undo_action", "use_template",
  ]

  setup {
    title     = "monday.com"
    summary   = "Boards, items, documents and people of one account"
    label     = "internal"
    package   = "npm:@mondaydotcomorg/monday-api-mcp@3.3.0"
    integrity = "sha512-X1utDF2gxF8n5Dwsz8GcQefg2N4qM4JMXtlnzweIEEBqYCTam9d5BPhINgZ07e8hKeV2hDM2PsHAOFjIqZb0cQ=="
    domains   = ["api.monday.com"]

    remote { url = "https://mcp.monday.com/mcp" }

    secret "MONDAY_TOKEN" {
      key      = "monday_token"
      deliver  = "broker"
      prefixes = ["eyJ"]
      where    = "In monday.com, open your picture, Developers, API token, and copy it."
      url      = "https://developer.monday.com/api-reference/docs/authentication"
    }

    test "get_user_context" {
      arguments = {}
    }
  }
}
