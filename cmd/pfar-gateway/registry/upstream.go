package registry

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/pfar/pfar/cmd/pfar-gateway/keep"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/transport"
	"github.com/pfar/pfar/units/handover"
)

// Upstream is one server process: the conversation with it, and what is known of it beside that.
type Upstream struct {
	*protocol.Conversation
	conn   transport.Transport
	memory *keep.Memory
	limits *Limits
	log    *slog.Logger
	handed int64 // handover.Message.At of the handover
	kept   bool  // a gateway before this one has talked to it

	note   func(to, method string, params []byte) // a notification for clients (protocol.Listener)
	hangUp func()                                 // on the launcher; nil: there is none

	lists   lists
	marked  atomic.Pointer[marked]
	retells *rate.Limiter // of changes that change nothing
	level   atomic.Int32  // the most verbose of log messages that it has been told; 0: none
	untried atomic.Bool   // it was started to learn what it offers, and nobody has wanted anything of it yet

	writing sync.Mutex // held from reading what is remembered until it is written
}

// connected returns what is known at first of a server that is connected by conn.
func (r *Registry) connected(server handover.Server, conn transport.Transport, memory *keep.Memory, secrets int64) *Upstream {
	u, config := r.upstream(server, memory)
	u.conn = conn
	config.Transport, config.Secrets, config.Serial = conn, r.redaction, secrets
	u.Conversation = protocol.New(config)
	return u
}

// asleep returns what stands for a server that sleeps.
func (r *Registry) asleep(server handover.Server, a Agreement) *Upstream {
	u, config := r.upstream(server, keep.Volatile())
	u.Conversation = protocol.Asleep(config, a)
	return u
}

func (r *Registry) upstream(server handover.Server, memory *keep.Memory) (*Upstream, protocol.Config) {
	log := r.log.With("server", server.Name)
	if server.Session != "" {
		log = log.With("session", server.Session)
	}
	u := &Upstream{
		memory: memory, limits: &r.limits, log: log, note: func(string, string, []byte) {},
		lists: lists{stale: make(chan struct{}, 1)}, retells: rate.NewLimiter(rate.Every(10*time.Second), 5),
	}
	return u, protocol.Config{Server: server, Memory: memory, Limits: &r.limits.Limits, Log: log, Listener: listener{u}}
}

// listener hears what a server says on its own.
type listener struct{ u *Upstream }

func (l listener) Note(to, method string, params []byte) { l.u.note(to, method, params) }

func (l listener) Changed(method string) bool {
	k := changedBy(method)
	if k != 0 {
		l.u.lists.again(k, 0)
	}
	return k != 0
}

func (l listener) Missed() { l.u.lists.again(0, AllKinds) }

// end ends the conversation. Of one that is left to the next gateway the launcher has to know whose doing its end is.
func (u *Upstream) end(why error) {
	u.End(why, func() {
		if errors.Is(why, errShutdown) && u.hangUp != nil {
			u.hangUp()
		}
	})
}

// Louder reports whether a level of log messages, 1 for the most verbose, is to be told to the server, and takes it
// that it is: what it has been told is never taken back, for what each client does not want is left out here, and who
// can turn a level up and down can tell the server anything by it, without a call.
func (u *Upstream) Louder(level int) bool {
	for {
		told := u.level.Load()
		if told != 0 && told <= int32(level) {
			return false
		}
		if u.level.CompareAndSwap(told, int32(level)) {
			return true
		}
	}
}
