# Waits until its token is there: pfar vault set github_token
# The server never has it: it holds a placeholder, and its egress bridge puts the token into the requests to GitHub.
description     = "GitHub: repositories, issues, pull requests"
label           = "internal"
allowed_domains = ["api.github.com"]

server {
  command = "node"
  args    = ["${servers}/node_modules/@modelcontextprotocol/server-github/dist/index.js"]
}

auth = { GITHUB_PERSONAL_ACCESS_TOKEN = { secret = "vault:github_token", deliver = "broker" } }

trust {
  public_source    = true
  secret_data      = true
  public_sink      = true
  dangerous_writes = true
}
