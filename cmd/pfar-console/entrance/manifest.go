package entrance

import (
	_ "embed"
	"fmt"
	"net/http"
)

// A browser installs the pages of operators at other machines as an application (Web Application Manifest, W3C).
const (
	manifestPath = "/manifest.webmanifest"
	iconPath     = "/icon.svg"

	manifest = `{"name":"pfar","short_name":"pfar","start_url":"/","scope":"/","display":"standalone",` +
		`"background_color":"#f6f7f9","theme_color":"#0b57d0",` +
		`"icons":[{"src":"` + iconPath + `","sizes":"any","type":"image/svg+xml","purpose":"any"}]}`
)

//go:embed icon.svg
var icon string

func serveManifest(w http.ResponseWriter) { serveText(w, "application/manifest+json", manifest) }

func serveIcon(w http.ResponseWriter) { serveText(w, "image/svg+xml", icon) }

func serveText(w http.ResponseWriter, kind, text string) {
	w.Header().Set("Content-Type", kind)
	fmt.Fprint(w, text)
}
