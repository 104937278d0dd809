package operator

import (
	"context"
	"errors"
	"net/http"

	"github.com/pfar/pfar/policies/drift"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/jsonrpc"
	"github.com/pfar/pfar/units/operator"
)

// facts is the path of what is known of tools:
//
//	GET /facts  of all that are served
func (d *Desk) facts(mux *http.ServeMux) {
	mux.HandleFunc("GET /facts", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, d.Facts()) })
}

// Notices says what has become of notices that calls wait (notice.Teller).
type Notices interface{ Notices() []operator.Notice }

// notices is the path of that:
//
//	GET /notices  of each declaration
func (d *Desk) notices(mux *http.ServeMux) {
	mux.HandleFunc("GET /notices", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, d.Notices.Notices())
	})
}

// Servers are those that run or sleep (registry.Registry).
type Servers interface {
	Verify(ctx context.Context, server string) (units.Verification, error)
	Refresh(ctx context.Context, server string) ([]drift.Change, error)
	Offers(server string) ([]drift.Definition, error)
}

// servers are the paths of servers themselves. Those that ask a server something wake it if it sleeps:
//
//	POST /servers/SERVER/verify   call what shows whether its secrets are right
//	POST /servers/SERVER/refresh  have it list again what it offers; answers with what has changed
//	GET  /servers/SERVER/offers   what it has last offered
func (d *Desk) servers(mux *http.ServeMux) {
	mux.HandleFunc("POST /servers/{server}/verify", func(w http.ResponseWriter, r *http.Request) {
		var v units.Verification
		server := r.PathValue("server")
		d.act(w, r, Act{Verb: "verify-server", Subject: server}, &v, func() (err error) {
			v, err = d.Servers.Verify(r.Context(), server)
			v.For = ""
			return plainly(err)
		})
	})
	mux.HandleFunc("POST /servers/{server}/refresh", func(w http.ResponseWriter, r *http.Request) {
		list, err := d.Servers.Refresh(r.Context(), r.PathValue("server"))
		reply(w, list, plainly(err))
	})
	mux.HandleFunc("GET /servers/{server}/offers", func(w http.ResponseWriter, r *http.Request) {
		list, err := d.Servers.Offers(r.PathValue("server"))
		reply(w, list, plainly(err))
	})
}

// plainly is an error of the registry in its own words.
func plainly(err error) error {
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok && e.Raw == nil {
		return errors.New(e.Text)
	}
	return err
}
