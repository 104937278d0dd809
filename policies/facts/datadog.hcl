# Datadog. Logs hold whatever was sent to the servers that write them. The message of a downtime is mailed to whom it names.

service "datadog" {
  packages = ["@winor30/mcp-server-datadog"]
  output   = "sensitive raw"
  audience = "sensitive"

  reads        = ["get_*", "list_*", "query_metrics"]
  reversible   = ["cancel_downtime", "mute_host", "unmute_host"]
  irreversible = ["schedule_downtime"]
}
