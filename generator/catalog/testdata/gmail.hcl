# From pfar's entry of Gmail: pfar services gmail
description = "Gmail: Mail, drafts and labels of one Google account"
service     = "gmail"

server {
  transport = "stream-http"
  url       = "https://gmailmcp.googleapis.com/mcp/v1"
}

auth = { token = "vault:gmail_token" }
