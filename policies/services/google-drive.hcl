# Google Drive. Anybody can share a file with you.

service "google-drive" {
  packages = ["@modelcontextprotocol/server-gdrive"]
  output   = "sensitive raw"
  audience = "sensitive"

  reads = [
    "search", "gdrive_search", "gdrive_read_file", "search_files", "list_recent_files", "get_file_metadata",
    "get_file_permissions", "read_file_content", "download_file_content",
  ]
  irreversible = ["create_file", "copy_file"] # a folder may be shared

  # Google's own server. It lists its tools to anybody, so only a call shows that a token is right. The npm package has no
  # entry: its first sign-in would run unconfined, and it would hold the client's secret and the refresh token.
  setup {
    title   = "Google Drive"
    summary = "Files of one Google account"
    label   = "sensitive"
    domains = ["drivemcp.googleapis.com"]

    remote {
      url   = "https://drivemcp.googleapis.com/mcp/v1"
      token = "token"
    }

    secret "token" {
      key     = "google_drive_token"
      deliver = "broker"
      where   = "Register an OAuth client for a desktop app, in a Google Cloud project with the Google Drive API and the Google Drive MCP API. Then run pfar login with the server's name: it says what to write where."
      url     = "https://console.cloud.google.com/auth/clients"
    }

    # Google's device flow does not give these scopes.
    code {
      url      = "https://accounts.google.com/o/oauth2/v2/auth?access_type=offline&prompt=consent"
      token    = "https://oauth2.googleapis.com/token"
      register = "https://console.cloud.google.com/auth/clients"
      scopes   = ["https://www.googleapis.com/auth/drive.readonly"]
    }

    test "list_recent_files" {
      arguments = {}
    }
  }
}
