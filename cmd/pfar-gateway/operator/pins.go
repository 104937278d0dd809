package operator

import (
	"fmt"
	"net/http"

	"github.com/pfar/pfar/cmd/pfar-gateway/pins"
)

// pins are the paths of what servers offer, and which of it is held back:
//
//	GET  /pins                   the status of all servers
//	GET  /pins/SERVER?name=TITLE differences and descriptors of one: of all, or of what is named, once or more often
//	GET  /pins/SERVER?shown      no more of it than a page shows
//	POST /pins/SERVER/accept     {"names": ["search@DIGEST"]}, or {"all": true}; no name at all accepts what drifts
//	                             {"names": [...], "pure": true} also says that these tools are pure, or are not
//	POST /pins/SERVER/forget
func (d *Desk) pins(mux *http.ServeMux) {
	mux.HandleFunc("GET /pins", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, d.Pins.Status()) })
	mux.HandleFunc("GET /pins/{server}", func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		one, err := d.Pins.Show(r.PathValue("server"), query["name"]...)
		if query.Has("shown") {
			onlyShown(&one)
		}
		reply(w, one, err)
	})
	mux.HandleFunc("POST /pins/{server}/accept", d.accept)
	mux.HandleFunc("POST /pins/{server}/forget", func(w http.ResponseWriter, r *http.Request) {
		server := r.PathValue("server")
		d.act(w, r, Act{Verb: "forget-pins", Subject: server}, map[string]bool{"forgotten": true}, func() error { return d.Pins.Forget(by(r), server) })
	})
}

// maxShown bounds the texts of an answer for a page, in bytes.
const maxShown = 1 << 20

// onlyShown leaves out what no page shows: definitions as they came, and texts for which it has no room.
func onlyShown(p *pins.ServerStatus) {
	room := maxShown
	fits := func(text *string, cut *int) {
		if len(*text) > room {
			*text, *cut = "", len(*text)
		}
		room -= len(*text)
	}
	for i := range p.Held {
		p.Held[i].Raw = nil
		fits(&p.Held[i].Diff, &p.Held[i].Cut)
	}
	for i := range p.Descriptors {
		p.Descriptors[i].Raw = nil
		fits(&p.Descriptors[i].Text, &p.Descriptors[i].Cut)
	}
}

// maxNames bounds what is named to be accepted, in bytes: the names and digests of all definitions of a server.
const maxNames = 4 << 20

// accept does what the body asks. That all is meant has to be said: a misspelt "names" must not mean it.
func (d *Desk) accept(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Names []string `json:"names"`
		All   bool     `json:"all"`
		Pure  *bool    `json:"pure"`
	}
	err := read(w, r, maxNames, &body)
	if err == nil && body.All == (body.Names != nil) {
		err = fmt.Errorf(`%w: want {"names": ["search"]} or {"all": true}`, errRequest)
	}
	if err == nil && body.Pure != nil && len(body.Names) == 0 {
		err = fmt.Errorf("%w: name the tools that are pure", errRequest)
	}
	if _, signed := r.Context().Value(signerKey{}).(string); err == nil && signed && body.All {
		err = fmt.Errorf("%w: name the definitions: a passkey signs no more than what was shown", errRequest)
	}
	if err != nil {
		reply(w, nil, err)
		return
	}
	server, accepted := r.PathValue("server"), map[string][]string{"accepted": {}}
	d.act(w, r, Act{Verb: "accept-pins", Subject: server}, accepted, func() error {
		switch {
		case body.Pure != nil:
			done, err := d.Pins.Trust(by(r), server, *body.Pure, body.Names...)
			addTitles(accepted, done)
			return err
		case !body.All && len(body.Names) == 0:
			return d.Pins.Settle(by(r), server)
		}
		done, err := d.Pins.Accept(by(r), server, body.Names...)
		addTitles(accepted, done)
		return err
	})
}

// addTitles adds the titles of what was accepted.
func addTitles(accepted map[string][]string, done []pins.Verdict) {
	for _, v := range done {
		accepted["accepted"] = append(accepted["accepted"], v.Title())
	}
}

// by is who asks, for the store's own record.
func by(r *http.Request) pins.By {
	a := approver(r)
	return pins.By{User: fmt.Sprintf("uid %d", a.UID), Name: a.Name, Channel: a.Channel}
}
