# Search on the web.

service "brave-search" {
  packages = ["@brave/brave-search-mcp-server", "@modelcontextprotocol/server-brave-search"]
  output   = "public raw"
  audience = "public"

  reads = ["brave_*"]
}
