# browser: @playwright/mcp. What it shows anybody may have written, and an address or a form carries data out, so that its
# audience is public, navigation included. Where it is signed in anywhere, say trust { secret_data = true } in the
# declaration: its sessions are then kept from sending anything elsewhere.
#
# Tiers are sets of its tools. Every profile has core; the others are for profiles that name them:
#
#   profile "research" {
#     base  = "balanced"
#     tiers = ["browser/vision"]
#     relax = "The charts cannot be read otherwise."
#   }
#
# A tool that is in no tier, as one of a later version, is forbidden. The server has to offer a tier's tools as well: what it
# wants among the arguments of the declaration, as of 0.0.83, stands at each tier below, joined with commas if it is for
# several (--caps vision,pdf). Its --caps and its lists of origins are a convenience, not a boundary: allowed_domains
# and blocked_domains of the declaration are. They hold for the URLs that a tool is told to open, here, and for every
# connection that comes of it, in the egress bridge.

service "browser" {
  packages  = ["@playwright/mcp"]
  output    = "public raw"
  audience  = "public"
  addresses = ["url"]

  reads = [
    "browser_navigate", "browser_navigate_back", "browser_snapshot", "browser_find", "browser_wait_for", "browser_hover",
    "browser_resize", "browser_emulate_media", "browser_close", "browser_tabs", "browser_take_screenshot",
    "browser_console_messages", "browser_network_request", "browser_network_requests", "browser_route_list",
    "browser_mouse_move_xy", "browser_mouse_wheel", "browser_generate_locator", "browser_verify_*", "browser_pdf_save",
    "browser_get_config", "browser_*highlight", "browser_annotate", "browser_start_*", "browser_stop_*", "browser_video_*",
  ]
  reversible = [
    "browser_click", "browser_type", "browser_fill_form", "browser_press_key", "browser_select_option", "browser_drag",
    "browser_handle_dialog", "browser_mouse_click_xy", "browser_mouse_down", "browser_mouse_up", "browser_mouse_drag_xy",
    "browser_route", "browser_unroute", "browser_network_state_set", "browser_resume",
  ]
  irreversible = [
    "browser_evaluate", "browser_run_code_unsafe", "browser_file_upload", "browser_drop", "browser_*_set", "browser_*_delete",
    "browser_*_clear", "browser_set_storage_state",
  ]

  # What stands in storage signs in wherever it is presented.
  tool "browser_cookie_get"          { effect = "none", output = "secret raw" }
  tool "browser_cookie_list"         { effect = "none", output = "secret raw" }
  tool "browser_localstorage_get"    { effect = "none", output = "secret raw" }
  tool "browser_localstorage_list"   { effect = "none", output = "secret raw" }
  tool "browser_sessionstorage_get"  { effect = "none", output = "secret raw" }
  tool "browser_sessionstorage_list" { effect = "none", output = "secret raw" }
  tool "browser_storage_state"       { effect = "none", output = "secret raw" }

  # No --caps
  tier "core" {
    default = true
    tools = [
      "browser_navigate", "browser_navigate_back", "browser_snapshot", "browser_find", "browser_click", "browser_type",
      "browser_fill_form", "browser_press_key", "browser_select_option", "browser_hover", "browser_drag", "browser_tabs",
      "browser_wait_for", "browser_handle_dialog", "browser_resize", "browser_emulate_media", "browser_close",
    ]
  }
  # What pages write to the console, and what they ask of the network. No --caps
  tier "network" { tools = ["browser_console_messages", "browser_network_request", "browser_network_requests"] }
  # --caps vision; for screenshots alone, none
  tier "vision" { tools = ["browser_take_screenshot", "browser_mouse_*"] }
  # --caps pdf
  tier "pdf" { tools = ["browser_pdf_save"] }
  # --caps testing
  tier "testing" { tools = ["browser_generate_locator", "browser_verify_*"] }
  # Files of the sandbox, into pages. No --caps
  tier "upload" { tools = ["browser_file_upload", "browser_drop"] }
  # Cookies and web storage, which hold what signs in. --caps storage
  tier "storage" {
    tools = ["browser_cookie_*", "browser_localstorage_*", "browser_sessionstorage_*", "browser_storage_state", "browser_set_storage_state"]
  }
  # Answers in the place of servers'. --caps network
  tier "mocking" { tools = ["browser_route", "browser_route_list", "browser_unroute", "browser_network_state_set"] }
  # Any JavaScript in the page, any code in the server. --caps devtools,config; for those two alone, none
  tier "devtools" {
    tools = [
      "browser_evaluate", "browser_run_code_unsafe", "browser_get_config", "browser_*highlight", "browser_annotate",
      "browser_resume", "browser_start_*", "browser_stop_*", "browser_video_*",
    ]
  }

  # NODE_OPTIONS makes the profile before Chromium does: Chromium is to name hosts in the clear, for the egress bridge
  # refuses what it cannot read, and no option of Chromium's says so. Its own sandbox needs what this one denies.
  setup {
    title     = "Browser"
    summary   = "Pages of one site, in Debian's Chromium"
    label     = "public"
    package   = "npm:@playwright/mcp@0.0.83"
    integrity = "sha512-oNcl+Ae2/IAjhfPeP46BfIkSakfmprY+aOtkv5MjrQ4lPav4/yNtPhL0iq8SlIM90oApWgBDUxaNKvktazUKOg=="
    args = [
      "--browser", "chromium", "--executable-path", "/usr/lib/chromium/chromium", "--headless", "--no-sandbox",
      "--proxy-server", "http://127.0.0.1:9876", "--no-webmcp", "--block-service-workers",
      "--user-data-dir", "/home/mcp/profile", "--output-dir", "/tmp/output",
    ]
    env     = { NODE_OPTIONS = "--import=data:text/javascript,import%20fs%20from%20'node:fs';fs.mkdirSync('/home/mcp/profile',%7Brecursive:true%7D);try%7Bfs.writeFileSync('/home/mcp/profile/Local%20State','%7B%22ssl%22:%7B%22ech_enabled%22:false%7D%7D',%7Bflag:'wx'%7D)%7Dcatch%7B%7D" }
    memory  = "1g"
    state   = true
    domains = ["{site}", "*.{site}"]

    parameter "site" {
      question = "Which site may it open, with all hosts below it?"
      example  = "example.com"
    }

    test "browser_tabs" {
      arguments = { action = "list" }
    }
  }
}
