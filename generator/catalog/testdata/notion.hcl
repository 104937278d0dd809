# From pfar's entry of Notion: pfar services notion
description     = "Notion: Pages, databases, blocks and comments"
label           = "internal"
allowed_domains = ["api.notion.com"]

server { package = "npm:@notionhq/notion-mcp-server@2.5.2" }

auth = { NOTION_TOKEN = { secret = "vault:notion_token", deliver = "broker" } }
