package operator

import (
	"net/http"

	"github.com/pfar/pfar/policies/gate"
)

// Known is what the gate goes by for one tool.
type Known struct {
	Server string     `json:"server"`
	Tool   string     `json:"tool"`
	Facts  gate.Facts `json:"facts"`
}

// facts is the path of what is known of tools:
//
//	GET /facts  of all that are served
func (d *Desk) facts(mux *http.ServeMux) {
	mux.HandleFunc("GET /facts", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, d.Facts()) })
}
