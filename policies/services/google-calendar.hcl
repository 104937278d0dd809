# Google Calendar. Anybody can send an invitation, and those who are invited get a mail.

service "google-calendar" {
  packages = ["@cocal/google-calendar-mcp"]
  output   = "sensitive raw"
  audience = "public"

  irreversible = [
    "create-event*", "update-event", "delete-event", "respond-to-event", "manage-accounts", "create_event",
    "update_event", "delete_event", "respond_to_event",
  ]

  tool "list-calendars" { effect = "none", audience = "sensitive" }
  tool "list-colors"    { effect = "none", audience = "sensitive" }
  tool "list-events"    { effect = "none", audience = "sensitive" }
  tool "get-*"          { effect = "none", audience = "sensitive" }
  tool "search-events"  { effect = "none", audience = "sensitive" }
  tool "list_calendars" { effect = "none", audience = "sensitive" }
  tool "list_events"    { effect = "none", audience = "sensitive" }
  tool "get_event"      { effect = "none", audience = "sensitive" }
  tool "search_events"  { effect = "none", audience = "sensitive" }
  tool "suggest_time"   { effect = "none", audience = "sensitive" }

  # Google's own server. It lists its tools to anybody, so only a call shows that a token is right. The npm package has no
  # entry: its first sign-in would run unconfined, and it would hold the client's secret and the refresh token.
  setup {
    title   = "Google Calendar"
    summary = "Calendars and events of one Google account"
    label   = "sensitive"
    domains = ["calendarmcp.googleapis.com"]

    remote {
      url   = "https://calendarmcp.googleapis.com/mcp/v1"
      token = "token"
    }

    secret "token" {
      key     = "google_calendar_token"
      deliver = "broker"
      where   = "Register an OAuth client for a desktop app, in a Google Cloud project with the Google Calendar API and the Google Calendar MCP API. Then run pfar login with the server's name: it says what to write where."
      url     = "https://console.cloud.google.com/auth/clients"
    }

    # Google's device flow does not give these scopes.
    code {
      url      = "https://accounts.google.com/o/oauth2/v2/auth?access_type=offline&prompt=consent"
      token    = "https://oauth2.googleapis.com/token"
      register = "https://console.cloud.google.com/auth/clients"
      scopes   = [
        "https://www.googleapis.com/auth/calendar.calendarlist.readonly",
        "https://www.googleapis.com/auth/calendar.events.freebusy",
        "https://www.googleapis.com/auth/calendar.events.readonly",
      ]
    }

    test "list_calendars" {
      arguments = {}
    }
  }
}
