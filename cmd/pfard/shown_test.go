package main

import (
	"slices"
	"testing"

	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/units/attach"
)

// TestConnects: a console of this machine learns which command connects a program, and which clients have a token, but
// no token and no digest. The remote console learns of no program of this machine.
func TestConnects(t *testing.T) {
	d, _, _ := fixture(t)
	d.orders.commands.pfar = "/usr/bin/pfar"
	want := attach.Connects{Pfar: "/usr/bin/pfar", Run: d.options.dirs.Run}
	if got := (shown{d}).known().Connects; got != want {
		t.Errorf("here: %+v, want %+v", got, want)
	}
	if got := (shownRemotely{shown: shown{d}}).known().Connects; got != (attach.Connects{}) {
		t.Errorf("elsewhere: %+v", got)
	}
	shown := clientsOf([]access.Client{
		{Name: "desk", Enabled: true, Tokens: []access.Digest{access.DigestOf([]byte("x"))}}, {Name: "user", Enabled: true},
	})
	var tokens []string
	for _, c := range shown {
		if c.HasToken {
			tokens = append(tokens, c.Name)
		}
	}
	if !slices.Equal(tokens, []string{"desk"}) || len(shown) != 4 {
		t.Errorf("%q of %+v have tokens", tokens, shown)
	}
}
