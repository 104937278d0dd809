# Search on the web.

service "exa" {
  packages = ["exa-mcp-server"]
  output   = "public raw"
  audience = "public"

  reads = ["*_exa", "deep_researcher_check"]
  irreversible = ["deep_researcher_start", "agent_run"]
}
