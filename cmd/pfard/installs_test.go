package main

import (
	"errors"
	"testing"

	"github.com/pfar/pfar/units/control"
)

// TestInstallRefuses: what is not a package, or no server's, is not installed.
func TestInstallRefuses(t *testing.T) {
	d, _, changed := fixture(t)
	d.put(t, "a.hcl", "server {\n  command = \"true\"\n}\n")
	changed <- struct{}{}
	d.state(t)
	for what, c := range map[string]struct {
		q    control.Request
		want error
	}{
		"nothing":     {control.Request{}, control.ErrInvalid},
		"both":        {control.Request{Package: "npm:x@1.0.0", Server: "a"}, control.ErrInvalid},
		"no version":  {control.Request{Package: "npm:x"}, control.ErrInvalid},
		"a range":     {control.Request{Package: "npm:x@^1.0.0"}, control.ErrInvalid},
		"a path":      {control.Request{Package: "npm:../../x@1.0.0"}, control.ErrInvalid},
		"an option":   {control.Request{Package: "npm:--prefix@1.0.0"}, control.ErrInvalid},
		"no name":     {control.Request{Server: "../a"}, control.ErrInvalid},
		"no server":   {control.Request{Server: "b"}, control.ErrNoServer},
		"no package":  {control.Request{Server: "a"}, control.ErrInvalid},
		"no registry": {control.Request{Package: "gem:x@1.0.0"}, control.ErrInvalid},
	} {
		c.q.Verb = control.Install
		err := d.answer(t.Context(), control.Peer{UID: 1000}, c.q, func(control.Response) error { return nil })
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
	}
}
