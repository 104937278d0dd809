# Digital Experience Monitoring: the devices of an organization, their users, tests and diagnoses. A file of a diagnosis
# holds text of the device and of the networks that it was in. A capture records the traffic or the settings of a
# colleague's device, and this cannot be undone.

service "cloudflare-dex" {
  output   = "sensitive raw"
  audience = "sensitive"

  reads = [
    "dex_list_tests", "dex_test_statistics", "dex_http_test_details", "dex_traceroute_test_details",
    "dex_traceroute_test_network_path", "dex_traceroute_test_result_network_path",
    "dex_list_remote_capture_eligible_devices", "dex_list_remote_captures", "dex_list_remote_warp_diag_contents",
    "dex_explore_remote_warp_diag_output", "dex_analyze_warp_diag", "dex_fleet_status_live",
    "dex_fleet_status_over_time", "dex_fleet_status_logs", "dex_list_warp_change_events", "dex_list_colos",
  ]
  irreversible = ["dex_create_remote_pcap", "dex_create_remote_warp_diag"]

  setup {
    title   = "Cloudflare DEX"
    summary = "Digital Experience Monitoring: devices, tests and captures"

    remote {
      url     = "https://dex.mcp.cloudflare.com/mcp"
      sign_in = "oauth"
    }
  }
}
