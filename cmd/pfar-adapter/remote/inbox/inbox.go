// Package inbox hands each message of a remote server to the request that it answers, or to the gateway.
package inbox

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/pfar/pfar/cmd/pfar-adapter/remote/fault"
	"github.com/pfar/pfar/cmd/pfar-adapter/remote/notes"
	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/policies/redact"
	"github.com/pfar/pfar/units/jsonrpc"
)

// Limits bound what waits for a server.
type Limits struct {
	Requests int           // in flight
	Whole    time.Duration // from a request until its answer
	Linger   time.Duration // from an answer until the response that it came in is cut off
	Batch    int           // messages that a server sends as one
}

// DefaultLimits are above the gateway's own.
func DefaultLimits() Limits {
	return Limits{Requests: 128, Whole: 65 * time.Minute, Linger: 2 * time.Second, Batch: 256}
}

// Inbox takes what a server says, on whichever stream it comes.
type Inbox struct {
	limits  Limits
	secrets *redact.Set
	log     *notes.Log

	out  sync.Mutex // guards to
	to   io.Writer
	gone func() // nobody reads any more

	mu      sync.Mutex
	flights map[string]*Flight // by their ids as they are written
	open    int                // requests that will end, and whose answers have not been written
	settled chan struct{}      // closed when there are none of those any more; nil: nobody waits for that
}

// New returns an inbox that writes lines for the gateway, and calls gone once it cannot.
func New(to io.Writer, gone func(), secrets *redact.Set, log *notes.Log, limits Limits) *Inbox {
	return &Inbox{limits: limits, secrets: secrets, log: log, to: to, gone: gone, flights: map[string]*Flight{}}
}

// Spec is what a request is.
type Spec struct {
	ID      []byte // as it is written
	Method  string
	Endless bool                         // its response stays open for good
	Own     bool                         // the adapter asks, and the gateway does not hear of it
	Hook    func(answer jsonrpc.Message) // sees the answer before the gateway does; nil: nobody
	Meta    func() []byte                // returns a member for the _meta of the result, after Hook; nil: none
}

// Flight is a request whose answer has not come.
type Flight struct {
	Spec
	ctx    context.Context // of all that is done for it
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when it is answered, has failed, or nobody wants the answer
}

// Context ends soon after the answer has come, and at once when nobody wants it any more.
func (f *Flight) Context() context.Context { return f.ctx }

// Done is closed when nothing more is wanted of the request.
func (f *Flight) Done() <-chan struct{} { return f.done }

// IsDone reports whether Done is closed.
func (f *Flight) IsDone() bool {
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}

// End frees what the request has held.
func (f *Flight) End() { f.cancel(errOver) }

var (
	errOver      = errors.New("the request is over")
	errCancelled = errors.New("the gateway has cancelled the request")
)

// ErrTwice says that a request with the same id is in flight.
var ErrTwice = errors.New("a request with this id is in flight")

// Begin enters a request.
func (b *Inbox) Begin(ctx context.Context, spec Spec) (*Flight, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.flights[string(spec.ID)] != nil {
		return nil, ErrTwice
	}
	if len(b.flights) >= b.limits.Requests {
		f := fault.New(fault.RateLimited, "%d requests wait for the server already", len(b.flights))
		f.Retry = time.Second
		return nil, f
	}
	f := &Flight{Spec: spec, done: make(chan struct{})}
	f.ctx, f.cancel = context.WithCancelCause(ctx)
	if !spec.Endless {
		b.open++
		late := fault.New(fault.Timeout, "the server has not answered within %v", b.limits.Whole)
		timer := time.AfterFunc(b.limits.Whole, func() { f.cancel(late) })
		context.AfterFunc(f.ctx, func() { timer.Stop() })
	}
	b.flights[string(f.ID)] = f
	return f, nil
}

// claim takes a request off the books. It reports false if it is not on them.
func (b *Inbox) claim(f *Flight) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.flights[string(f.ID)] != f {
		return false
	}
	delete(b.flights, string(f.ID))
	return true
}

// finish says that nothing more is wanted of a request that has been claimed.
func (b *Inbox) finish(f *Flight) {
	close(f.done)
	if f.Endless {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open--
	if b.settled != nil && b.open == 0 {
		close(b.settled)
		b.settled = nil
	}
}

func (b *Inbox) of(id []byte) *Flight {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.flights[string(id)]
}

// Fail answers a request with an error, unless it is done.
func (b *Inbox) Fail(f *Flight, err error) {
	if !b.claim(f) {
		return
	}
	if !f.Own {
		b.Refuse(f.ID, err)
	}
	b.finish(f)
}

// Refuse answers a request that has not been entered with an error.
func (b *Inbox) Refuse(id []byte, err error) {
	b.write(fault.Of(err).Answer(b.secrets, id))
}

// Cancel takes it that nobody wants an answer any more. It returns the request, nil if it was not in flight.
func (b *Inbox) Cancel(id []byte) *Flight {
	f := b.of(id)
	if f == nil || f.Own || !b.claim(f) {
		return nil
	}
	f.cancel(errCancelled)
	b.finish(f)
	return f
}

// Settled returns a channel that is closed when no request is in flight but those that stay open.
func (b *Inbox) Settled() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open == 0 {
		settled := make(chan struct{})
		close(settled)
		return settled
	}
	if b.settled == nil {
		b.settled = make(chan struct{})
	}
	return b.settled
}

