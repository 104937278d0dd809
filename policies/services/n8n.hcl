# n8n. A workflow does anything that its credentials allow.

service "n8n" {
  packages = ["n8n-mcp"]
  output   = "sensitive raw"
  audience = "public"

  irreversible = [
    "n8n_create_workflow", "n8n_update_*", "n8n_delete_workflow", "n8n_test_workflow", "n8n_executions",
    "n8n_manage_*", "n8n_deploy_template", "n8n_autofix_workflow", "n8n_workflow_versions", "n8n_evaluations",
  ]

  tool "search_nodes"               { effect = "none", audience = "sensitive" }
  tool "get_node"                   { effect = "none", audience = "sensitive" }
  tool "search_templates"           { effect = "none", audience = "sensitive" }
  tool "get_template"               { effect = "none", audience = "sensitive" }
  tool "tools_documentation"        { effect = "none", audience = "sensitive" }
  tool "validate_*"                 { effect = "none", audience = "sensitive" }
  tool "n8n_get_workflow"           { effect = "none", audience = "sensitive" }
  tool "n8n_list_workflows"         { effect = "none", audience = "sensitive" }
  tool "n8n_list_catalog"           { effect = "none", audience = "sensitive" }
  tool "n8n_health_check"           { effect = "none", audience = "sensitive" }
  tool "n8n_validate_workflow"      { effect = "none", audience = "sensitive" }
  tool "n8n_explore_node_resources" { effect = "none", audience = "sensitive" }
}
