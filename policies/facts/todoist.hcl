# Todoist. Whom a project is shared with, and who knows the mail address of one, writes into it, and reads at once what comes there.
# Whoever shares nothing says trust { public_source = false, dangerous_writes = false } in the declaration. What is done, and
# when it is due, can be set back, and is no text.

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
}
