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
  reversible = [
    "create-collection", "create-index", "connect", "switch-connection", "atlas-connect-cluster", "export",
    "disconnect",
  ]
  irreversible = [
    "aggregate", "aggregate-db", "insert-many", "update-many", "delete-many", "drop-*", "rename-collection",
    "atlas-create-*", "atlas-streams-*", "atlas-pause-resume-cluster", "atlas-upgrade-cluster",
    "atlas-load-sample-dataset",
  ]

  # The server speaks MongoDB's own protocol, so it has the password. It offers tools that only read unless
  # MDB_MCP_READ_ONLY is "false". Addresses that begin with mongodb+srv:// do not work: pfar answers no questions of DNS
  # for SRV records.
  setup {
    title     = "MongoDB"
    summary   = "Databases and collections of one deployment"
    label     = "sensitive"
    package   = "npm:mongodb-mcp-server@3.0.4"
    integrity = "sha512-BD6Gu1qiyexMJQ/3vSBR01cuItrNM89rrh3x07OF0+YJAm8lb/+jvfIy5qSyy8tH10CYZmSspXLvvjLzsjQ3rw=="
    env       = { MDB_MCP_READ_ONLY = "true", MDB_MCP_TELEMETRY = "disabled", MDB_MCP_LOGGERS = "mcp" }
    domains   = ["{host}"]

    secret "MDB_MCP_CONNECTION_STRING" {
      key      = "mongodb_connection"
      deliver  = "env"
      prefixes = ["mongodb://"]
      pattern  = "mongodb://\\S+"
      where    = "Have the database's owner make a user who only reads, and write mongodb://USER:PASSWORD@HOST:PORT/DATABASE."
    }

    parameter "host" {
      question = "Which host and port?"
      example  = "db.example.com:27017"
    }

    test "list-databases" {
      arguments = { connectionId = "preconfigured" }
    }
  }
}
