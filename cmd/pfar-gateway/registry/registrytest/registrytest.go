// Package registrytest hands scripted servers to a registry through a real socket and real pipes, as launchers do.
package registrytest

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/cmd/pfar-gateway/pins"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/jsonrpc"
	"github.com/pfar/pfar/units/packet"
)

// Patience is how long a test waits for what must happen.
const Patience = 2 * time.Minute

// Registry is a registry with a socket for launchers.
type Registry struct {
	*registry.Registry
	Path string
	log  *lockedBuffer

	Secrets int64       // handover.Message.Secrets of those that are handed over from now on
	Proof   string      // handover.Message.Proof of the next handovers
	Begun   int64       // handover.Message.At of the next handovers; 0: the time of each
	Pins    *pins.Store // nil: nobody accepts anything
	Trust   bool        // what servers offer first is accepted, of those that say nothing of pins, and what they say is the owner's
}

// New starts a registry; it ends with the test.
func New(t testing.TB, limits registry.Limits) *Registry {
	t.Helper()
	return Prepared(t, limits, func(*Registry) {})
}

// Prepared is New with something to be done before the first server can come.
func Prepared(t testing.TB, limits registry.Limits, first func(*Registry)) *Registry {
	t.Helper()
	var log lockedBuffer
	r := &Registry{
		Registry: registry.New(slog.New(slog.NewTextHandler(&log, nil)), "test", limits),
		Path:     filepath.Join(t.TempDir(), "servers"), log: &log,
	}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: r.Path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	first(r)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Serve(ctx, l) }()
	t.Cleanup(func() {
		r.Close()
		cancel()
		l.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return r
}

type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

// Logged returns what the registry has logged so far.
func (r *Registry) Logged() string {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	return r.log.String()
}

// Script says how a server answers. The zero value is honest and offers the tool echo.
type Script struct {
	Capabilities string            // of initialize
	Lists        map[string]string // results by method; what is missing is an empty list
	Init         string            // result of initialize, if not the usual
	Modern       bool              // speaks 2026-07-28 and nothing else
	Torn         bool              // takes lines that are no messages, which are counted
	Linger       chan struct{}     // goes on after the end of stdin until this is closed
	End          func()            // is called at the end of stdin
	// On sees each message first. It reports whether that was all that is to be done about it.
	On func(s *Server, m jsonrpc.Message) bool
}

// Server is the process's end of stdio.
type Server struct {
	Script    Script
	in        *os.File
	out       *os.File
	write     sync.Mutex
	TornLines atomic.Int64
	Ended     chan struct{} // closed when it has
	Lines     chan string   // all that it was sent, but for the question which generation of the protocol it is of
}

// Say writes a line.
func (s *Server) Say(format string, args ...any) {
	line := format
	if len(args) > 0 {
		line = fmt.Sprintf(format, args...)
	}
	s.Raw(line + "\n")
}

// Raw writes text.
func (s *Server) Raw(text string) {
	s.write.Lock()
	defer s.write.Unlock()
	_, _ = s.out.WriteString(text) // the gateway may have closed it
}

// Result answers a request.
func (s *Server) Result(m jsonrpc.Message, result string) {
	s.Say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
}

// Exit ends the process: both pipes close.
func (s *Server) Exit() {
	s.in.Close()
	s.out.Close()
}

// Waiting is how many bytes the server has been sent and not read.
func (s *Server) Waiting() int {
	raw, err := s.in.SyscallConn()
	if err != nil {
		return 0
	}
	n := 0
	_ = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	return n
}

// CloseOutput closes stdout alone.
func (s *Server) CloseOutput() { s.out.Close() }

func (s *Server) run() {
	defer close(s.Ended)
	defer s.Exit()
	r := bufio.NewReader(s.in)
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			if s.Script.End != nil {
				s.Script.End()
			}
			if s.Script.Linger != nil {
				<-s.Script.Linger
			}
			return
		}
		if !bytes.Contains(line, []byte(`"method":"server/discover"`)) {
			s.record(line)
		}
		m, err := jsonrpc.Parse(line)
		if err != nil && s.Script.Torn {
			s.TornLines.Add(1)
			continue
		}
		if err != nil {
			panic(fmt.Sprintf("the gateway sent %q: %v", line, err))
		}
		if s.Script.On != nil && s.Script.On(s, m) {
			continue
		}
		s.honest(m)
	}
}

func (s *Server) record(line []byte) {
	select {
	case s.Lines <- strings.TrimSuffix(string(line), "\n"):
	default:
	}
}

// Echo is the definition of the tool that every honest server has.
const Echo = `{"name":"echo","description":"returns message","inputSchema":{"type":"object","properties":{"message":{"type":"string"}}}}`

