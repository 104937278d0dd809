# GitLab. As on GitHub, strangers write into issues and merge requests, and read what is public of them at once. A job that is run
# can deploy.

service "gitlab" {
  packages = ["@zereight/mcp-gitlab"]
  output   = "internal raw"
  audience = "public"

  forwards = ["validate_*"] # a pipeline may include a file at any address, which GitLab opens
  irreversible = [
    "create_*note", "create_issue", "create_merge_request", "create_*thread", "create_or_update_file", "push_files",
    "merge_merge_request", "delete_*", "approve_*", "publish_*", "bulk_publish_*", "execute_graphql", "erase_*",
    "trigger_*", "play_*", "retry_*", "create_label", "update_label", "update_issue", "update_merge_request",
    "edit_*milestone", "create_commit_status", "create_group", "create_issue_emoji_reaction", "create_issue_link",
    "create_issue_note_emoji_reaction", "create_merge_request_emoji_reaction",
    "create_merge_request_note_emoji_reaction", "create_repository", "fork_repository", "protect_branch",
    "unprotect_branch", "update_default_branch", "update_issue_description_patch", "update_issue_note",
    "update_merge_request_discussion_note", "update_merge_request_note", "update_project", "upload_markdown",
  ]

  tool "get_*"                { effect = "none", audience = "internal" }
  tool "list_*"               { effect = "none", audience = "internal" }
  tool "search_*"             { effect = "none", audience = "internal" }
  tool "my_issues"            { effect = "none", audience = "internal" }
  tool "mr_discussions"       { effect = "none", audience = "internal" }
  tool "whoami"               { effect = "none", audience = "internal" }
  tool "health_check"         { effect = "none", audience = "internal" }
  tool "discover_tools"       { effect = "none", audience = "internal" }
  tool "download_*"           { effect = "none", audience = "internal" }
  tool "validate_*"           { effect = "none", audience = "public" }
  tool "wait_for_*"           { effect = "none", audience = "internal" }
  tool "orbit_get_*"          { effect = "none", audience = "internal" }
  tool "orbit_list_tools"     { effect = "none", audience = "internal" }
  tool "verify_namespace"     { effect = "none", audience = "internal" }
  tool "create_branch"        { effect = "reversible", audience = "public" }
  tool "create_draft_note"    { effect = "reversible", audience = "public" }
  tool "mark_todo*"           { effect = "reversible", audience = "public" }
  tool "mark_all_todos_done" { effect = "reversible", audience = "public" }
  tool "resolve_merge_request_thread" { effect = "reversible", audience = "public" }
  tool "unapprove_merge_request" { effect = "reversible", audience = "public" }
  tool "update_draft_note" { effect = "reversible", audience = "public" }

  setup {
    title     = "GitLab"
    summary   = "Projects, issues and merge requests"
    label     = "internal"
    package   = "npm:@zereight/mcp-gitlab@2.1.64"
    integrity = "sha512-t2s7VDHuuQXCQFA7vfPrBPpMpvPEObk0gNiDd1y57uN+wJS8XkCgkJCdvL1j3dx6WNuyxHCh0HdG7CoXNaegKw=="
    bin       = "mcp-gitlab"
    domains   = ["gitlab.com"]

    remote { url = "https://gitlab.com/api/v4/mcp" }

    secret "GITLAB_PERSONAL_ACCESS_TOKEN" {
      key      = "gitlab_token"
      deliver  = "broker"
      prefixes = ["glpat-"]
      pattern  = "glpat-[A-Za-z0-9_-]{20}|glpat-[A-Za-z0-9_-]{27,300}\\.[0-9a-z]{2}\\.?[0-9a-z]{7}"
      where    = "Create a personal access token and copy it."
      url      = "https://gitlab.com/-/user_settings/personal_access_tokens"
      scopes   = ["api"]
    }

    device {
      url      = "https://gitlab.com/oauth/authorize_device"
      token    = "https://gitlab.com/oauth/token"
      register = "https://gitlab.com/-/user_settings/applications"
      scopes   = ["api"]
    }

    test "whoami" {
      arguments = {}
    }
  }
}
