# CircleCI. Logs hold what anybody put into a pull request; a pipeline runs code and deploys it.

service "circleci" {
  packages = ["@circleci/mcp-server-circleci"]
  output   = "internal raw"
  audience = "internal"

  reads = ["get_*", "find_*", "list_*", "config_helper", "download_usage_api_data"]
  irreversible = ["run_*", "rerun_workflow"]

  setup {
    title     = "CircleCI"
    summary   = "Pipelines, jobs and their logs"
    label     = "internal"
    package   = "npm:@circleci/mcp-server-circleci@0.20.0"
    integrity = "sha512-CJLxxdcy4evOKgo44rIVS4xMYcg99yssmwedmEi+ldZ/UtpvTes4QcovaZP6JAOdxgmewbdTZZA05fa9Sqh5WA=="
    env       = { DISABLE_TELEMETRY = "true" }
    domains   = ["circleci.com", "api.circleci.com"]

    secret "CIRCLECI_TOKEN" {
      key      = "circleci_token"
      deliver  = "broker"
      hosts    = ["circleci.com", "api.circleci.com"]
      in       = ["header:circle-token"]
      prefixes = ["CCIPAT_"]
      pattern  = "CCIPAT_[A-Za-z0-9]{22}_[0-9A-Fa-f]{40}"
      where    = "Create a personal API token and copy it."
      url      = "https://app.circleci.com/settings/user/tokens"
    }

    test "list_followed_projects" {
      arguments = { params = {} }
    }
  }
}
