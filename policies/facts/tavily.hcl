# Search and extraction on the web.

service "tavily" {
  packages = ["tavily-mcp"]
  output   = "public raw"
  audience = "public"

  reads = ["tavily_*", "tavily-*"]
}
