package protocol

import (
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/keep"
	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/units/jsonrpc"
)

// flights are the requests in flight between the gateway and a server, of both sides, and whether there may be more.
type flights struct {
	memory    *keep.Memory    // gives ids out, and knows for the next gateway which are in flight
	before    int64           // ids up to here are of a gateway before this one
	inherited map[int]int64   // of those, the requests in flight, by their places
	done      chan struct{}   // closed at the end
	only      func(*Ask) bool // takes questions of a process that serves one client alone; nil: it serves all
	idle      Idle
	spares    sync.Pool // calls that are over, with their channels and timers

	mu       sync.Mutex
	waiting  map[int64]*waiting
	progress map[int64]*waiting // by token
	asks     map[string]*Ask    // that the server waits for, by its ids
	given    map[int64]givenUp  // calls that nobody waits for any more, and that it may still work on
	stopping bool
	ended    error
}

// waiting is a call whose answer has not come. The lock of flights guards what says so.
type waiting struct {
	call   *Call
	answer chan answer // room for one
	timer  *time.Timer
	since  time.Time     // it was about to be sent
	begun  chan struct{} // of a stream of notifications: closed when it is open
	flight int           // place among those in flight

	open     bool      // locked
	unread   string    // why a line that looks like the answer could not be read; "": there was none; locked
	heard    time.Time // when a client has last answered a question about it; locked
	declined bool      // the server will not tell of resources; set before begun is closed
}

type answer struct {
	jsonrpc.Message
	err error
}

// givenUp is a call that the server may still work on, and ask about, though its client has gone.
type givenUp struct {
	client string
	until  time.Time
	flight int // place among those in flight, where it stays
}

// maxGivenUp bounds those that are remembered; with so many nobody is asked anything.
const maxGivenUp = 256

func newFlights(memory *keep.Memory) *flights {
	f := &flights{
		memory: memory, before: memory.Last(), done: make(chan struct{}),
		waiting: make(map[int64]*waiting), progress: make(map[int64]*waiting),
		asks: make(map[string]*Ask), given: make(map[int64]givenUp),
	}
	f.idle = Idle{flights: f, used: time.Now()}
	return f
}

// spare returns room for a call.
func (f *flights) spare() *waiting {
	if w, ok := f.spares.Get().(*waiting); ok {
		return w
	}
	return &waiting{answer: make(chan answer, 1), timer: time.NewTimer(time.Hour)}
}

func (f *flights) state() (ended error, stopping bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ended, f.stopping
}

// end reports whether it is the first.
func (f *flights) end(why error) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended != nil {
		return false
	}
	f.ended = why
	close(f.done)
	return true
}

func (f *flights) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopping = true
}

// begin enters a call. If there may be none any more it returns why.
func (f *flights) begin(id int64, w *waiting) (refused string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended != nil || f.stopping || f.idle.hold.resting() {
		return f.over()
	}
	f.waiting[id] = w
	w.flight = f.memory.Begin(id)
	if w.call.Token != 0 {
		f.progress[w.call.Token] = w
	}
	return ""
}

// why says why there are no calls any more.
func (f *flights) why() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.over()
}

// over is why with f.mu held.
func (f *flights) over() string {
	switch {
	case f.ended != nil:
		return f.ended.Error()
	case f.stopping:
		return "the server is being stopped"
	case f.idle.hold.resting():
		return ErrAsleep.Error()
	}
	return "the server's stdin is closed"
}

// ErrAsleep is the end of a conversation with a server that sleeps.
var ErrAsleep error = failure.Fact("the server sleeps")

// of returns the call with this id, nil if it is not in flight.
func (f *flights) of(id int64) *waiting {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.waiting[id]
}

// forget takes a call off the books and returns it, nil if it is not on them.
func (f *flights) forget(id int64) *waiting {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.remove(id)
	if w != nil {
		f.memory.End(w.flight)
	}
	return w
}

// remove is forget for a flight that does not end yet. f.mu is held.
func (f *flights) remove(id int64) *waiting {
	w := f.waiting[id]
	if w == nil {
		return nil
	}
	delete(f.waiting, id)
	if w.call.Token != 0 {
		delete(f.progress, w.call.Token)
	}
	return w
}

