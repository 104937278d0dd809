package main

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestLookups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var asked []string
		answers := map[string][]netip.Addr{"a.": addrs("1.1.1.1"), "b.": addrs("2.2.2.2")}
		l := newLookups(func(ctx context.Context, name string) ([]netip.Addr, error) {
			mu.Lock()
			asked = append(asked, name)
			mu.Unlock()
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			mu.Lock()
			defer mu.Unlock()
			if answers[name] == nil {
				return nil, errNoSuchHost
			}
			return answers[name], nil
		})
		look := func(name string, want []netip.Addr, within time.Duration) {
			t.Helper()
			began := time.Now()
			got, err := l.lookup(t.Context(), name)
			if !slices.Equal(got, want) || (err == nil) != (want != nil) || time.Since(began) != within {
				t.Errorf("%s is %v, %v after %v", name, got, err, time.Since(began))
			}
		}
		l.ahead(t.Context(), "a.")
		l.ahead(t.Context(), "a.") // under way
		time.Sleep(60 * time.Millisecond)
		look("a.", answers["a."], 40*time.Millisecond)
		look("a.", answers["a."], 100*time.Millisecond) // an answer is for one connection
		l.ahead(t.Context(), "b.")
		time.Sleep(aheadFor + 150*time.Millisecond)
		mu.Lock()
		answers["b."] = addrs("3.3.3.3")
		mu.Unlock()
		look("b.", addrs("3.3.3.3"), 100*time.Millisecond) // the old one is not good any more
		l.ahead(t.Context(), "none.")
		time.Sleep(200 * time.Millisecond)
		look("none.", nil, 100*time.Millisecond) // a failure is tried again
		if want := []string{"a.", "a.", "b.", "b.", "none.", "none."}; !slices.Equal(asked, want) {
			t.Errorf("asked for %q, want %q", asked, want)
		}
		ctx, cancel := context.WithCancel(t.Context())
		l.ahead(t.Context(), "a.")
		cancel()
		if _, err := l.lookup(ctx, "a."); !errors.Is(err, context.Canceled) {
			t.Errorf("after the end: %v", err)
		}
		synctest.Wait()
		for i := range 3 * maxLookups {
			l.ahead(t.Context(), string(rune('a'+i%26))+string(rune('a'+i/26))+".")
		}
		if len(l.answers) > maxLookups {
			t.Errorf("%d names at once", len(l.answers))
		}
		time.Sleep(time.Second)
	})
}

// What the resolver inside refused, or was only taught for learning, is never looked up ahead.
func TestNothingUndeclaredIsLookedUpAhead(t *testing.T) {
	w := newWorld(t, nil, "api.allowed.test", "*.wild.allowed.test:7000", "192.0.2.7")
	w.proxy.policy.Learn = true
	for _, name := range []string{"evil.test", "allowed.test", "wild.allowed.test", "a.b.wild.allowed.test", "192.0.2.7", "", ".", "api.allowed.test\x00"} {
		w.proxy.expect(name)
	}
	if len(w.proxy.lookups.answers) > 0 {
		t.Errorf("looked up %v", w.proxy.lookups.answers)
	}
	w.proxy.expect("a.wild.allowed.test")
	if len(w.proxy.lookups.answers) > 0 {
		t.Errorf("looked up %v", w.proxy.lookups.answers)
	}
	w.proxy.expect("api.allowed.test")
	if len(w.proxy.lookups.answers) != 1 {
		t.Errorf("looked up %v", w.proxy.lookups.answers)
	}
}
