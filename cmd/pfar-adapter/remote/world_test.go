package remote

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// A world is the adapter between a gateway, which the test is, and a server at https://mcp.test, all in one bubble with
// a clock of its own. Connections are pipes: nothing of the machine is in it.
type world struct {
	t      *testing.T
	stdin  *io.PipeWriter
	lines  chan string
	stderr *locked
	done   chan error
	dials  *dialer
	stop   context.CancelFunc
}

// locked is text that several goroutines write and read.
type locked struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// dialer makes connections to listeners of the test, by address.
type dialer struct {
	mu    sync.Mutex
	to    map[string]*listener
	asked []string
}

func (d *dialer) dial(ctx context.Context, _, address string) (conn net.Conn, err error) {
	d.mu.Lock()
	d.asked = append(d.asked, address)
	l := d.to[strings.ToLower(address)]
	d.mu.Unlock()
	if l == nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", unix.ECONNREFUSED)}
	}
	client, server := newPipe()
	select {
	case l.conns <- server:
		select {
		case <-l.closed:
			l.drop()
		default:
		}
		return client, nil
	case <-l.closed:
		err = &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", unix.ECONNREFUSED)}
	case <-ctx.Done():
		err = ctx.Err()
	}
	client.Close()
	server.Close()
	return nil, err
}

// addresses are those that were dialled, each once.
func (d *dialer) addresses() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []string
	seen := map[string]bool{}
	for _, a := range d.asked {
		if !seen[a] {
			seen[a] = true
			list = append(list, a)
		}
	}
	return list
}

// listener is the other end of those.
type listener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newListener() *listener {
	return &listener{conns: make(chan net.Conn, 64), closed: make(chan struct{})}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	l.drop()
	return nil
}

// drop closes connections that nobody has accepted.
func (l *listener) drop() {
	for {
		select {
		case c := <-l.conns:
			c.Close()
		default:
			return
		}
	}
}

func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: "mcp.test", Net: "pipe"} }

// place is where a server of the test is, and how.
type place struct {
	handler http.Handler
	raw     func(net.Conn) // instead of the handler, behind TLS
	plain   func(net.Conn) // instead of TLS
	tls     *tls.Config    // nil: a good certificate
	args    []string       // of the adapter, before the address; nil: none
	path    string         // of the address; "": /mcp
	token   string
	limits  func(*Limits)
}

const host = "mcp.test"

// authority signs the certificates of the test's servers.
var authority = sync.OnceValues(func() (*x509.Certificate, *ecdsa.PrivateKey) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<33, 0), KeyUsage: x509.KeyUsageCertSign,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	c, err := x509.ParseCertificate(raw)
	if err != nil {
		panic(err)
	}
	return c, key
})

// certificate is one for a name that ends some time from the beginning of a bubble, the year 2000.
func certificate(name string, ends time.Time) tls.Certificate {
	ca, key := authority()
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: []string{name}, NotBefore: time.Unix(0, 0), NotAfter: ends,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, ca, own.Public(), key)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: own}
}

var good = sync.OnceValue(func() tls.Certificate { return certificate(host, time.Unix(1<<33, 0)) })

func roots() *x509.CertPool {
	ca, _ := authority()
	pool := x509.NewCertPool()
	pool.AddCert(ca)
	return pool
}

// serve has a place answer connections until the test ends.
func (p place) serve(l *listener) (stop func()) {
	config := p.tls
	if config == nil {
		config = &tls.Config{Certificates: []tls.Certificate{good()}}
	}
	each := p.raw
	if p.plain != nil {
		each = p.plain
	}
	if each == nil {
		server := &http.Server{Handler: p.handler, ErrorLog: quiet}
		go server.Serve(tls.NewListener(l, config))
		return func() { server.Close() }
	}
	var running sync.WaitGroup
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer c.Close()
				if p.plain == nil {
					c = tls.Server(c, config)
				}
				each(c)
				c.Close()
			})
		}
	}()
	return func() { l.Close() }
}

// inWorld runs a test in a bubble.
func inWorld(t *testing.T, p place, test func(t *testing.T, w *world)) {
	t.Helper()
	authority()
	good()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, p)
		defer w.close()
		test(t, w)
	})
}

