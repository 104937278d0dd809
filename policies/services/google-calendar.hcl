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

  # The package reads both secrets from files and renews the tokens itself, so it has them. It cannot write renewed ones
  # down, and renews again after a start. Google gives out no tokens for calendars to devices (RFC 8628).
  setup {
    title     = "Google Calendar"
    summary   = "Calendars and events of one Google account"
    label     = "sensitive"
    package   = "npm:@cocal/google-calendar-mcp@2.6.3"
    integrity = "sha512-mvtzgfZ68BSp0Ck5PBFsFywRaMmaDelaSTtWQvaUzzoQOA0B/MOLfmCJL11QRXTg2Cmz4rZeZYK2fA6dmdGQSg=="
    domains   = ["www.googleapis.com", "oauth2.googleapis.com"]

    remote { url = "https://calendarmcp.googleapis.com/mcp/v1" }

    secret "GOOGLE_OAUTH_CREDENTIALS" {
      key     = "google_calendar_client"
      deliver = "file"
      where   = "Create an OAuth client for a desktop app, download its JSON file, and store that file."
      url     = "https://console.cloud.google.com/apis/credentials"
    }

    secret "GOOGLE_CALENDAR_MCP_TOKEN_PATH" {
      key     = "google_calendar_tokens"
      deliver = "file"
      where   = "Run the package once with the argument auth and the client's file, and store the file tokens.json that it writes."
      url     = "https://console.cloud.google.com/apis/credentials"
      scopes  = ["https://www.googleapis.com/auth/calendar"]
    }

    test "list-calendars" {
      arguments = {}
    }
  }
}
