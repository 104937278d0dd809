# A server that its vendor runs. Waits until you have signed in: pfar login linear
# On this machine only pfar's adapter runs, in a sandbox that reaches this one host. It never has the token: it holds
# a placeholder, and its egress bridge puts the token into the requests. The vendor sees all that calls send there.
description = "Linear: issues, projects and teams"
label       = "internal"
service     = "linear"

server {
  transport = "stream-http"
  url       = "https://mcp.linear.app/mcp"
}

auth = { token = "vault:linear_token" }
