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

  setup {
    title     = "Supabase"
    summary   = "Projects, databases and functions"
    label     = "sensitive"
    package   = "npm:@supabase/mcp-server-supabase@0.13.0"
    integrity = "sha512-TUzlt0x9eADZgUOz/5wWk95i5GVf1QSnIwYX0jmasNNmoqPxEkAgO/kg8aAQTqmYZx/OPlVlaX3Er5v/le1z2g=="
    domains   = ["api.supabase.com", "supabase.com"]

    remote {
      url   = "https://mcp.supabase.com/mcp"
      token = "SUPABASE_ACCESS_TOKEN"
    }

    secret "SUPABASE_ACCESS_TOKEN" {
      key      = "supabase_token"
      deliver  = "broker"
      hosts    = ["api.supabase.com"]
      prefixes = ["sbp_"]
      pattern  = "sbp_[a-z0-9]{40}"
      where    = "Generate an access token and copy it."
      url      = "https://supabase.com/dashboard/account/tokens"
    }
  }
}
