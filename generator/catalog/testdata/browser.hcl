# From pfar's entry of Browser: pfar services browser
description     = "Browser: Pages of one site, in Debian's Chromium"
label           = "public"
allowed_domains = ["example.com", "*.example.com"]

server {
  package = "npm:@playwright/mcp@0.0.83"
  args = [
    "--browser",
    "chromium",
    "--executable-path",
    "/usr/lib/chromium/chromium",
    "--headless",
    "--no-sandbox",
    "--proxy-server",
    "http://127.0.0.1:9876",
    "--no-webmcp",
    "--block-service-workers",
    "--user-data-dir",
    "/home/mcp/profile",
    "--output-dir",
    "/tmp/output",
  ]
}

sandbox {
  memory_limit = "1g"
  state        = true
}

env = {
  NODE_OPTIONS = "--import=data:text/javascript,import%20fs%20from%20'node:fs';fs.mkdirSync('/home/mcp/profile',%7Brecursive:true%7D);try%7Bfs.writeFileSync('/home/mcp/profile/Local%20State','%7B%22ssl%22:%7B%22ech_enabled%22:false%7D%7D',%7Bflag:'wx'%7D)%7Dcatch%7B%7D"
}