func newWorld(t *testing.T, p place) *world {
	l := newListener()
	w := &world{
		t: t, lines: make(chan string, 4096), stderr: new(locked), done: make(chan error, 1),
		dials: &dialer{to: map[string]*listener{host + ":443": l}},
	}
	stop := p.serve(l)
	t.Cleanup(func() { stop(); l.Close() })
	path := p.path
	if path == "" {
		path = "/mcp"
	}
	args := append([]string{}, p.args...)
	env := func(name string) string {
		if name == "HTTP_PROXY" {
			return ""
		}
		return p.token
	}
	if p.token != "" {
		args = append(args, "--token-env", "TOKEN")
	}
	if !strings.Contains(path, "://") {
		path = "https://" + host + path
	}
	o, err := Parse(append(args, path), env)
	if err != nil {
		t.Fatal(err)
	}
	o.Roots, o.Dial = roots(), w.dials.dial
	o.Limits.Inbox.Whole = 15 * time.Minute // each less than what ends it otherwise
	o.Limits.Wire.FirstByte, o.Limits.Wire.Idle = 11*time.Minute, 5*time.Minute
	if p.limits != nil {
		p.limits(&o.Limits)
	}
	stdin, in := io.Pipe()
	out, stdout := io.Pipe()
	w.stdin = in
	ctx, cancel := context.WithCancel(t.Context())
	w.stop = cancel
	go func() {
		w.done <- Run(ctx, o, stdin, stdout, w.stderr)
		stdin.Close()
		stdout.Close()
	}()
	go func() {
		r := bufio.NewReader(out)
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				close(w.lines)
				return
			}
			w.lines <- strings.TrimSuffix(line, "\n")
		}
	}()
	return w
}

// close ends the gateway's side, and waits for the adapter.
func (w *world) close() {
	w.t.Helper()
	w.stdin.Close()
	select {
	case err := <-w.done:
		if err != nil {
			w.t.Errorf("the adapter ended with %v", err)
		}
	case <-time.After(time.Hour):
		w.t.Error("the adapter does not end")
	}
	w.stop()
	time.Sleep(time.Hour) // what waits for the other end of a connection, or for a time, ends meanwhile
}

func (w *world) send(format string, args ...any) {
	w.t.Helper()
	if _, err := fmt.Fprintf(w.stdin, format+"\n", args...); err != nil {
		w.t.Fatalf("sending: %v", err)
	}
}

// next returns the next line of the adapter's, which may take long by the bubble's clock.
func (w *world) next() string {
	w.t.Helper()
	select {
	case line, ok := <-w.lines:
		if !ok {
			w.t.Fatalf("the adapter has ended; it said %q", w.stderr)
		}
		return line
	case <-time.After(2 * time.Hour):
		w.t.Fatalf("no line came; stderr: %s", w.stderr)
	}
	return ""
}

// want compares the next line.
func (w *world) want(line string) {
	w.t.Helper()
	if got := w.next(); got != line {
		w.t.Fatalf("got  %s\nwant %s", got, line)
	}
}

// silent wants no line for some time.
func (w *world) silent(d time.Duration) {
	w.t.Helper()
	select {
	case line := <-w.lines:
		w.t.Fatalf("there is a line: %s", line)
	case <-time.After(d):
	}
}

// failure is an error of the adapter's own.
type failure struct {
	ID    json.RawMessage
	Error struct {
		Code    int
		Message string
		Data    map[string]struct {
			Class      string `json:"class"`
			RetryAfter int    `json:"retry_after"`
			Status     int    `json:"status"`
			Detail     string `json:"detail"`
			Scope      string `json:"scope"`
			Resource   string `json:"resource_metadata"`
			Reason     string `json:"error"`
		}
	}
}

// wantFault wants the next line to be an error of the adapter's own, to the request of that id.
func (w *world) wantFault(id int, class, detail string) failure {
	w.t.Helper()
	return w.wantCaused(id, class, detail, "")
}

