package attach

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestWire: nobody is told that a value is on the wire before the bridge has said so of one that was read after it
// changed.
func TestWire(t *testing.T) {
	waits := func(w *Wire) bool {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		return w.Wait(ctx) != nil
	}
	for name, one := range map[string]struct {
		steps string // d: due, s: read and sent, n: read, and there is nothing to send, r: not to be read, b: another bridge was begun with what was read, a: answered, x: not taken, g: gone
		waits bool
	}{
		"nothing": {"", false}, "not sent": {"d", true}, "sent": {"ds", true}, "answered": {"dsa", false}, "answered what was not asked": {"da", true},
		"changed while it was sent": {"dsda", true}, "both answered": {"dsdsaa", false}, "two changes, one sending": {"ddsa", false},
		"the answer to the one before": {"sdsa", true},
		"nothing to send":              {"dn", false}, "nothing to send any more": {"dsdn", false}, "the late answer to one before": {"dsdnda", true}, "not to be read": {"dr", true},
		"another bridge": {"dsb", true}, "that has it": {"dsba", false}, "changed while it began": {"bda", true}, "gone": {"dsdg", false}, "changed after it had gone": {"dgd", true},
		"not taken": {"dsx", true}, "taken after that": {"dsxdsa", false}, "answered only what came before that": {"dsdsax", true}, "by another bridge": {"dsxba", false},
	} {
		var w Wire
		for _, step := range one.steps {
			map[rune]func(){
				'd': w.Due, 's': func() { w.Sending(w.Reading()) }, 'b': func() { w.Begin(w.Reading()) }, 'n': func() { w.Nothing(w.Reading()) }, 'r': func() { w.Reading() }, 'a': func() { w.Answered(true) }, 'x': func() { w.Answered(false) }, 'g': w.Gone,
			}[step]()
		}
		if got := waits(&w); got != one.waits {
			t.Errorf("%s: waits %t", name, got)
		}
	}
	var w Wire
	w.Due()
	w.Sending(w.Reading())
	time.AfterFunc(20*time.Millisecond, func() { w.Answered(true) })
	if err := w.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	w.Due()
	w.Sending(w.Reading())
	time.AfterFunc(20*time.Millisecond, func() { w.Answered(false) })
	if err := w.Wait(t.Context()); !errors.Is(err, ErrUnwired) {
		t.Errorf("what the bridge could not take: %v", err)
	}
}
