# Logpush jobs of a Cloudflare account: which logs go out, when and with which error. The error comes from the place
# that the logs go to. The server leaves out the logs and the address of that place. No tool writes.

service "cloudflare-logs" {
  output   = "internal raw"
  audience = "internal"

  reads = ["logpush_jobs_by_account_id"]

  setup {
    title   = "Cloudflare Logpush"
    summary = "Health of the jobs that send logs away"
    label   = "internal"

    remote {
      url     = "https://logs.mcp.cloudflare.com/mcp"
      sign_in = "oauth"
    }
  }
}
