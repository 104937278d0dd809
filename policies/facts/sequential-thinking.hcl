# A scratch pad: what goes in comes out again.

service "sequential-thinking" {
  packages = ["@modelcontextprotocol/server-sequential-thinking"]
  output   = "public clean"
  audience = "sensitive"

  reads = ["sequentialthinking"]
}
