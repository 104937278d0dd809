package passkey

import (
	"crypto/rand"
	"slices"
	"sync"
	"time"
)

// Bounds of nonces. Whoever asks for many takes none from others.
const (
	NonceTime = 5 * time.Minute // that a nonce is good
	maxNonces = 256
	maxOwn    = 8 // of an operator
)

// Nonces are those that were given out, until an act names them. Each is good for one act.
type Nonces struct {
	now  func() time.Time
	mu   sync.Mutex
	list []nonce // the oldest first
}

type nonce struct {
	text, owner string
	until       time.Time
}

// NewNonces returns nonces that expire by a clock.
func NewNonces(now func() time.Time) *Nonces { return &Nonces{now: now} }

// Give makes a nonce for an operator; "": for nobody in particular.
func (n *Nonces) Give(owner string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	own := func(one nonce) bool { return owner != "" && one.owner == owner }
	count := 0
	for _, one := range n.list {
		if own(one) {
			count++
		}
	}
	switch {
	case count >= maxOwn:
		oldest := slices.IndexFunc(n.list, own)
		n.list = slices.Delete(n.list, oldest, oldest+1)
	case len(n.list) >= maxNonces:
		n.list = slices.Delete(n.list, 0, 1)
	}
	one := nonce{rand.Text(), owner, n.now().Add(NonceTime)}
	n.list = append(n.list, one)
	return one.text
}

// Take uses a nonce up, and reports whether it was good.
func (n *Nonces) Take(text string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	i := slices.IndexFunc(n.list, func(one nonce) bool { return one.text == text })
	if i < 0 {
		return false
	}
	good := n.now().Before(n.list[i].until)
	n.list = slices.Delete(n.list, i, i+1)
	return good
}
