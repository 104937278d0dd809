# Documentation of libraries. Anybody can publish a library, and a question carries data out.

service "context7" {
  packages = ["@upstash/context7-mcp"]
  output   = "public raw"
  audience = "public"

  reads = ["resolve-library-id", "get-library-docs", "query-docs"]
}
