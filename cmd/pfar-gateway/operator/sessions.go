package operator

import (
	"fmt"
	"net/http"

	"github.com/pfar/pfar/cmd/pfar-gateway/label"
)

// sessions are the paths of what sessions have seen, and of which servers they have written to:
//
//	GET  /sessions                      with ?sources also what raised their labels
//	GET  /sessions/CLIENT/HANDLE        with what raised its label
//	POST /sessions                      {"client": "laptop"}: another one
//	POST /sessions/CLIENT/HANDLE/reset  to be as if it had seen nothing
//	POST /sessions/CLIENT/HANDLE/thaw
//	POST /sessions/CLIENT/HANDLE/end
//	GET  /stains
//	POST /stains/SERVER/clear
func (d *Desk) sessions(mux *http.ServeMux) {
	mux.HandleFunc("GET /sessions", func(w http.ResponseWriter, r *http.Request) {
		list, err := d.Sessions.List()
		if r.URL.Query().Has("sources") {
			for i := range list {
				list[i].Sources = d.Sessions.Sources(list[i].Client, list[i].Handle)
			}
		}
		reply(w, list, err)
	})
	mux.HandleFunc("GET /sessions/{client}/{handle}", func(w http.ResponseWriter, r *http.Request) {
		one, err := d.Sessions.Show(r.PathValue("client"), r.PathValue("handle"))
		reply(w, one, named(r, err))
	})
	mux.HandleFunc("POST /sessions", d.newSession)
	for verb, do := range map[string]func(client, handle, by string) error{
		"reset": func(client, handle, by string) error {
			d.forget(client, handle)
			err := d.Sessions.Reset(client, handle, by)
			d.Grants.Forget(client, handle) // what has come in between, with the label before
			return err
		},
		"thaw": func(client, handle, _ string) error { return d.Sessions.Thaw(client, handle) },
		"end": func(client, handle, _ string) error {
			d.forget(client, handle)
			err := d.Sessions.End(client, handle)
			if d.Ended != nil { // also with an error: it may be over, and not on the disk
				d.Ended()
			}
			return err
		},
	} {
		mux.HandleFunc("POST /sessions/{client}/{handle}/"+verb, func(w http.ResponseWriter, r *http.Request) {
			client, handle := r.PathValue("client"), r.PathValue("handle")
			subject := client + "/" + handle
			act := Act{Verb: verb + "-session", Subject: subject}
			if was, err := d.Sessions.Show(client, handle); err == nil {
				act.Was = &was
			}
			d.act(w, r, act, map[string]string{"session": subject, "result": verb}, func() error {
				return named(r, do(client, handle, approver(r).Name))
			})
		})
	}
	mux.HandleFunc("GET /stains", func(w http.ResponseWriter, _ *http.Request) {
		list, err := d.Sessions.Stains()
		reply(w, list, err)
	})
	mux.HandleFunc("POST /stains/{server}/clear", func(w http.ResponseWriter, r *http.Request) {
		server := r.PathValue("server")
		d.act(w, r, Act{Verb: "clear-stain", Subject: server}, map[string]string{"server": server, "result": "clear"}, func() error { return d.Sessions.Clear(server) })
	})
}

// named says which session an error is of.
func named(r *http.Request, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%.100q: %w", r.PathValue("client")+"/"+r.PathValue("handle"), err)
}

func (d *Desk) newSession(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Client string `json:"client"`
	}
	if err := read(w, r, maxBody, &body); err != nil {
		reply(w, nil, err)
		return
	}
	handle := label.Handle()
	d.act(w, r, Act{Verb: "new-session", Subject: body.Client + "/" + handle}, map[string]string{"client": body.Client, "handle": handle}, func() error {
		return d.Sessions.New(body.Client, handle)
	})
}

// forget ends what is open and granted of a session.
func (d *Desk) forget(client, handle string) {
	d.Approvals.Forget(client, handle)
	d.Grants.Forget(client, handle)
}
