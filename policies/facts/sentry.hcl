# Sentry. What it shows comes out of requests, which anybody can make: the classic way in. A note
# goes on to the trackers that an issue is linked to, some of which anybody reads; to resolve or assign one carries no text.

service "sentry" {
  packages = ["@sentry/mcp-server"]
  output   = "internal raw"
  audience = "internal"

  reads        = ["find_*", "get_*", "search_*", "whoami", "analyze_issue_with_seer"]
  reversible   = ["update_issue"]
  irreversible = ["create_*", "add_issue_note", "update_project", "use_sentry", "execute_tool"]
}
