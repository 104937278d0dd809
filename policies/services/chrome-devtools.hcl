# Chrome, by its developer tools: any page, and any script in it. Where it is signed in anywhere, say
# trust { secret_data = true } in the declaration.

service "chrome-devtools" {
  packages  = ["chrome-devtools-mcp"]
  output    = "public raw"
  audience  = "public"
  addresses = ["url"]

  reads = [
    "list_*", "get_*", "take_*", "wait_for", "hover", "resize_page", "select_page", "performance_*",
    "lighthouse_audit",
  ]
  reversible = [
    "click*", "fill*", "type_text", "press_key", "drag", "handle_dialog", "navigate_page", "new_page", "close_page",
    "emulate",
  ]
  irreversible = [
    "evaluate_script", "upload_file", "execute_*", "install_*", "uninstall_*", "trigger_extension_action",
    "launch_pwa",
  ]
}
