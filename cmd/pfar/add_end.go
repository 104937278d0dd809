package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/pfar/pfar/policies/plural"
	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/operator"
)

// added is what has become of a set-up.
type added struct {
	Server   string             `json:"server"`
	Service  string             `json:"service,omitempty"`
	File     string             `json:"file,omitempty"` // "": it has failed
	State    control.FlowState  `json:"state"`
	Detail   string             `json:"detail,omitempty"`
	Reason   control.FlowReason `json:"reason,omitempty"`   // of FlowFailed
	Already  bool               `json:"already,omitempty"`  // nothing was done
	Verified string             `json:"verified,omitempty"` // the tool that was called; "": connected, not verified

	Tools      int      `json:"tools"`
	Reads      []string `json:"reads,omitempty"`  // tools that only read
	Writes     []string `json:"writes,omitempty"` // the others
	Unreviewed []string `json:"unreviewed,omitempty"`
	Held       []string `json:"held,omitempty"`    // no client sees these before they are accepted
	Unknown    string   `json:"unknown,omitempty"` // that nothing is known of what its tools do, and what to write
}

// outcome is how a set-up has ended.
func (a *adding) outcome(now control.Flow) added {
	return added{
		Server: now.Server, Service: cmp.Or(now.Service, a.serviceName()), State: now.State, Detail: now.Detail,
		Reason: now.Reason, Verified: now.Verified, Tools: now.Tools,
	}
}

// finish shows the person the tools' definitions, and prints what the server can do and the next commands.
func (a *adding) finish(ctx context.Context, now control.Flow) error {
	out := a.outcome(now)
	if !a.known {
		out.Detail = "" // it says that the server runs already: learning mode has started it
	}
	if report, err := a.report(ctx); err == nil {
		if s, err := findServer(report, now.Server); err == nil {
			out.File, out.Unknown = s.File, s.Unknown
		}
	}
	names, err := a.unreviewed(ctx, now.Server)
	if err != nil {
		a.tellFault(err)
	}
	out.Unreviewed = names
	if len(names) > 0 && !a.json() {
		a.review(ctx, now.Server, names)
	}
	if p, err := a.pinsOf(ctx, now.Server); err == nil {
		for _, h := range p.Held {
			out.Held = append(out.Held, h.Title)
		}
	}
	tools, known := a.offered(ctx, now.Server)
	if len(tools) > 0 { // pfard counts no hidden tools, and they were hidden until now
		out.Tools = len(tools)
	}
	for _, t := range tools {
		if known.does(t) == "read" {
			out.Reads = append(out.Reads, t.Meta.Tool)
		} else {
			out.Writes = append(out.Writes, t.Meta.Tool)
		}
	}
	if a.json() {
		return a.printJSON(out)
	}
	a.printAdded(out, tools, known)
	return nil
}

// unreviewed returns the definitions of a server that no person has accepted, and that pfar's makers have not read. It
// leaves out the program: the person has just installed it, and no model reads it.
func (a *adding) unreviewed(ctx context.Context, server string) (names []string, err error) {
	p, err := a.pinsOf(ctx, server)
	if err != nil {
		return nil, err
	}
	for _, h := range p.Held {
		if h.Digest != "" {
			names = append(names, h.Title)
		}
	}
	for _, d := range p.Descriptors {
		if p.NeedsReview(d) && d.Kind != operator.Program {
			names = append(names, d.Title)
		}
	}
	return names, nil
}

// review shows definitions, suspicious ones first, and accepts them if the person says yes. Otherwise nothing changes:
// clients get them as untrusted text, or not at all.
func (a *adding) review(ctx context.Context, server string, names []string) {
	later := "pfar pins accept " + server
	if a.yes || !isTerminal(a.stdin) {
		fmt.Fprintf(a.stderr, "Nobody has read %s of %s.\n", plural.Count(len(names), "definition"), escape(server, oneLine))
		a.hintAt("read and accept them: " + later)
		return
	}
	p := page{columns: columnsOf(a.stdout)}
	p.words("Nobody has read these definitions of " + escape(server, oneLine) +
		". They are the server's own words: follow no instruction in them.")
	fmt.Fprintf(a.stdout, "\n%s", p.String())
	if err := (pinsVerb{a.pfar}).pinsAccept(ctx, server, names, trust{}, false); err != nil {
		fmt.Fprintln(a.stderr, "The definitions are not accepted:", escape(err.Error(), oneLine))
		a.hintAt("read and accept them later: " + later)
	}
}

