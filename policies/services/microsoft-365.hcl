# Microsoft 365: mail, calendar, chat, files. Guests have plans, sites and files that are shared with them, and read at once what
# comes there; other firms read the note beside a name. Only what lies in one's own mailbox until it is sent can be taken back.

service "microsoft-365" {
  packages = ["@softeria/ms-365-mcp-server"]
  output   = "sensitive raw"
  audience = "public"

  irreversible = [
    "send-*", "reply-*", "forward-*", "delete-*", "remove-*", "share-*", "accept-*", "decline-*", "cancel-*",
    "graph-batch", "execute-tool", "create-drive-item-share-link", "create-mail-rule", "update-mail-rule",
    "create-subscription", "add-excel-table-rows", "add-mail-attachment", "clear-excel-range", "copy-drive-item",
    "create-calendar", "create-calendar-event", "create-contact-*", "create-drive-item-preview", "create-excel-*",
    "create-focused-inbox-override", "create-mail-attachment-upload-session", "create-my-calendar-permission",
    "create-outlook-contact", "create-specific-calendar-event", "create-upload-session",
    "dismiss-calendar-event-reminder", "format-excel-*", "insert-excel-range", "login", "logout",
    "merge-excel-range", "move-rename-onedrive-item", "reauthorize-subscription", "select-account",
    "snooze-calendar-event-reminder", "sort-excel-range", "tentatively-accept-calendar-event",
    "unmerge-excel-range", "update-calendar", "update-calendar-event", "update-contact-folder",
    "update-focused-inbox-override", "update-mail-folder", "update-mailbox-settings",
    "update-my-calendar-permission", "update-outlook-contact", "update-specific-calendar-event",
    "update-subscription", "upload-*",
  ]

  tool "list-*"                 { effect = "none", audience = "sensitive" }
  tool "get-*"                  { effect = "none", audience = "sensitive" }
  tool "search-*"               { effect = "none", audience = "sensitive" }
  tool "find-meeting-times"     { effect = "none", audience = "sensitive" }
  tool "parse-teams-url"        { effect = "none", audience = "sensitive" }
  tool "verify-login"           { effect = "none", audience = "sensitive" }
  tool "copilot-retrieve"       { effect = "none", audience = "sensitive" }
  tool "download-bytes" { effect = "none", audience = "sensitive" }
  tool "create-draft-email"     { effect = "reversible", audience = "sensitive" }
  tool "create-*-draft"         { effect = "reversible", audience = "sensitive" }
  tool "create-todo-*"          { effect = "irreversible", audience = "sensitive" }
  tool "update-todo-*"          { effect = "irreversible", audience = "sensitive" }
  tool "create-planner-*"       { effect = "irreversible", audience = "sensitive" }
  tool "update-planner-*"       { effect = "irreversible", audience = "sensitive" }
  tool "create-onenote-*"       { effect = "irreversible", audience = "sensitive" }
  tool "update-excel-*"         { effect = "irreversible", audience = "sensitive" }
  tool "create-onedrive-folder" { effect = "irreversible", audience = "sensitive" }
  tool "move-mail-message"      { effect = "reversible", audience = "sensitive" }
  tool "copy-mail-message" { effect = "reversible", audience = "sensitive" }
  tool "create-mail-folder" { effect = "reversible", audience = "sensitive" }
  tool "create-mail-child-folder" { effect = "reversible", audience = "sensitive" }
  tool "create-outlook-category" { effect = "reversible", audience = "sensitive" }
  tool "download-bytes-to-file" { effect = "reversible", audience = "sensitive" }
  tool "update-mail-message"    { effect = "reversible", audience = "sensitive" }

  setup {
    title     = "Microsoft 365"
    summary   = "Mail, calendar, files and tasks of one Microsoft account"
    label     = "sensitive"
    package   = "npm:@softeria/ms-365-mcp-server@0.155.0"
    integrity = "sha512-+7wLe+jDgChAXQSLWph0sjKCEfav8JQUlFGjaiaoDxsNRl1k4JSfEuyuNKmucuap3Q9gyw1BV/MjOfTo9kwYiQ=="
    domains   = ["graph.microsoft.com"]

    secret "MS365_MCP_OAUTH_TOKEN" {
      key     = "microsoft_365_token"
      deliver = "broker"
      where   = "Sign in to Graph Explorer, consent to the permissions, open Access token and copy it. It holds for about an hour."
      url     = "https://developer.microsoft.com/graph/graph-explorer"
      scopes = [
        "User.Read", "Mail.ReadWrite", "Mail.Send", "Calendars.ReadWrite", "Contacts.ReadWrite", "Files.ReadWrite",
        "Tasks.ReadWrite",
      ]
    }

    device {
      url      = "https://login.microsoftonline.com/common/oauth2/v2.0/devicecode"
      token    = "https://login.microsoftonline.com/common/oauth2/v2.0/token"
      register = "https://entra.microsoft.com/"
      scopes = [
        "offline_access", "User.Read", "Mail.ReadWrite", "Mail.Send", "Calendars.ReadWrite", "Contacts.ReadWrite",
        "Files.ReadWrite", "Tasks.ReadWrite",
      ]
    }

    test "get-current-user" {
      arguments = {}
    }
  }
}
