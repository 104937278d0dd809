# Google Calendar. Anybody can send an invitation, and those who are invited get a mail.

service "google-calendar" {
  packages = ["@cocal/google-calendar-mcp"]
  output   = "sensitive raw"
  audience = "public"

  irreversible = ["create-event*", "update-event", "delete-event", "respond-to-event", "manage-accounts"]

  tool "list-calendars" { effect = "none", audience = "sensitive" }
  tool "list-colors"    { effect = "none", audience = "sensitive" }
  tool "list-events"    { effect = "none", audience = "sensitive" }
  tool "get-*"          { effect = "none", audience = "sensitive" }
  tool "search-events"  { effect = "none", audience = "sensitive" }
}
