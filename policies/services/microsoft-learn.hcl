# Microsoft's documentation, which Microsoft writes and anybody may propose changes to. What is searched for goes to Microsoft.

service "microsoft-learn" {
  output   = "public raw"
  audience = "public"

  reads = ["microsoft_docs_search", "microsoft_docs_fetch", "microsoft_code_sample_search"]

  setup {
    title   = "Microsoft Learn"
    summary = "Documentation and code samples of Microsoft"
    label   = "public"

    remote {
      url     = "https://learn.microsoft.com/api/mcp"
      sign_in = "none"
    }
  }
}
