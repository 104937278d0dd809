package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/egress"
)

// dialOut asks the proxy of w for a connection to host, as all its fronts do.
func (w *world) dialOut(ctx context.Context, host string, port uint16) (*net.TCPConn, *record, error) {
	w.t.Helper()
	d := w.proxy.policy.Decide(host, port)
	if d.Verdict != egress.Allow {
		w.t.Fatalf("%s:%d is not allowed: %s", host, port, d.Reason)
	}
	var rec record
	c, err := w.proxy.connect(ctx, d, port, &rec)
	return c, &rec, err
}

func reasonOf(err error) string {
	var ref *refusal
	if errors.As(err, &ref) {
		return ref.reason
	}
	if err != nil {
		return err.Error()
	}
	return egress.Declared
}

func TestOwnAddresses(t *testing.T) {
	d := newDialer()
	if !d.own(netip.MustParseAddr("127.0.0.1")) {
		t.Error("loopback is not this host")
	}
	if d.own(netip.MustParseAddr("1.1.1.1")) {
		t.Error("1.1.1.1 is this host")
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range all {
		p, err := netip.ParsePrefix(n.String())
		if err == nil && !p.Addr().IsLinkLocalUnicast() && !d.own(p.Addr()) {
			t.Errorf("%v of this host is not recognised", p.Addr())
		}
	}
}

func TestInterleave(t *testing.T) {
	for _, c := range []struct{ in, want []netip.Addr }{
		{addrs("1.1.1.1"), addrs("1.1.1.1")},
		{addrs("::1", "::2", "1.1.1.1"), addrs("::1", "1.1.1.1", "::2")},
		{addrs("1.1.1.1", "1.1.1.2", "1.1.1.3", "::1"), addrs("1.1.1.1", "::1", "1.1.1.2", "1.1.1.3")},
	} {
		if got := interleave(c.in); !slices.Equal(got, c.want) {
			t.Errorf("%v becomes %v, want %v", c.in, got, c.want)
		}
	}
}

// A declared range leads to other hosts only; the very address, or loopback, leads here.
func TestDeclaredLiteralsOfThisHost(t *testing.T) {
	const own, other = "192.168.1.5", "192.168.1.6"
	for _, c := range []struct {
		entries      []string
		host, reason string
		port         uint16
	}{
		{[]string{"192.168.0.0/16:8080"}, own, "not-reached", 8080},
		{[]string{"192.168.0.0/16:8080"}, other, egress.Declared, 8080},
		{[]string{"192.168.1.5/32:8080"}, own, egress.Declared, 8080},
		{[]string{"192.168.1.5:8080"}, own, egress.Declared, 8080},
		{[]string{"192.168.1.5:8081", "192.168.0.0/16:8080"}, own, "not-reached", 8080},
		{[]string{"192.168.0.0/16:8080", "192.168.1.5:8080"}, own, egress.Declared, 8080},
		{[]string{"192.168.1.6", "192.168.1.4/31"}, own, "not-reached", 443},
		{[]string{"127.0.0.0/8:8080"}, "127.0.0.1", egress.Declared, 8080},
		{[]string{"127.0.0.1:8080"}, "127.0.0.1", egress.Declared, 8080},
	} {
		w := newWorld(t, nil, c.entries...)
		w.serveOrigin(echo)
		w.proxy.out.own = func(a netip.Addr) bool { return a == netip.MustParseAddr(own) || a.IsLoopback() }
		up, rec, err := w.dialOut(t.Context(), c.host, c.port)
		if err == nil {
			up.Close()
		}
		_, dials, _ := w.seen()
		if got := reasonOf(err); got != c.reason || (len(dials) == 1) != (err == nil) || (rec.special == "own") != (err != nil) {
			t.Errorf("%q, %s: %s, %v, special %q, want %s", c.entries, c.host, got, dials, rec.special, c.reason)
		}
	}
}

// Descriptors that have run out do not make an address somebody else's.
func TestOwnAddressIsAssumedWhereItCannotBeAsked(t *testing.T) {
	if os.Getenv(insideEnv) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v=true")
		cmd.Env = append(os.Environ(), insideEnv+"=1")
		if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
			t.Errorf("without descriptors: %v\n%s", err, out)
		}
		return
	}
	a := netip.MustParseAddr("1.2.3.4")
	if ownAddress(a) {
		t.Error("1.2.3.4 is this host")
	}
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	got := ownAddress(a)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if !got {
		t.Error("without descriptors, 1.2.3.4 counts as another host")
	}
}

