# Stripe. Money moves, and customers get mails.

service "stripe" {
  packages = ["@stripe/mcp"]
  output   = "sensitive raw"
  audience = "public"

  irreversible = ["create_*", "update_*", "cancel_*", "finalize_*"]

  tool "list_*"     { effect = "none", audience = "sensitive" }
  tool "retrieve_*" { effect = "none", audience = "sensitive" }
  tool "get_*"      { effect = "none", audience = "sensitive" }
  tool "search_*"   { effect = "none", audience = "sensitive" }
  tool "fetch_*"    { effect = "none", audience = "sensitive" }
}