// giveUp takes a call off the books, and keeps whose it was until the server answers it after all, or may not ask about
// it any more. It reports false if the call is not on the books.
func (f *flights) giveUp(id int64, until time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.remove(id)
	if w == nil {
		return false
	}
	if w.call.Client != "" && !until.IsZero() {
		f.expire()
		if len(f.given) < maxGivenUp {
			f.given[id] = givenUp{w.call.Client, until, w.flight}
			return true
		}
	}
	f.memory.End(w.flight)
	return true
}

// expire drops what is too old to be asked about. f.mu is held.
func (f *flights) expire() {
	now := time.Now()
	for id, g := range f.given {
		if now.After(g.until) {
			delete(f.given, id)
			f.memory.End(g.flight)
		}
	}
}

// wasGivenUp reports whether an answer is to a call that nobody waits for any more, and forgets that.
func (f *flights) wasGivenUp(id int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	g, ok := f.given[id]
	if ok {
		delete(f.given, id)
		f.memory.End(g.flight)
	}
	return ok
}

// inherit takes over the requests in flight that another gateway has sent. The server may ask about them until then.
func (f *flights) inherit(until time.Time) {
	f.inherited = f.memory.InFlight()
	if until.IsZero() {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for place, id := range f.inherited {
		f.given[id] = givenUp{"", until, place}
	}
}

// busy reports whether calls are in flight: a stream of notifications is none. f.mu is held.
func (f *flights) busy() bool {
	for _, w := range f.waiting {
		if w.begun == nil {
			return true
		}
	}
	return false
}

// asked enters a question of the server's and returns who takes it. The calls in flight must be one client's only, or
// its answer could serve another.
func (f *flights) asked(a *Ask, limit int) (ask func(*Ask) bool, e *jsonrpc.Error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	of, e := f.cause()
	switch {
	case e != nil:
		return nil, e
	case len(f.asks) >= limit:
		return nil, jsonrpc.Errorf(CodeBusy, "%d requests of this server wait for answers already", len(f.asks))
	case f.asks[string(a.id)] != nil:
		return nil, jsonrpc.Errorf(mcp.INVALID_REQUEST, "a request with this id is in flight")
	}
	f.asks[string(a.id)] = a
	if of == nil || of.call.Ask == nil {
		return f.only, nil
	}
	a.of = of
	return of.call.Ask, nil
}

// cause returns the call that a request of the server's is about, nil for none in a process of one client. Of several
// calls it is the newest that takes questions. f.mu is held.
func (f *flights) cause() (*waiting, *jsonrpc.Error) {
	var newest int64
	var found *waiting
	for id, w := range f.waiting {
		if w.call.Client == "" { // the gateway's own
			continue
		}
		if found != nil && w.call.Client != found.call.Client {
			return nil, errWhose
		}
		if found == nil || found.call.Ask == nil || w.call.Ask != nil && id > newest {
			newest, found = id, w
		}
	}
	if f.doubtful(found) {
		return nil, errWhose
	}
	if f.only == nil && (found == nil || found.call.Ask == nil) {
		return nil, jsonrpc.Errorf(mcp.INVALID_REQUEST, "no call is in flight of a client that can be asked")
	}
	return found, nil
}

var errWhose = jsonrpc.Errorf(mcp.INVALID_REQUEST, "calls of several clients are in flight or wait for their clients' answers, "+
	`and this request does not say whose it is about: declare sessions = "own"`)

// doubtful reports whether the server may speak of a call of another client's that nobody waits for any more. f.mu is
// held.
func (f *flights) doubtful(found *waiting) bool {
	if f.only != nil || found == nil {
		return false
	}
	f.expire()
	for _, g := range f.given {
		if g.client != found.call.Client {
			return true
		}
	}
	return len(f.given) >= maxGivenUp
}

// answered takes a question off the books that has an answer.
func (f *flights) answered(a *Ask) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.asks[string(a.id)] == a {
		delete(f.asks, string(a.id))
		if a.of != nil {
			a.of.heard = time.Now()
		}
	}
}

// about returns the questions about a call that have no answer.
func (f *flights) about(w *waiting) (open []*Ask) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.asks {
		if a.of == w {
			open = append(open, a)
		}
	}
	return open
}

// asking returns how much longer a call may take because the server waits for a client's answer, or has just had it:
// people take their time.
func (f *flights) asking(w *waiting, timeout time.Duration) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.asks {
		if a.of == w {
			return timeout
		}
	}
	if w.heard.IsZero() {
		return 0
	}
	return timeout - time.Since(w.heard)
}

