# GitHub. Anybody can write into issues, pull requests and the files of repositories, and read what is public of them.
# A mailing follows every comment, an edit leaves what stood there: neither can be taken back.

service "github" {
  packages = ["@modelcontextprotocol/server-github", "go:github.com/github/github-mcp-server/cmd/github-mcp-server"]
  output   = "internal raw"
  audience = "public"

  irreversible = [
    "add_issue_comment", "create_issue", "update_issue", "create_pull_request*", "create_or_update_file", "push_files",
    "merge_pull_request", "create_repository", "delete_*", "*_write", "actions_run_trigger", "create_gist", "update_*",
  ]

  tool "get_*"                      { effect = "none", audience = "internal" }
  tool "list_*"                     { effect = "none", audience = "internal" }
  tool "search_*"                   { effect = "none", audience = "internal" }
  tool "actions_get"                { effect = "none", audience = "internal" }
  tool "actions_list"               { effect = "none", audience = "internal" }
  tool "find_duplicate"             { effect = "none", audience = "internal" }
  tool "ui_get"                     { effect = "none", audience = "internal" }
  tool "projects_get"               { effect = "none", audience = "internal" }
  tool "projects_list"              { effect = "none", audience = "internal" }
  tool "issue_dependency_read"      { effect = "none", audience = "internal" }
  tool "issue_read"                 { effect = "none", audience = "internal" }
  tool "pull_request_read"          { effect = "none", audience = "internal" }
  tool "*_secret_scanning_alert*"   { output = "secret" }
  tool "create_branch"              { effect = "reversible", audience = "public" }
  tool "fork_repository"            { effect = "reversible", audience = "public" }
  tool "update_pull_request_branch" { effect = "reversible", audience = "public" }
}
