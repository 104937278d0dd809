package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/policies/firewall"
	"github.com/pfar/pfar/policies/firewall/host"
	"github.com/pfar/pfar/units/attach"
)

// fakePfard stands in for pfard.
type fakePfard struct {
	t    *testing.T
	path string

	mu      sync.Mutex
	l       *net.UnixListener
	conn    *attach.Conn
	hellos  []attach.Hello
	asked   []attach.Allow
	refused string // host that it was told of last
	wired   string // what it says of secrets: "+" that they are on the wire, "-" that they are not
	welcome attach.Message
	files   []*os.File                        // that come with the welcome
	answer  func(attach.Allow) (string, bool) // the error, and whether to answer at all
}

func newPfard(t *testing.T) *fakePfard {
	t.Helper()
	d := &fakePfard{t: t, path: filepath.Join(t.TempDir(), "attach.sock"), welcome: attach.Message{Welcome: &attach.Welcome{}}}
	d.answer = func(attach.Allow) (string, bool) { return "", true }
	d.start()
	t.Cleanup(d.stop)
	return d
}

func (d *fakePfard) start() {
	d.t.Helper()
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: d.path, Net: "unixpacket"})
	if err != nil {
		d.t.Fatal(err)
	}
	d.mu.Lock()
	d.l = l
	d.mu.Unlock()
	go func() {
		for {
			u, err := l.AcceptUnix()
			if err != nil {
				return
			}
			c := attach.Accepted(u)
			d.mu.Lock()
			d.conn = c
			d.mu.Unlock()
			go d.serve(c)
		}
	}()
}

// stop is pfard's death: the socket stays, and nobody is behind it.
func (d *fakePfard) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.l.SetUnlinkOnClose(false)
	d.l.Close()
	os.Remove(d.path)
	if d.conn != nil {
		d.conn.Close()
	}
}

func (d *fakePfard) serve(c *attach.Conn) {
	for {
		m, _, err := c.Receive()
		if err != nil {
			return
		}
		d.mu.Lock()
		switch {
		case m.Hello != nil:
			d.hellos = append(d.hellos, *m.Hello)
			_ = c.Send(d.welcome, d.files...)
		case m.Allow != nil:
			d.asked = append(d.asked, *m.Allow)
			if words, ok := d.answer(*m.Allow); ok {
				_ = c.Send(attach.Message{Allowed: &attach.Allowed{ID: m.Allow.ID, Error: words}})
			}
		case m.Wired:
			d.wired += "+"
		case m.Unwired:
			d.wired += "-"
		}
		if m.Refused != nil {
			d.refused = m.Refused.Host
		}
		d.mu.Unlock()
	}
}

func (d *fakePfard) questions() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []string
	for _, a := range d.asked {
		list = append(list, fmt.Sprint(a.Name, ":", a.Port, " ", a.Addresses))
	}
	d.asked = nil
	return list
}

func (d *fakePfard) change(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

// attached returns a bridge's end of the conversation, which the firewall holds.
func (d *fakePfard) attached(log *slog.Logger) *attachment {
	d.t.Helper()
	a := newAttachment(d.path, "digest", log, func(err error) { d.t.Error(err) })
	a.probe, a.wait = func() error { return nil }, 2*time.Minute
	files, err := a.begin(d.t.Context())
	if err != nil || len(files) != 0 {
		d.t.Fatalf("%d files, %v", len(files), err)
	}
	return a
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s does not come", what)
		}
	}
}

