package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/units/control"
)

// Whoever asks for a start waits until the server has left the state and time that it saw before.
func TestAStartThatChangesNothingIsSeen(t *testing.T) {
	d, m, changed := fixture(t)
	d.put(t, "a.hcl", fmt.Sprintf(good, "x")+`auth = { TOKEN = "vault:a_token" }`+"\n")
	d.put(t, "b.hcl", fmt.Sprintf(good, "x"))
	changed <- struct{}{}
	d.state(t)
	since := func(server string, verb control.Verb, want control.State) (before, after time.Time) {
		t.Helper()
		before = d.state(t)[server].Since
		ask(t, d, control.Request{Verb: verb, Server: server})
		s := d.state(t)[server]
		if s.State != want {
			t.Errorf("%s %s: %s, want %s", verb, server, s.State, want)
		}
		return before, s.Since
	}
	for _, verb := range []control.Verb{control.Start, control.Restart} {
		if before, after := since("a", verb, control.Waiting); !after.After(before) {
			t.Errorf("%s of a server that goes on waiting: since %s, as before", verb, after)
		}
	}
	if before, after := since("b", control.Start, control.Starting); !after.Equal(before) || m.starts["b"] != 1 {
		t.Errorf("start of what starts already: since %s, not %s; %d starts", after, before, m.starts["b"])
	}
	since("a", control.Stop, control.Stopped)
	if before, after := since("a", control.Stop, control.Stopped); !after.Equal(before) {
		t.Errorf("stop of what is stopped: since %s, not %s", after, before)
	}
}

func TestAStartOfADisabledServerNamesItsFile(t *testing.T) {
	d, _, changed := fixture(t)
	d.put(t, "off.hcl", fmt.Sprintf(good, "x")+"enabled = false\n")
	changed <- struct{}{}
	d.state(t)
	for _, verb := range []control.Verb{control.Start, control.Restart} {
		err := d.answer(t.Context(), control.Peer{}, control.Request{Verb: verb, Server: "off"}, func(control.Response) error { return nil })
		if !errors.Is(err, control.ErrDisabled) || errors.Is(err, control.ErrDenied) || !strings.Contains(err.Error(), filepath.Join(d.options.declarations, "off.hcl")) {
			t.Errorf("%s: %v", verb, err)
		}
	}
}
