# Audit logs: who changed what in a Cloudflare account, with e-mail addresses. A description can hold names that others
# gave. No tool writes.

service "cloudflare-auditlogs" {
  output   = "sensitive raw"
  audience = "sensitive"

  reads = ["auditlogs_by_account_id"]

  setup {
    title   = "Cloudflare Audit Logs"
    summary = "Changes of one account, and who made them"

    remote {
      url     = "https://auditlogs.mcp.cloudflare.com/mcp"
      sign_in = "oauth"
    }
  }
}