// offered returns the tools of a server that clients see, and the facts of the gate.
func (a *adding) offered(ctx context.Context, server string) ([]tool, facts) {
	v := toolsVerb{a.pfar}
	g, tools, err := v.openTools(ctx)
	if err != nil {
		a.tellFault(err)
		return nil, nil
	}
	g.close()
	tools = slices.DeleteFunc(tools, func(t tool) bool { return t.Meta.Server != server })
	slices.SortFunc(tools, func(a, b tool) int { return strings.Compare(a.id(), b.id()) })
	return tools, v.facts(ctx)
}

const (
	mostTools    = 4  // of each kind are shown
	leastSummary = 24 // columns, however long the names of tools are
)

func (a *adding) printAdded(out added, tools []tool, known facts) {
	verified := "connected, not verified"
	switch {
	case out.Verified != "":
		verified = "verified with " + out.Verified
	case a.known && len(a.service.Secrets) == 0:
		verified = "running, and holds no secret"
	case out.Detail != "":
		verified = out.Detail
	}
	p := page{columns: columnsOf(a.stdout)}
	p.line(a.paint(a.stdout, bold, escape(out.Server, oneLine))+": ", escape(verified, oneLine))
	fmt.Fprintf(a.stdout, "\n%sIt is declared in %s\n", p.trimmed(), escape(out.File, oneLine))
	if keys := neededBy(a.service); out.Verified == "" && len(keys) > 0 {
		p := page{columns: columnsOf(a.stdout)}
		p.words("No call has shown whether " + strings.Join(keys, " and ") + " is right: pfar has not checked it.")
		fmt.Fprint(a.stdout, p.String())
	}
	if len(tools) > 0 {
		fmt.Fprintf(a.stdout, "It has %s: %d only read, %d may change something.\n", plural.Count(len(tools), "tool"),
			len(out.Reads), len(out.Writes))
	} else {
		fmt.Fprintf(a.stdout, "It has %s.\n", plural.Count(out.Tools, "tool"))
	}
	if len(out.Held) > 0 {
		held := page{columns: columnsOf(a.stdout)}
		held.words("No client sees these before you accept them: " + escape(strings.Join(out.Held, ", "), oneLine))
		fmt.Fprint(a.stdout, held.String())
	}
	rows := [][]cell{}
	longest := 0
	for _, t := range tools {
		longest = max(longest, len(t.Meta.Tool))
	}
	room := max(columnsOf(a.stdout)-len("  write  ")-longest-columnGap, leastSummary)
	shown := map[string]int{}
	call, best := "", out.Verified
	if t := a.service.Test; best == "" && t != nil {
		best = t.Tool
	}
	for _, does := range []string{"read", "write"} {
		for _, t := range tools {
			if known.does(t) != does {
				continue
			}
			if does == "read" && (call == "" || t.Meta.Tool == best) && visible.ShellSafe(t.id()) {
				call = t.id()
			}
			if shown[does]++; shown[does] <= mostTools {
				rows = append(rows, []cell{{"  " + does, ""}, {t.Meta.Tool, ""}, {summary(t.Description, room), ""}})
			}
		}
	}
	a.table(a.stdout, rows)
	if out.Unknown != "" {
		judged := page{columns: columnsOf(a.stdout)}
		judged.words(escape(out.Unknown, oneLine))
		fmt.Fprintf(a.stdout, "\n%s", judged.String())
	}
	fmt.Fprintf(a.stdout, "\n%s\n", a.paint(a.stdout, bold, "Next"))
	next := [][]cell{
		{{"  pfar tools " + out.Server, ""}, {"all that it offers", ""}},
		{{"  pfar client install PROGRAM", ""}, {"let a desktop client use it", ""}},
	}
	if out.Verified == "" && a.service.Test != nil && len(a.service.Secrets) > 0 {
		next = append([][]cell{{{"  pfar test " + out.Server, ""}, {"test its secrets again", ""}}}, next...)
	}
	if call != "" {
		next = append([][]cell{{{"  pfar call " + call, ""}, {"call a tool that only reads", ""}}}, next...)
	}
	a.table(a.stdout, next)
}
