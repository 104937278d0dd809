# DeepWiki. Generated documentation of public repositories, which anybody can fill. The question goes to its owner, and no tool has
# an effect.

service "deepwiki" {
  output   = "public raw"
  audience = "public"

  reads = ["read_wiki_structure", "read_wiki_contents", "ask_question"]

  setup {
    title   = "DeepWiki"
    summary = "Documentation of public repositories"
    label   = "public"

    remote {
      url     = "https://mcp.deepwiki.com/mcp"
      sign_in = "none"
    }
  }
}
