# Todoist. One's own tasks, and projects that are shared.

service "todoist" {
  packages = ["@doist/todoist-mcp", "@doist/todoist-ai"]
  output   = "internal clean"
  audience = "internal"

  reads = [
    "find-*", "get-*", "list-*", "search", "fetch", "fetch-object", "user-info", "analyze-project-health",
    "view-attachment",
  ]
  reversible = [
    "add-*", "update-*", "complete-tasks", "uncomplete-tasks", "reschedule-tasks", "reorder-objects", "project-move",
    "manage-assignments", "project-management",
  ]
  irreversible = ["delete-object"]
}
