# Any page of the web: an address carries data out, and a page brings anything in.

service "fetch" {
  packages  = ["pypi:mcp-server-fetch"]
  output    = "public raw"
  audience  = "public"
  addresses = ["url"]

  reads = ["fetch"]

  # Set up, it opens pages of one host. That the package installs is not tested by pfar's makers.
  setup {
    title   = "Fetch"
    summary = "Pages of one host, as text"
    label   = "public"
    package = "pypi:mcp-server-fetch==2026.10.24"
    domains = ["{host}"]

    parameter "host" {
      question = "Which host may it open?"
      example  = "www.example.com"
    }
  }
}
