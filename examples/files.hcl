# Files in a private directory, which outlives the server. To give it your
# own files, name their directory here
#   sandbox { read_only = ["/srv/documents"] }
# and among the arguments. Of your directories, it can read only those
# in the sandbox block, even if its arguments name others.
description = "A directory of files"
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
