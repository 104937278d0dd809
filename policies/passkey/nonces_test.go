package passkey

import (
	"testing"
	"time"
)

// TestNonces: a nonce is good once, within five minutes.
func TestNonces(t *testing.T) {
	now := time.Now()
	n := NewNonces(func() time.Time { return now })
	n.Give("alice")
	for _, bad := range []string{"", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "alice"} {
		if n.Take(bad) {
			t.Errorf("%q is good", bad)
		}
	}
	for after, want := range map[time.Duration]bool{NonceTime - 1: true, NonceTime: false, time.Hour: false} {
		given := n.Give("alice")
		now = now.Add(after)
		if got := n.Take(given); got != want || n.Take(given) {
			t.Errorf("after %s it is good: %t, or it is good twice", after, got)
		}
	}
}

// TestManyNonces: only so many are kept, and one operator's take no other's place.
func TestManyNonces(t *testing.T) {
	n := NewNonces(time.Now)
	first, second := n.Give(""), n.Give("")
	for range maxNonces - 1 {
		n.Give("")
	}
	if n.Take(first) || !n.Take(second) || len(n.list) != maxNonces-1 {
		t.Errorf("%d nonces are kept, or they are the wrong ones", len(n.list))
	}
	kept, old := n.Give("alice"), n.Give("bob")
	for range maxNonces {
		n.Give("bob")
	}
	if n.Take(old) || !n.Take(kept) || len(n.list) > maxNonces {
		t.Errorf("bob's nonces take the place of alice's, or %d are kept", len(n.list))
	}
}
