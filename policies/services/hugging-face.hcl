# Hugging Face's own server. Anybody can publish a model, a data set and a Space, and a search carries data out.

service "hugging-face" {
  output   = "public raw"
  audience = "public"

  reads = [
    "hf_whoami", "hf_doc_search", "hf_doc_fetch", "hub_repo_search", "hub_repo_details", "model_search", "dataset_search",
    "space_search", "paper_search",
  ]

  setup {
    title   = "Hugging Face"
    summary = "Models, data sets, papers and Spaces"

    remote {
      url     = "https://huggingface.co/mcp"
      sign_in = "oauth"
    }
  }
}
