# A scratch pad: what goes in comes out again, and the names of its branches in what anybody else is answered, until the server ends.

service "sequential-thinking" {
  packages = ["@modelcontextprotocol/server-sequential-thinking"]
  output   = "public clean"
  audience = "sensitive"

  reversible = ["sequentialthinking"]
}
