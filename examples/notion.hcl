# Waits until its token is there: pfar vault set notion_token
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
