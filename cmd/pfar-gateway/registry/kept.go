package registry

import (
	"bytes"
	"encoding/json"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/jsonrpc"
)

// offered is all that a server has last offered, as it is kept of one on demand beside its pins, and of each that runs
// for the next gateway.
type offered struct {
	Program      string // SHA-256 of the command and arguments that offered it, in hexadecimal
	Protocol     string
	Transport    string
	Versions     []string
	Capabilities []byte
	Info         []byte
	Instructions string
	Lists        [Templates + 1][][]byte // definitions, as they came
}

// offers returns it of a server that runs.
func (u *Upstream) offers(found *Listing) offered {
	a := u.Agreed()
	o := offered{
		Program: u.Server().Program, Protocol: a.Protocol, Transport: a.Transport, Versions: a.Versions,
		Info: a.Info, Instructions: a.Said,
		Capabilities: a.Capabilities.Merge(nil, func([]byte) bool { return true }, nil),
	}
	for k, items := range found {
		for _, i := range items {
			o.Lists[k] = append(o.Lists[k], i.Raw)
		}
	}
	return o
}

// agreement is what the handshake had settled.
func (o offered) agreement() (a protocol.Agreement, err error) {
	a = protocol.Agreement{
		Protocol: o.Protocol, Transport: o.Transport, Versions: o.Versions, Info: o.Info, Said: o.Instructions,
	}
	a.Capabilities, err = jsonrpc.Object(o.Capabilities, nil)
	return a, err
}

// listing is what it had on its lists.
func (u *Upstream) listing(o offered) *Listing {
	found := new(Listing)
	for k := Tools; k <= Templates; k++ {
		found[k] = u.items(k, o.Lists[k], nil)
	}
	return found
}

// keep writes down what a server on demand offers, so that it can be listed while it sleeps, also after a restart.
func (r *reviewer) keep(u *Upstream, found *Listing) {
	if r.pins == nil || !u.Server().OnDemand {
		return
	}
	b, err := json.Marshal(u.offers(found))
	if err == nil {
		if old, _ := r.pins.Kept(u.Server().Name); bytes.Equal(old, b) {
			return
		}
		err = r.pins.Keep(u.Server().Name, b)
	}
	if err != nil {
		u.log.Error("what the server offers is not kept: after a restart of pfar it is started to learn it", "error", err.Error())
	}
}

// kept returns what is kept of a server, and false if there is nothing, or it is of another program.
func (r *reviewer) kept(server handover.Server) (o offered, ok bool) {
	if r.pins == nil {
		return o, false
	}
	b, err := r.pins.Kept(server.Name)
	if err == nil && b != nil {
		err = json.Unmarshal(b, &o)
	}
	if err != nil {
		r.log.Error("what the server has offered cannot be read: it is started to learn it", "server", server.Name, "error", err.Error())
	}
	return o, err == nil && b != nil && o.Program == server.Program
}

// state is what the next gateway needs to know of a conversation, beside the numbers.
type state struct {
	Server  handover.Server
	Offered offered
	Proof   string
	Trial   units.Verification
	findings
}

// write writes it.
func (u *Upstream) write(l *Listing) error {
	u.writing.Lock()
	defer u.writing.Unlock()
	proof, is := u.trial.now()
	return u.memory.Write(state{Server: u.Server(), Offered: u.offers(l), Proof: proof, Trial: is,
		findings: u.lists.now()})
}

func (u *Upstream) remember(l *Listing) {
	if err := u.write(l); err != nil {
		u.log.Warn("writing down for the next gateway what is known, ignoring", "error", err.Error())
	}
}
