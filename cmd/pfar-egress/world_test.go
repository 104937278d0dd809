package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfar-egress/resolver"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units/monitor"
)

// world is the network that a proxy under test sees: names lead where answers says, and every address that it dials is
// a listener on loopback.
type world struct {
	t       testing.TB
	proxy   *proxy
	addr    string // of the proxy
	origin  string // where dialled addresses lead to
	answers map[string][]netip.Addr
	logged  *lockedBuffer
	table   *monitor.Table

	mu      sync.Mutex
	lookups []string
	dials   []netip.AddrPort
	refuses map[netip.Addr]error // dials that fail
	own     netip.Addr
	notices []string
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

var errNoSuchHost = errors.New("no such host")

const public = "93.184.216.34"

func addrs(list ...string) []netip.Addr {
	var a []netip.Addr
	for _, s := range list {
		a = append(a, netip.MustParseAddr(s))
	}
	return a
}

func newWorld(t testing.TB, change func(*world), entries ...string) *world {
	t.Helper()
	w := &world{t: t, logged: &lockedBuffer{}, answers: map[string][]netip.Addr{}, refuses: map[netip.Addr]error{}}
	var policy egress.Policy
	for _, s := range entries {
		e, err := egress.ParseEndpoint(s)
		if err != nil {
			t.Fatal(err)
		}
		policy.Endpoints = append(policy.Endpoints, e)
	}
	addresses, err := resolver.NewAddresses(policy, "")
	if err != nil {
		t.Fatal(err)
	}
	out := dialer{lookup: w.lookup, dial: w.dial, own: func(a netip.Addr) bool { return a == w.own }}
	w.proxy = &proxy{route: newRoute(policy, out), name: "notion", file: "notion.hcl", addresses: addresses}
	w.proxy.lookups = newLookups(func(ctx context.Context, name string) ([]netip.Addr, error) {
		return w.proxy.out.lookup(ctx, name)
	})
	w.proxy.limits.headTime, w.proxy.limits.dialTime = 2*time.Minute, 2*time.Minute
	w.proxy.limits.linger = time.Minute // clients that read a refusal may be slow
	w.table = monitor.NewTable("")
	w.proxy.journal = newJournal(slog.New(slog.NewTextHandler(w.logged, nil)).With("server", "notion"), w.table, w.notice)
	if change != nil {
		change(w)
	}
	l := listen(t)
	w.addr = l.Addr().String()
	w.serve(&service{sources: w.proxy.sources(sockets{proxy: []*net.TCPListener{l}}, w.table), log: slog.New(slog.DiscardHandler)})
	return w
}

// serve runs s until the test ends.
func (w *world) serve(s *service) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.run(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	})
}

func listen(t testing.TB) *net.TCPListener {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func (w *world) lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lookups = append(w.lookups, name)
	if a, ok := w.answers[name]; ok {
		return a, nil
	}
	return nil, errNoSuchHost
}

func (w *world) dial(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error) {
	w.mu.Lock()
	w.dials = append(w.dials, to)
	err, refused := w.refuses[to.Addr()]
	w.mu.Unlock()
	if refused && err == nil { // a black hole
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if refused {
		return nil, err
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", w.origin)
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

func (w *world) notice(status string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notices = append(w.notices, status)
}

func (w *world) seen() (lookups []string, dials []netip.AddrPort, notices []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.lookups), slices.Clone(w.dials), slices.Clone(w.notices)
}

// serveOrigin has each connection to the outside served by f.
func (w *world) serveOrigin(f func(*net.TCPConn)) {
	l := listen(w.t)
	w.origin = l.Addr().String()
	go func() {
		for {
			c, err := l.AcceptTCP()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				f(c)
			}()
		}
	}()
}

func echo(c *net.TCPConn) {
	_, _ = io.Copy(c, c)
	_ = c.CloseWrite()
}

func (w *world) connect() *net.TCPConn {
	w.t.Helper()
	c, err := net.Dial("tcp", w.addr)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		w.t.Fatal(err)
	}
	return c.(*net.TCPConn)
}

// ask sends raw and returns all that comes back.
func (w *world) ask(raw string) string {
	w.t.Helper()
	c := w.connect()
	if _, err := io.WriteString(c, raw); err != nil && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
		w.t.Fatal(err)
	}
	b, err := io.ReadAll(c)
	if err != nil && !errors.Is(err, syscall.ECONNRESET) {
		w.t.Fatalf("%q: %v after %q", raw, err, b)
	}
	return string(b)
}

// tunnelTo opens a tunnel, or fails.
func (w *world) tunnelTo(target string) *net.TCPConn {
	w.t.Helper()
	c := w.connect()
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target)
	const want = "HTTP/1.1 200 Connection established\r\n\r\n"
	b := make([]byte, len(want))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != want {
		w.t.Fatalf("CONNECT %s: %q, %v", target, b, err)
	}
	return c
}

func outcome(response string) (status, reason string) {
	line, rest, _ := strings.Cut(response, "\r\n")
	if f := strings.SplitN(line, " ", 3); len(f) == 3 {
		status = f[1]
	}
	if _, after, ok := strings.Cut(rest, "X-Pfar-Reason: "); ok {
		reason, _, _ = strings.Cut(after, "\r\n")
	}
	return status, reason
}

func connectTo(target string) string {
	return "CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n\r\n"
}
