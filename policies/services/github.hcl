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

  setup {
    title     = "GitHub"
    summary   = "Repositories, issues and pull requests"
    label     = "internal"
    package   = "npm:@modelcontextprotocol/server-github@2025.4.8"
    integrity = "sha512-8N43bQw9MlUB0piTZHK2JMh8kYPKxH57d4Z7Wb8PS4by2MkZ0FzI5xPImg3xumpev82VZw2VWHQJJJYp+WkwEw=="
    domains   = ["api.github.com"]

    remote {
      url   = "https://api.githubcopilot.com/mcp/"
      token = "GITHUB_PERSONAL_ACCESS_TOKEN"
    }

    secret "GITHUB_PERSONAL_ACCESS_TOKEN" {
      key      = "github_token"
      deliver  = "broker"
      prefixes = ["github_pat_", "ghp_", "gho_"]
      pattern  = "github_pat_[A-Za-z0-9_]{82}|gh[po]_[A-Za-z0-9]{36}"
      where    = "Create a fine-grained token for the repositories that the server may use, and copy it."
      url      = "https://github.com/settings/personal-access-tokens/new"
    }

    # No tool needs more than repo.
    device {
      url      = "https://github.com/login/device/code"
      token    = "https://github.com/login/oauth/access_token"
      register = "https://github.com/settings/applications/new"
      scopes   = ["repo"]
    }

    code {
      url      = "https://github.com/login/oauth/authorize"
      token    = "https://github.com/login/oauth/access_token"
      register = "https://github.com/settings/applications/new"
      scopes   = ["repo"]
    }

    test "search_repositories" {
      arguments = { query = "pfar", perPage = 1 }
    }
  }
}
