# Search code, have a model summarize what was found, and post that to a channel.
#
#   pfar flow run ./examples/flows/digest.hcl --query "authentication" --language python --channel "#dev-team"
#
# If the service limits calls, wait and search again: 30 seconds first, then longer.

most_steps = 20

step "search" {
  node   = "mcp-github-search-code"
  params = { max_results = 15 }
  next   = "summarize"
  on     = { rate_limited = "wait" }
}

step "wait" {
  node   = "backoff"
  params = { seconds = 30 }
  next   = "search"
}

step "summarize" {
  node = "summarize-text"
  next = "post"
}

step "post" {
  node  = "mcp-slack-send-message"
  reads = { message = "summary" }
}
