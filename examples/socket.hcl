# A server that listens at a Unix socket. pfar starts it in its sandbox and connects to the socket there.
# The socket lies in memory, and only the server and pfar's adapter see it.
# Over HTTP this server needs Node.js 20 or later. It sleeps until a call needs it.
# For a server that already runs on this machine, see attached/notes.hcl.
description     = "Reference server, at a Unix socket"
label           = "public"
autostart       = false

server {
  transport = "uds"
  path      = "/run/mcp/everything.sock"
  command   = "node"
  args = [
    "${servers}/node_modules/@modelcontextprotocol/server-everything/dist/index.js",
    "streamableHttp",
  ]
}

env = { PORT = "/run/mcp/everything.sock" }

tool "echo" { semantics = "read" }
