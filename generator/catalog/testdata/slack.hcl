# From pfar's entry of Slack: pfar services slack
description     = "Slack: Channels, messages and people"
allowed_domains = ["slack.com"]

server { package = "npm:@modelcontextprotocol/server-slack@2025.4.25" }

auth = { SLACK_BOT_TOKEN = { secret = "vault:slack_bot_token", deliver = "broker" } }

env = { SLACK_TEAM_ID = "T01234567" }
