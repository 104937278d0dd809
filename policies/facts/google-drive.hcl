# Google Drive. Anybody can share a file with you.

service "google-drive" {
  packages = ["@modelcontextprotocol/server-gdrive"]
  output   = "sensitive raw"
  audience = "sensitive"

  reads = ["search", "gdrive_search", "gdrive_read_file"]
}
