package registry

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"

	"github.com/pfar/pfar/units/handover"
)

var errNotLive = errors.New("no process of this server runs")

// change answers pfard, which says that the declaration of a live server has changed.
func (r *Registry) change(c *handover.Conn, asked handover.Message) {
	m, server := handover.Message{Ready: new(handover.Ready)}, *asked.Change
	if err := r.redeclare(server, asked.At, asked.Proof); err != nil {
		r.log.Warn("taking a changed declaration; pfard starts the server again", "server", server.Name, "error", err.Error())
		m = handover.Message{Failed: err.Error()}
	}
	_ = c.Send(m) // that pfard left is its own affair: without an answer it starts the server again
}

// redeclare has the processes of a live server go by another word of the owner's. When it returns nil, each request
// from here on is judged by that, lists show it, and the next gateway begins with it.
func (r *Registry) redeclare(server handover.Server, at int64, proof string) error {
	r.table.mu.Lock()
	e := r.table.entries[server.Name]
	if e == nil || !e.upstream.Alive() {
		r.table.mu.Unlock()
		return errNotLive
	}
	u, before := e.upstream, e.upstream.Server()
	if !reflect.DeepEqual(before.Process(), server.Process()) {
		r.table.mu.Unlock()
		return fmt.Errorf("the process of %q would have to be another one", server.Name)
	}
	e.redeclared = redeclared{at, server}
	all := append(r.sessions.of(server.Name), u)
	for _, p := range all {
		p.amend(server)
	}
	u.newProof(proof, before)
	r.table.mu.Unlock()

	found := r.serveAgain(u, !bytes.Equal(before.Declared, server.Declared))
	for _, p := range all {
		l := new(Listing)
		if p == u {
			l = found
		}
		if l == nil { // nothing is remembered of it before its first discovery
			continue
		}
		if err := p.write(l); err != nil {
			return fmt.Errorf("writing it down for the next gateway: %w", err)
		}
	}
	return nil
}

// serveAgain publishes a server's lists under its new declaration and tells clients which lists changed. If judged, the
// facts changed, and with them perhaps every tool. It returns the last discovery, nil before the first.
func (r *Registry) serveAgain(u *Upstream, judged bool) (found *Listing) {
	name := u.Server().Name
	newest := func() *Listing {
		if e := r.table.entries[name]; e != nil && e.upstream == u && e.served != nil && e.served.upstream == u {
			found = e.served.found
		}
		return found
	}
	v := r.table.reviewNow(u, newest)
	defer r.table.mu.Unlock()
	e := r.table.entries[name]
	if found == nil || e == nil || e.upstream != u || e.served == nil || !u.Alive() {
		return found
	}
	changed := r.table.serve(e, u, v)
	if judged {
		changed |= e.kinds() & Tools.Set()
	}
	r.table.publish(changed)
	r.table.tell(Event{Server: name, Changed: changed, Redeclared: u})
	return found
}
