package stream

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestReplaysBounded: streams are kept within bounds of a call, of a client and of all. Answers that have come give way
// first, and one client's do not give way to another's share.
func TestReplaysBounded(t *testing.T) {
	at := func(client string) Owner {
		return Owner{Session: client, Client: client, Ended: make(chan struct{})}
	}
	const call, total = 64 << 10, 1 << 20
	all := NewReplays(Limits{Replay: call, Replays: total, Resume: time.Hour})
	encode := func(n int) func(string) []byte {
		return func(id string) []byte { return []byte(strings.Repeat("x", n)) }
	}
	begin := func(o Owner) *Replay { return all.open(&Replay{owner: o, cancel: func(error) {}}) }
	check := func(what string) {
		t.Helper()
		sum, of := 0, map[string]int{}
		for _, r := range all.byID {
			sum += r.size
			of[r.owner.Client] += r.size
			if r.size > call {
				t.Errorf("%s: a call has %d bytes", what, r.size)
			}
		}
		if sum != all.size || sum > total || fmt.Sprint(of) != fmt.Sprint(all.ofClient) {
			t.Errorf("%s: %d bytes, counted %d, of clients %v, counted %v", what, sum, all.size, of, all.ofClient)
		}
		for client, n := range of {
			if n > total/4 {
				t.Errorf("%s: client %s has %d bytes", what, client, n)
			}
		}
	}
	a := at("a")
	r := begin(a)
	for range 100 {
		if _, attached, kept := r.add(r.reader, encode(1000)); !attached || !kept {
			t.Fatal("an event is not kept")
		}
		check("many events")
	}
	if r.first == 0 {
		t.Error("the oldest events of a call do not give way")
	}
	if _, attached, kept := r.add(r.reader, encode(call)); !attached || kept || !r.dropped {
		t.Error("an event beyond the bound is kept")
	}
	check("one large event")
	var full int
	for ; full < 1000; full++ {
		one := begin(a)
		if one == nil {
			break
		}
		one.add(one.reader, encode(call/2))
		check("one client")
	}
	if full == 1000 {
		t.Error("one client has as many streams as it likes")
	}
	if begin(at("b")) == nil {
		t.Error("one client takes the share of another")
	}
	for _, one := range all.byID {
		one.end()
	}
	if begin(a) == nil {
		t.Error("answers that have come do not give way")
	}
	check("answered")
	all.Forget("a")
	all.Forget("b")
	if check("forgotten"); all.size != 0 || len(all.byID) != 0 || len(all.answered) != 0 {
		t.Errorf("%d bytes of %d streams are left", all.size, len(all.byID))
	}
}
