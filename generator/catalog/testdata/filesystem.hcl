# From pfar's entry of Files: pfar services filesystem
description = "Files: Files of one directory"

server {
  package = "npm:@modelcontextprotocol/server-filesystem@2026.8.31"
  args    = ["/srv/notes"]
}

sandbox { writable = ["/srv/notes"] }
