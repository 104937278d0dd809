# From pfar's entry of GitHub: pfar services github
description     = "GitHub: Repositories, issues and pull requests"
label           = "internal"
service         = "github"
allowed_domains = ["api.github.com"]

server { package = "npm:@modelcontextprotocol/server-github@2025.4.9" }

auth = {
  GITHUB_PERSONAL_ACCESS_TOKEN = { secret = "vault:github_work_token", deliver = "broker" }
}
