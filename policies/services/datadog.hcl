# Datadog. Logs hold whatever was sent to the servers that write them. The message of a downtime is mailed to whom it names.

service "datadog" {
  packages = ["@winor30/mcp-server-datadog"]
  output   = "sensitive raw"
  audience = "sensitive"

  reads        = ["get_*", "list_*", "query_metrics"]
  reversible   = ["cancel_downtime", "mute_host", "unmute_host"]
  irreversible = ["schedule_downtime"]

  setup {
    title     = "Datadog"
    summary   = "Monitors, logs and metrics"
    label     = "internal"
    package   = "npm:@winor30/mcp-server-datadog@1.8.0"
    integrity = "sha512-h6HySYW/q2YdzNdrUc7aOaRoaer4oYrDuy0QRQEZkzgfGey+Dmot2IeYI25jYaR4bu0fKoZbIx6UVmfIMF5Pcw=="
    domains   = ["api.datadoghq.com"]

    remote { url = "https://mcp.datadoghq.com/api/unstable/mcp-server/mcp" }

    secret "DATADOG_API_KEY" {
      key     = "datadog_api_key"
      deliver = "broker"
      in      = ["header:dd-api-key"]
      where   = "In Datadog, open Organization settings, API keys, and create a key."
      url     = "https://app.datadoghq.com/organization-settings/api-keys"
    }

    secret "DATADOG_APP_KEY" {
      key     = "datadog_app_key"
      deliver = "broker"
      in      = ["header:dd-application-key"]
      where   = "In Datadog, open Organization settings, Application keys, and create a key."
      url     = "https://app.datadoghq.com/organization-settings/application-keys"
    }

    test "get_monitors" {
      arguments = {}
    }
  }
}
