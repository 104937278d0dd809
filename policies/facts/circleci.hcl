# CircleCI. Logs hold what anybody put into a pull request; a pipeline runs code and deploys it.

service "circleci" {
  packages = ["@circleci/mcp-server-circleci"]
  output   = "internal raw"
  audience = "internal"

  reads = ["get_*", "find_*", "list_*", "config_helper", "download_usage_api_data"]
  irreversible = ["run_*", "rerun_workflow"]
}
