# MongoDB. Collections hold what others typed. An aggregation can write ($out, $merge).

service "mongodb" {
  packages = ["mongodb-mcp-server"]
  output   = "sensitive raw"
  audience = "sensitive"

  reads = [
    "find", "count", "explain", "db-stats", "mongodb-logs", "collection-*", "list-*", "search-knowledge",
    "atlas-list-*", "atlas-inspect-*", "atlas-get-*", "atlas-streams-discover", "health-check",
  ]
  reversible = [
    "aggregate", "aggregate-db", "insert-many", "create-collection", "create-index", "connect", "switch-connection",
    "atlas-connect-cluster", "export",
  ]
  irreversible = [
    "update-many", "delete-many", "drop-*", "rename-collection", "atlas-create-*", "atlas-streams-*",
    "atlas-pause-resume-cluster", "atlas-upgrade-cluster", "atlas-load-sample-dataset",
  ]
}
