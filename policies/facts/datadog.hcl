# Datadog. Logs hold whatever was sent to the servers that write them.

service "datadog" {
  packages = ["@winor30/mcp-server-datadog"]
  output   = "sensitive raw"
  audience = "sensitive"

  reads = ["get_*", "list_*", "query_metrics"]
  reversible = ["schedule_downtime", "cancel_downtime", "mute_host", "unmute_host"]
}
