# Files in a private folder that outlives the server. To give it files of
# yours, name their folder here
#   sandbox { read_only = ["/srv/documents"] }
# and among the arguments. Whatever the arguments say, it has what the
# sandbox block says and no more.
description = "A folder of files"
label       = "internal"

server {
  command = "node"
  args = [
    "${servers}/node_modules/@modelcontextprotocol/server-filesystem/dist/index.js",
    "/home/mcp",
  ]
}

sandbox { state = true }

trust {
  public_source    = false
  secret_data      = false
  public_sink      = false
  dangerous_writes = true
}
