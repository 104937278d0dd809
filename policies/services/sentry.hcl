# Sentry. What it shows comes out of requests, which anybody can make: the classic way in. A note
# goes on to the trackers that an issue is linked to, some of which anybody reads; to resolve or assign one carries no text.

service "sentry" {
  packages = ["@sentry/mcp-server"]
  output   = "internal raw"
  audience = "internal"

  reads        = ["find_*", "get_*", "search_*", "whoami", "analyze_issue_with_seer"]
  reversible   = ["update_issue"]
  irreversible = [
    "create_*", "add_issue_note", "update_project", "use_sentry", "execute_tool", "execute_sentry_tool",
  ]

  setup {
    title     = "Sentry"
    summary   = "Issues, events and projects"
    label     = "internal"
    package   = "npm:@sentry/mcp-server@0.39.0"
    integrity = "sha512-sJzFkzka+1wkrCk+v/uWvl3lB0Kcu6Mb/jxlnOZyifJKhTpWv1gF6pJEmAGmf19s2f0ARAw6CsDaYuhGN+I4bw=="
    domains   = ["sentry.io", "us.sentry.io", "de.sentry.io"]

    remote { url = "https://mcp.sentry.dev/mcp" }

    secret "SENTRY_ACCESS_TOKEN" {
      key      = "sentry_token"
      deliver  = "broker"
      hosts    = ["sentry.io", "us.sentry.io", "de.sentry.io"]
      prefixes = ["sntryu_", "sntrys_"]
      pattern  = "sntryu_[0-9a-f]{64}|sntrys_[A-Za-z0-9+/=_-]{40,}"
      where    = "In Sentry, open User settings, Personal Tokens, and create a token."
      url      = "https://sentry.io/settings/account/api/auth-tokens/"
      scopes   = ["org:read", "project:read", "team:read", "event:read"]
    }

    device {
      url      = "https://sentry.io/oauth/device/code/"
      token    = "https://sentry.io/oauth/token/"
      register = "https://sentry.io/settings/account/api/applications/"
      scopes   = ["org:read", "project:read", "team:read", "event:read"]
    }

    test "find_organizations" {
      arguments = {}
    }
  }
}
