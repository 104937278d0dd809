# Todoist. Whom a project is shared with, and who knows the mail address of one, writes into it, and reads at once
# what comes there. Whoever shares nothing says trust { public_source = false, dangerous_writes = false } in the
# declaration. What is done, and when it is due, can be set back, and is no text. The setup does not allow
# files.todoist.com and the hosts it redirects to, which view-attachment needs.

service "todoist" {
  packages = ["@doist/todoist-mcp", "@doist/todoist-ai"]
  output   = "internal raw"
  audience = "internal"

  reads = [
    "find-*", "get-*", "list-*", "search", "fetch", "fetch-object", "user-info", "analyze-project-health",
    "view-attachment",
  ]
  reversible = ["complete-tasks", "uncomplete-tasks", "reschedule-tasks", "reorder-objects"]
  irreversible = [
    "add-*", "update-*", "project-move", "manage-assignments", "project-management", "delete-object",
  ]

  setup {
    title     = "Todoist"
    summary   = "Tasks and projects"
    label     = "sensitive"
    package   = "npm:@doist/todoist-mcp@11.0.0"
    integrity = "sha512-yAC+tPd2CSz6yF9ZrUYK9KXpjJUijRua/vSrCX2ls6R1wbkGJtRorz3STkW0qBMbqCRlf2KgJjZw1mpOUtCEyQ=="
    bin       = "todoist-mcp"
    domains   = ["api.todoist.com"]

    remote { url = "https://ai.todoist.net/mcp" }

    secret "TODOIST_API_KEY" {
      key     = "todoist_token"
      deliver = "broker"
      where   = "In Todoist, open Settings, Integrations, Developer, and copy the API token."
      url     = "https://app.todoist.com/app/settings/integrations/developer"
    }

    test "user-info" {
      arguments = {}
    }
  }
}
