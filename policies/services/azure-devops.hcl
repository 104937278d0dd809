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

  # vssps.dev.azure.com has the people, almsearch.dev.azure.com the search. Advanced Security has a host of its own,
  # which is not allowed here. A personal access token would have to be in the server: its package decodes one itself.
  setup {
    title     = "Azure DevOps"
    summary   = "Repositories, work items and pipelines of one organization"
    label     = "internal"
    package   = "npm:@azure-devops/mcp@2.10.0"
    integrity = "sha512-Wwd3kszlm+ag43X1fs7+kOt7ACLXF+hymNYQA8hzvbIFtrKsKmhrU6gnU1rsOqQEnueFR1rQLGNvjB3uA3AngA=="
    args      = ["{organization}", "--authentication", "envvar"]
    domains   = ["dev.azure.com", "vssps.dev.azure.com", "almsearch.dev.azure.com"]
    remote    = "https://mcp.dev.azure.com/"

    secret "ADO_MCP_AUTH_TOKEN" {
      key      = "azure_devops_token"
      deliver  = "broker"
      hosts    = ["dev.azure.com", "vssps.dev.azure.com", "almsearch.dev.azure.com"]
      prefixes = ["eyJ"]
      where    = "Run: az account get-access-token --resource 499b84ac-1321-427f-aa17-267ca6975798. Copy accessToken, which holds for about an hour."
      url      = "https://learn.microsoft.com/cli/azure/account#az-account-get-access-token"
    }

    parameter "organization" {
      question = "Which organization? Write NAME of dev.azure.com/NAME."
      example  = "example"
    }

    device {
      url    = "https://login.microsoftonline.com/organizations/oauth2/v2.0/devicecode"
      token  = "https://login.microsoftonline.com/organizations/oauth2/v2.0/token"
      scopes = ["499b84ac-1321-427f-aa17-267ca6975798/.default", "offline_access"]
    }

    test "core_list_projects" {
      arguments = { top = 1 }
    }
  }
}
