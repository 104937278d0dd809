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
}