// mayHear says who may hear a log message: the one client that has calls in flight, with those of them that asked for
// such, or everybody if there are none. It is not sure if there are calls of several: on stdio a server does not say
// whose call a message is about, and it may be another client's business.
func (f *flights) mayHear() (to string, hear []func([]byte), sure bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var one *waiting
	for _, w := range f.waiting {
		if w.call.Client == "" {
			continue
		}
		if one != nil && one.call.Client != w.call.Client {
			return "", nil, false
		}
		one = w
		if w.call.Log != nil {
			hear = append(hear, w.call.Log)
		}
	}
	if one == nil {
		return "", nil, true
	}
	return one.call.Client, hear, !f.doubtful(one)
}

// withdrawn acts on a server's cancellation of a request of its own.
func (f *flights) withdrawn(params []byte) Fault {
	ms, err := jsonrpc.Object(params, nil)
	if err != nil {
		return Noise
	}
	f.mu.Lock()
	a := f.asks[string(ms.Get("requestId"))]
	if a != nil {
		delete(f.asks, string(a.id))
	}
	f.mu.Unlock()
	if a != nil { // else it is answered in this moment, or not the server's to cancel
		a.once.Do(func() {})
		a.takeBack()
	}
	return ""
}

// progressed passes progress on under the token of the client whose call it is.
func (f *flights) progressed(params []byte) Fault {
	ms, err := jsonrpc.Object(params, make(jsonrpc.Members, 0, 4))
	i := ms.Index("progressToken")
	if err != nil || i < 0 {
		return Noise
	}
	token, ok := ourID(ms[i].Raw())
	f.mu.Lock()
	w := f.progress[token]
	f.mu.Unlock()
	switch {
	case ok && w != nil:
		w.call.Progress(jsonrpc.Splice(nil, params, ms.Replace(i, w.call.ClientToken)))
	case !ok || token > f.before:
		return Unsolicited
	}
	return ""
}

// acknowledged takes the first message of a stream, which says that it is open.
func (f *flights) acknowledged(params []byte) Fault {
	ms, err := jsonrpc.Object(params, nil)
	if err != nil {
		return Noise
	}
	id, ok := ourID(subscription(ms))
	granted, _ := jsonrpc.Object(ms.Get("notifications"), nil)
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.waiting[id]
	if !ok || w == nil || w.begun == nil || w.open {
		return Unsolicited
	}
	w.open, w.declined = true, granted.Get("resourceSubscriptions") == nil
	close(w.begun)
	return ""
}

// subscription is the id of the stream that a notification came on.
func subscription(params jsonrpc.Members) []byte {
	meta, err := jsonrpc.Object(params.Get("_meta"), nil)
	if err != nil {
		return nil
	}
	return meta.Get(mcp.MetaKeySubscriptionID)
}

// unreadGrace is how long a call goes on to wait once a line has come that looks like its answer and cannot be read: it
// may have been noise.
const unreadGrace = time.Second

// mayBeID finds what may be the id of the request that a line answers, in whatever is left of it.
var mayBeID = regexp.MustCompile(`"id"\s*:\s*([0-9]+)`)

// maxUnread bounds where an id is looked for, in bytes.
const maxUnread = 64 << 10

// unreadable has the call that a line seems to answer end soon, for no other answer is likely to come.
func (f *flights) unreadable(line []byte, why string, timeout time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range mayBeID.FindAllSubmatch(line[:min(len(line), maxUnread)], 8) {
		id, ok := ourID(m[1])
		w := f.waiting[id]
		if !ok || w == nil {
			continue
		}
		if w.begun == nil && w.unread == "" {
			w.unread = why
			w.timer.Reset(min(unreadGrace, timeout))
		}
		return
	}
}

// unread returns why the answer to a call could not be read; "": none has come.
func (f *flights) unread(w *waiting) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return w.unread
}

// ourID reads an id as we write them: digits and nothing else, so that 7, "7", 7.0 and 07 are not the same.
func ourID(raw []byte) (int64, bool) {
	if len(raw) == 0 || len(raw) > 18 || raw[0] < '1' || raw[0] > '9' {
		return 0, false
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	return n, err == nil
}

// cancellation tells the server that nobody waits for an answer.
func cancellation(id int64, reason string) []byte {
	params := fmt.Appendf(nil, `{"requestId":%d,"reason":%q}`, id, reason)
	return jsonrpc.AppendRequest(nil, 0, string(mcp.MethodNotificationCancelled), params)
}
