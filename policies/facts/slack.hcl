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
}
