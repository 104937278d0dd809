# PayPal's own server. Buyers write notes and disputes. Money moves, and customers get mails.

service "paypal" {
  output   = "sensitive raw"
  audience = "public"

  tool "list_*" { effect = "none", audience = "sensitive" }
  tool "get_*"  { effect = "none", audience = "sensitive" }
  tool "show_*" { effect = "none", audience = "sensitive" }

  setup {
    title   = "PayPal"
    summary = "Invoices, orders, disputes and subscriptions"

    remote {
      url       = "https://mcp.paypal.com/sse"
      transport = "sse"
      sign_in   = "oauth"
    }
  }
}
