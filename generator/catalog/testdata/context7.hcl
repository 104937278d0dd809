# From pfar's entry of Context7: pfar services context7
description     = "Context7: Documentation of libraries"
label           = "public"
allowed_domains = ["context7.com"]

server { package = "npm:@upstash/context7-mcp@4.1.1" }
