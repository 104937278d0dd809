package enforce_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/enforce/enforcetest"
	"github.com/pfar/pfar/cmd/pfar-gateway/label"
	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/gate"
)

var extracted = gate.Label{Confidentiality: gate.Sensitive, Integrity: gate.Extracted}

// sensor is a tool that reads what strangers may have written, as typed values.
func sensor() enforce.Item {
	return enforce.Item{
		Owner: "sensor", Server: "sensor", Declared: []byte(`{"server":"sensor","words":[{"effect":"none","from":"owner"}]}`), Kind: gate.Tool, Name: "read", Pin: "p",
		Fits: true, Typed: func() bool { return true },
	}
}

// kept is a trail that remembers what was closed.
type kept struct {
	enforce.Trail
	mu     sync.Mutex
	closed []audit.Record
}

func (k *kept) Close(r *audit.Record) error {
	k.mu.Lock()
	k.closed = append(k.closed, *r)
	k.mu.Unlock()
	return k.Trail.Close(r)
}

// TestTypedRaises has what comes back of a call that typed values are to come back of: the session is raw before
// anything but them reaches the client, and the record says what it was.
func TestTypedRaises(t *testing.T) {
	seen := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	for name, c := range map[string]struct {
		come func(t *testing.T, p *enforce.Point, pass *enforce.Passage)
		end  gate.Label
		why  string
	}{
		"nothing":   {func(*testing.T, *enforce.Point, *enforce.Passage) {}, raw, "no result of typed values"},
		"something": {func(t *testing.T, _ *enforce.Point, pass *enforce.Passage) { seen(t, pass.Seen(nil)) }, raw, "not typed values alone"},
		"an error": {func(t *testing.T, _ *enforce.Point, pass *enforce.Passage) {
			seen(t, pass.SeenAs("it is an error", nil))
		}, raw, "it is an error"},
		"the first why": {func(t *testing.T, _ *enforce.Point, pass *enforce.Passage) {
			seen(t, pass.SeenAs("first", nil))
			seen(t, pass.Seen(nil))
		}, raw, "first"},
		"progress": {func(t *testing.T, p *enforce.Point, pass *enforce.Passage) {
			if _, ok := pass.Said(t.Context(), "notifications/progress", []byte(`{"progress":1}`)); !ok {
				t.Error("not said")
			}
			want(t, p, laptop, raw)
			if taken, err := pass.Taken(nil); taken || err != nil || pass.Extracts() {
				t.Errorf("taken %t, %v", taken, err)
			}
		}, raw, "notifications/progress"},
		"something beside the values": {func(t *testing.T, p *enforce.Point, pass *enforce.Passage) {
			if taken, err := pass.Taken(nil); !taken || err != nil {
				t.Errorf("taken %t, %v", taken, err)
			}
			pass.Said(t.Context(), "notifications/message", []byte(`{"data":"x"}`))
			want(t, p, laptop, raw)
		}, raw, "notifications/message"},
		"an answer to a question": {func(t *testing.T, p *enforce.Point, pass *enforce.Passage) {
			_, err := pass.Enter(t.Context(), "elicitation/create", []byte(`{}`), false)
			seen(t, err)
			want(t, p, laptop, raw)
		}, raw, "no result of typed values"},
		"what another session has written": {func(t *testing.T, p *enforce.Point, pass *enforce.Passage) {
			taint(t, p, phone, raw)
			enter(t, p, phone, enforce.Item{Server: "sensor", Kind: gate.Tool, Name: "set", Pin: "p", Fits: true})
			if taken, err := pass.Taken(nil); taken || err != nil || pass.Extracts() {
				t.Errorf("taken %t, %v", taken, err)
			}
			want(t, p, laptop, raw)
		}, raw, "has written to the server"},

		"typed values": {func(t *testing.T, _ *enforce.Point, pass *enforce.Passage) {
			if taken, err := pass.Taken(nil); !taken || err != nil {
				t.Errorf("taken %t, %v", taken, err)
			}
		}, extracted, ""},
		"typed values, after a reset": {func(t *testing.T, p *enforce.Point, pass *enforce.Passage) {
			seen(t, p.Sessions.Reset("laptop", label.Default, "op"))
			if taken, err := pass.Taken(nil); !taken || err != nil {
				t.Errorf("taken %t, %v", taken, err)
			}
			want(t, p, laptop, extracted)
		}, extracted, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := enforcetest.New(t, "laptop", "phone")
			trail := &kept{Trail: p.Trail}
			p.Trail = trail
			pass := enter(t, p, laptop, sensor())
			want(t, p, laptop, extracted)
			if !pass.Extracts() || !pass.Strange() {
				t.Errorf("extracts %t, strange %t", pass.Extracts(), pass.Strange())
			}
			c.come(t, p, pass)
			seen(t, pass.End("ok", 1))
			want(t, p, laptop, c.end)
			i := slices.IndexFunc(trail.closed, func(r audit.Record) bool { return r.ID == pass.Call() })
			if r := trail.closed[i]; r.Output == nil || r.Output.Label != c.end || !strings.Contains(r.Reason, c.why) || (c.why == "") != (r.Reason == "") {
				t.Errorf("recorded %v, %q", r.Output, r.Reason)
			}
			if c.end == raw {
				if got := pass.Label(); got != raw {
					t.Errorf("what came back is %s", got)
				}
			}
		})
	}
}

