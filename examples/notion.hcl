# Waits until its token is there: pfar vault set notion_token
# The server never has it: it holds a placeholder, and its egress bridge
# puts the token into the requests to Notion. If a server must have the
# token itself, for example to sign, put the token into its environment:
#   auth = { NOTION_TOKEN = "vault:notion_token" }
description     = "Notion workspace: pages, databases, blocks"
label           = "internal"
allowed_domains = ["api.notion.com"]

server {
  command = "node"
  args = [
    "${servers}/node_modules/@notionhq/notion-mcp-server/bin/cli.mjs",
  ]
}

auth = {
  NOTION_TOKEN = { secret = "vault:notion_token", deliver = "broker" }
}

trust {
  public_source    = false # as long as no page is shared with strangers
  secret_data      = true
  public_sink      = false
  dangerous_writes = true
}

tool "API-post-search" {
  semantics = "read"
  alias     = ["mcp-notion-search"]
}
