# Files of a directory. They are the owner's; a directory for downloads is not: for one, say output = "sensitive raw" in the declaration.

service "filesystem" {
  packages = ["@modelcontextprotocol/server-filesystem"]
  output   = "sensitive clean"
  audience = "sensitive"

  reads = ["read_*", "list_*", "directory_tree", "search_files", "get_file_info"]
  reversible = ["create_directory", "edit_file", "move_file"]
  irreversible = ["write_file"]

  setup {
    title     = "Files"
    summary   = "Files of one directory"
    label     = "sensitive"
    package   = "npm:@modelcontextprotocol/server-filesystem@2026.8.31"
    integrity = "sha512-kKaFkyAh6oipvc9+EAbJ552JafnMnOq5nzmzWkp1jJdBhTAAGpmIpWihUG1+rfNhmEFM98gUZDdCHCDD4v6a7Q=="
    args      = ["{folder}"]

    parameter "folder" {
      question = "Which directory?"
      example  = "/srv/notes"
      access   = "write"
    }

    test "list_allowed_directories" {
      arguments = {}
    }
  }
}
