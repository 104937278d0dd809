package label

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	maxTasks    = 1024             // of one client; they do not end by themselves
	tasksAtOnce = 16               // that a client may begin
	taskEvery   = 30 * time.Second // one more
)

// ErrBusy is of a client that begins too many tasks.
var ErrBusy = errors.New("the client begins too many tasks")

// Tasks begins sessions for the tasks of clients, whose declarations leave that to their programs. A session of a task
// stays until the operator ends it: else a conversation that goes on later would be clean, with all that it has read.
type Tasks struct {
	Sessions *Sessions
	Record   func(client, handle string) error // has it on the disk before it is done

	mu    sync.Mutex
	rates map[string]*rate.Limiter
}

// Begin makes the session of a task, unless there is one.
func (t *Tasks) Begin(client, handle string) error {
	if t.Sessions.Known(client, handle) { // as for nearly every request, which waits for no other client's disk
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.Sessions.Known(client, handle) {
		return nil
	}
	if n := count(t.Sessions, client); n > maxTasks {
		return fmt.Errorf("%w: it has %d sessions; the operator can end some: pfar sessions end", ErrFull, n)
	}
	if t.rates == nil {
		t.rates = make(map[string]*rate.Limiter)
	}
	l := t.rates[client]
	if l == nil {
		l = rate.NewLimiter(rate.Every(taskEvery), tasksAtOnce)
		t.rates[client] = l
	}
	if !l.AllowN(t.Sessions.Now(), 1) {
		return fmt.Errorf("%w: %d at once, and then one in %s", ErrBusy, tasksAtOnce, taskEvery)
	}
	if err := t.Record(client, handle); err != nil {
		return fmt.Errorf("recording that a task begins: %w", err)
	}
	return t.Sessions.New(client, handle)
}

// count is how many sessions a client has, the default one among them.
func count(s *Sessions, client string) (n int) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for k := range s.sessions {
		if k.client == client {
			n++
		}
	}
	return n
}
