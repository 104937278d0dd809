# Figma. Files are shared with strangers, and anybody who may comment writes into them.

service "figma" {
  packages = ["figma-developer-mcp"]
  output   = "internal raw"
  audience = "internal"

  reads = ["get_figma_data"]
  reversible = ["download_figma_images"]

  # Each tool needs the key of one of the user's files, so no test call shows that the token is right.
  setup {
    title     = "Figma"
    summary   = "Designs and their images"
    label     = "internal"
    package   = "npm:figma-developer-mcp@0.13.2"
    integrity = "sha512-7Flx0S/3gI7dIm+9G6BCogwne0o9LdYaCxtDLappiZZUZgqoNiXws/T1kn2R2tqr1iRzFPStqlwf+bPrcscQ0Q=="
    args      = ["--stdio"]
    env       = { FRAMELINK_TELEMETRY = "off" }
    domains   = ["api.figma.com"]

    remote { url = "https://mcp.figma.com/mcp" }

    secret "FIGMA_API_KEY" {
      key      = "figma_token"
      deliver  = "broker"
      in       = ["header:x-figma-token"]
      prefixes = ["figd_"]
      pattern  = "figd_[A-Za-z0-9_-]{40,}"
      where    = "In Figma, open Settings, Security, and generate a personal access token that may read files."
      url      = "https://www.figma.com/developers/api#access-tokens"
    }
  }
}
