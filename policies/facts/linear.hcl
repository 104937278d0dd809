# Linear. Its issues belong to the workspace, but integrations bring in what customers wrote.

service "linear" {
  packages = ["@tacticlaunch/mcp-linear"]
  output   = "internal raw"
  audience = "internal"

  reads = ["linear_get*", "linear_search*", "list_*", "get_*", "search_*"]
  reversible = [
    "linear_create*", "linear_update*", "linear_add*", "linear_assign*", "linear_archive*", "linear_unarchive*",
    "linear_remove*", "linear_set*", "linear_complete*", "linear_convert*", "linear_duplicate*",
    "linear_transferIssue", "linear_mark*", "linear_subscribe*", "create_*", "update_*",
  ]
  irreversible = [
    "linear_delete*", "linear_rotate*", "linear_logout*", "linear_createWebhook", "linear_updateWebhook",
    "linear_create*Token", "linear_create*Application", "linear_generate*",
  ]
}
