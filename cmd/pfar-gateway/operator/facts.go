package operator

import (
	"net/http"
)

// facts is the path of what is known of tools:
//
//	GET /facts  of all that are served
func (d *Desk) facts(mux *http.ServeMux) {
	mux.HandleFunc("GET /facts", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, d.Facts()) })
}
