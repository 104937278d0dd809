# AI Gateway. Its logs hold the prompts and the answers of applications, and so the text of everybody who uses them. No
# tool writes.

service "cloudflare-ai-gateway" {
  output   = "sensitive raw"
  audience = "sensitive"

  reads = ["list_gateways", "list_logs", "get_log_details", "get_log_request_body", "get_log_response_body"]

  setup {
    title   = "Cloudflare AI Gateway"
    summary = "Logs of prompts and answers"

    remote {
      url     = "https://ai-gateway.mcp.cloudflare.com/mcp"
      sign_in = "oauth"
    }
  }
}
