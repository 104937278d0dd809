package telemetry

import (
	"sync"
	"sync/atomic"
	"time"
)

// method is one of those that have counters; the list is closed, for a client may send any.
type method uint8

const (
	otherMethod method = iota
	toolsCall
	promptsGet
	resourcesRead
	completion
	toolsList
	promptsList
	resourcesList
	templatesList
	subscribe
	unsubscribe
	listen
	initialize
	discover
	ping
	setLevel
	methods // how many there are
)

// methodNames are the protocol's names, in the order of the constants.
var methodNames = [methods]string{
	otherName, "tools/call", "prompts/get", "resources/read", "completion/complete", "tools/list", "prompts/list", "resources/list",
	"resources/templates/list", "resources/subscribe", "resources/unsubscribe", "subscriptions/listen", "initialize", "server/discover",
	"ping", "logging/setLevel",
}

var methodsByName = func() map[string]method {
	m := make(map[string]method, methods)
	for i, name := range methodNames {
		m[name] = method(i)
	}
	return m
}()

func methodOf(name string) method { return methodsByName[name] }

// bounds are the upper ends of the buckets that Prometheus is shown, in nanoseconds.
var bounds = [...]time.Duration{
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	1 * time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	1 * time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second, 30 * time.Second, 60 * time.Second,
}

// series are the counters of one method of one server.
type series struct {
	ended   [outcomes]atomic.Uint64
	buckets [len(bounds) + 1]atomic.Uint64 // the last is for what is longer than all bounds
	nanos   atomic.Uint64
}

func (s *series) add(o Outcome, took time.Duration) {
	s.ended[o].Add(1)
	s.nanos.Add(uint64(took))
	i := 0
	for i < len(bounds) && took > bounds[i] {
		i++
	}
	s.buckets[i].Add(1)
}

// tool are the counters of one tool.
type tool struct {
	ended [outcomes]atomic.Uint64
	nanos atomic.Uint64
}

func (t *tool) add(o Outcome, took time.Duration) {
	t.ended[o].Add(1)
	t.nanos.Add(uint64(took))
}

// server are the counters of one server.
type server struct {
	name      string
	forgotten bool // under Telemetry.mu: no new tools are counted

	inFlight atomic.Int64
	bytes    atomic.Uint64
	last     atomic.Int64 // end of the last call, in nanoseconds since Telemetry.born; 0: there was none
	longest  atomic.Int64 // in nanoseconds
	latency  histogram
	methods  [methods]series
	tools    atomic.Pointer[map[string]*tool] // copied for each change, under Telemetry.mu
	others   tool
	past     past
}

func newServer(name string) *server {
	s := &server{name: name}
	s.tools.Store(&map[string]*tool{})
	return s
}

// ended counts the end of a call, at so long after the gateway's start.
func (s *server) ended(m method, o Outcome, took, at time.Duration, bytes int) {
	if int64(at) >= s.past.due.Load() {
		s.remember(at)
	}
	s.inFlight.Add(-1)
	s.bytes.Add(uint64(bytes))
	s.last.Store(int64(at))
	s.methods[m].add(o, took)
	if m == listen { // as long as the client stays, which says nothing of the server
		return
	}
	s.latency.add(took)
	for {
		most := s.longest.Load()
		if int64(took) <= most || s.longest.CompareAndSwap(most, int64(took)) {
			return
		}
	}
}

// totals returns how many calls ended, by outcome, all methods together.
func (s *server) totals() (all [outcomes]uint64) {
	for m := range s.methods {
		for o := range all {
			all[o] += s.methods[m].ended[o].Load()
		}
	}
	return all
}

const (
	window   = time.Minute
	interval = 5 * time.Second          // between two snapshots
	kept     = int(window/interval) + 2 // so many reach back further than the window and one interval
)

// snapshot is what a server's counters held at one time. They are cut to 32 bits: only differences are of use.
type snapshot struct {
	at      time.Duration // since the gateway's start
	ended   [outcomes]uint32
	latency distribution
}

// past are a server's last snapshots. A call takes one before it is counted, if the last is older than the interval, so
// that an idle gateway has nothing to do.
type past struct {
	due   atomic.Int64 // when the next is to be taken, in nanoseconds since the gateway's start
	mu    sync.Mutex
	ring  [kept]snapshot
	taken int // how many have been taken
}

// remember takes a snapshot. A call does not wait for another that does.
func (s *server) remember(at time.Duration) {
	if !s.past.mu.TryLock() {
		return
	}
	defer s.past.mu.Unlock()
	if int64(at) < s.past.due.Load() {
		return
	}
	s.now(&s.past.ring[s.past.taken%kept], at)
	s.past.taken++
	s.past.due.Store(int64(at + interval))
}

// now reads the counters.
func (s *server) now(to *snapshot, at time.Duration) {
	to.at = at
	for o, n := range s.totals() {
		to.ended[o] = uint32(n)
	}
	for i := range to.latency {
		to.latency[i] = uint32(s.latency.counts[i].Load())
	}
}

// recent returns what has happened in the last minute, and how long that is exactly: one interval more at most, and not
// longer than the gateway runs.
func (s *server) recent(at time.Duration) (snapshot, time.Duration) {
	p := &s.past
	p.mu.Lock() // nobody takes a snapshot that is newer than now
	defer p.mu.Unlock()
	var now snapshot
	s.now(&now, at)
	from := at - window
	base := &now
	for i := max(0, p.taken-kept); i < p.taken; i++ { // from the oldest on
		base = &p.ring[i%kept]
		// In the interval behind a snapshot calls ended, and from then to the next one none did.
		if base.at+interval > from {
			break
		}
		base = &now
	}
	from = min(from, base.at)
	for o := range now.ended {
		now.ended[o] -= base.ended[o]
	}
	for i := range now.latency {
		now.latency[i] -= base.latency[i]
	}
	return now, at - max(0, from)
}
