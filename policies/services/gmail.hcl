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

  # The package reads both secrets from files and renews the tokens itself, so it has them. Google gives out no tokens
  # for mail to devices (RFC 8628).
  setup {
    title     = "Gmail"
    summary   = "Mail, labels and filters of one Google account"
    label     = "sensitive"
    package   = "npm:@gongrzhe/server-gmail-autoauth-mcp@1.1.11"
    integrity = "sha512-IP9nbCmJZ5h8wrtld0LBpJCV7coyfeOrhsNdPhIbkFzKBmgf06Gy4bnsr3zVOi8Leey0az3s4UPIdcQmIb/iJw=="
    domains   = ["gmail.googleapis.com", "oauth2.googleapis.com"]

    remote { url = "https://gmailmcp.googleapis.com/mcp/v1" }

    secret "GMAIL_OAUTH_PATH" {
      key     = "gmail_client"
      deliver = "file"
      where   = "Create an OAuth client for a desktop app, download its JSON file, and store that file."
      url     = "https://console.cloud.google.com/apis/credentials"
    }

    secret "GMAIL_CREDENTIALS_PATH" {
      key     = "gmail_tokens"
      deliver = "file"
      where   = "With the client's file in the directory, run the package once with the argument auth, and store the file of tokens that it writes."
      url     = "https://console.cloud.google.com/apis/credentials"
      scopes = [
        "https://www.googleapis.com/auth/gmail.modify", "https://www.googleapis.com/auth/gmail.settings.basic",
      ]
    }

    test "list_email_labels" {
      arguments = {}
      answer    = "Found [0-9]+ labels"
    }
  }
}
