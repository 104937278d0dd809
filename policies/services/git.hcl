# A repository of one's own. Commits and branches of others come in by fetch and pull.

service "git" {
  packages = ["pypi:mcp-server-git"]
  output   = "internal raw"
  audience = "internal"

  reads = ["git_status", "git_diff*", "git_log", "git_show"]
  reversible = ["git_add", "git_reset", "git_create_branch", "git_checkout", "git_commit", "git_branch"]

  # That the package installs is not tested by pfar's makers.
  setup {
    title   = "Git"
    summary = "History, changes and branches of one repository"
    label   = "internal"
    package = "pypi:mcp-server-git==2026.10.19"
    args    = ["--repository", "{folder}"]

    parameter "folder" {
      question = "Which repository?"
      example  = "/srv/project"
      access   = "write"
    }
  }
}
