# From pfar's entry of Airtable: pfar services airtable
description     = "Airtable: Bases, tables and records"
label           = "internal"
allowed_domains = ["api.airtable.com", "content.airtable.com"]

server { package = "npm:airtable-mcp-server@1.14.0" }

auth = {
  AIRTABLE_API_KEY = {
    secret  = "vault:airtable_token"
    deliver = "broker"
    hosts   = ["api.airtable.com", "content.airtable.com"]
  }
}
