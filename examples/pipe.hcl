# A server that reads requests from the FIFO PATH.in and writes answers to the FIFO PATH.out.
# pfar makes both in the sandbox before it starts the server. Here a shell connects them to a program that
# speaks on its standard input and output. pfar cannot tell which program the shell runs: read_only names
# its files, and service the facts that the gate goes by. read_only takes no directory of pfar's own: if the
# servers are installed in /var/lib/pfar, install this package elsewhere, and write where it is.
# For a server that already runs on this machine, see attached/graph.toml.
description = "A knowledge graph, behind a pair of FIFOs"
label       = "internal"
service     = "memory"

server {
  transport = "pipe"
  path      = "/run/graph/mcp"
  command   = "sh"
  args = [
    "-c",
    "exec node ${servers}/node_modules/@modelcontextprotocol/server-memory/dist/index.js <$0.in >$0.out",
    "/run/graph/mcp",
  ]
}

env = { MEMORY_FILE_PATH = "/home/mcp/memory.jsonl" }

sandbox {
  read_only = ["${servers}/node_modules"]
  state     = true
}
