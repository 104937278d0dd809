package main

import (
	"strings"
	"testing"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/handover"
)

// TestVerified: what the gateway says of the server's secrets is in the status of its unit, with the remedy, and is
// passed on to pfard; what it no longer says does not stand.
func TestVerified(t *testing.T) {
	var l status
	trial := &handover.Trial{Remedy: units.ToDo(units.StoreSecret, "a"), Where: "Ask."}
	for _, c := range []struct {
		v           *units.Verification
		line, state string
	}{
		{nil, "running: 2 tools", units.StateRunning},
		{&units.Verification{Result: units.Verified, Tool: "me"}, "running: 2 tools", units.StateRunning},
		{&units.Verification{Result: units.Unverified, Words: "no"}, "running: 2 tools, connected, not verified",
			units.StateRunning},
		{&units.Verification{Result: units.Invalid, Tool: "me", Words: "no: 401"},
			"credential-invalid: me refuses them: no: 401; pfar vault set a; Ask.", units.StateRunning},
	} {
		vars := map[string]string{units.NotifyState: units.StateRunning, "STATUS": "2 tools"}
		vars["STATUS"] = verified(c.v, trial, vars, vars["STATUS"])
		l.show(vars)
		if got := l.shown.String(); got != c.line {
			t.Errorf("%+v: the line is %q, want %q", c.v, got, c.line)
		}
		var u units.Update
		u.Take(vars)
		if c.v == nil && u.Verification != (units.Verification{}) || c.v != nil && u.Verification.Result != c.v.Result ||
			u.State != c.state {
			t.Errorf("%+v: pfard gets %+v", c.v, u)
		}
		if said := units.ParseStatusLine(c.line); said.State != c.state || strings.Contains(said.State, "invalid") {
			t.Errorf("%q is read as %q", c.line, said.State)
		}
	}
}
