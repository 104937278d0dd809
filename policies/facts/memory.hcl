# A graph of notes that the model keeps. What a session that has read strangers wrote into it comes out raw (the gate knows).

service "memory" {
  packages = ["@modelcontextprotocol/server-memory"]
  output   = "sensitive clean"
  audience = "sensitive"

  reads = ["read_graph", "search_nodes", "open_nodes"]
  reversible = ["create_*", "add_observations"]
  irreversible = ["delete_*"]
}
