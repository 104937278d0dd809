package registry

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/pfar/pfar/cmd/pfar-gateway/keep"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/transport"
	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/jsonrpc"
	"github.com/pfar/pfar/units/operator"
)

// Upstream is one server process: the conversation with it, and what is known of it beside that.
type Upstream struct {
	*protocol.Conversation
	conn   transport.Transport
	memory *keep.Memory
	limits *Limits
	log    *slog.Logger
	past

	note     func(to, method string, params []byte) // a notification for clients (protocol.Listener)
	launcher *line                                  // nil: there is none

	lists   lists
	trial   *trial
	marked  atomic.Pointer[marked]
	retells *rate.Limiter // of changes that change nothing
	level   atomic.Int32  // the most verbose of log messages that it has been told; 0: none
	use

	writing sync.Mutex // held from reading what is remembered until it is written
}

// use is what has come of calls.
type use struct {
	untried atomic.Bool // it was started to learn what it offers, and nobody has wanted anything of it yet
	closed  sync.Map    // names of tools whose last call it has refused for want of a token that it accepts
}

// past is how a server's process came here.
type past struct {
	handed int64 // handover.Message.At of the handover
	kept   bool  // a gateway before this one has talked to it
}

// upstreams has what every Upstream needs.
type upstreams struct {
	log       *slog.Logger
	limits    *Limits
	redaction *protocol.Redaction // of what servers say; nil: nothing is secret
	verifier  Verifier            // of their secrets; nil: nobody verifies them
}

// connect returns the Upstream for a server whose stdio it is. The server may know the secrets of that serial.
func (s *upstreams) connect(server handover.Server, stdin, stdout *os.File, memory *keep.Memory, secrets int64) *Upstream {
	u, config := s.upstream(server, memory)
	u.conn = transport.NewStdio(stdin, stdout, memory, s.limits.Limits.Limits)
	config.Transport, config.Secrets, config.Serial = u.conn, s.redaction, secrets
	u.Conversation = protocol.New(config)
	return u
}

// asleep returns what stands for a server that sleeps.
func (s *upstreams) asleep(server handover.Server, a protocol.Agreement) *Upstream {
	u, config := s.upstream(server, keep.Volatile())
	u.Conversation = protocol.Asleep(config, a)
	if s.verifier != nil {
		u.trial.is = s.verifier.Last(server.Name)
	}
	return u
}

