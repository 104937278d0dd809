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
    "emulate", "screencast_*",
  ]
  irreversible = [
    "evaluate_script", "upload_file", "execute_*", "install_*", "uninstall_*", "trigger_extension_action",
    "launch_pwa",
  ]

  # NODE_OPTIONS makes the profile before Chromium does: Chromium is to name hosts in the clear, for the egress bridge
  # refuses what it cannot read, and no option of Chromium's says so. Its own sandbox needs what this one denies.
  setup {
    title     = "Chrome DevTools"
    summary   = "Pages of one site and what they do, in Debian's Chromium"
    label     = "public"
    package   = "npm:chrome-devtools-mcp@1.11.0"
    integrity = "sha512-CytJ/5tnzrS+J/74be2P5aCOsS/mmGRHys/Si+IYC4ucrbnWAmES/dYdxGJjeUCECRcoFUilZAysdjlwqUjXIA=="
    bin       = "chrome-devtools-mcp"
    args = [
      "--executablePath", "/usr/lib/chromium/chromium", "--headless", "--userDataDir", "/home/mcp/profile",
      "--chromeArg=--no-sandbox", "--proxyServer", "http://127.0.0.1:9876", "--no-usageStatistics",
      "--no-performanceCrux",
    ]
    env = {
      NODE_OPTIONS                         = "--import=data:text/javascript,import%20fs%20from%20'node:fs';fs.mkdirSync('/home/mcp/profile',%7Brecursive:true%7D);try%7Bfs.writeFileSync('/home/mcp/profile/Local%20State','%7B%22ssl%22:%7B%22ech_enabled%22:false%7D%7D',%7Bflag:'wx'%7D)%7Dcatch%7B%7D"
      CHROME_DEVTOOLS_MCP_NO_UPDATE_CHECKS = "1"
    }
    memory  = "1g"
    state   = true
    domains = ["{site}", "*.{site}"]

    parameter "site" {
      question = "Which site may it open, with all hosts below it?"
      example  = "example.com"
    }

    test "list_pages" {
      arguments = {}
    }
  }
}