func TestAttachRefuses(t *testing.T) {
	var logged lockedBuffer
	log := slog.New(slog.NewTextHandler(&logged, nil))
	for name, c := range map[string]struct {
		welcome attach.Message
		probe   error
		want    string // "": it serves
	}{
		"pfard does not know it":   {attach.Message{Error: "its declaration is another one now"}, nil, "another one now"},
		"for now":                  {attach.Message{Error: "not yet", Later: true}, nil, "not yet"},
		"said to be held, but not": {attach.Message{Welcome: &attach.Welcome{}}, errors.New("it got through"), "it got through"},
		"held":                     {attach.Message{Welcome: &attach.Welcome{}}, nil, ""},
		"not held, and said so":    {attach.Message{Welcome: &attach.Welcome{Held: "no nf_tables"}}, errors.New("it got through"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := newPfard(t)
			d.change(func() { d.welcome = c.welcome })
			a := newAttachment(d.path, "digest", log, func(error) {})
			a.probe = func() error { return c.probe }
			_, err := a.begin(t.Context())
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("it is %v, want %q", err, c.want)
			}
			if later := errors.Is(err, attach.ErrLater); later != c.welcome.Later {
				t.Errorf("later: %v", later)
			}
			d.mu.Lock()
			defer d.mu.Unlock()
			if len(d.hellos) != 1 || d.hellos[0] != (attach.Hello{Bridge: true, Digest: "digest"}) {
				t.Errorf("it says %+v", d.hellos)
			}
		})
	}
	if !strings.Contains(logged.String(), "no nf_tables") {
		t.Errorf("that nothing holds it is not logged:\n%s", logged.String())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := newAttachment("/nonexistent/attach.sock", "", log, nil).begin(ctx); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without pfard: %v", err)
	}
}

// The sockets that systemd cannot bind come with the welcome.
func TestAttachBringsSockets(t *testing.T) {
	d := newPfard(t)
	f, err := listen(t).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d.change(func() { d.files = []*os.File{f} })
	a := newAttachment(d.path, "digest", slog.New(slog.DiscardHandler), func(error) {})
	a.probe = func() error { return nil }
	files, err := a.begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var s sockets
	if err := s.take(files); err != nil || len(s.proxy) != 1 {
		t.Errorf("%+v, %v", s, err)
	}
	s.proxy[0].Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := s.take([]*os.File{r}); err == nil {
		t.Error("a pipe is taken for a socket")
	}
}

func firewalled(t *testing.T, entries ...string) (*world, *fakePfard) {
	t.Helper()
	d := newPfard(t)
	w := newWorld(t, func(w *world) {
		w.serveOrigin(echo)
		w.answers["api.example.com."] = addrs(public)
		w.proxy.out.firewall = d.attached(slog.New(slog.NewTextHandler(w.logged, nil)))
	}, entries...)
	return w, d
}

func TestTheFirewallIsAskedFirst(t *testing.T) {
	w, d := firewalled(t, "api.example.com", "10.0.0.1:5432")
	wants := func(questions ...string) {
		t.Helper()
		if got := d.questions(); strings.Join(got, "; ") != strings.Join(questions, "; ") {
			t.Errorf("pfard is asked %q, want %q", got, questions)
		}
	}
	for range 3 {
		w.tunnelTo("api.example.com:443")
	}
	wants("api.example.com:443 [" + public + "]")
	w.answers["api.example.com."] = addrs(public, "93.184.216.35")
	w.tunnelTo("api.example.com:443")
	wants("api.example.com:443 [" + public + " 93.184.216.35]")
	w.tunnelTo("10.0.0.1:5432")
	wants("10.0.0.1:5432 [10.0.0.1]")
	w.ask(connectTo("other.example.com:443"))
	wants()
	_, dials, _ := w.seen()
	n := len(dials)

	d.change(func() { d.answer = func(attach.Allow) (string, bool) { return "its plan says otherwise", true } })
	w.answers["api.example.com."] = addrs("93.184.216.36")
	if status, reason := outcome(w.ask(connectTo("api.example.com:443"))); status != "403" || reason != "firewall-refused" {
		t.Errorf("what pfard refuses is answered with %s %s", status, reason)
	}
	if !strings.Contains(w.logged.String(), "its plan says otherwise") {
		t.Errorf("why is not logged:\n%s", w.logged.String())
	}
	d.change(func() { d.answer = func(attach.Allow) (string, bool) { return "", false } })
	w.proxy.out.firewall.wait, w.proxy.limits.dialTime = 500*time.Millisecond, time.Hour
	start := time.Now()
	if status, reason := outcome(w.ask(connectTo("api.example.com:443"))); status != "503" || reason != "firewall-unavailable" {
		t.Errorf("without an answer it is %s %s", status, reason)
	}
	if took := time.Since(start); took < 400*time.Millisecond {
		t.Errorf("without an answer it takes %v", took)
	}
	if _, dials, _ = w.seen(); len(dials) != n {
		t.Errorf("what was not allowed is tried: %v", dials[n:])
	}
}