func (s *upstreams) upstream(server handover.Server, memory *keep.Memory) (*Upstream, protocol.Config) {
	log := s.log.With("server", server.Name)
	if server.Session != "" {
		log = log.With("session", server.Session)
	}
	u := &Upstream{
		memory: memory, limits: s.limits, log: log, note: func(string, string, []byte) {},
		lists: lists{stale: make(chan struct{}, 1)}, trial: newTrial(),
		retells: rate.NewLimiter(rate.Every(10*time.Second), 5),
	}
	return u, protocol.Config{Server: server, Memory: memory, Limits: &s.limits.Limits, Log: log, Listener: listener{u}}
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

var (
	errReplaced error = failure.Fact("a newer process of the same server took its place")
	errShutdown error = failure.Fact("the gateway is shutting down")
	errLauncher error = failure.Fact("the server's launcher ended")
	errStopped  error = failure.Fact("the server was stopped")
)

// end ends the conversation. Of one that is left to the next gateway the launcher has to know whose doing its end is.
func (u *Upstream) end(why error) {
	u.End(why, func() {
		if errors.Is(why, errShutdown) && u.launcher != nil {
			u.launcher.conn.Close()
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

// marked is the mark for results of one label.
type marked struct {
	label string
	text  []byte
}

// amend declares all but what the process was started with.
func (u *Upstream) amend(server handover.Server) {
	own := u.Server()
	server.Session, server.Files, server.Adapted = own.Session, own.Files, own.Adapted
	u.Declare(server)
}

// settle ends a handshake with a client: the server is spoken to as was agreed, unless it went wrong.
func (u *Upstream) settle(a protocol.Agreement, err error, client protocol.Client) error {
	if err == nil {
		err = u.otherVersion(a)
	}
	if err != nil {
		return u.because(err)
	}
	u.Agree(a, client)
	if a.Modern() {
		u.Follow()
	}
	return nil
}

// because prefers the reason of the end to what followed from it.
func (u *Upstream) because(err error) error {
	if why := u.Why(); why != nil {
		return why
	}
	return err
}

// prove asks a server anything: once it answers, what was taken over works.
func (u *Upstream) prove() {
	call := protocol.Call{Method: string(mcp.MethodPing), Own: true}
	if u.Modern() {
		call.Method = string(mcp.MethodServerDiscover)
	}
	if _, err := u.Call(context.Background(), call); err == nil {
		u.memory.Settled()
	}
}

func (u *Upstream) isAsleep() bool { return errors.Is(u.Why(), protocol.ErrAsleep) }

// Hold keeps a server awake, and from being started again, until Release. It reports false if the server sleeps.
func (u *Upstream) Hold() bool {
	if !u.Idle().Hold() {
		return false
	}
	if u.untried.Load() {
		u.untried.Store(false)
	}
	return true
}

// learnedRest is for how long a server runs on that was started only to learn what it offers.
const learnedRest = 2 * time.Second

// idleLimit is how long nothing has to keep the server awake until it is put to sleep; 0: it is not.
func (u *Upstream) idleLimit() time.Duration {
	if u.untried.Load() {
		return learnedRest
	}
	return u.Server().IdleTimeout
}

// refusal is the answer to a call of a server whose secrets are wrong. What its tool says of them is for the owner: it
// has passed no gate.
func (u *Upstream) refusal() error {
	if !u.trial.hides() {
		return nil
	}
	remedy := "pfar status " + u.Server().Name
	if trial := u.Server().Trial; trial != nil && trial.Remedy.Act != "" {
		remedy = trial.Remedy.Command
	}
	refusal := failure.As(failure.Unauthorized, u.Server().Name, jsonrpc.Errorf(protocol.CodeUnavailable,
		"the service refuses the credentials of server %q: nothing of it can be called until its owner has stored others",
		u.Server().Name))
	refusal.Advice = "its owner stores others: " + remedy
	return refusal
}

// Granted returns why a tool is not called: the server's tokens lack for certain what the owner says that it needs.
func (u *Upstream) Granted(tool string) error {
	server := u.Server()
	for _, name := range slices.Sorted(maps.Keys(server.Tools)) {
		if t := server.Tools[name]; t.Lacks != "" && gate.Pattern(name).Match(tool) {
			refusal := failure.As(failure.Forbidden, server.Name, jsonrpc.Errorf(protocol.CodeUnavailable,
				"tool %s is not called: the token of %s was not granted what it needs", protocol.Quote(tool),
				protocol.Quote(server.Name)))
			refusal.Advice = "it was not granted " + t.Lacks
			return refusal
		}
	}
	return nil
}

// Scopes returns what the owner says that a call of a tool needs, and what the server's tokens were granted of that.
func (u *Upstream) Scopes(tool string) (s operator.Scopes) {
	tools := u.Server().Tools
	for _, name := range slices.Sorted(maps.Keys(tools)) {
		if t := tools[name]; gate.Pattern(name).Match(tool) {
			s.Required, s.Granted = append(s.Required, t.Scopes...), append(s.Granted, t.Granted...)
			s.Lacks = cmp.Or(s.Lacks, t.Lacks)
		}
	}
	slices.Sort(s.Required)
	slices.Sort(s.Granted)
	s.Required, s.Granted = slices.Compact(s.Required), slices.Compact(s.Granted)
	return s
}

// Called takes what came of a call of a tool.
func (u *Upstream) Called(tool string, err error) {
	if failure.Of(err).Class == failure.Unauthorized {
		u.closed.Store(tool, nil)
	} else {
		u.closed.Delete(tool)
	}
}

// Vain returns why nobody is asked about a call of a tool: the server has refused the last one, whoever calls. Another
// token is for another process.
func (u *Upstream) Vain(tool string) error {
	if _, closed := u.closed.Load(tool); !closed {
		return nil
	}
	server := u.Server()
	return signedOut(server, "server %q has refused tool %s for want of a token that it accepts: nobody is asked about "+
		"another call before its owner has %s", server.Name, protocol.Quote(tool), signedIn(server))
}

// Secrets is a fingerprint of the secrets that the server has, of no use to guess them by; "": none.
func (u *Upstream) Secrets() string {
	proof, _ := u.trial.now()
	return proof
}

// newProof takes it that pfard has told which secrets a live server has by now.
func (u *Upstream) newProof(proof string, before handover.Server) {
	had, is := u.trial.now()
	if proof == "" {
		proof = had
	}
	u.trial.has(proof)
	if proof != "" && (proof != had || is.Result == units.Invalid || !reflect.DeepEqual(before.Trial, u.Server().Trial)) {
		u.trial.request()
	}
}

// Verifier finds out by a call whether a server's secrets are right, and remembers it. A proof says which secrets
// (handover.Message.Proof).
type Verifier interface {
	// Known returns what is remembered of these secrets, the zero value for nothing.
	Known(server handover.Server, proof string) units.Verification
	// Last returns what is remembered of the server, whatever its secrets were.
	Last(server string) units.Verification
	// Verify makes the call. Its context is bounded.
	Verify(ctx context.Context, u *Upstream, tools []Item, proof string) units.Verification
}
