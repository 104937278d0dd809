// Package handover carries a server's stdio descriptors from its launcher to the gateway, and news about the server
// both ways.
//
// Whoever starts the launcher connects to the gateway's socket (SOCK_SEQPACKET, so one packet is one message), sends
// Expect, which says what server it is, and passes the connection on. The launcher sends Hello with the write end of
// the server's stdin and the read end of its stdout attached (SCM_RIGHTS, unix(7)), and keeps the connection for the
// life of the server: it can say nothing of the server's that the gateway would believe. Whoever closes it says that
// the server, or the gateway, is gone. The gateway's end is stored (units.Store), so that it stays open while another
// process of the gateway takes over: to the launcher that shows as another Ready.
package handover

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/packet"
)

// Server is what the gateway may know of a server: nothing in it is secret.
type Server struct {
	Name        string `json:"name"`
	Session     string `json:"session,omitempty"` // handle of the one client session that this process serves; "": it serves all
	Description string `json:"description,omitempty"`
	Label       string `json:"label"`
	Calls
	Tools    map[string]Tool `json:"tools,omitempty"`    // the owner's word on a tool, by its upstream name, in which * stands for any characters
	Declared json.RawMessage `json:"declared,omitempty"` // a gate.Declared: what the owner says of it to the gate; "": nothing

	Capabilities []string `json:"client_capabilities,omitempty"` // what it may ask of clients: "elicitation", "roots", "sampling"
	Sessions     Sessions `json:"sessions,omitzero"`
	Pins         string   `json:"pins,omitempty"`    // "hold" or "trust-first": what becomes of tools seen for the first time; "" holds
	Version      string   `json:"version,omitempty"` // that the declaration expects the server to have, or it is not served; "" expects none
	Program      string   `json:"program,omitempty"` // SHA-256 over its command and arguments, in hexadecimal

	Evidence

	OnDemand    bool          `json:"on_demand,omitempty"`    // a call starts it when it sleeps
	IdleTimeout time.Duration `json:"idle_timeout,omitempty"` // without a call, until it is put to sleep; 0: never; nanoseconds in JSON
}

// SignIn is how the owner of a server that wants a token, or more scopes, gives it that.
func (s Server) SignIn(scopes []string) units.Remedy {
	if s.NewToken.Act != "" {
		return s.NewToken
	}
	return units.ToDo(units.SignIn, s.Name, scopes...)
}

// Calls is the part of a Server about how calls fail.
type Calls struct {
	Timeout time.Duration `json:"timeout"`           // longest a call may take, nanoseconds in JSON
	Retries int           `json:"retries,omitempty"` // how often one is sent again that certainly only reads
	Adapted bool          `json:"adapted,omitempty"` // the process is pfar's adapter, which says of what class errors are
	HTTP    bool          `json:"http,omitempty"`    // pfar's adapter names the transport in the handshake

	// NewToken is what the owner does for a server that wants another token, and that nobody can sign in to; zero:
	// somebody can.
	NewToken units.Remedy `json:"token_by,omitzero"`
}

// Tool is what a declaration says of one tool.
type Tool struct {
	Semantics string   `json:"semantics,omitempty"` // "read", "write" or "" (not said)
	Aliases   []string `json:"aliases,omitempty"`   // further names that the operator's CLI takes for it

	Enabled     *bool  `json:"enabled,omitempty"`     // false: no client has it; nil: not said
	Rename      string `json:"rename,omitempty"`      // the name that clients see; "": the server's own
	Description string `json:"description,omitempty"` // that clients see in place of the server's own

	Inputs  []string `json:"inputs,omitzero"`  // arguments that are inputs of its node in flows; nil: the rule says it
	Params  []string `json:"params,omitzero"`  // and params
	Outputs []string `json:"outputs,omitzero"` // of its results; nil: all; empty: the whole alone

	Scopes  []string `json:"scopes,omitempty"`  // that a call needs the server's tokens to have been granted
	Granted []string `json:"granted,omitempty"` // of Scopes, those that they say they were
	Lacks   string   `json:"lacks,omitempty"`   // scopes that they lack for certain, and what to type
}

// Sessions says whether each client session has a process of the server's to itself. The zero value is one process for
// all of them.
type Sessions struct {
	Own  bool          `json:"own,omitempty"`
	Max  int           `json:"max,omitempty"`  // processes at once
	Idle time.Duration `json:"idle,omitempty"` // without a call, until a process is stopped; nanoseconds in JSON
}

// Hello names the server that a launcher means to hand over.
type Hello struct {
	Name    string `json:"name"`
	Session string `json:"session,omitempty"`
}

// Process is what a process of the server is started with, or asked in its handshake. All else may change while it
// runs.
func (s Server) Process() Server {
	s.Description, s.Label, s.Tools, s.Declared, s.Pins, s.Evidence = "", "", nil, nil, "", Evidence{}
	s.Timeout, s.Retries, s.NewToken = 0, 0, units.Remedy{}
	return s
}

