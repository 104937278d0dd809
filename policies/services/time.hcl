# The clock.

service "time" {
  packages = ["pypi:mcp-server-time"]
  output   = "public clean"
  audience = "sensitive"

  reads = ["get_current_time", "convert_time"]
}
