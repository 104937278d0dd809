# Post the weather of a place to a channel. The template reads weather_data, which the first step writes.
#
#   pfar flow run ./examples/flows/weather.hcl --location Bern

store = { channel = "#weather" }

step "mcp-weather-get" {
  params = { units = "celsius" }
  next   = "template"
}

step "template" {
  params = { template = "The weather: {{weather_data}}" }
  next   = "mcp-slack-send-message"
}

step "mcp-slack-send-message" {
  reads = { message = "text" }
}
