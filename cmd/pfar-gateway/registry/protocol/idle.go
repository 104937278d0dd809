package protocol

import "time"

// Idle says for how long nothing has needed a server, and has it take no requests any more once that is long enough.
type Idle struct {
	hold    hold // requests that keep the server awake
	flights *flights
	used    time.Time // when something last kept it awake, or the last call of its own session's ended; locked by flights
}

// Hold keeps the server awake until Conversation.Release. It reports false if the server rests.
func (i *Idle) Hold() bool { return i.hold.take() }

// Touch notes that something has kept the server awake until now.
func (i *Idle) Touch() {
	i.flights.mu.Lock()
	defer i.flights.mu.Unlock()
	i.used = time.Now()
}

// Rest takes no calls any more if nothing has kept the server awake for that long, and otherwise returns how long that
// may still take. kept says that something outside keeps it now.
func (i *Idle) Rest(limit time.Duration, kept bool) time.Duration {
	i.flights.mu.Lock()
	defer i.flights.mu.Unlock()
	rest := limit - i.since(kept)
	if rest <= 0 && !i.hold.rest() {
		return limit
	}
	return rest
}

// Wake ends a rest.
func (i *Idle) Wake() {
	i.Touch()
	i.hold.wake()
}

// Retire is Rest for ever: the conversation stops.
func (i *Idle) Retire(limit time.Duration, kept bool) time.Duration {
	i.flights.mu.Lock()
	defer i.flights.mu.Unlock()
	rest := limit - i.since(kept)
	if rest <= 0 {
		i.flights.stopping = true
	}
	return rest
}

// since returns for how long nothing has kept the server. The lock of flights is held.
func (i *Idle) since(kept bool) time.Duration {
	if kept || i.hold.held() || i.flights.busy() {
		i.used = time.Now()
	}
	return time.Since(i.used)
}

// yieldPause is how long a server is left alone that has something of our own to answer.
const yieldPause = time.Second

// Yield takes no requests any more if none is under way, and otherwise has again called when that may be so.
func (i *Idle) Yield(again func()) bool {
	i.flights.mu.Lock()
	defer i.flights.mu.Unlock()
	i.hold.whenFree(again)
	switch {
	case i.hold.held() || i.hold.resting():
		return false
	case i.flights.busy():
		time.AfterFunc(yieldPause, again)
		return false
	case !i.hold.rest():
		return false
	}
	i.hold.whenFree(nil)
	return true
}

// WhenFree has f called when a request ends and no other is under way; nil: nothing.
func (i *Idle) WhenFree(f func()) { i.hold.whenFree(f) }
