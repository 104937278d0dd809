# Search twice with one tool, under ids of their own, and write both results into a file.
#
#   pfar flow run ./examples/flows/compare.hcl

step "todo" {
  node   = "mcp-github-search-code"
  inputs = { query = "TODO" }
  writes = { search_results = "todos" }
  next   = "fixme"
}

step "fixme" {
  node   = "mcp-github-search-code"
  inputs = { query = "FIXME" }
  writes = { search_results = "fixmes" }
  next   = "template"
}

step "template" {
  params = { template = "To do: {{todos}}\nTo fix: {{fixmes}}" }
  next   = "write-file"
}

step "write-file" {
  params = { path = "compare.txt" }
  reads  = { content = "text" }
}
