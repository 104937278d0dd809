# Jira. Service desks let customers write issues, and mail the comments to them. The tools speak HTTP: what they do is in their arguments.

service "jira" {
  packages = ["@aashari/mcp-server-atlassian-jira"]
  output   = "internal raw"
  audience = "public"

  irreversible = ["jira_post", "jira_put", "jira_patch", "jira_delete"]

  tool "jira_get" { effect = "none", audience = "internal" }

  setup {
    title     = "Jira"
    summary   = "Issues, projects and boards of one Atlassian site"
    label     = "internal"
    package   = "npm:@aashari/mcp-server-atlassian-jira@3.3.0"
    integrity = "sha512-v16EQgrnXaoG4gd0B1Y5cgX9IMwmMTOZWUx+YJ2F+15hghAHQqJCVUZhnkJSl2NoK3VhLm+HJ8iyfYkAGKTDlg=="
    domains   = ["{site}.atlassian.net"]

    remote { url = "https://mcp.atlassian.com/v1/mcp" }

    secret "ATLASSIAN_API_TOKEN" {
      key      = "atlassian_token"
      deliver  = "broker"
      prefixes = ["ATATT3"]
      where    = "Create an API token and copy it."
      url      = "https://id.atlassian.com/manage-profile/security/api-tokens"
    }

    parameter "site" {
      question = "Which site? Write NAME of NAME.atlassian.net."
      env      = "ATLASSIAN_SITE_NAME"
      example  = "example"
    }

    parameter "email" {
      question = "Which address do you sign in with?"
      env      = "ATLASSIAN_USER_EMAIL"
      example  = "you@example.com"
    }

    test "jira_get" {
      arguments = { path = "/rest/api/3/myself" }
      answer    = "accountId"
    }
  }
}
