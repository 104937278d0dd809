# The GraphQL Analytics API. It shows requests to the sites of an account, and anybody can send one with any path and
# any user agent. The API has no mutations, so a query only reads. Cloudflare calls this server deprecated.

service "cloudflare-graphql" {
  output   = "sensitive raw"
  audience = "sensitive"

  reads = [
    "zones_list", "zone_details", "graphql_schema_search", "graphql_schema_overview", "graphql_type_details",
    "graphql_complete_schema", "graphql_query", "graphql_api_explorer",
  ]

  setup {
    title   = "Cloudflare GraphQL Analytics"
    summary = "Analytics of the zones and products of one account"

    remote {
      url     = "https://graphql.mcp.cloudflare.com/mcp"
      sign_in = "oauth"
    }
  }
}
