package enforce_test

import (
	"strings"
	"testing"

	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/enforce/enforcetest"
	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/policies/gate"
)

// TestRepeat: a request is sent again only if it certainly only reads, and if all that is known by now lets it pass as
// before.
func TestRepeat(t *testing.T) {
	yes := true
	hinted := tool(t, "notes", 0)
	hinted.Hints = func() *gate.Hints { return &gate.Hints{ReadOnly: &yes} }
	public := tool(t, "notes", gate.None)
	public.Declared = []byte(`{"server":"notes","words":[{"confidentiality":"public","integrity":"clean",` +
		`"audience":"public","effect":"none","from":"owner"}]}`)
	gone := func(p *enforce.Point) {
		p.Now = func(who enforce.Identity) (enforce.Identity, bool) { return who, false }
	}
	for name, tt := range map[string]struct {
		it        enforce.Item
		meanwhile func(*enforce.Point)
		strict    bool
		why       string // "": it may be
	}{
		"reads":         {it: tool(t, "notes", gate.None)},
		"writes":        {it: tool(t, "notes", gate.Reversible), why: "not certain that the tool only reads"},
		"sends":         {it: tool(t, "notes", gate.Irreversible), why: "not certain that the tool only reads"},
		"says it reads": {it: hinted, why: "not certain that the tool only reads"},
		"gone":          {it: tool(t, "notes", gate.None), meanwhile: gone, why: "may not ask for this any more"},
		"another policy": {it: tool(t, "notes", gate.None), meanwhile: func(p *enforce.Point) { p.Learn(nil, nil) },
			why: "not certain"},
		"a raw session": {it: tool(t, "notes", gate.None), meanwhile: func(p *enforce.Point) { taint(t, p, laptop, raw) }},
		"told otherwise": {it: public, strict: true, meanwhile: func(p *enforce.Point) { taint(t, p, laptop, raw) },
			why: "decides otherwise by now"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			p := enforcetest.With(t, dir, "laptop")
			who := laptop
			if tt.strict {
				who.Profile = "strict"
			}
			pass := enter(t, p, who, tt.it)
			if tt.meanwhile != nil {
				tt.meanwhile(p)
			}
			failed := failure.Failure{Class: failure.Timeout, Tries: 1}
			r := enforce.Request{Method: "tools/call", Arguments: []byte("{}"), Params: []byte("{}")}
			err := enforce.Retries{Point: p}.Decide(pass, r, failed)
			if tt.why == "" && err != nil || tt.why != "" && (err == nil || !strings.Contains(err.Error(), tt.why)) {
				t.Errorf("got %v, want %q", err, tt.why)
			}
			pass.Failed(failed)
			if err := pass.End("failed", 0); err != nil {
				t.Fatal(err)
			}
			retries, closes := 0, 0
			for _, r := range recorded(t, dir) {
				switch r.Kind {
				case audit.Retry:
					retries++
				case audit.Close:
					closes++
				default:
					continue
				}
				if r.ID != pass.Call() || r.Failure == nil || *r.Failure != failed {
					t.Errorf("recorded %+v", r)
				}
			}
			if want := map[bool]int{true: 1}[err == nil]; retries != want || closes != 1 {
				t.Errorf("%d retries are recorded, want %d; %d ends", retries, want, closes)
			}
		})
	}
}