func (s *Server) honest(m jsonrpc.Message) {
	if m.ID == nil || m.Method == "" {
		return
	}
	if list, ok := s.Script.Lists[m.Method]; ok {
		s.Result(m, list)
		return
	}
	switch m.Method {
	case "server/discover":
		if !s.Script.Modern {
			s.Say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}`, m.ID)
			return
		}
		caps := s.Script.Capabilities
		if caps == "" {
			caps = `{"tools":{"listChanged":true}}`
		}
		s.Result(m, `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":`+caps+`,"instructions":"be kind","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"scripted","version":"1"}}}`)
	case "subscriptions/listen":
		params, _ := jsonrpc.Object(m.Params, nil)
		s.Say(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":%s,"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`, params.Get("notifications"), m.ID)
	case "initialize":
		if s.Script.Modern {
			s.Say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}`, m.ID)
			return
		}
		caps := s.Script.Capabilities
		if caps == "" {
			caps = `{"tools":{"listChanged":true}}`
		}
		if s.Script.Init != "" {
			s.Result(m, s.Script.Init)
			return
		}
		s.Result(m, `{"protocolVersion":"2025-11-25","capabilities":`+caps+`,"serverInfo":{"name":"scripted","version":"1"},"instructions":"be kind"}`)
	case "tools/list":
		s.Result(m, `{"tools":[`+Echo+`]}`)
	case "tools/call":
		var p struct {
			Arguments struct{ Message json.RawMessage }
		}
		_ = json.Unmarshal(m.Params, &p)
		if p.Arguments.Message == nil {
			p.Arguments.Message = []byte(`""`)
		}
		s.Result(m, `{"content":[{"type":"text","text":`+string(p.Arguments.Message)+`}]}`)
	case "prompts/list":
		s.Result(m, `{"prompts":[]}`)
	case "resources/list":
		s.Result(m, `{"resources":[]}`)
	case "resources/templates/list":
		s.Result(m, `{"resourceTemplates":[]}`)
	default:
		s.Result(m, `{}`)
	}
}

// Launched is a server that was handed over.
type Launched struct {
	*Server
	Conn     *handover.Conn
	Waits    string                // for what its program waits before it may be started; then it has been handed over to nobody
	messages chan handover.Message // closed at the end of the connection
}

// Trusted is what an owner declares who writes all that a server says (handover.Server.Declared).
func Trusted(server string) []byte {
	return fmt.Appendf(nil, `{"server":%q,"words":[{"confidentiality":"internal","trust":{"public_source":"false","dangerous_writes":"false"},"from":"a test"}]}`, server)
}

// Launch hands a scripted server over.
func (r *Registry) Launch(t testing.TB, server handover.Server, script Script) *Launched {
	t.Helper()
	stdinR, stdinW := pipe(t)
	stdoutR, stdoutW := pipe(t)
	s := &Server{Script: script, in: stdinR, out: stdoutW, Lines: make(chan string, 1024), Ended: make(chan struct{})}
	go s.run()
	l := r.Hand(t, server, stdinW, stdoutR)
	l.Server = s
	t.Cleanup(s.Exit)
	return l
}

// Hand hands pipes over, which belong to the registry then.
func (r *Registry) Hand(t testing.TB, server handover.Server, stdin, stdout *os.File) *Launched {
	t.Helper()
	if r.Trust && server.Pins == "" {
		server.Pins = "trust-first"
	}
	if r.Trust && server.Declared == nil {
		server.Declared = Trusted(server.Name)
	}
	f, err := handover.DialFor(r.Path, handover.Message{
		Expect: &server, At: cmp.Or(r.Begun, handover.Now()), Secrets: r.Secrets, Proof: r.Proof,
	})
	if err != nil {
		t.Fatal(err)
	}
	p, err := packet.FromFile(f)
	if err != nil {
		t.Fatal(err)
	}
	c := &handover.Conn{Conn: p}
	t.Cleanup(func() { c.Close() })
	defer stdin.Close()
	defer stdout.Close()
	if server.Files != nil {
		m, _, err := c.Receive()
		if errors.Is(err, io.EOF) { // it is refused
			l := &Launched{Conn: c, messages: make(chan handover.Message)}
			close(l.messages)
			return l
		}
		if err != nil || m.Begin == nil {
			t.Fatalf("got %+v, %v, want to begin or to wait", m, err)
		}
		if !m.Begin.Start {
			return &Launched{Conn: c, Waits: m.Begin.Wait}
		}
	}
	if err := c.Send(handover.Message{Hello: &handover.Hello{Name: server.Name, Session: server.Session}}, stdin, stdout); err != nil {
		t.Fatal(err)
	}
	l := &Launched{Conn: c, messages: make(chan handover.Message, 16)}
	go func() {
		defer close(l.messages)
		for {
			m, _, err := c.Receive()
			if err != nil {
				return
			}
			l.messages <- m
		}
	}()
	return l
}

func pipe(t testing.TB) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	return r, w
}

// Next returns the gateway's next message, and io.EOF at the end.
func (l *Launched) Next(t testing.TB) (handover.Message, error) {
	t.Helper()
	select {
	case m, ok := <-l.messages:
		if !ok {
			return m, io.EOF
		}
		return m, nil
	case <-time.After(Patience):
		t.Fatal("the gateway sends nothing")
		return handover.Message{}, nil
	}
}

// Ready waits until the gateway serves the server.
func (l *Launched) Ready(t testing.TB) handover.Ready {
	t.Helper()
	m, err := l.Next(t)
	if err != nil || m.Ready == nil {
		t.Fatalf("got %+v, %v, want ready", m, err)
	}
	return *m.Ready
}

// Failed waits until the gateway gives the server up, and returns why.
func (l *Launched) Failed(t testing.TB) string {
	t.Helper()
	m, err := l.Next(t)
	if err != nil || m.Failed == "" {
		t.Fatalf("got %+v, %v, want failed", m, err)
	}
	return m.Failed
}

// Eventually waits for a condition that changes with the registry's events; there is nothing else to wait on.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(Patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not in time: " + what)
		}
	}
}

// Dir is a directory for what a registry keeps. Unlike TempDir it bears that a registry which was closed still writes.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "registry-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Eventually(t, "nobody writes to "+dir, func() bool { return os.RemoveAll(dir) == nil }) })
	return dir
}

// NextOr returns the gateway's next message, an error at the end or when ctx ends.
func (l *Launched) NextOr(ctx context.Context) (handover.Message, error) {
	select {
	case m, ok := <-l.messages:
		if !ok {
			return m, io.EOF
		}
		return m, nil
	case <-ctx.Done():
		return handover.Message{}, ctx.Err()
	}
}
