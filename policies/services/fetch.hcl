# Any page of the web: an address carries data out, and a page brings anything in.

service "fetch" {
  packages  = ["pypi:mcp-server-fetch"]
  output    = "public raw"
  audience  = "public"
  addresses = ["url"]

  reads = ["fetch"]
}