// Message is one packet. Exactly one member is set, beside At, Secrets, Proof and Shown.
type Message struct {
	Change  *Server `json:"change,omitempty"`  // pfard, first and instead of Expect: what a server that runs is by now; answered by Ready or Failed
	At      int64   `json:"at,omitempty"`      // with Expect: before the declaration was read; with Change: after (Now)
	Expect  *Server `json:"expect,omitempty"`  // whoever has connected for a launcher, first: the server that it hands over
	Secrets int64   `json:"secrets,omitempty"` // with Expect: which set of secrets (redact.Set.Serial) the gateway has to know before it reads the server, or a later one
	// Proof tells, with Expect and Change, the server's secrets from others. It is of no use to guess them by. "": it has
	// none.
	Proof    string `json:"proof,omitempty"`
	Hello    *Hello `json:"hello,omitempty"`    // launcher: here is the server, descriptors attached
	Stopping bool   `json:"stopping,omitempty"` // launcher: close the server's stdin, it is to end
	Begin    *Begin `json:"begin,omitempty"`    // gateway: the answer to an Expect with Files
	Ready    *Ready `json:"ready,omitempty"`    // gateway: handshake and discovery done, or done again
	Failed   string `json:"failed,omitempty"`   // gateway: the server does not speak MCP; why
	Shown           // gateway, with Failed

	Keep   *Keep   `json:"keep,omitempty"`   // gateway
	Kept   *Kept   `json:"kept,omitempty"`   // launcher: the answer
	Undo   *Undo   `json:"undo,omitempty"`   // gateway
	Undone *Undone `json:"undone,omitempty"` // launcher: the answer, with a file
}

// Shown is what the answer of a remote server to the handshake has shown of it.
type Shown struct {
	NotMCP       bool     `json:"not_mcp,omitempty"`      // it is a web server that does not speak MCP
	Unauthorized bool     `json:"unauthorized,omitempty"` // it wants a token, or another one
	Scopes       []string `json:"scopes,omitempty"`       // that its token lacks, if the server names some
	After        int64    `json:"after,omitempty"`        // seconds until it wants to be asked again; 0: not said

	Class string `json:"class,omitempty"` // failure.Class; "": it has none
}

// Begin says whether the program that Expect tells of may be started. If not, the gateway hangs up once it may: then a
// launcher is to come that has looked at the program again.
type Begin struct {
	Start        bool   `json:"start,omitempty"`
	Wait         string `json:"wait,omitempty"` // unless Start: for what, in words that follow units.ForProgram
	units.Remedy        // likewise: what ends it
}

// Ready is what the gateway found behind a server's stdio.
type Ready struct {
	units.Speech
	Tools     int    `json:"tools"`
	Prompts   int    `json:"prompts"`
	Resources int    `json:"resources"`
	Server    string `json:"server"`         // the server's own name and version, as it says them
	Held      int    `json:"held,omitempty"` // definitions that are not served until the owner accepts them

	Unreviewed int `json:"unreviewed,omitempty"` // of what clients are shown, what neither a person nor pfar's makers have reviewed
	Apart      int `json:"apart,omitempty"`      // resources and templates that only the server's own endpoint has

	Dropped int      `json:"dropped,omitempty"` // definitions that cannot be served
	Why     []string `json:"why,omitempty"`     // of the first of them, and of those apart, a line each

	Verification *units.Verification `json:"verification,omitempty"` // nil: it has no secrets
}

// Conn is one launcher's connection, at either end.
type Conn = packet.Of[Message]

// server is the name of the one that a first message is about.
func (m Message) server() string {
	if m.Change != nil {
		return m.Change.Name
	}
	return m.Expect.Name
}

// Dial connects to the gateway's socket and says what server will be handed over, or has changed.
func Dial(path string, m Message) (*Conn, error) {
	p, err := packet.Dial(path)
	if err != nil {
		return nil, fmt.Errorf("connecting to the gateway at %q: %w", path, err)
	}
	c := &Conn{Conn: p}
	if err := c.Send(m); err != nil {
		c.Close()
		return nil, fmt.Errorf("telling the gateway of %q: %w", m.server(), err)
	}
	return c, nil
}

// DialFor is Dial for a launcher, which gets the file: its own user may not connect, so that a server that broke out of
// its sandbox could not either. The message has Expect, and what belongs to it.
func DialFor(path string, m Message) (*os.File, error) {
	c, err := Dial(path, m)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.File()
}

// Now is a moment for Message.At, the same clock for all processes of this machine's run. No clock setting turns it
// back.
func Now() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // there is that clock
	return t.Nano()
}

// tellTime bounds Tell: the gateway answers in milliseconds.
const tellTime = 10 * time.Second

// Tell says to the gateway what a server that runs is by now, and which secrets it has (Message.Proof; "": those that
// it had), and returns once it goes by that. With an error it may not.
func Tell(path string, s Server, proof string) error {
	c, err := Dial(path, Message{Change: &s, At: Now(), Proof: proof})
	if err != nil {
		return err
	}
	defer c.Close()
	late := time.AfterFunc(tellTime, func() { c.Close() })
	m, files, err := c.Receive()
	packet.CloseAll(files)
	switch {
	case !late.Stop():
		err = fmt.Errorf("no answer within %v", tellTime)
	case err == nil && m.Ready == nil:
		err = errors.New(cmp.Or(m.Failed, "the answer is another message"))
	}
	if err != nil {
		return fmt.Errorf("telling the gateway what %q is by now: %w", s.Name, err)
	}
	return nil
}

// Accepted wraps a connection that the gateway accepted.
func Accepted(c *net.UnixConn) *Conn { return &Conn{Conn: packet.New(c)} }
