# The reference server, which shows every feature of MCP. It declares no host, so it has no network.
# To let it ask the client that calls it, which adds four tools, write
#   client_capabilities = ["elicitation", "roots", "sampling"]
# To give it a secret as a file, /run/secrets/SERVER_KEY, whose path is in a variable of that name, write
#   auth = { SERVER_KEY = { secret = "vault:server_key", deliver = "file" } }
description = "Reference server: every kind of tool, prompt and resource"
label       = "public"

server {
  command = "node"
  args    = ["${servers}/node_modules/@modelcontextprotocol/server-everything/dist/index.js"]
}

tool "echo" { semantics = "read" }
tool "get-sum" { semantics = "read" }
