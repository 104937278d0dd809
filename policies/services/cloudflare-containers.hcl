# A container at Cloudflare that runs any code and reaches the whole Internet. Code in it can send anything to anybody,
# print anything and overwrite any file. A new start of the container deletes its files. Programs in the
# container see the path of each file that a tool reads.

service "cloudflare-containers" {
  output   = "sensitive raw"
  audience = "public"

  reads    = ["container_ping", "container_files_list", "container_file_read"]
  forwards = ["container_file_read"]
  irreversible = [
    "container_initialize", "container_exec", "container_file_write", "container_file_delete",
  ]

  setup {
    title   = "Cloudflare Containers"
    summary = "A container that runs code for a few minutes"

    remote {
      url     = "https://containers.mcp.cloudflare.com/mcp"
      sign_in = "oauth"
    }
  }
}
