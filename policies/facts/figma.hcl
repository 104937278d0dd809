# Figma. Files are shared with strangers, and anybody who may comment writes into them.

service "figma" {
  packages = ["figma-developer-mcp"]
  output   = "internal raw"
  audience = "internal"

  reads = ["get_figma_data"]
  reversible = ["download_figma_images"]
}
