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
  tool "search_threads"      { effect = "none", audience = "sensitive" }
  tool "get_thread"          { effect = "none", audience = "sensitive" }
  tool "get_message"         { effect = "none", audience = "sensitive" }
  tool "get_draft"           { effect = "none", audience = "sensitive" }
  tool "get_filter"          { effect = "none", audience = "sensitive" }
  tool "list_*"              { effect = "none", audience = "sensitive" }
  tool "create_draft"        { effect = "reversible", audience = "sensitive" }
  tool "label_*"             { effect = "reversible", audience = "sensitive" }
  tool "unlabel_*"           { effect = "reversible", audience = "sensitive" }
  tool "draft_email"         { effect = "reversible", audience = "sensitive" }
  tool "modify_email"        { effect = "reversible", audience = "sensitive" }
  tool "batch_modify_emails" { effect = "reversible", audience = "sensitive" }
  tool "create_label"        { effect = "reversible", audience = "sensitive" }
  tool "update_label"        { effect = "reversible", audience = "sensitive" }
  tool "get_or_create_label" { effect = "reversible", audience = "sensitive" }
  tool "download_attachment" { effect = "irreversible", audience = "sensitive" }

  # Google's own server. It lists its tools to anybody, so only a call shows that a token is right. The npm package has no
  # entry: its first sign-in would run unconfined, and it would hold the client's secret and the refresh token.
  setup {
    title   = "Gmail"
    summary = "Mail, drafts and labels of one Google account"
    label   = "sensitive"
    domains = ["gmailmcp.googleapis.com"]

    remote {
      url   = "https://gmailmcp.googleapis.com/mcp/v1"
      token = "token"
    }

    secret "token" {
      key     = "gmail_token"
      deliver = "broker"
      where   = "Register an OAuth client for a desktop app, in a Google Cloud project with the Gmail API and the Gmail MCP API. Then run pfar login with the server's name: it says what to write where."
      url     = "https://console.cloud.google.com/auth/clients"
    }

    # Google's device flow does not give these scopes.
    code {
      url      = "https://accounts.google.com/o/oauth2/v2/auth?access_type=offline&prompt=consent"
      token    = "https://oauth2.googleapis.com/token"
      register = "https://console.cloud.google.com/auth/clients"
      scopes   = ["https://www.googleapis.com/auth/gmail.readonly"]
    }

    test "list_labels" {
      arguments = {}
    }
  }
}
