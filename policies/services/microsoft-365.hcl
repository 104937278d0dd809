# Microsoft 365: mail, calendar, chat, files. Guests have plans, sites and files that are shared with them, and read at once what
# comes there; other firms read the note beside a name. Only what lies in one's own mailbox until it is sent can be taken back.

service "microsoft-365" {
  packages = ["@softeria/ms-365-mcp-server"]
  output   = "sensitive raw"
  audience = "public"

  irreversible = [
    "send-*", "reply-*", "forward-*", "delete-*", "remove-*", "share-*", "accept-*", "decline-*", "cancel-*",
    "graph-batch", "execute-tool", "create-drive-item-share-link", "create-mail-rule", "update-mail-rule",
    "create-subscription",
  ]

  tool "list-*"                 { effect = "none", audience = "sensitive" }
  tool "get-*"                  { effect = "none", audience = "sensitive" }
  tool "search-*"               { effect = "none", audience = "sensitive" }
  tool "find-meeting-times"     { effect = "none", audience = "sensitive" }
  tool "parse-teams-url"        { effect = "none", audience = "sensitive" }
  tool "verify-login"           { effect = "none", audience = "sensitive" }
  tool "copilot-retrieve"       { effect = "none", audience = "sensitive" }
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
  tool "update-mail-message"    { effect = "reversible", audience = "sensitive" }
}
