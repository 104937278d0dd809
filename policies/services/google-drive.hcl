# Google Drive. Anybody can share a file with you.

service "google-drive" {
  packages = ["@modelcontextprotocol/server-gdrive"]
  output   = "sensitive raw"
  audience = "sensitive"

  reads = ["search", "gdrive_search", "gdrive_read_file"]

  setup {
    title     = "Google Drive"
    summary   = "Files of one Google account"
    label     = "sensitive"
    package   = "npm:@modelcontextprotocol/server-gdrive@2025.1.14"
    integrity = "sha512-MWrvgaHARzAsFEYpzOrG/ewYoWrDSvF1ybmW56cMIrnVQekTP0iGWKC/aEXVcc+V5hAmMGm7iABSJFNrBX9a0A=="
    domains   = ["www.googleapis.com"]

    remote { url = "https://drivemcp.googleapis.com/mcp/v1" }

    secret "GDRIVE_CREDENTIALS_PATH" {
      key     = "google_drive_tokens"
      deliver = "file"
      where   = "Create an OAuth client for a desktop app, run the package once with the argument auth, and store the file of tokens that it writes. The package does not renew them."
      url     = "https://console.cloud.google.com/apis/credentials"
      scopes  = ["https://www.googleapis.com/auth/drive.readonly"]
    }

    test "search" {
      arguments = { query = "pfar" }
    }
  }
}
