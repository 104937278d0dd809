package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
)

// TestLastRefusal: the gateway hears the newest refusal of the process that it asks about, of no other, and not where
// the file lies.
func TestLastRefusal(t *testing.T) {
	d, _, changed := fixture(t)
	for _, name := range []string{"a", "b"} {
		d.put(t, name+".hcl", fmt.Sprintf(good, "x"))
	}
	changed <- struct{}{}
	d.state(t)
	begun := time.Now()
	refusal := func(host string) egress.Refusal { return egress.Refusal{Host: host, Reason: egress.NameNotDeclared} }
	for _, host := range []string{"old.example", "new.example"} {
		for _, r := range []units.BridgeRefused{
			{Server: "a", Refusal: refusal(host)}, {Server: "a", Session: "abcdefg2", Refusal: refusal("session." + host)},
			{Server: "gone", Refusal: refusal("gone." + host)},
		} {
			d.heard(t.Context(), r)
		}
	}
	for _, tt := range []struct{ server, session, want string }{
		{"a", "", "refused new.example (name-not-declared)"},
		{"a", "abcdefg2", "refused session.new.example (name-not-declared)"},
		{"a", "bbbbbbbb", ""}, {"b", "", ""}, {"gone", "", ""}, {"nobody", "", ""}, {"", "", ""},
	} {
		var got *control.Refusal
		q := control.Request{Verb: control.LastRefusal, Server: tt.server, Session: tt.session}
		err := d.answer(t.Context(), control.Peer{}, q, func(r control.Response) error {
			got = r.Refusal
			return nil
		})
		if err != nil || (got != nil) != (tt.want != "") ||
			got != nil && (got.Refused.String() != tt.want || got.File != tt.server+".hcl" || got.Time.Before(begun)) {
			t.Errorf("%q %q: %+v, %v; want %q", tt.server, tt.session, got, err, tt.want)
		}
	}
}
