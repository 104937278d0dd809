package generator

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/plan"
	"github.com/pfar/pfar/units/sandbox"
)

// declared is what a declaration says to the gate: of the server as a whole, and of tools.
func declared(s declaration.Server) gate.Declared {
	d := gate.Declared{Server: s.Name, Of: s.Of, Service: s.Service}
	if len(s.Allowed) > 0 {
		d.Reach = reach(s)
	}
	from := "owner: " + path.Base(s.File)
	whole := gate.Word{Trust: s.Trust, From: from}
	if s.Says("label") {
		_ = whole.Confidentiality.UnmarshalText([]byte(s.Label)) // it is one of the words
	}
	d.Words = append(d.Words, whole)
	for _, name := range slices.Sorted(maps.Keys(s.Tools)) {
		t := s.Tools[name]
		w := gate.Word{Tool: gate.Pattern(name), Confidentiality: t.Output.Confidentiality, Integrity: t.Output.Integrity, Audience: t.Audience, Effect: t.Effect, From: from}
		_ = w.Semantics.UnmarshalText([]byte(t.Semantics)) // "" is not said
		d.Words = append(d.Words, w)
	}
	d.Words = slices.DeleteFunc(d.Words, gate.Word.Silent)
	return d
}

// holds are the folders and accounts that other servers can have, too.
func (c *compiler) holds() []gate.Place {
	var list []gate.Place
	for _, b := range c.binds {
		if !slices.ContainsFunc(softwareRoots(), func(root string) bool { return sandbox.Below(b.real, root) }) { // which nobody may write to
			list = append(list, gate.Place{Name: b.real, Writes: b.writable})
		}
	}
	for _, k := range c.server.Credentials {
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

// gateWords is what the owner says to the gate, a line for each tool.
func gateWords(p plan.Plan) []string {
	d, _ := p.Declared()
	var list []string
	if d.Service != "" {
		list = append(list, "service "+quote(d.Service))
	}
	for _, w := range d.Words {
		list = append(list, saysOf(w))
	}
	return list
}

// explainGate says what the owner tells the gate of the server, and what the policy knows of it; nil: no policy is at
// hand.
func explainGate(b *strings.Builder, p plan.Plan, policy *gate.Policy) {
	d, _ := p.Declared()
	if service, certain := policy.Service(d); certain {
		fmt.Fprintf(b, "\nThe gate knows the facts of its tools: it belongs to the service %s.\n", service)
	} else if unknown := Unknown(p, policy); unknown != "" {
		fmt.Fprintf(b, "\n%s\n", unknown)
		return
	}
	list := gateWords(p)
	if len(list) == 0 {
		fmt.Fprintf(b, "\nYou declare no facts of its tools: the gate uses those of its policies, and else assumes the worst.\n")
		return
	}
	fmt.Fprintf(b, "\nYou declare these facts of its tools. For the rest the gate uses those of its policies, and else assumes the worst:\n")
	bullets(b, list)
}

func saysOf(w gate.Word) string {
	var parts []string
	add := func(said bool, words string, value fmt.Stringer) {
		if said {
			parts = append(parts, words+" "+value.String())
		}
	}
	output := gate.Label{Confidentiality: w.Confidentiality, Integrity: w.Integrity}
	add(output.Known(), "output", output)
	add(!output.Known() && w.Confidentiality != 0, "output", w.Confidentiality)
	add(!output.Known() && w.Integrity != 0, "output", w.Integrity)
	add(w.Audience != 0, "audience", w.Audience)
	add(w.Effect != 0, "effect", w.Effect)
	add(w.Semantics != 0, "semantics", w.Semantics)
	add(w.Trust.PublicSource != 0, "public_source", w.Trust.PublicSource)
	add(w.Trust.SecretData != 0, "secret_data", w.Trust.SecretData)
	add(w.Trust.PublicSink != 0, "public_sink", w.Trust.PublicSink)
	add(w.Trust.DangerousWrites != 0, "dangerous_writes", w.Trust.DangerousWrites)
	about := "all that it offers"
	if w.Tool != "" {
		about = quote(string(w.Tool))
	}
	return about + ": " + strings.Join(parts, ", ")
}
