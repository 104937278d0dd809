# Answers from the web.

service "perplexity" {
  packages = ["@perplexity-ai/mcp-server"]
  output   = "public raw"
  audience = "public"

  reads = ["perplexity_*"]
}
