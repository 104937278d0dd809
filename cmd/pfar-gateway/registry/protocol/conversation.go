// Package protocol speaks MCP with one server process over a transport: the handshake, the requests and answers of
// both sides, notifications, cancellations, and the limits on all of them.
package protocol

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/keep"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/transport"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/jsonrpc"
)

// Limits bound what one server may cost its conversation.
type Limits struct {
	transport.Limits
	Depth      int           // nesting of a result
	Handshake  time.Duration // from Hello until everything is discovered
	Probe      time.Duration // of that, for the question which generation of the protocol the server speaks
	Call       time.Duration // longest call, where the declaration says nothing
	Human      time.Duration // longest call in the course of which a client is asked something
	Concurrent int           // calls in flight
	Waiting    int           // calls that wait for one of those to end
	Asks       int           // requests of the server's own that wait for a client
	Notes      int           // notifications a second that are looked at
	Note       int           // bytes of one
	Ask        int           // bytes of a request of the server's own
}

// Listener hears what the server says on its own. Its methods must not block.
type Listener interface {
	Note(to, method string, params []byte) // a notification for clients, or for the one client to that has calls in flight
	Changed(method string) bool            // reports whether the notification is one that says that a list has changed
	Missed()                               // the server may have said that lists changed while nobody listened
}

// Config is what a conversation needs.
type Config struct {
	Server    handover.Server
	Transport transport.Transport
	Memory    *keep.Memory // gives ids and tokens out, and knows which are in flight
	Limits    *Limits
	Log       *slog.Logger
	Listener  Listener
	Secrets   *Redaction // nil: nothing is secret
	Serial    int64      // of the secrets that have to be known before the server is read
}

// Conversation is the conversation with one server process, from Hello to its end.
type Conversation struct {
	*Terms
	conn     transport.Transport
	listener Listener
	limits   *Limits
	log      *slog.Logger
	agreed   atomic.Pointer[settled] // nil until the handshake is over
	faults   *faults
	secrets  *secrets
	places   places
	flights  *flights
	outbox   *outbox
	stream   *stream
}

type settled struct {
	Agreement
	modern bool
}

// New returns a conversation that Run begins.
func New(config Config) *Conversation {
	c := &Conversation{
		Terms: newTerms(config.Server, config.Limits.Call), conn: config.Transport, listener: config.Listener,
		limits: config.Limits, log: config.Log, faults: &faults{newTally[Fault](), config.Log},
		secrets: &secrets{by: config.Secrets, serial: config.Serial, log: config.Log, leaks: newTally[string]()},
		places:  places{slots: make(chan struct{}, config.Limits.Concurrent), most: config.Limits.Waiting},
		flights: newFlights(config.Memory),
	}
	c.outbox = &outbox{lines: make(chan []byte, 2*config.Limits.Concurrent), conn: config.Transport, faults: c.faults}
	c.stream = &stream{c: c, want: make(map[string]bool), changed: make(chan struct{}, 1)}
	return c
}

// Asleep returns what stands for the conversation with a server that sleeps: it takes no requests.
func Asleep(config Config, a Agreement) *Conversation {
	c := New(config)
	c.flights.idle.hold.rest()
	c.flights.end(ErrAsleep)
	c.Agree(a, Client{})
	return c
}

// Agreed returns what the handshake settled.
func (c *Conversation) Agreed() Agreement {
	if a := c.agreed.Load(); a != nil {
		return a.Agreement
	}
	return Agreement{}
}

// Agree settles it. The gateway's own requests to a server of 2026-07-28 say that they are of this client.
func (c *Conversation) Agree(a Agreement, client Client) {
	if a.Modern() {
		a.meta = RequestMeta(client)
	}
	c.agreed.Store(&settled{a, a.Modern()})
}

// Modern reports whether the server is spoken to without a session, as 2026-07-28 has it.
func (c *Conversation) Modern() bool {
	a := c.agreed.Load()
	return a != nil && a.modern
}

// ServeOne has the conversation serve one client alone, from before Run. ask takes what the server asks outside of
// calls; it must not block.
func (c *Conversation) ServeOne(ask func(*Ask) bool) { c.flights.only = ask }

// Leaks returns how often which secret stood in what the server said.
func (c *Conversation) Leaks() map[string]uint64 { return c.secrets.leaks.all() }

// Faults returns how often the server did what.
func (c *Conversation) Faults() map[Fault]uint64 { return c.faults.all() }

// Fault counts one, and returns how many of the kind there have been.
func (c *Conversation) Fault(kind Fault, text []byte) uint64 { return c.faults.add(kind, text) }

// Load returns how many calls wait for a place, and how many are in flight.
func (c *Conversation) Load() (queued, running int) {
	return int(c.places.queued.Load()), len(c.places.slots)
}

// Token returns a progress token that no other call to this server has.
func (c *Conversation) Token() int64 { return c.flights.memory.Next() }

// Idle returns what keeps the server from rest.
func (c *Conversation) Idle() *Idle { return &c.flights.idle }

// Run reads and writes until the conversation ends.
func (c *Conversation) Run() {
	go c.outbox.run(c.Done())
	if !c.secrets.await(c.Done()) {
		return
	}
	r := reader{c: c}
	for {
		line, err := c.conn.Receive()
		if err != nil {
			c.End(err, nil)
			return
		}
		r.take(c.secrets.hide(line))
	}
}

// Alive reports whether the conversation goes on.
func (c *Conversation) Alive() bool {
	why, stopping := c.flights.state()
	return why == nil && !stopping
}

// Stopping reports whether Stop has been called.
func (c *Conversation) Stopping() bool {
	_, stopping := c.flights.state()
	return stopping
}

// Why returns the reason of the end, nil before it.
func (c *Conversation) Why() error {
	why, _ := c.flights.state()
	return why
}

// Done returns a channel that is closed at the end.
func (c *Conversation) Done() <-chan struct{} { return c.flights.done }

// End ends the conversation once; the first reason stands. Of that first call, before is called when the reason stands
// and the server has not yet seen the end of its stdin.
func (c *Conversation) End(why error, before func()) {
	if !c.flights.end(why) {
		return
	}
	if before != nil {
		before()
	}
	c.conn.Close()
}

// Stop lets calls in flight finish and takes no new ones.
func (c *Conversation) Stop() {
	c.flights.stop()
	c.conn.CloseSend()
}

// Notify tells the server something that has no parameters.
func (c *Conversation) Notify(method string) {
	c.outbox.tell(jsonrpc.AppendRequest(nil, 0, method, nil))
}

// Inherit takes over what is known of requests in flight that another gateway has sent: nobody waits for their answers,
// and as long as the server may work on one, a question of its own may be about that.
func (c *Conversation) Inherit() {
	c.flights.inherit(c.asksUntil())
}

// Resume tells the server what has become of the requests in flight, and listens again to what it has to tell.
func (c *Conversation) Resume() {
	for place, id := range c.flights.inherited {
		line := cancellation(id, "the client's connection broke")
		if err := transport.Write(context.Background(), c.conn, line); err != nil { // in bounded time
			c.faults.add(Unread, line)
			break
		}
		if c.asksUntil().IsZero() {
			c.flights.memory.End(place)
		}
	}
	if c.Modern() {
		c.Follow()
	}
}
