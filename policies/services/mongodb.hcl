# MongoDB. Collections hold what others typed, and applications show them what is in there. An aggregation can write ($out, $merge),
# over a whole collection: give the server a user of the database who may only read, and say in the declaration
# tool "aggregate" { effect = "none" }.

service "mongodb" {
  packages = ["mongodb-mcp-server"]
  output   = "sensitive raw"
  audience = "sensitive"

  reads = [
    "find", "count", "explain", "db-stats", "mongodb-logs", "collection-*", "list-*", "search-knowledge",
    "atlas-list-*", "atlas-inspect-*", "atlas-get-*", "atlas-streams-discover", "health-check",
  ]
  reversible = ["create-collection", "create-index", "connect", "switch-connection", "atlas-connect-cluster", "export"]
  irreversible = [
    "aggregate", "aggregate-db", "insert-many", "update-many", "delete-many", "drop-*", "rename-collection",
    "atlas-create-*", "atlas-streams-*", "atlas-pause-resume-cluster", "atlas-upgrade-cluster",
    "atlas-load-sample-dataset",
  ]
}
