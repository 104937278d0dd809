# Azure DevOps: repositories, work items, pipelines. Projects can be public, guests can be let into others, and who follows a
# work item or a pull request gets a mail of what is written there.

service "azure-devops" {
  packages = ["@azure-devops/mcp"]
  output   = "internal raw"
  audience = "internal"

  reads = [
    "core_*", "search_*", "repo_search_commits", "repo_branch", "repo_file", "repo_pull_request",
    "repo_pull_request_thread", "repo_repository", "advsec_get_*", "pipelines_build", "pipelines_build_log",
    "pipelines_artifact", "pipelines_definition", "testplan_show_*", "wit_backlog", "wit_query", "wit_work_item",
    "wit_work_item_attachment", "mcp_apps_ping",
  ]
  irreversible = [
    "repo_create_branch", "repo_pull_request_write", "repo_pull_request_thread_write", "wit_*_write", "work_*_write",
    "testplan_*_write", "wiki_upsert_page", "pipelines_write",
  ]

  # The package loads a library that only an install script brings: one that downloads a program.
  setup {
    title   = "Azure DevOps"
    summary = "Repositories, work items and pipelines of one organization"
    label   = "internal"
    gone    = "@azure-devops/mcp does not run without its install scripts"

    remote { url = "https://mcp.dev.azure.com/" }
  }
}
