package loopback

import _ "embed"

// Style is what all pages look like, in light and dark, on a telephone and on a wide screen.
//
//go:embed page.css
var Style string
