# Answers from the web. All but perplexity_search may open an address that the question contains.

service "perplexity" {
  packages = ["@perplexity-ai/mcp-server"]
  output   = "public raw"
  audience = "public"

  reads    = ["perplexity_search", "perplexity_ask", "perplexity_reason", "perplexity_research"]
  forwards = ["perplexity_ask", "perplexity_re*"]

  setup {
    title     = "Perplexity"
    summary   = "Web search and answers"
    label     = "public"
    package   = "npm:@perplexity-ai/mcp-server@1.2.1"
    integrity = "sha512-nhqGnbTAdb+BblDAG59vD0u4T3/QzDA7h6pYbBP1djH7RGjJcTg8uLVAJ7jNkbKF90NkQ/fF9K8u8SkKUQZEyQ=="
    domains   = ["api.perplexity.ai"]

    remote {
      url   = "https://api.perplexity.ai/mcp"
      token = "PERPLEXITY_API_KEY"
    }

    secret "PERPLEXITY_API_KEY" {
      key      = "perplexity_api_key"
      deliver  = "broker"
      prefixes = ["pplx-"]
      pattern  = "pplx-[A-Za-z0-9]{48}"
      where    = "Create an API key and copy it."
      url      = "https://console.perplexity.ai"
    }

    test "perplexity_search" {
      arguments = { query = "pfar", max_results = 1 }
    }
  }
}
