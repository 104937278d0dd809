# A desktop assistant: two servers, and nothing that deletes or pushes.
# "pfar client add desk" writes such a file with a new token; the token
# below belongs to nobody.
description  = "Claude Desktop on this machine"
token_sha256 = [
  "a9b12f1e0d9d3c2f5fa1c60e0b1f4a4f3c0a8d1e7b6c5d4e3f2a1b0c9d8e7f60",
]
servers      = ["notion", "github"]

tools {
  hide = [
    "*.delete*", "github.push_files", "github.create_or_update_file",
  ]
}

# What comes from Notion is, for this client, at least sensitive, and
# others can write into it.
server "notion" {
  label = "sensitive"
  trust { public_source = true }
}
