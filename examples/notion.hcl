# Waits until its token is there: pfar vault set notion_token
# With this line for auth the server never has the token: its egress bridge puts it into the requests to Notion.
#   auth = { NOTION_TOKEN = { secret = "vault:notion_token", deliver = "broker" } }
description     = "Notion workspace: pages, databases, blocks"
label           = "internal"
allowed_domains = ["api.notion.com"]

server {
  command = "node"
  args    = ["${servers}/node_modules/@notionhq/notion-mcp-server/bin/cli.mjs"]
}

auth = { NOTION_TOKEN = "vault:notion_token" }

trust {
  public_source    = false
  secret_data      = true
  public_sink      = false
  dangerous_writes = true
}

tool "API-post-search" {
  semantics = "read"
  alias     = ["mcp-notion-search"]
}
