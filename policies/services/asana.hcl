# Asana. Guests of other firms, and forms, write there, and who follows a task gets a mail of what is written into it. To take
# something off a task tells nobody anything.

service "asana" {
  packages = ["@roychri/mcp-server-asana"]
  output   = "internal raw"
  audience = "internal"

  reads        = ["asana_get_*", "asana_list_*", "asana_search_*"]
  reversible   = ["asana_remove_*"]
  irreversible = ["asana_create_*", "asana_update_*", "asana_add_*", "asana_set_*", "asana_delete_*"]

  setup {
    title     = "Asana"
    summary   = "Tasks, projects and workspaces"
    label     = "internal"
    package   = "npm:@roychri/mcp-server-asana@1.8.0"
    integrity = "sha512-qiEqfrrIjiLzD95A9zXrSGHcKx6S15i2mT9fHYyFPah8QgqdphERWUcEj98IAIRnYgGPh6deKEVr4msXXLGYgA=="
    domains   = ["app.asana.com"]

    remote { url = "https://mcp.asana.com/v2/mcp" }

    secret "ASANA_ACCESS_TOKEN" {
      key     = "asana_token"
      deliver = "broker"
      where   = "Create a personal access token and copy it."
      url     = "https://app.asana.com/0/my-apps"
    }

    test "asana_list_workspaces" {
      arguments = {}
      answer    = "\"gid\": *\""
    }
  }
}
