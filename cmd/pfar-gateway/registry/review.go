package registry

import (
	"encoding/json"
	"fmt"

	"github.com/pfar/pfar/cmd/pfar-gateway/jsonrpc"
	"github.com/pfar/pfar/cmd/pfar-gateway/pins"
)

// Pin has definitions held back that the owner has not accepted, from before the first server comes up.
func (r *Registry) Pin(s *pins.Store) {
	r.pins = s
	s.Watch(func(server string) {
		r.mu.Lock()
		e := r.entries[server]
		rests := e != nil && e.rests()
		r.mu.Unlock()
		if e != nil {
			e.upstream.again(0, AllKinds)
		}
		if rests {
			go r.reviewAsleep(server)
		}
	})
}

// reviewed is what of a listing may be served.
type reviewed struct {
	listing      *Listing
	found        *Listing // all of it
	instructions string
	held         [Resources]map[string]bool
	count        int // of what is held, with the instructions
}

// review shows the owner's store what was found, and returns what is accepted of it. Resources are data rather than
// definitions: there are many, they come and go, and nobody could accept them one by one.
func (r *Registry) review(u *Upstream, found *Listing) reviewed {
	said := u.Agreed().Instructions
	if r.pins == nil {
		return reviewed{listing: found, found: found, instructions: said}
	}
	o := pins.Offer{Server: u.server.Name, Version: u.Agreed().title(), Program: u.server.Program, TrustFirst: u.server.Pins == "trust-first"}
	for _, k := range [...]Kind{Tools, Prompts} {
		for _, i := range found[k] {
			o.Definitions = append(o.Definitions, pins.Definition{Kind: pinKind(k), Name: i.Name, Raw: i.Raw})
		}
	}
	if said != "" {
		o.Definitions = append(o.Definitions, pins.Definition{Kind: pins.Instructions, Name: string(pins.Instructions), Raw: jsonrpc.Quote(said)})
	}
	if u.server.Files != nil {
		o.Definitions = append(o.Definitions, pins.Definition{Kind: pins.Program, Name: string(pins.Program), Raw: u.server.Files})
	}
	review := r.pins.Review(o)
	verdicts := review.Verdicts
	shown := *found
	v := reviewed{listing: &shown, found: found, instructions: said}
	n := 0
	for _, k := range [...]Kind{Tools, Prompts} {
		shown[k] = nil
		for _, i := range found[k] {
			if verdicts[n].State == pins.Accepted && review.Program == pins.Accepted {
				i.Pin, i.Reviewed = verdicts[n].Digest, verdicts[n].Person
				shown[k] = append(shown[k], i)
			} else {
				v.hold(k, i.Name)
			}
			n++
		}
	}
	if said != "" && verdicts[n].State != pins.Accepted {
		v.count++
		v.instructions = ""
		_ = json.Unmarshal(r.pins.Instructions(u.server.Name), &v.instructions) // what was accepted before, or nothing
	}
	if review.Program != pins.Accepted { // another program, of whose answers nothing is known
		shown[Resources], shown[Templates] = nil, nil
		v.instructions = ""
		v.count++
	}
	return v
}

func pinKind(k Kind) pins.Kind {
	if k == Prompts {
		return pins.Prompt
	}
	return pins.Tool
}

func (v *reviewed) hold(k Kind, name string) {
	if v.held[k] == nil {
		v.held[k] = make(map[string]bool)
	}
	v.held[k][name] = true
	v.count++
}

// otherVersion is an error if the server says that it is of another version than its declaration expects. What that one does,
// nobody has declared.
func (u *Upstream) otherVersion(a Agreement) error {
	var info struct {
		Version string `json:"version"`
	}
	_ = json.Unmarshal(a.Info, &info) // plainInfo has read it
	if u.server.Version == "" || info.Version == u.server.Version {
		return nil
	}
	return fmt.Errorf("the server is of another version than its declaration wants: it says %.40q, and not version = %q; install that one, "+
		"or declare the one that runs", info.Version, u.server.Version)
}
