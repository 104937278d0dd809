# Gmail. Anybody can write a mail to you, and a mail that is sent is sent.

service "gmail" {
  packages = ["@gongrzhe/server-gmail-autoauth-mcp"]
  output   = "sensitive raw"
  audience = "public"

  irreversible = [
    "send_email", "delete_email", "batch_delete_emails", "create_filter", "create_filter_from_template",
    "delete_filter", "delete_label",
  ]

  tool "search_emails"       { effect = "none", audience = "sensitive" }
  tool "read_email"          { effect = "none", audience = "sensitive" }
  tool "get_filter"          { effect = "none", audience = "sensitive" }
  tool "list_*"              { effect = "none", audience = "sensitive" }
  tool "draft_email"         { effect = "reversible", audience = "sensitive" }
  tool "modify_email"        { effect = "reversible", audience = "sensitive" }
  tool "batch_modify_emails" { effect = "reversible", audience = "sensitive" }
  tool "create_label"        { effect = "reversible", audience = "sensitive" }
  tool "update_label"        { effect = "reversible", audience = "sensitive" }
  tool "get_or_create_label" { effect = "reversible", audience = "sensitive" }
  tool "download_attachment" { effect = "irreversible", audience = "sensitive" }
}
