package operator

import (
	"testing"

	"github.com/pfar/pfar/policies/passkey"
)

// TestLink: a link leads to the console that operators have passkeys for, and has the call's id alone.
func TestLink(t *testing.T) {
	const id = "k3bq7x-2mz4p-tw5ra-c6yhd-e7suf"
	if got := new(Signers).Link(id); got != "" {
		t.Errorf("before anybody is known: %q", got)
	}
	w := newWindow(t)
	if got, want := w.signers.Link(id), console+"/call/"+id; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	w.signers.Learn([]passkey.Operator{{Name: "alice", Role: passkey.Change}})
	if got := w.signers.Link(id); got != "" {
		t.Errorf("nobody has a passkey: %q", got)
	}
}
