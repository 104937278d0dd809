# Sentry. What it shows comes out of requests, which anybody can make: the classic way in.

service "sentry" {
  packages = ["@sentry/mcp-server"]
  output   = "internal raw"
  audience = "internal"

  reads = ["find_*", "get_*", "search_*", "whoami", "analyze_issue_with_seer"]
  reversible = ["update_issue", "add_issue_note", "update_project"]
  irreversible = ["create_*", "use_sentry", "execute_tool"]
}
