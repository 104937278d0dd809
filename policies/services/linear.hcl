# Linear. Its issues belong to the workspace, but guests read and write those of their teams, integrations bring in what customers
# wrote, and what is written goes to them by mail and to trackers that an issue is linked to. To archive, and what is about
# one's own notices, tells nobody anything.

service "linear" {
  packages = ["@tacticlaunch/mcp-linear"]
  output   = "internal raw"
  audience = "internal"

  reads      = ["linear_get*", "linear_search*", "list_*", "get_*", "search_*"]
  reversible = ["linear_archive*", "linear_unarchive*", "linear_mark*", "linear_subscribe*"]
  irreversible = [
    "linear_create*", "linear_update*", "linear_add*", "linear_assign*", "linear_remove*", "linear_set*",
    "linear_complete*", "linear_convert*", "linear_duplicate*", "linear_transferIssue", "linear_delete*",
    "linear_rotate*", "linear_logout*", "linear_generate*", "create_*", "update_*",
  ]

  setup {
    title     = "Linear"
    summary   = "Issues, projects and teams"
    label     = "internal"
    package   = "npm:@tacticlaunch/mcp-linear@1.4.3"
    integrity = "sha512-AnAINUcA7SV0tvFHP8mmOUoUGRdLx2wnBsAJ3HtJAq2m62QTWwfqA/OaLK2/Bl51lA3mY9dBAGxRFbrhKa5kcA=="
    domains   = ["api.linear.app"]

    remote { url = "https://mcp.linear.app/mcp" }

    secret "LINEAR_API_TOKEN" {
      key      = "linear_token"
      deliver  = "broker"
      prefixes = ["lin_api_"]
      pattern  = "lin_api_[A-Za-z0-9]{40}"
      where    = "In Linear, open Settings, Security & access, Personal API keys, and create a key."
      url      = "https://linear.app/settings/account/security"
    }

    test "linear_getViewer" {
      arguments = {}
    }
  }
}