// What failed is asked for again: pfard's list is bounded, and its oldest entries go.
func TestTheFirewallIsAskedAgainAfterAFailure(t *testing.T) {
	w, d := firewalled(t, "api.example.com")
	w.tunnelTo("api.example.com:443")
	d.questions()
	w.mu.Lock()
	w.refuses[addrs(public)[0]] = unix.ECONNREFUSED
	w.mu.Unlock()
	for range 2 {
		w.ask(connectTo("api.example.com:443"))
	}
	if got := d.questions(); len(got) != 1 {
		t.Errorf("after a failure pfard is asked %q", got)
	}
}

func TestTheFirewallIsAskedForTheProxy(t *testing.T) {
	w, d := firewalled(t, "api.example.com")
	w.answers["proxy.corp"] = addrs("10.9.9.9")
	c, err := w.proxy.out.reachProxy(t.Context(), "proxy.corp:3128")
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if got := d.questions(); len(got) != 1 || got[0] != "proxy.corp:3128 [10.9.9.9]" {
		t.Errorf("pfard is asked %q", got)
	}
	d.change(func() { d.answer = func(attach.Allow) (string, bool) { return "no", true } })
	if c, err := w.proxy.out.reachProxy(t.Context(), "proxy.corp:3129"); err == nil {
		c.Close()
		t.Error("what pfard refuses is connected to")
	}
}

func TestTheBridgeOutlivesPfard(t *testing.T) {
	w, d := firewalled(t, "api.example.com:5432", "other.example.com")
	w.answers["other.example.com."] = addrs("93.184.216.40")
	a := w.proxy.out.firewall
	open := w.tunnelTo("api.example.com:5432")
	a.tell(egress.Refusal{Host: "evil.com:443", Reason: egress.NameNotDeclared})
	eventually(t, "the notice", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.refused == "evil.com:443"
	})
	d.questions()
	d.stop()
	eventually(t, "the end", func() bool { a.mu.Lock(); defer a.mu.Unlock(); return a.conn == nil })
	a.tell(egress.Refusal{Host: "later.com:443", Reason: egress.NameNotDeclared})

	pingPong(t, open)
	w.tunnelTo("api.example.com:5432") // allowed already
	a.wait = 500 * time.Millisecond
	if status, reason := outcome(w.ask(connectTo("other.example.com:443"))); status != "503" || reason != "firewall-unavailable" {
		t.Errorf("without pfard it is %s %s", status, reason)
	}
	a.wait = 2 * time.Minute
	done := make(chan string)
	go func() {
		s, _ := outcome(w.ask("GET http://other.example.com/ HTTP/1.1\r\nHost: other.example.com\r\nConnection: close\r\n\r\n"))
		done <- s
	}()
	time.Sleep(50 * time.Millisecond)
	d.start()
	if s := <-done; s == "503" || s == "403" {
		t.Errorf("when pfard comes back in time it is %s", s)
	}
	pingPong(t, open)
	eventually(t, "what it has to tell", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.hellos[len(d.hellos)-1].Again && d.refused == "later.com:443"
	})
	d.questions()
	w.tunnelTo("api.example.com:5432")
	if got := d.questions(); len(got) != 1 {
		t.Errorf("a pfard that may have forgotten is asked %q", got)
	}
}

func pingPong(t *testing.T, c net.Conn) {
	t.Helper()
	if _, err := c.Write([]byte("word")); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 4)
	if _, err := c.Read(b); err != nil || string(b) != "word" {
		t.Fatalf("%q, %v", b, err)
	}
}

