# From pfar's entry of Gmail: pfar services gmail
description     = "Gmail: Mail, labels and filters of one Google account"
allowed_domains = ["gmail.googleapis.com", "oauth2.googleapis.com"]

server { package = "npm:@gongrzhe/server-gmail-autoauth-mcp@1.1.11" }

auth = {
  GMAIL_OAUTH_PATH       = { secret = "vault:gmail_client", deliver = "file" }
  GMAIL_CREDENTIALS_PATH = { secret = "vault:gmail_tokens", deliver = "file" }
}