// Tell writes a message of the adapter's own.
func (b *Inbox) Tell(line []byte) { b.write(append(line, '\n')) }

func (b *Inbox) write(line []byte) {
	b.out.Lock()
	defer b.out.Unlock()
	if _, err := b.to.Write(jsonrpc.OneLine(line)); err != nil {
		b.gone()
	}
}

// Take takes a message, or an array of them, whose memory is the inbox's then. It came in the response to a request, or
// from is nil. An error means that no answer to that request is to be expected.
func (b *Inbox) Take(raw []byte, from *Flight) error {
	if first := bytes.TrimLeft(raw, " \t\r\n"); len(first) > 0 && first[0] == '[' {
		return b.batch(raw, from)
	}
	raw, _ = b.secrets.HideJSON(raw)
	m, err := jsonrpc.Parse(raw)
	switch {
	case err != nil && !errors.Is(err, jsonrpc.ErrUTF8):
		b.log.Seldom("the server sent a line that is not a JSON-RPC message, ignoring", err.Error())
		return fault.New(fault.Schema, "the server sent a line that is not a JSON-RPC message: %v", err)
	case m.Method == "" && m.ID != nil && string(m.ID) != "null":
		return b.answered(m, raw, err, from)
	case err != nil:
		b.log.Seldom("a message of the server's is not UTF-8, ignoring", "")
	case m.Method != "":
		b.write(append(raw, '\n'))
	case m.Error != nil:
		return fault.New(fault.Schema, "the server sent an error that belongs to no request: %s", fault.Said(m.Error))
	default:
		b.log.Seldom("a message of the server's is neither a request nor an answer, ignoring", "")
	}
	return nil
}

// batch takes an array of messages, as the revision 2025-03-26 has them.
func (b *Inbox) batch(raw []byte, from *Flight) error {
	list, err := jsonrpc.Array(raw, nil, b.limits.Batch)
	if err != nil {
		b.log.Seldom("the server sent a batch that cannot be read, ignoring", err.Error())
		return fault.New(fault.Schema, "the server sent a batch that cannot be read: %v", err)
	}
	for _, one := range list {
		if len(one) == 0 || one[0] != '{' {
			err = errors.Join(err, fault.New(fault.Schema, "an entry of a batch is not a message"))
			continue
		}
		err = errors.Join(err, b.Take(one, from))
	}
	return err
}

// answered hands an answer to its request. The first one counts.
func (b *Inbox) answered(m jsonrpc.Message, raw []byte, broken error, from *Flight) error {
	f := b.of(m.ID)
	if f == nil {
		if from == nil || !from.IsDone() {
			b.log.Seldom("the server answers what was not asked, ignoring", "")
		}
		return nil
	}
	if broken == nil {
		raw, broken = fault.Strip(raw, m)
	}
	if broken != nil {
		b.Fail(f, fault.New(fault.Schema, "cannot read the server's answer: %v", broken))
		return nil
	}
	if !b.claim(f) {
		return nil
	}
	if f.Hook != nil {
		f.Hook(m)
	}
	if f.Meta != nil {
		raw = withMeta(raw, f.Meta())
	}
	if !f.Own {
		b.write(append(raw, '\n'))
	}
	time.AfterFunc(b.limits.Linger, f.End)
	b.finish(f)
	return nil
}

// withMeta adds a member of pfar's to the _meta of an answer's result, in place of what the server says in pfar's name.
func withMeta(raw []byte, member []byte) []byte {
	ms, err := jsonrpc.Object(raw, make(jsonrpc.Members, 0, 4))
	i := ms.Index("result")
	if err != nil || i < 0 {
		return raw
	}
	of, err := jsonrpc.Object(ms[i].Raw(), nil)
	if err != nil {
		return raw
	}
	theirs := func(name []byte) bool { return !failure.Ours(name) }
	meta := jsonrpc.Amend(of.Get("_meta"), theirs, member)
	others := func(name []byte) bool { return string(name) != "_meta" }
	result := of.Merge(nil, others, append([]byte(`"_meta":`), meta...))
	return jsonrpc.Splice(nil, raw, ms.Replace(i, result))
}
