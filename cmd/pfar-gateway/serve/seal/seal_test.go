package seal

import (
	"strings"
	"testing"
	"time"
)

// TestOpen: a state opens once, in the request that it was sealed for, until it is too old, also for the next gateway.
func TestOpen(t *testing.T) {
	scope, other := Scope{1}, Scope{2}
	later := time.Now().Add(time.Hour)
	is := State{Server: "one", Given: true, Text: "a state"}
	for name, tt := range map[string]struct {
		state  State
		until  time.Time
		by     func(*Sealer) *Sealer // that opens it
		change func(sealed string) string
		scope  Scope
		opens  bool
	}{
		"a state":             {is, later, same, asItIs, scope, true},
		"of no text":          {State{Server: "one"}, later, same, asItIs, scope, true},
		"of the empty text":   {State{Server: "one", Given: true}, later, same, asItIs, scope, true},
		"another request's":   {is, later, same, asItIs, other, false},
		"too old":             {is, time.Now().Add(-time.Second), same, asItIs, scope, false},
		"another gateway's":   {is, later, func(*Sealer) *Sealer { return New() }, asItIs, scope, false},
		"the next gateway's":  {is, later, next, asItIs, scope, true},
		"changed":             {is, later, same, swapped, scope, false},
		"cut":                 {is, later, same, func(text string) string { return text[:len(prefix)+8] }, scope, false},
		"no sealed state":     {is, later, same, func(string) string { return prefix + "%" }, scope, false},
		"a state of no bytes": {is, later, same, func(string) string { return prefix }, scope, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := New()
			text := s.Seal(tt.state, scope, tt.until)
			if !Is(text) || strings.Contains(text, "state ") {
				t.Errorf("sealed as %q", text)
			}
			s, text = tt.by(s), tt.change(text)
			got, ok := s.Open(text, tt.scope)
			if ok != tt.opens || ok && got != tt.state {
				t.Errorf("got %+v, %t", got, ok)
			}
			if _, again := s.Open(text, tt.scope); again {
				t.Error("it opens twice")
			}
			if _, again := next(s).Open(text, tt.scope); again {
				t.Error("the next gateway opens it again")
			}
		})
	}
}

func same(s *Sealer) *Sealer { return s }

func asItIs(text string) string { return text }

// swapped is a state with another first byte.
func swapped(text string) string {
	first := "A"
	if text[len(prefix)] == 'A' {
		first = "B"
	}
	return prefix + first + text[len(prefix)+1:]
}

// next is the sealer of the next gateway.
func next(s *Sealer) *Sealer {
	n := New()
	n.GoOn(s.Kept())
	return n
}
