# A scratch pad: what goes in comes out again, and the names of its branches in what anybody else is answered, until the server ends.

service "sequential-thinking" {
  packages = ["@modelcontextprotocol/server-sequential-thinking"]
  output   = "public clean"
  audience = "sensitive"

  reversible = ["sequentialthinking"]

  setup {
    title     = "Sequential Thinking"
    summary   = "A notebook for steps of thought"
    label     = "public"
    package   = "npm:@modelcontextprotocol/server-sequential-thinking@2026.8.31"
    integrity = "sha512-/EMH++1j2e+VmHwpibw1IUPHxA0tcQY09Yo5/OIPwW/8irEKLAufJNGSZQhCK18n8TUvV6WwZyQOuaDKxe/CeQ=="
  }
}
