package gate

import (
	"slices"

	"github.com/pfar/pfar/policies/egress"
)

// Addresses are the arguments of a tool that its server opens as URLs. Whoever names one is heard, and nobody takes one
// back.
func (p *Policy) Addresses(o Offer) []string {
	if p == nil || o.Kind != Tool {
		return nil
	}
	service, _ := p.Service(o.Server)
	var names []string
	add := func(words []Word) {
		for _, w := range saying(words, o) {
			names = append(names, w.Addresses...)
		}
	}
	add(p.Services[service].Words)
	add(slices.DeleteFunc(slices.Clone(p.Words), func(w Word) bool {
		return (w.Service == "" || w.Service != service) && (w.Server == "" || w.Server != o.Server.Server)
	}))
	add(o.Server.Words)
	slices.Sort(names)
	return slices.Compact(names)
}

// Astray says in words why a server that reaches this may not open the URL of an argument, and "" if it may. The
// server's egress bridge judges each connection all the same; here the call is not made at all, and its record says
// why.
func Astray(reach egress.Policy, argument, url string) string {
	d := reach.DecideURL(url)
	switch {
	case d.Verdict == egress.Allow:
		return ""
	case d.Host != "":
		return argument + " leads to " + d.Host + ", which the server's declaration does not allow (" + d.Reason + ")"
	}
	return argument + " is not an http or https address that all programs read alike (" + d.Reason + ")"
}
