package hub

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/policies/access"
)

// TestExpectedElicitations: what is remembered of a server's elicitations is bounded, by their number and by the ids
// that it gives them.
func TestExpectedElicitations(t *testing.T) {
	sub := NewSubscriber(Interest{Kinds: registry.AllKinds}, 64)
	for _, id := range []string{strings.Repeat("x", 1<<20), strings.Repeat("x", 257), strings.Repeat("x", 256), "6f2c"} {
		sub.Expects("s", fmt.Appendf(nil, `{"mode":"url","elicitationId":%q,"url":"https://a.example/"}`, id))
	}
	if len(sub.state.Elicitations) != 2 || sub.state.Elicitations[1] != "s 6f2c" {
		t.Errorf("%d are remembered, want those of up to 256 bytes", len(sub.state.Elicitations))
	}
	for i := range 1000 {
		sub.Expects("s", fmt.Appendf(nil, `{"mode":"url","elicitationId":"%d","url":"https://a.example/"}`, i))
	}
	if n := len(sub.state.Elicitations); n != 64 || sub.state.Elicitations[63] != "s 999" {
		t.Errorf("%d are remembered, and the latest is %s", n, sub.state.Elicitations[n-1])
	}
}

// TestTalkativeServer: one server that says much leaves room for others, and for questions, and these come first.
func TestTalkativeServer(t *testing.T) {
	sub := NewSubscriber(Interest{Kinds: registry.AllKinds}, 64)
	sub.Allow(access.BuiltIn("c").Rights())
	sub.SetLevel(1)
	say := func(server string, n int) {
		for range n {
			params := []byte(`{"level":"error","data":"x"}`)
			e := registry.Event{Server: server, Method: "notifications/message", Params: params}
			sub.Event(e, SubjectOf(e.Method, e.Params))
		}
	}
	say("loud", 1000)
	say("quiet", 1)
	if !sub.Push([]byte("question")) {
		t.Error("there is no room for a question")
	}
	for i := range 100 {
		say(fmt.Sprint("s", i), 100)
	}
	for range 31 {
		if !sub.Push([]byte("question")) {
			t.Error("servers' words fill the room for questions")
		}
	}
	heard := map[string]int{}
	for last := false; ; {
		m, ok := sub.Next()
		if !ok {
			break
		}
		if heard[m.Says]++; m.Says == "" && last {
			t.Error("a question waits behind what has to be looked through")
		}
		last = m.Says != ""
	}
	if heard["loud"] != 8 || heard["quiet"] != 1 || heard[""] != 32 {
		t.Errorf("heard %v", heard)
	}
}
