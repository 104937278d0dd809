# Documentation of libraries. Anybody can publish a library, and a question carries data out.

service "context7" {
  packages = ["@upstash/context7-mcp"]
  output   = "public raw"
  audience = "public"

  reads = ["resolve-library-id", "get-library-docs", "query-docs"]

  setup {
    title     = "Context7"
    summary   = "Documentation of libraries"
    label     = "public"
    package   = "npm:@upstash/context7-mcp@4.1.1"
    integrity = "sha512-fUARTIZGVKzlzQKDhKUg4aIQ3yEU/12STdfxJDDnLMSN7yyHiPvNHI05iFwxkv3vC8G76Wp27MwK6Jucl/C5pA=="
    domains   = ["context7.com"]

    remote {
      url   = "https://mcp.context7.com/mcp"
      token = "CONTEXT7_API_KEY"
      in    = ["header:context7_api_key"]
    }

    secret "CONTEXT7_API_KEY" {
      key      = "context7_api_key"
      deliver  = "broker"
      prefixes = ["ctx7sk"]
      where    = "Create a key for higher limits. The server runs without one."
      url      = "https://context7.com/dashboard"
      optional = true
    }

    test "resolve-library-id" {
      arguments = { query = "routing", libraryName = "react" }
      answer    = "Available Libraries"
    }
  }
}
