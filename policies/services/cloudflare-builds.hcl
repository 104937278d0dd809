# Builds of Cloudflare Workers, and the code of each Worker. A log holds the output of every package that the build
# installs, and a branch and a commit message come from the person who pushed. No tool writes.

service "cloudflare-builds" {
  output   = "sensitive raw"
  audience = "sensitive"

  reads = [
    "workers_list", "workers_get_worker", "workers_get_worker_code", "workers_builds_list_builds",
    "workers_builds_get_build", "workers_builds_get_build_logs",
  ]

  setup {
    title   = "Cloudflare Workers Builds"
    summary = "Builds of Workers and their logs"

    remote {
      url     = "https://builds.mcp.cloudflare.com/mcp"
      sign_in = "oauth"
    }
  }
}
