package enforce

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/policies/gate"
)

// known are facts that have been resolved, for the policy and the declarations that there are.
type known struct {
	items     atomic.Int64
	byKey     sync.Map                       // key -> resolved
	sandboxes atomic.Pointer[gate.Sandboxes] // of all servers; nil: not known yet, and none is confined
}

// resolved is what is known of an item.
type resolved struct {
	facts     gate.Facts
	opens     gate.Facts    // of a call that has the server open a URL, in a session that has heard from it
	addresses []string      // its arguments that the server opens as URLs
	reach     egress.Policy // where the server may connect to
	holds     []gate.Place  // where its data is that other servers have, too
	keeps     bool          // what a call overwrites is to be kept before it
	before    *resolved     // by a declaration that has been edited since; nil: it has not been
}

// key is all that facts depend on.
type key struct {
	policy *gate.Policy
	others *gate.Sandboxes
	owner  any
	kind   gate.Kind
	name   string // of a tool
	pin    string // of a tool: with another definition it claims other things
	hints  bool   // its claims count
	typed  bool   // what it gives may be typed values
	unkept bool   // undo could not keep what it overwrites
}

// maxKnown bounds what is kept; then it is resolved anew.
const maxKnown = 1 << 14

func (k *known) forget() {
	k.byKey.Clear()
	k.items.Store(0)
}

// of returns what a policy says of an item. It looks at the other servers once, until something of them changes.
func (k *known) of(p *gate.Policy, it *Item) resolved {
	at := key{
		policy: p, others: k.sandboxes.Load(), owner: it.Owner, kind: it.Kind, unkept: it.unkept != "",
	}
	if it.Kind == gate.Tool { // what is said of a server holds for all others
		at.name, at.pin, at.hints, at.typed = it.Name, it.Pin, it.Hints != nil, it.Typed != nil
	}
	if f, ok := k.byKey.Load(at); ok {
		return f.(resolved)
	}
	offer := gate.Offer{Server: gate.Declared{Server: it.Server}, Kind: it.Kind, Name: it.Name}
	if it.Declared != nil && json.Unmarshal(it.Declared, &offer.Server) != nil || offer.Server.Server != it.Server {
		unknown := gate.Offer{Server: gate.Declared{Server: it.Server}, Kind: it.Kind, Name: it.Name}
		return resolved{facts: gate.Worst, opens: gate.Worst, addresses: p.Addresses(unknown)}
	}
	offer.Unkept = it.unkept != ""
	if it.Hints != nil {
		offer.Hints = it.Hints()
	}
	if it.Typed != nil {
		offer.Typed = it.Typed()
	}
	offer.Confined = at.others.Of(offer.Server)
	is := offer.Server
	f := resolved{facts: p.Resolve(offer), addresses: p.Addresses(offer), reach: is.Reach, holds: is.Holds}
	f.keeps, f.opens = is.Keeps, f.facts
	if len(f.addresses) > 0 && offer.Confined.Bound == gate.NamedHosts {
		offer.Confined = gate.Confinement{}
		f.opens = p.Resolve(offer)
	}
	if it.Owner != nil {
		if k.items.Add(1) > maxKnown {
			k.forget()
		}
		k.byKey.Store(at, f)
	}
	return f
}

// now is of, and no laxer than what the owner says by now: an edit in the course of a request loosens nothing of it.
func (k *known) now(p *gate.Policy, it *Item) resolved {
	before := k.of(p, it)
	edited, ok := it.edited()
	if !ok {
		return before
	}
	f := k.of(p, &edited)
	f.facts, f.before, f.keeps = before.facts.Strictest(f.facts), &before, before.keeps || f.keeps
	f.opens = before.opens.Strictest(f.opens)
	return f
}

// edited is the item by the declaration that there is now, false if that is the same.
func (it *Item) edited() (Item, bool) {
	if it.Now == nil {
		return Item{}, false
	}
	now := *it
	now.Owner, now.Declared = it.Now()
	return now, !bytes.Equal(now.Declared, it.Declared)
}