// wantCaused wants a fault whose cause only the owner gets, not the client; "": there is none.
func (w *world) wantCaused(id int, class, words, cause string) failure {
	w.t.Helper()
	line, detail := w.next(), words
	if cause != "" {
		detail += " (" + cause + ")"
	}
	var f failure
	if err := json.Unmarshal([]byte(line), &f); err != nil {
		w.t.Fatalf("line %s: %v", line, err)
	}
	told, ok := f.Error.Data["pfar/error"]
	if !ok || string(f.ID) != fmt.Sprint(id) || told.Class != class || told.Detail != detail || f.Error.Code != -32010 {
		w.t.Fatalf("got  %s\nwant an error to %d of class %s: %s\nstderr: %s", line, id, class, detail, w.stderr)
	}
	message := cutAt(f.Error.Message, " (try again in ")
	if len(detail) < 200 && message != "server: "+class+": "+words {
		w.t.Errorf("its message is %q", f.Error.Message)
	}
	logged := strings.Contains(w.stderr.String(), "has failed: "+class+": ")
	if logged != (cause != "") {
		w.t.Errorf("the cause is %q, and the log says %s", cause, w.stderr)
	}
	return f
}

func cutAt(text, mark string) string {
	before, _, _ := strings.Cut(text, mark)
	return before
}

const (
	initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{` +
		`"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"pfar","version":"1"}}}`
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	welcome     = `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25",` +
		`"capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"s","version":"1"}}}`
	call   = `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"t","arguments":{}}}`
	answer = `{"jsonrpc":"2.0","id":%d,"result":{"content":[]}}`
)

// named is the answer to the handshake as the gateway gets it, with the transport.
func named(answer, transport string) string {
	return strings.TrimSuffix(answer, "}}") + `,"_meta":{"pfar/transport":"` + transport + `"}}}`
}

// begin is the handshake with a server that has sessions.
func (w *world) begin() {
	w.t.Helper()
	w.send(initialize)
	w.want(named(welcome, "stream-http"))
	w.send(initialized)
}

// received is a message that a server of the test has got.
type received struct {
	ID     json.RawMessage
	Method string
	Params json.RawMessage
	Result json.RawMessage
	Error  json.RawMessage
	text   string
}

func receive(r *http.Request) received {
	var m received
	b, _ := io.ReadAll(r.Body)
	_ = json.Unmarshal(b, &m)
	m.text = string(b)
	return m
}

func asJSON(w http.ResponseWriter, format string, args ...any) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, format, args...)
}

func asStream(w http.ResponseWriter) *http.ResponseController {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	c := http.NewResponseController(w)
	c.Flush()
	return c
}

func event(w http.ResponseWriter, format string, args ...any) {
	fmt.Fprintf(w, "data: "+format+"\n\n", args...)
	http.NewResponseController(w).Flush()
}

// honest is a server that does what the protocol says, but for what a test does itself.
type honest struct {
	t       *testing.T
	call    func(w http.ResponseWriter, r *http.Request, m received) // tools/call
	get     func(w http.ResponseWriter, r *http.Request)             // nil: 405
	other   func(w http.ResponseWriter, r *http.Request, m received) bool
	session string // its id; "" for none

	mu  sync.Mutex
	log []string
}

func (h *honest) note(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.log = append(h.log, fmt.Sprintf(format, args...))
}

func (h *honest) noted() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string{}, h.log...)
}

func (h *honest) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet:
		h.note("GET %s", r.Header.Get("Last-Event-ID"))
		if h.get == nil {
			http.Error(w, "no", http.StatusMethodNotAllowed)
			return
		}
		h.get(w, r)
		return
	case http.MethodDelete:
		h.note("DELETE %s", r.Header.Get("Mcp-Session-Id"))
		return
	}
	m := receive(r)
	h.note("%s %s", m.Method, r.Header.Get("Mcp-Session-Id"))
	switch {
	case h.other != nil && h.other(w, r, m):
	case m.Method == "initialize":
		if h.session != "" {
			w.Header().Set("Mcp-Session-Id", h.session)
		}
		asJSON(w, "%s", strings.Replace(welcome, `"id":1`, `"id":`+string(m.ID), 1))
	case m.ID == nil || m.Method == "":
		w.WriteHeader(http.StatusAccepted)
	case m.Method == "tools/call":
		h.call(w, r, m)
	default:
		asJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{}}`, m.ID)
	}
}
