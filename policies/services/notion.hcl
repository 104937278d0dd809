# Notion. Guests, and whoever else a page is shared with, write into it, comment on it, and read at once what comes there. The
# label is internal; whoever keeps private notes there says trust { secret_data = true } in the declaration,
# and whoever shares nothing, public_source = false and dangerous_writes = false.

service "notion" {
  packages = ["@notionhq/notion-mcp-server"]
  output   = "internal raw"
  audience = "internal"

  reads = [
    "API-get-*", "API-post-search", "API-query-data-source", "API-retrieve-*", "API-list-*", "search", "fetch",
    "notion-search", "notion-fetch",
  ]
  reversible   = ["API-delete-a-block"]
  irreversible = ["API-patch-*", "API-post-page", "API-create-*", "API-update-*", "API-move-page"]

  setup {
    title     = "Notion"
    summary   = "Pages, databases, blocks and comments"
    label     = "internal"
    package   = "npm:@notionhq/notion-mcp-server@2.5.2"
    integrity = "sha512-5nPSwHMnugSGAhSJS5vVIlMao+iTJO9HoWGpCnT8lJNrPy3rZMqs1V/CPiN4MuxF+5EBgRE/f/Tirl6Wfi75Mg=="
    domains   = ["api.notion.com"]

    remote { url = "https://mcp.notion.com/mcp" }

    secret "NOTION_TOKEN" {
      key      = "notion_token"
      deliver  = "broker"
      prefixes = ["ntn_", "secret_"]
      pattern  = "ntn_[0-9]{11}[A-Za-z0-9]{35}|secret_[A-Za-z0-9]{43}"
      where    = "Create an internal integration, copy its secret, and share the pages with the integration."
      url      = "https://www.notion.so/profile/integrations"
    }

    test "API-get-self" {
      arguments = {}
      answer    = "\"object\": *\"user\""
    }
  }
}
