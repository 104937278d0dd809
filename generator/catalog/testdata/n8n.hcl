# From pfar's entry of n8n: pfar services n8n
description     = "n8n: Workflows of one n8n, and the documentation of its nodes"
allowed_domains = ["n8n.example.com:8443"]

server { package = "npm:n8n-mcp@2.87.0" }

sandbox { memory_limit = "512m" }

auth = {
  N8N_API_KEY = { secret = "vault:n8n_api_key", deliver = "broker", in = ["header:x-n8n-api-key"] }
}

env = {
  N8N_API_URL                = "https://n8n.example.com:8443"
  N8N_MCP_TELEMETRY_DISABLED = "true"
}
