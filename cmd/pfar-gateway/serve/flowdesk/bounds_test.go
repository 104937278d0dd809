package flowdesk

import (
	"context"
	"runtime"
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/flow/form"
	"github.com/pfar/pfar/units/flows"
)

// TestTooLarge: each field of an order is bounded by itself.
func TestTooLarge(t *testing.T) {
	text := func(n int) string { return strings.Repeat("x", n) }
	for name, of := range map[string]struct {
		most int
		put  func(o *flows.Order, s string)
	}{
		"text":  {form.MaxText, func(o *flows.Order, s string) { o.Text = s }},
		"flags": {maxFlags, func(o *flows.Order, s string) { o.Flags = []string{s[:1], s[1:]} }},
		"input": {maxInput, func(o *flows.Order, s string) { o.Input = &s }},
		"verb":  {maxWord, func(o *flows.Order, s string) { o.Verb = s }},
		"form":  {maxWord, func(o *flows.Order, s string) { o.Form = s }},
		"name":  {maxWord, func(o *flows.Order, s string) { o.Name = s }},
		"run":   {maxWord, func(o *flows.Order, s string) { o.Run = s }},
		"past":  {maxWord, func(o *flows.Order, s string) { o.Past = s }},
	} {
		var o flows.Order
		if of.put(&o, text(of.most)); tooLarge(&o) != "" {
			t.Errorf("%s of %d bytes: %s", name, of.most, tooLarge(&o))
		}
		if of.put(&o, text(of.most+1)); !strings.Contains(tooLarge(&o), "the "+name+" of the order") {
			t.Errorf("%s of %d bytes: %q", name, of.most+1, tooLarge(&o))
		}
	}
}

// TestTurns: of a client one flow is read at a time, a few wait, and other clients do not. Whoever hangs up waits no
// more, and nothing is kept of a client without orders.
func TestTurns(t *testing.T) {
	var all turns
	first, ok := all.take(t.Context(), "a")
	other, ok2 := all.take(t.Context(), "b")
	if !ok || !ok2 {
		t.Fatal("nobody is before them")
	}
	other()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, ok := all.take(gone, "a"); ok {
		t.Error("two at a time")
	}
	got := make(chan func())
	for range mostWaiting {
		go func() {
			done, _ := all.take(t.Context(), "a")
			got <- done
		}()
	}
	for waiting := 0; waiting < 1+mostWaiting; runtime.Gosched() {
		all.waiting.mu.Lock()
		waiting = all.waiting.taken["a"]
		all.waiting.mu.Unlock()
	}
	if _, ok := all.take(t.Context(), "a"); ok {
		t.Error("too many wait")
	}
	first()
	for range mostWaiting {
		done := <-got
		select {
		case <-got:
			t.Error("two at a time")
		default:
		}
		done()
		done() // is nothing the second time
	}
	if len(all.of) > 0 || len(all.waiting.taken) > 0 {
		t.Errorf("%v and %v are left", all.of, all.waiting.taken)
	}
}
