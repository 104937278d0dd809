# Files in a private folder that outlives the server. To give it files of
# yours, name their folder here
#   sandbox { read_only = ["/srv/documents"] }
# and among the arguments. Of your folders, the server can read only those
# in the sandbox block, even if its arguments name others.
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
