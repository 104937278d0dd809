# A server that listens at a TCP port. The port belongs to the loopback of its sandbox:
# only pfar's adapter reaches it, and a program of this machine at the same port is another one.
# Over HTTP this server needs Node.js 20 or later. It sleeps until a call needs it.
description     = "Reference server, at a port"
label           = "public"
autostart       = false

server {
  transport = "stream-http"
  url       = "http://127.0.0.1:3001/mcp"
  command   = "node"
  args = [
    "${servers}/node_modules/@modelcontextprotocol/server-everything/dist/index.js",
    "streamableHttp",
  ]
}

env = { PORT = "3001" }

tool "echo" { semantics = "read" }
