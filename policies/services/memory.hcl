# A graph of notes that the model keeps. What a session that has read strangers wrote into it comes out raw (the gate knows).

service "memory" {
  packages = ["@modelcontextprotocol/server-memory"]
  output   = "sensitive clean"
  audience = "sensitive"

  reads = ["read_graph", "search_nodes", "open_nodes"]
  reversible = ["create_*", "add_observations"]
  irreversible = ["delete_*"]

  setup {
    title     = "Memory"
    summary   = "A graph of notes on this machine"
    label     = "sensitive"
    package   = "npm:@modelcontextprotocol/server-memory@2026.8.31"
    integrity = "sha512-ljj/3S4aGjxdNSQWw6gucKKGnTLdBPWxzapyY/MT2tOVyZwvxChvevXSLPwx59nKJAlVpUVW+cOlnVRXRwiqMQ=="
    state     = true
    env       = { MEMORY_FILE_PATH = "/home/mcp/memory.json" }

    test "read_graph" {
      arguments = {}
    }
  }
}
