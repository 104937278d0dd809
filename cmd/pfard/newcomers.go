package main

import (
	"fmt"
	"os"
	"sync"
)

// newcomers counts connections of processes that are not known yet. Everybody may connect: one user's are few, so that
// they take neither pfard's descriptors nor the places of servers' processes, which have users of their own.
type newcomers struct {
	mu  sync.Mutex
	all int
	of  map[int]int // by uid
}

const (
	maxNewcomers   = 1024
	maxNewcomersOf = 16 // of one uid that is not ours, as an ordinary user's servers' is
)

// enter counts one more of a user's, which leave takes back, or says why there may be none.
func (n *newcomers) enter(uid int) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.all >= maxNewcomers {
		return fmt.Errorf("%d processes that have connected are not known yet", n.all)
	}
	if uid != os.Getuid() && n.of[uid] >= maxNewcomersOf {
		return fmt.Errorf("%d processes of user %d that have connected are not known yet", n.of[uid], uid)
	}
	n.all++
	n.of[uid]++
	return nil
}

func (n *newcomers) leave(uid int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all--
	if n.of[uid]--; n.of[uid] == 0 {
		delete(n.of, uid)
	}
}