// TestNotTyped has calls whose results are not even to be typed values, or are clean as they are.
func TestNotTyped(t *testing.T) {
	for name, c := range map[string]struct {
		before func(*enforce.Point, *enforce.Identity, *enforce.Item)
		want   gate.Label
	}{
		"a schema with text": {func(_ *enforce.Point, _ *enforce.Identity, it *enforce.Item) {
			it.Pin, it.Typed = "another", func() bool { return false }
		}, raw},
		"a schema unaccepted": {func(_ *enforce.Point, _ *enforce.Identity, it *enforce.Item) { it.Typed = nil }, raw},
		"a person's call":     {func(_ *enforce.Point, who *enforce.Identity, _ *enforce.Item) { who.Person = true }, raw},
		"a stained server": {func(p *enforce.Point, _ *enforce.Identity, _ *enforce.Item) {
			taint(t, p, phone, raw)
			enter(t, p, phone, enforce.Item{Server: "sensor", Kind: gate.Tool, Name: "set", Pin: "p", Fits: true})
		}, raw},
		"a trusted server": {func(_ *enforce.Point, _ *enforce.Identity, it *enforce.Item) {
			it.Owner, it.Declared = "trusted", tool(t, "sensor", gate.None).Declared
		}, gate.Start},
	} {
		p := enforcetest.New(t, "laptop", "phone")
		enter(t, p, laptop, sensor()).End("ok", 0) // what is known of it is none of the others'
		if err := p.Sessions.Reset("laptop", label.Default, "op"); err != nil {
			t.Fatal(err)
		}
		who, it := laptop, sensor()
		c.before(p, &who, &it)
		pass := enter(t, p, who, it)
		want(t, p, laptop, c.want)
		if taken, err := pass.Taken(nil); taken || err != nil || pass.Extracts() {
			t.Errorf("%s: taken %t, %v", name, taken, err)
		}
		if err := pass.End("ok", 0); err != nil {
			t.Error(err)
		}
		want(t, p, laptop, c.want)
	}
}

// TestTypedDenied: a call that is not sent raises nothing, however it was to come back.
func TestTypedDenied(t *testing.T) {
	p := enforcetest.New(t, "laptop")
	it := sensor()
	it.Pin = ""
	if _, err := p.Enter(t.Context(), laptop, it, enforce.Request{Method: "tools/call", Arguments: []byte("{}"), Params: []byte("{}")}); err == nil {
		t.Fatal("it passed")
	}
	want(t, p, laptop, gate.Start)
}

// TestTypedAtOnce has calls of all kinds under way in one session: its label never falls, is raw before anything raw
// has been seen, and stays extracted for as long as nothing has.
func TestTypedAtOnce(t *testing.T) {
	p := enforcetest.New(t, "laptop")
	integrity := func() gate.Integrity {
		l, err := p.Sessions.Label("laptop", label.Default)
		if err != nil {
			t.Error(err)
		}
		return l.Integrity
	}
	run := func(spoil bool) {
		pass, err := p.Enter(t.Context(), laptop, sensor(), enforce.Request{Method: "tools/call", Arguments: []byte("{}"), Params: []byte("{}")})
		if err != nil {
			t.Error(err)
			return
		}
		before := integrity()
		if spoil {
			if _, ok := pass.Said(t.Context(), "notifications/progress", []byte(`{"progress":1}`)); ok && integrity() != gate.Raw {
				t.Error("something raw was seen, and the session is not")
			}
		}
		if taken, err := pass.Taken(nil); err != nil || taken == spoil {
			t.Errorf("taken %t, %v", taken, err)
		}
		if err := pass.End("ok", 0); err != nil {
			t.Error(err)
		}
		if after := integrity(); before < gate.Extracted || after < before {
			t.Errorf("it fell from %s to %s", before, after)
		}
	}
	var calls sync.WaitGroup
	for range 32 {
		calls.Go(func() { run(false) })
	}
	calls.Wait()
	want(t, p, laptop, extracted)
	for range 64 {
		spoil := rand.IntN(2) == 0
		calls.Go(func() { run(spoil) })
	}
	calls.Go(func() { run(true) })
	calls.Wait()
	want(t, p, laptop, raw)
}
