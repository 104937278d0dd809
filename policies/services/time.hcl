# The clock.

service "time" {
  packages = ["pypi:mcp-server-time"]
  output   = "public clean"
  audience = "sensitive"

  reads = ["get_current_time", "convert_time"]

  # That the package installs is not tested by pfar's makers.
  setup {
    title   = "Time"
    summary = "The clock, and times of other zones"
    label   = "public"
    package = "pypi:mcp-server-time==2026.10.19"

    test "get_current_time" {
      arguments = { timezone = "UTC" }
    }
  }
}
