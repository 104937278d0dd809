# Supabase. Its tables hold what the users of an application typed, and SQL does anything.

service "supabase" {
  packages = ["@supabase/mcp-server-supabase"]
  output   = "sensitive raw"
  audience = "sensitive"

  reads = ["list_*", "get_*", "search_docs", "generate_typescript_types", "confirm_cost"]
  reversible = ["create_branch", "rebase_branch", "pause_project", "restore_project"]
  irreversible = [
    "execute_sql", "apply_migration", "deploy_edge_function", "merge_branch", "reset_branch", "delete_branch",
    "create_project", "update_*", "create_edge_function_secret",
  ]
}
