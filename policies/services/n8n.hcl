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
  tool "n8n_audit_instance" { effect = "none", audience = "sensitive" }
  tool "n8n_validate_workflow"      { effect = "none", audience = "sensitive" }
  tool "n8n_explore_node_resources" { effect = "none", audience = "sensitive" }

  # The server has the documentation of all nodes in memory: 290 MiB of it before it is asked anything.
  setup {
    title     = "n8n"
    summary   = "Workflows of one n8n, and the documentation of its nodes"
    label     = "sensitive"
    package   = "npm:n8n-mcp@2.87.0"
    integrity = "sha512-xadw4KMsqP9CIPnvAVcuBTysY2S/87pO5nGuHS7dda655am+uY6qicnLA7QUxe/SJzaU2BtX8O4qtsmn8HLtbw=="
    env       = { N8N_API_URL = "https://{host}", N8N_MCP_TELEMETRY_DISABLED = "true" }
    memory    = "512m"
    domains   = ["{host}"]

    secret "N8N_API_KEY" {
      key      = "n8n_api_key"
      deliver  = "broker"
      in       = ["header:x-n8n-api-key"]
      prefixes = ["eyJ"]
      where    = "In n8n, open Settings, n8n API, create an API key and copy it."
      url      = "https://docs.n8n.io/api/authentication/"
    }

    parameter "host" {
      question = "Which host has n8n?"
      example  = "n8n.example.com"
    }

    test "n8n_list_workflows" {
      arguments = { limit = 1 }
      answer    = "\"success\": *true"
    }
  }
}