// A pfard that says after its restart that it holds the bridge, when it does not, ends it.
func TestTheProbeIsMadeAgain(t *testing.T) {
	d := newPfard(t)
	failed := make(chan error, 1)
	a := newAttachment(d.path, "digest", slog.New(slog.DiscardHandler), func(err error) { failed <- err })
	probes := 0
	a.probe = func() error {
		if probes++; probes > 1 {
			return errors.New("it got through")
		}
		return nil
	}
	if _, err := a.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.stop()
	d.start()
	if err := <-failed; !strings.Contains(err.Error(), "it got through") {
		t.Error(err)
	}
}

func TestManyAskAtOnce(t *testing.T) {
	d := newPfard(t)
	var waiting []attach.Allow
	const many = 50
	answer := func(q attach.Allow) (string, bool) { // all at once, the last first
		if waiting = append(waiting, q); len(waiting) == many {
			for i := many - 1; i >= 0; i-- {
				words := ""
				if waiting[i].Port%2 == 1 {
					words = "odd"
				}
				_ = d.conn.Send(attach.Message{Allowed: &attach.Allowed{ID: waiting[i].ID, Error: words}})
			}
		}
		return "", false
	}
	d.change(func() { d.answer = answer })
	a := d.attached(slog.New(slog.DiscardHandler))
	var all sync.WaitGroup
	for i := range uint16(many) {
		all.Go(func() {
			if err := a.allow(t.Context(), "x", i, addrs(public)); (err != nil) != (i%2 == 1) {
				t.Errorf("port %d: %v", i, err)
			}
		})
	}
	all.Wait()
	for i := range uint16(many) {
		if known := a.known("x", i, addrs(public), time.Now()); known != (i%2 == 0) {
			t.Errorf("port %d is known to be allowed: %v", i, known)
		}
	}
	for i := range uint16(2 * maxKnown) {
		a.learn("y", i, addrs(public), time.Now().Add(time.Minute))
	}
	if n := len(a.allowed); n > maxKnown {
		t.Errorf("%d are known to be allowed", n)
	}
	a.learn("z", 1, []netip.Addr{netip.MustParseAddr(public)}, time.Now().Add(-time.Second))
	if a.known("z", 1, addrs(public), time.Now()) {
		t.Error("what is over is known to be allowed")
	}
}

// The probe, with the kernel's own firewall and this process in the bridges' slice.
func TestProbeFirewall(t *testing.T) {
	const inside = "PFAR_EGRESS_PROBE"
	if dir := os.Getenv(inside); dir != "" {
		probeInside(t, dir)
		return
	}
	dir := filepath.Join("/sys/fs/cgroup", "unified", fmt.Sprintf("pfar-test-%d", os.Getpid()))
	if _, err := os.Stat(filepath.Dir(dir)); err != nil {
		dir = filepath.Join("/sys/fs/cgroup", filepath.Base(dir))
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("making a control group: %v", err)
	}
	defer func() {
		eventually(t, "the end of the control group", func() bool { return os.Remove(dir) == nil })
	}()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestProbeFirewall$", "-test.v")
	cmd.Env = append(os.Environ(), inside+"="+dir, "GORACE=atexit_sleep_ms=0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, UseCgroupFD: true, CgroupFD: int(f.Fd()), Pdeathsig: unix.SIGKILL}
	out, err := cmd.CombinedOutput()
	t.Logf("in the namespace:\n%s", out)
	if err != nil || !strings.Contains(string(out), "--- PASS: TestProbeFirewall") {
		t.Error(err)
	}
}

func probeInside(t *testing.T, dir string) {
	if err := probeFirewall(); !errors.Is(err, unix.ENETUNREACH) {
		t.Errorf("where nothing can be tried: %v", err)
	}
	if _, err := firewall.Loopback(); err != nil {
		t.Fatal(err)
	}
	if err := probeFirewall(); err == nil {
		t.Error("without a firewall it is held")
	}
	id, err := host.CgroupID(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Apply(egress.Hold{Slice: egress.Cgroup{ID: id + 1<<40, Level: 1}}, time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := probeFirewall(); err == nil {
		t.Error("with a table about somebody else it is held")
	}
	if err := host.Apply(egress.Hold{Slice: egress.Cgroup{ID: id, Level: 1}}, time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := probeFirewall(); err != nil {
		t.Errorf("held: %v", err)
	}
}
