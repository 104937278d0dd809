package generator

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/sandbox"
)

// declared is what a declaration says to the gate: of the server as a whole, and of tools.
func declared(s declaration.Server) gate.Declared {
	d := gate.Declared{Server: s.Name, Of: s.Of, Service: s.Service}
	if len(s.Allowed) > 0 {
		d.Reach, d.Owned = reach(s), s.Owned()
	}
	d.Reach.Learn = s.Attached() // nothing holds it: it may have any way out
	for _, c := range s.Capabilities {
		if c != "roots" {
			d.Asks = append(d.Asks, c)
		}
	}
	from := "owner: " + path.Base(s.File)
	whole := gate.Word{Trust: s.Trust, From: from}
	if s.Says("label") {
		_ = whole.Confidentiality.UnmarshalText([]byte(s.Label)) // it is one of the words
	}
	d.Words = append(d.Words, whole)
	for _, name := range slices.Sorted(maps.Keys(s.Tools)) {
		t := s.Tools[name]
		w := gate.Word{Tool: gate.Pattern(name), Confidentiality: t.Output.Confidentiality, Integrity: t.Output.Integrity,
			Audience: t.Audience, Effect: t.Effect, From: from}
		_ = w.Semantics.UnmarshalText([]byte(t.Semantics)) // "" is not said
		d.Words = append(d.Words, w)
	}
	d.Words = slices.DeleteFunc(d.Words, gate.Word.Silent)
	return d
}

// holds are the folders and accounts that other servers can have, too.
func holds(s declaration.Server, binds []bind) []gate.Place {
	var list []gate.Place
	for _, b := range binds {
		if !sandbox.Below(b.real, "/usr") { // which nobody may write to
			list = append(list, gate.Place{Name: b.real, Writes: b.writable})
		}
	}
	for _, k := range s.Credentials {
		name := "$" + k.From
		if k.Key != "" {
			name = "vault:" + k.Key
		}
		if account := (gate.Place{Name: name, Writes: true}); !slices.Contains(list, account) {
			list = append(list, account)
		}
	}
	return list
}

// readsOrWrites is a tool's semantics where the owner says its effect instead.
func readsOrWrites(t declaration.Tool) string {
	switch {
	case t.Semantics != "" || t.Effect == 0:
		return t.Semantics
	case t.Effect == gate.None:
		return gate.Reads.String()
	}
	return gate.Writes.String()
}

// maxHello bounds what the gateway is told of a server, in bytes as JSON: it travels in one packet of 64 KiB, to which
// the launcher adds a little.
const maxHello = 60 << 10

// adapted reports whether all that the gateway reads is of pfar's adapter: nothing else runs in the sandbox, and the
// adapter does not pass on lines as they are.
func adapted(s declaration.Server) bool {
	return s.Remote() || s.Attached() && s.Transport == declaration.UDS
}

// gateway is what the gateway is told.
func (c facts) gateway(binds []bind, f *findings) handover.Server {
	s := c.server
	g := handover.Server{
		Name: s.Name, Description: s.Description, Label: string(s.Label),
		Calls: handover.Calls{
			Timeout: s.Timeout, Retries: s.Retries, Adapted: adapted(s),
			HTTP: s.Transport != declaration.Stdio && s.Transport != declaration.Pipe,
		},
		Capabilities: s.Capabilities, Sessions: handover.Sessions(s.Sessions), Pins: string(s.Pins), Version: s.Version, Program: program(s),
		OnDemand: !s.Autostart || s.IdleTimeout > 0, IdleTimeout: s.IdleTimeout,
	}
	if s.Attached() {
		g.NewToken = newToken(s)
	}
	for name, t := range s.Tools {
		if g.Tools == nil {
			g.Tools = map[string]handover.Tool{}
		}
		g.Tools[name] = handover.Tool{
			Semantics: readsOrWrites(t), Aliases: t.Aliases, Enabled: t.Enabled, Rename: t.Rename, Description: t.Description,
			Scopes: t.Scopes, Inputs: t.Inputs, Params: t.Params, Outputs: t.Outputs,
		}
	}
	d := declared(s)
	d.Holds = holds(s, binds)
	if s.Starts() {
		c.origin().declare(&d)
	}
	kept := lasting(c, binds)
	d.Keeps = len(kept) > 0 && keeps(c)
	d.Kept = len(kept) == 0 && !s.Attached() || d.Keeps
	g.Trial = trial(s, c.host, d)
	says := len(d.Words) + len(d.Packages) + len(d.Holds) + len(d.Asks) + len(s.Allowed)
	if says > 0 || s.Attached() || d.Kept || d.Doubt != nil || d.Service != "" || d.Of != "" {
		g.Declared, _ = json.Marshal(d) // strings
	}
	if b, err := json.Marshal(g); err != nil || len(b) > maxHello {
		f.fail("tool", "Too many tools", "The blocks of the server's tools take %d bytes, and at most %d fit. Remove tools "+
			"for which the server's own hints suffice.", len(b), maxHello)
	}
	return g
}

// newToken is the command for a server that runs at a socket, which nobody can sign in to: it stores the one secret
// that pfar's adapter sends, or opens the declaration, where a token is to stand in auth.
func newToken(s declaration.Server) handover.Remedy {
	if len(s.Credentials) == 1 && s.Credentials[0].Key != "" {
		return handover.StoreSecret(s.Credentials[0].Key)
	}
	return handover.EditFile(s.Name)
}

// program is the digest of what a declaration says is run: another program under the same name offers other tools.
func program(s declaration.Server) string {
	words := append([]string{s.Command}, s.Args...)
	switch {
	case s.Remote():
		words = []string{s.URL} // however pfar reaches it
	case s.Attached():
		words = []string{s.Path, s.URL}
	}
	sum := sha256.Sum256([]byte(strings.Join(words, "\x00"))) // none can hold a NUL
	return hex.EncodeToString(sum[:])
}
