# From pfar's entry of Tavily: pfar services tavily
description     = "Tavily: Web search and extraction"
label           = "public"
allowed_domains = ["api.tavily.com"]

server { package = "npm:tavily-mcp@0.2.22" }

auth = {
  TAVILY_API_KEY = {
    secret  = "vault:tavily_api_key"
    deliver = "broker"
    in      = ["header:authorization", "body"]
  }
}
