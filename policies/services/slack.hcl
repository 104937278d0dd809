# Slack. Colleagues and guests write there, apps post what strangers sent them, and channels are shared with other firms.

service "slack" {
  packages = ["@modelcontextprotocol/server-slack", "slack-mcp-server", "go:github.com/korotovsky/slack-mcp-server/cmd/slack-mcp-server"]
  output   = "sensitive raw"
  audience = "public"

  irreversible = ["slack_post_message", "slack_reply_to_thread", "conversations_add_message", "usergroups_*"]

  tool "slack_get_*"                   { effect = "none", audience = "sensitive" }
  tool "slack_list_*"                  { effect = "none", audience = "sensitive" }
  tool "conversations_history"         { effect = "none", audience = "sensitive" }
  tool "conversations_replies"         { effect = "none", audience = "sensitive" }
  tool "conversations_search_messages" { effect = "none", audience = "sensitive" }
  tool "conversations_unreads"         { effect = "none", audience = "sensitive" }
  tool "channels_list"                 { effect = "none", audience = "sensitive" }
  tool "users_search"                  { effect = "none", audience = "sensitive" }
  tool "usergroups_list"               { effect = "none", audience = "sensitive" }
  tool "saved_list"                    { effect = "none", audience = "sensitive" }
  tool "attachment_get_data"           { effect = "none", audience = "sensitive" }
  tool "slack_add_reaction"            { effect = "reversible", audience = "public" }
  tool "reactions_*"                   { effect = "reversible", audience = "public" }
  tool "conversations_mark"            { effect = "reversible", audience = "sensitive" }
  tool "saved_*"                       { effect = "reversible", audience = "sensitive" }

  setup {
    title     = "Slack"
    summary   = "Channels, messages and people"
    label     = "sensitive"
    package   = "npm:@modelcontextprotocol/server-slack@2025.4.25"
    integrity = "sha512-9WBjnxl4OgYZ1kKBqUmHbd2XVoqtnO9u8kaxSaGb4NAWf2Q4D/LV6FoJUAHPPcvKcB7AQLNJa8KO3yNOcU6fvQ=="
    domains   = ["slack.com"]

    remote { url = "https://mcp.slack.com/mcp" }

    secret "SLACK_BOT_TOKEN" {
      key      = "slack_bot_token"
      deliver  = "broker"
      prefixes = ["xoxb-", "xoxp-"]
      pattern  = "xox[bp]-[A-Za-z0-9-]{20,}"
      where    = "Create an app, install it into the workspace, and copy the Bot User OAuth Token."
      url      = "https://api.slack.com/apps"
      scopes   = ["channels:history", "channels:read", "chat:write", "reactions:write", "users:read"]
    }

    parameter "team" {
      question = "Which workspace? Its ID begins with T."
      env      = "SLACK_TEAM_ID"
      example  = "T01234567"
    }

    test "slack_list_channels" {
      arguments = { limit = 1 }
      answer    = "\"ok\": *true"
    }
  }
}
