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

  setup {
    title     = "Stripe"
    summary   = "Customers, payments and subscriptions"
    label     = "sensitive"
    package   = "npm:@stripe/mcp@0.3.3"
    integrity = "sha512-Ra7keWg5GKDQ7RUIDa8L3ClKMsmhsJVAXG2/rYeaICEHjyMHYhD9KL2BWVqOqr1IjQwhnA8qbf+Tnb4x09DLyQ=="
    domains   = ["mcp.stripe.com"]

    remote { url = "https://mcp.stripe.com" }

    secret "STRIPE_SECRET_KEY" {
      key      = "stripe_key"
      deliver  = "broker"
      prefixes = ["rk_live_", "rk_test_", "sk_live_", "sk_test_"]
      pattern  = "[rs]k_(?:live|test)_[A-Za-z0-9]{10,}"
      where    = "Create a restricted key with the rights that the server needs, and copy it."
      url      = "https://dashboard.stripe.com/apikeys"
    }
  }
}
