package enforce

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/fence"
	"github.com/pfar/pfar/policies/inspect"
	"github.com/pfar/pfar/policies/inspector"
)

// others adds to what the built-in inspector has said what those say that a profile needs. What holds a secret is shown
// to none of them, and is flagged. Results are not searched for secrets: they have passed redaction.
func (p *Point) others(ctx context.Context, names []string, d inspector.Direction, about fence.Meta, value []byte, report inspect.Report) inspect.Report {
	switch {
	case len(names) == 0 || slices.ContainsFunc(report.Findings, inspect.Finding.Secret):
		return report
	case p.Inspectors == nil:
		return report.Join(inspect.Report{Reason: "there are no inspectors"})
	}
	return report.Join(p.Inspectors.Inspect(ctx, names, d, about, value))
}

// maxFound bounds the findings in what a server says in the course of one request, whose record is to stay one.
const maxFound = 128

// clean has inspectors look at what came back, and reports whether all of them have and none has found anything. What
// they found is in the record alone.
func (g *Passage) clean(ctx context.Context, b []byte) bool {
	return g.judged(ctx, b, g.builtin().Inspect(inspector.Inbound, b))
}

// builtin is the inspector of what comes back, which has been parsed.
func (g *Passage) builtin() *inspect.Builtin {
	return &inspect.Builtin{Vault: g.point.Vault, Parsed: true}
}

// judged is clean of what the built-in inspector has reported on.
func (g *Passage) judged(ctx context.Context, b []byte, report inspect.Report) bool {
	who, _ := g.point.now(g.who, &g.item) // who may not be here any more gets nothing
	names := g.point.policy.Load().Asks(who.Profile)
	report = g.point.others(ctx, names, inspector.Inbound, g.Answer().Meta, b, report)
	found, clean := findings(report), report.Outcome == inspect.Clean
	var withheld *audit.Arguments
	if !clean {
		withheld = g.point.kept(who.Profile, b)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed.Load() && !clean && len(found) > 0 {
		g.point.noted(g, found, withheld)
	}
	g.found = append(g.found, found...)
	g.found = g.found[:min(len(g.found), maxFound)]
	if !clean {
		g.withheld = withheld
	}
	return clean
}

// findings are what inspectors found, for the record.
func findings(r inspect.Report) []audit.Finding {
	var list []audit.Finding
	for _, f := range r.Findings {
		detail := strings.TrimSpace(f.Place + " " + f.Excerpt)
		if f.Within != "" {
			detail += " (in " + f.Within + ")"
		}
		list = append(list, audit.Finding{Inspector: f.Inspector, Kind: f.Kind, Detail: detail, Digest: f.Digest})
	}
	if r.Outcome == inspect.Missing {
		list = append(list, audit.Finding{Inspector: "all", Kind: missing, Detail: r.Reason})
	}
	return list
}

// words are findings as an approval is bound to them: the same each time that the same is found. What others'
// inspectors say of it, and why one did not answer, may differ from one time to the next; the record has it.
func words(found []audit.Finding) []string {
	var all []string
	for _, f := range found {
		switch {
		case f.Inspector == inspect.Name:
			all = append(all, fmt.Sprintf("%s: %s: %s", f.Inspector, f.Kind, f.Detail))
		case f.Kind == unkeptKind:
			all = append(all, "what it writes cannot be taken back: "+f.Detail)
		case f.Kind == missing:
			all = append(all, "not every inspector has answered")
		default:
			all = append(all, f.Inspector+": flagged")
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// missing is the kind of what stands among findings for inspectors that have not answered.
const missing = "missing"

// unkeptKind is the kind of what stands among findings for a call whose writes cannot be taken back.
const unkeptKind = "not kept"

// unfit says for the record, and for a person who is asked, why what a request overwrites is not kept.
func (it *Item) unfit() []audit.Finding {
	if it.unkept == "" {
		return nil
	}
	return []audit.Finding{{Inspector: "undo", Kind: unkeptKind, Detail: it.unkept}}
}

// noted records the findings in a message that came after the record of its request was closed, or without a request.
// A server can send many: those beyond the limit go to the log.
func (p *Point) noted(g *Passage, found []audit.Finding, withheld *audit.Arguments) {
	if !p.began().notes.Allow() {
		p.Log.Warn("inspectors found something, and there is no room to record it",
			"server", g.item.Server, "method", g.method, "kind", found[0].Kind)
		return
	}
	err := p.Trail.Append(&audit.Record{
		Kind: audit.Session, ID: g.id, Client: g.who.Client, Session: g.who.Handle,
		Server: g.item.Server, Method: g.method, Findings: found, Withheld: withheld, Outcome: "withheld", Reason: errSuspicious.Error(),
	})
	if err != nil {
		p.Log.Warn("recording what inspectors found, ignoring", "server", g.item.Server, "error", err.Error())
	}
}

var errSuspicious = errors.New("inspectors found it suspicious")