// declaredNow is the digest of what the owner says of an item's server: of both, if it was edited meanwhile.
func (it *Item) declaredNow() string {
	h := sha256.New()
	h.Write(it.Declared)
	if edited, ok := it.edited(); ok {
		h.Write([]byte("\n"))
		h.Write(edited.Declared)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// sent are the arguments of one request. Who looks at their members reads them once for all.
type sent struct {
	text   []byte
	read   bool
	values map[string]json.RawMessage
	err    error
}

// members returns the arguments by name. An error is of a text that is not a JSON object or null.
func (s *sent) members() (map[string]json.RawMessage, error) {
	if !s.read {
		s.read, s.err = true, json.Unmarshal(s.text, &s.values)
	}
	return s.values, s.err
}

// told are the facts of a call with these arguments. A read gives its data to the owner of a named host. A URL does
// not, in a session that has read strangers' text, in each of these cases:
//
//   - That text came from the server: the host's owner may have written it, and chosen the URL.
//   - The arguments repeat private data or strangers' text that the session has read (repeats), wherever it came from.
//   - It is not known what the session has read.
func (r resolved) told(
	server string, arguments *sent, session gate.Label, sources []gate.Source, repeats func() bool,
) gate.Facts {
	if r.opens == r.facts || session.Integrity == gate.Clean {
		return r.facts
	}
	values, err := arguments.members()
	if err != nil {
		return r.opens
	}
	carries := func(name string) bool { return values[name] != nil && string(values[name]) != "null" }
	if !slices.ContainsFunc(r.addresses, carries) {
		return r.facts
	}
	known := gate.Start
	for _, source := range sources {
		known = known.Join(source.Label)
		if (source.Server == server || source.Server == "") && source.Label.Integrity != gate.Clean {
			return r.opens
		}
	}
	if known.Integrity != session.Integrity || session.Confidentiality > r.opens.Audience && repeats() {
		return r.opens
	}
	return r.facts
}

// astray says why an argument is a URL that the server may not open, and "" if none is. The arguments are a JSON
// object, as the request's schema wants it.
func (r resolved) astray(arguments *sent) string {
	if r.before != nil {
		if why := r.before.astray(arguments); why != "" {
			return why
		}
	}
	if len(r.addresses) == 0 || len(arguments.text) == 0 {
		return ""
	}
	values, err := arguments.members()
	if err != nil {
		return r.addresses[0] + " cannot be read"
	}
	for _, name := range r.addresses {
		var url *string
		if value, given := values[name]; given && json.Unmarshal(value, &url) != nil {
			return name + " is not text"
		}
		if url == nil { // absent, or null
			continue
		}
		if why := gate.Astray(r.reach, name, *url); why != "" {
			return why
		}
	}
	return ""
}

// tightened are facts as a client's declaration has them, which makes nothing laxer.
func tightened(f gate.Facts, r *access.Rights, server string) gate.Facts {
	if r == nil {
		return f
	}
	const from = "client's declaration"
	t := r.Trust(server)
	if least := r.Least(server); least > f.Output.Confidentiality {
		f.Output.Confidentiality, f.From.Confidentiality = least, from
	}
	if t.SecretData && f.Output.Confidentiality < gate.Sensitive {
		f.Output.Confidentiality, f.From.Confidentiality = gate.Sensitive, from
	}
	if t.PublicSource && f.Output.Integrity < gate.Raw {
		f.Output.Integrity, f.From.Integrity = gate.Raw, from
	}
	if t.PublicSink && f.Audience > gate.Public {
		f.Audience, f.From.Audience = gate.Public, from
	}
	if t.DangerousWrites && f.Effect == gate.Reversible {
		f.Effect, f.From.Effect = gate.Irreversible, from
	}
	return f
}
