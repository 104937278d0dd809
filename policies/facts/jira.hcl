# Jira. Service desks let customers write issues, and mail the comments to them. The tools speak HTTP: what they do is in their arguments.

service "jira" {
  packages = ["@aashari/mcp-server-atlassian-jira"]
  output   = "internal raw"
  audience = "public"

  irreversible = ["jira_post", "jira_put", "jira_patch", "jira_delete"]

  tool "jira_get" { effect = "none", audience = "internal" }
}