func TestSocketOptions(t *testing.T) {
	l := listen(t)
	d := newDialer()
	to := l.Addr().(*net.TCPAddr).AddrPort()
	direct, err := d.dial(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close()
	through, err := d.dialProxy(t.Context(), to.String())
	if err != nil {
		t.Fatal(err)
	}
	defer through.Close()
	for _, c := range []*net.TCPConn{direct, through} {
		raw, err := c.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range []struct {
			name                string
			level, option, want int
		}{
			{"TCP_NODELAY", unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
			{"SO_KEEPALIVE", unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
			{"TCP_KEEPIDLE", unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 60},
			{"TCP_KEEPINTVL", unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 15},
			{"TCP_KEEPCNT", unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 4},
			{"SO_PROTOCOL", unix.SOL_SOCKET, unix.SO_PROTOCOL, unix.IPPROTO_TCP}, // not MPTCP, which does not splice as well
		} {
			if err := raw.Control(func(fd uintptr) {
				if got, err := unix.GetsockoptInt(int(fd), o.level, o.option); err != nil || got != o.want {
					t.Errorf("%s is %d, want %d, %v", o.name, got, o.want, err)
				}
			}); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestRaceDoesNotWaitForABlackHole(t *testing.T) {
	w := newWorld(t, nil, "api.allowed.test")
	w.serveOrigin(echo)
	w.answers["api.allowed.test."] = addrs("2606:4700::1", "1.2.3.4")
	dial := func(first error) time.Duration { // nil: a black hole
		w.mu.Lock()
		w.refuses[netip.MustParseAddr("2606:4700::1")] = first
		w.mu.Unlock()
		began := time.Now()
		up, _, err := w.dialOut(t.Context(), "api.allowed.test", 443)
		if err != nil {
			t.Fatal(err)
		}
		up.Close()
		return time.Since(began)
	}
	if d := dial(nil); d < stagger {
		t.Errorf("after a black hole, the next address took %v", d)
	}
	atOnce := dial(syscall.ENETUNREACH)
	for n := 0; atOnce >= stagger && n < 10; n++ { // as on a busy machine
		atOnce = dial(syscall.ENETUNREACH)
	}
	if atOnce >= stagger {
		t.Errorf("after %v, the next address took %v", syscall.ENETUNREACH, atOnce)
	}
}

func TestRaceTriesAFewAddressesOnly(t *testing.T) {
	w := newWorld(t, nil, "api.allowed.test")
	for i := range 100 {
		a := netip.AddrFrom4([4]byte{1, 2, 3, byte(i)})
		w.answers["api.allowed.test."] = append(w.answers["api.allowed.test."], a)
		w.refuses[a] = syscall.ECONNREFUSED
	}
	if _, _, err := w.dialOut(t.Context(), "api.allowed.test", 443); reasonOf(err) != "not-reached" {
		t.Error(err)
	}
	if _, dials, _ := w.seen(); len(dials) != maxAddresses {
		t.Errorf("%d dials", len(dials))
	}
}

func TestRaceEndsInTime(t *testing.T) {
	w := newWorld(t, func(w *world) { w.proxy.limits.dialTime = 300 * time.Millisecond }, "api.allowed.test")
	for i := range 16 {
		a := netip.AddrFrom4([4]byte{1, 2, 3, byte(i)})
		w.answers["api.allowed.test."] = append(w.answers["api.allowed.test."], a)
		w.refuses[a] = nil
	}
	began := time.Now()
	_, _, err := w.dialOut(t.Context(), "api.allowed.test", 443)
	for n := 0; reasonOf(err) == "lookup-timeout" && n < 10; n++ { // as on a busy machine
		began = time.Now()
		_, _, err = w.dialOut(t.Context(), "api.allowed.test", 443)
	}
	if reasonOf(err) != "dial-timeout" {
		t.Error(err)
	}
	if d := time.Since(began); d > 2*time.Minute {
		t.Errorf("it took %v", d)
	}
	if _, dials, _ := w.seen(); len(dials) < 1 || len(dials) >= 16 { // at 0 and 250 ms; none once time is up
		t.Errorf("dialled %v", dials)
	}
}

// Whatever becomes of the attempts that lost, also of those that do not heed ctx and succeed after it, is closed.
func TestRaceLeaksNothing(t *testing.T) {
	l := listen(t)
	for _, c := range []struct {
		name   string
		addrs  int
		cancel bool // before anything has connected
	}{{"one wins", 3, false}, {"ctx ends", 3, true}, {"ctx ends, one address", 1, true}} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			release, made := make(chan struct{}), make(chan *net.TCPConn, c.addrs)
			var tried atomic.Int32
			d := dialer{dial: func(_ context.Context, to netip.AddrPort) (*net.TCPConn, error) {
				if int(tried.Add(1)) == c.addrs && c.cancel {
					cancel()
				}
				if c.cancel || int(tried.Load()) < c.addrs {
					<-release
				}
				up, err := net.Dial("tcp", l.Addr().String())
				if err != nil {
					return nil, err
				}
				made <- up.(*net.TCPConn)
				return up.(*net.TCPConn), nil
			}}
			won, err := d.race(ctx, addrs("1.2.3.4", "1.2.3.5", "1.2.3.6")[:c.addrs], 443)
			if (err != nil) != c.cancel || (won == nil) != c.cancel || c.cancel && !errors.Is(err, context.Canceled) {
				t.Fatal(won, err)
			}
			close(release)
			if won != nil {
				won.Close()
			}
			for range c.addrs {
				<-made
				accepted, err := l.AcceptTCP()
				if err != nil {
					t.Fatal(err)
				}
				// The end of the stream is the news that the other side has closed.
				if n, err := accepted.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
					t.Errorf("%d, %v", n, err)
				}
				accepted.Close()
			}
		})
	}
}
