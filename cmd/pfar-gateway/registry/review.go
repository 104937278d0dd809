package registry

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"

	"github.com/pfar/pfar/cmd/pfar-gateway/pins"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/policies/gate"
	shipped "github.com/pfar/pfar/policies/reviewed"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/jsonrpc"
)

// reviewer knows by the owner's store what of a server may be served.
type reviewer struct {
	pins *pins.Store // what has been accepted; nil holds nothing back, which only tests want
	log  *slog.Logger
}

// reviewed is what of a listing may be served.
type reviewed struct {
	by      any // identity of what its owner said of the server then (Upstream.Declared)
	server  handover.Server
	listing *Listing
	found   *Listing // all of it
	about   About
	held    [Resources]map[string]bool
	count   int // of what is held, with the instructions
	strange int // of what is served and nobody has reviewed
}

// review shows the owner's store what was found, and returns what is accepted of it. Resources are data rather than
// definitions: all of them are served, and the store remembers who has accepted which.
func (r *reviewer) review(u *Upstream, found *Listing) reviewed {
	by, _ := u.Declared() // first: of a later declaration this is not the identity
	server := u.Server()
	said := u.Agreed().Said
	if r.pins == nil {
		listing := *found
		listing[Tools] = slices.Clone(found[Tools]) // others read what was found
		v := reviewed{by: by, server: server, listing: &listing, found: found, about: About{Instructions: said}}
		r.worded(&v)
		v.hide(u)
		return v
	}
	o := pins.Offer{
		Server: server.Name, Version: u.Agreed().Title(), Program: server.Program, TrustFirst: server.Pins == "trust-first",
		Shipped: shippedFor(server.Declared),
	}
	if said != "" { // before the resources, which may take all the room that there is
		o.Definitions = append(o.Definitions, pins.Definition{Kind: pins.Instructions, Name: string(pins.Instructions), Raw: jsonrpc.Quote(said)})
	}
	if server.Files != nil {
		o.Definitions = append(o.Definitions, pins.Definition{Kind: pins.Program, Name: string(pins.Program), Raw: server.Files})
	}
	for k := Tools; k <= Templates; k++ {
		for _, i := range found[k] {
			o.Definitions = append(o.Definitions, pins.Definition{Kind: pinKinds[k], Name: i.Name, Raw: i.Raw})
		}
	}
	result := r.pins.Review(o)
	v := reviewed{by: by, server: server, listing: new(Listing), found: found, about: About{InfoReviewed: result.Version}}
	verdicts := result.Verdicts
	if said != "" {
		v.instructions(r.pins, server.Name, said, verdicts[0])
		verdicts = verdicts[1:]
	}
	if server.Files != nil {
		verdicts = verdicts[1:] // result.Program
	}
	for k := Tools; k <= Templates; k++ {
		v.take(k, found[k], verdicts[:len(found[k])], result.Program == pins.Accepted)
		verdicts = verdicts[len(found[k]):]
	}
	if result.Program != pins.Accepted { // another program, of whose answers nothing is known
		v.about = About{}
		v.count++
	}
	r.worded(&v)
	v.hide(u)
	return v
}

// hide has nothing served of a server whose secrets are wrong.
func (v *reviewed) hide(u *Upstream) {
	if u.trial.hides() {
		v.listing, v.strange = new(Listing), 0
	}
}

// instructions are what the server says of itself, or, while that is held, what was accepted of it before.
func (v *reviewed) instructions(store *pins.Store, server, said string, verdict pins.Verdict) {
	v.about.Instructions, v.about.InstructionsReviewed = said, verdict.Reviewed
	if verdict.State != pins.Accepted {
		v.count++
		var raw []byte
		raw, v.about.InstructionsReviewed = store.Instructions(server)
		v.about.Instructions = ""
		_ = json.Unmarshal(raw, &v.about.Instructions) // or nothing
	}
	if v.about.Instructions != "" && !v.about.InstructionsReviewed {
		v.strange++
	}
}

// take sorts what was found of a kind into what is served and what is held.
func (v *reviewed) take(k Kind, found []Item, verdicts []pins.Verdict, program bool) {
	for n, i := range found {
		said := verdicts[n]
		switch {
		case !program && k >= Resources:
			continue
		case !program:
			said.State = pins.New
		}
		switch {
		case k < Resources && said.State != pins.Accepted:
			v.hold(k, i.Name)
			continue
		case k < Resources:
			i.Pin = said.Digest
		}
		i.Pure = said.Pure
		i.Reviewed, i.Shipped = said.Person, said.Reviewed && !said.Person
		if said.Reviewed {
			i.Raw = said.Raw
		}
		if i.Strange() {
			v.strange++
		}
		v.listing[k] = append(v.listing[k], i)
	}
}

// worded applies what the owner says of tools.
func (r *reviewer) worded(v *reviewed) {
	tools, taken := worded(v.server.Name, v.listing[Tools], v.server.Tools)
	v.listing[Tools] = tools
	for _, name := range taken {
		const text = "keeping a tool's own name: another tool has the one of its declaration"
		r.log.Warn(text, "server", v.server.Name, "name", name)
	}
}

// shippedFor is what pfar ships of the package that a server runs, nil for nothing. A server that only has the name of
// a service may be of any program.
func shippedFor(declared []byte) pins.Shipped {
	var d gate.Declared
	if json.Unmarshal(declared, &d) != nil {
		return nil
	}
	if s := shipped.Of(d.Service, d.Packages); s != nil {
		return s
	}
	return nil
}

var pinKinds = [...]pins.Kind{Tools: pins.Tool, Prompts: pins.Prompt, Resources: pins.Resource, Templates: pins.Template}

func (v *reviewed) hold(k Kind, name string) {
	if v.held[k] == nil {
		v.held[k] = make(map[string]bool)
	}
	v.held[k][name] = true
	v.count++
}

// otherVersion is an error if the server says that it is of another version than its declaration expects. What that one
// does, nobody has declared.
func (u *Upstream) otherVersion(a protocol.Agreement) error {
	var info struct {
		Version string `json:"version"`
	}
	_ = json.Unmarshal(a.Info, &info) // plainInfo has read it
	if u.Server().Version == "" || info.Version == u.Server().Version {
		return nil
	}
	return fmt.Errorf("%w: it says %.40q, and not version = %q; install that one, or declare the one that runs", errVersion,
		info.Version, u.Server().Version)
}

const errVersion = failure.Fact("the server is of another version than its declaration wants")

// program says whether a server's program is accepted.
func (r *reviewer) program(s handover.Server) pins.State {
	if r.pins == nil {
		return pins.Accepted
	}
	return r.pins.Program(s.Name, s.Program, s.Files)
}
