package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/egress"
)

// answerer answers the nth query of its type for a name, counted from 1.
type answerer func(w dns.ResponseWriter, q *dns.Msg, nth int)

// dnsCase is a name below allowed.test, what its server answers, and what comes of connecting to it.
type dnsCase struct {
	label  string
	answer answerer // nil: the name is not there
	fails  string   // addresses that refuse the connection
	wait   time.Duration
	want   []attempt // one for each connection
}

// attempt is what one connection comes to. Queries are those for the name itself with a dot at its end, anything else
// is written with its name; both lists are sorted.
type attempt struct{ reason, special, queries, dials string }

const bothTypes = "A AAAA" // one lookup: a query of each type, over UDP

func one(reason, special, queries, dials string) []attempt {
	return []attempt{{reason, special, queries, dials}}
}

func reached(dial string) []attempt { return one(egress.Declared, "", bothTypes, dial) }

func refusedFor(special string) []attempt { return one("address-refused", special, bothTypes, "") }

func unresolved(queries string) []attempt { return one("not-resolved", "", queries, "") }

// reply begins the answer to q.
func reply(q *dns.Msg) *dns.Msg {
	m := new(dns.Msg).SetReply(q)
	m.RecursionAvailable = true
	return m
}

// add puts records into m: "[OWNER.] TYPE DATA". The owner is else the name in question; an address is left out if the
// other family is in question.
func add(m *dns.Msg, ttl int, records ...string) *dns.Msg {
	for _, s := range records {
		if owner, _, _ := strings.Cut(s, " "); !strings.HasSuffix(owner, ".") {
			s = m.Question[0].Name + " " + s
		}
		owner, data, _ := strings.Cut(s, " ")
		rr, err := dns.NewRR(fmt.Sprintf("%s %d IN %s", owner, ttl, data))
		if err != nil {
			panic(err)
		}
		if t := rr.Header().Rrtype; t == m.Question[0].Qtype || t == dns.TypeCNAME {
			m.Answer = append(m.Answer, rr)
		}
	}
	return m
}

func records(list ...string) answerer {
	return func(w dns.ResponseWriter, q *dns.Msg, _ int) { _ = w.WriteMsg(add(reply(q), 0, list...)) }
}

// kept answers what records would, for a minute.
func kept(list ...string) answerer {
	return func(w dns.ResponseWriter, q *dns.Msg, _ int) { _ = w.WriteMsg(add(reply(q), 60, list...)) }
}

// changed answers what records would, after change.
func changed(change func(m *dns.Msg), list ...string) answerer {
	return func(w dns.ResponseWriter, q *dns.Msg, _ int) {
		m := add(reply(q), 0, list...)
		change(m)
		_ = w.WriteMsg(m)
	}
}

func code(rcode int, list ...string) answerer {
	return changed(func(m *dns.Msg) { m.Rcode = rcode }, list...)
}

// inTurn answers the nth query with the nth, and the last from then on.
func inTurn(list ...answerer) answerer {
	return func(w dns.ResponseWriter, q *dns.Msg, nth int) { list[min(nth, len(list))-1](w, q, nth) }
}

func byType(a, aaaa answerer) answerer {
	return func(w dns.ResponseWriter, q *dns.Msg, nth int) {
		if q.Question[0].Qtype == dns.TypeA {
			a(w, q, nth)
		} else {
			aaaa(w, q, nth)
		}
	}
}

// byNetwork answers over UDP that the answer is too long, and over TCP with tcp.
func byNetwork(udp, tcp answerer) answerer {
	return func(w dns.ResponseWriter, q *dns.Msg, nth int) {
		if w.LocalAddr().Network() == "udp" {
			udp(w, q, nth)
		} else {
			tcp(w, q, nth)
		}
	}
}

func silence(dns.ResponseWriter, *dns.Msg, int) {}

func hangUp(w dns.ResponseWriter, _ *dns.Msg, _ int) { _ = w.Close() }

func raw(b string) answerer {
	return func(w dns.ResponseWriter, _ *dns.Msg, _ int) { _, _ = w.Write([]byte(b)) }
}

func late(d time.Duration, then answerer) answerer {
	return func(w dns.ResponseWriter, q *dns.Msg, nth int) {
		time.Sleep(d)
		then(w, q, nth)
	}
}

func many(n int, format string) []string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf(format, i/250, i%250+1))
	}
	return list
}

func sorted(list []string) []string {
	slices.Sort(list)
	return list
}

func truncated(m *dns.Msg) { m.Truncated, m.Answer = true, nil }

// dnsServer is a resolver that is hostile: it has an answer of its own also for the search domains.
type dnsServer struct {
	mu    sync.Mutex
	cases map[string]answerer // by fully qualified name, lower case
	count map[string]int
	asked []string
}

func (s *dnsServer) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	key := dns.TypeToString[q.Question[0].Qtype]
	if w.LocalAddr().Network() == "tcp" {
		key += "/tcp"
	}
	name := q.Question[0].Name
	answer, known := s.cases[strings.ToLower(name)]
	if !known || name != strings.ToLower(name) {
		key += " of " + name
	}
	s.mu.Lock()
	s.asked = append(s.asked, key)
	s.count[name+key]++
	nth := s.count[name+key]
	s.mu.Unlock()
	switch {
	case !known && strings.HasSuffix(name, ".evil.test."):
		answer = records("A 6.6.6.6")
	case answer == nil:
		answer = code(dns.RcodeNameError)
	}
	answer(w, q, nth)
}

func (s *dnsServer) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.asked
	s.asked = nil
	slices.Sort(asked)
	return strings.Join(asked, " ")
}

func (s *dnsServer) start(t *testing.T) {
	t.Helper()
	u, err := net.ListenPacket("udp", "127.0.0.1:53")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:53")
	if err != nil {
		t.Fatal(err)
	}
	for _, server := range []*dns.Server{{PacketConn: u, Handler: s}, {Listener: l, Handler: s}} {
		started, done := make(chan struct{}), make(chan error, 1)
		server.NotifyStartedFunc = func() { close(started) }
		go func() { done <- server.ActivateAndServe() }()
		<-started
		t.Cleanup(func() {
			if err := errors.Join(server.Shutdown(), <-done); err != nil {
				t.Error(err)
			}
		})
	}
}

const (
	insideEnv = "PFAR_EGRESS_DNS_TEST_INSIDE"
	ownPublic = "193.0.6.139" // of loopback in there

	testResolvConf = "nameserver 127.0.0.1\nsearch evil.test corp.lan\noptions ndots:15 timeout:1 attempts:2\n"
	testHosts      = "127.0.0.1 localhost\n10.9.9.9 hosts-private.allowed.test\n1.2.3.9 hosts-public.allowed.test\nfe80::1%lo hosts-zone.allowed.test\n2606:4700::9%lo hosts-public-zone.allowed.test\n"
)

// enter has t run again in a user, mount and network namespace of its own, where resolv.conf(5), hosts(5) and port 53
// are the test's and no packet can leave, and reports whether it is there.
func enter(t *testing.T) bool {
	t.Helper()
	if os.Getenv(insideEnv) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v=true", "-test.timeout=2m")
		cmd.Env = append(os.Environ(), insideEnv+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWNET,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
			Pdeathsig:   unix.SIGKILL,
		}
		out, err := cmd.CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
			t.Errorf("in its namespace: %v\n%s", err, out)
		}
		return false
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string]string{"/etc/resolv.conf": testResolvConf, "/etc/hosts": testHosts} {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount(path, file, "", unix.MS_BIND, ""); err != nil {
			t.Fatalf("mounting over %s: %v", file, err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(file, 0); err != nil {
				t.Error(err)
			}
		})
	}
	raiseLoopback(t)
	return true
}

// raiseLoopback has lo up, with a public address beside its own (netdevice(7)).
func raiseLoopback(t *testing.T) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for _, step := range []struct {
		name    string
		request uint
		value   func(*unix.Ifreq)
	}{
		{"lo", unix.SIOCSIFFLAGS, func(r *unix.Ifreq) { r.SetUint16(unix.IFF_UP) }},
		{"lo:1", unix.SIOCSIFADDR, func(r *unix.Ifreq) {
			if err := r.SetInet4Addr(net.ParseIP(ownPublic).To4()); err != nil {
				t.Fatal(err)
			}
		}},
		{"lo:1", unix.SIOCSIFNETMASK, func(r *unix.Ifreq) {
			if err := r.SetInet4Addr([]byte{255, 255, 255, 255}); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		r, err := unix.NewIfreq(step.name)
		if err != nil {
			t.Fatal(err)
		}
		step.value(r)
		if err := unix.IoctlIfreq(fd, step.request, r); err != nil {
			t.Fatalf("ioctl %#x of %s: %v", step.request, step.name, err)
		}
	}
}

// What a name resolves to is said by a real server over real sockets, and only the last step, to connect, is the
// world's: each case holds the verdict, every query that was asked, and every address that was dialled.
func TestDNS(t *testing.T) {
	if !enter(t) {
		return
	}
	s := &dnsServer{count: map[string]int{}, cases: map[string]answerer{}}
	for _, c := range dnsCases {
		s.cases[c.label+".allowed.test."] = c.answer
	}
	s.start(t)
	for _, c := range dnsCases {
		t.Run(c.label, func(t *testing.T) {
			wrong := c.try(t, s)
			for n := 0; wrong != "" && n < 4; n++ { // a busy machine asks again by itself, or in the end not at all
				wrong = c.try(t, s)
			}
			if wrong != "" {
				t.Error(wrong)
			}
		})
	}
}

// try returns what differs.
func (c dnsCase) try(t *testing.T, s *dnsServer) (wrong string) {
	w := newWorld(t, func(w *world) {
		d := newDialer()
		w.proxy.out.lookup, w.proxy.out.own = d.lookup, d.own
		w.proxy.limits.dialTime = 5 * time.Second
		if c.wait > 0 {
			w.proxy.limits.dialTime = c.wait
		}
	}, "*.allowed.test")
	w.serveOrigin(echo)
	w.proxy.policy.Private = testPrivate
	for f := range strings.FieldsSeq(c.fails) {
		w.refuses[netip.MustParseAddr(f)] = syscall.ECONNREFUSED
	}
	s.take()
	s.mu.Lock()
	clear(s.count)
	s.mu.Unlock()
	for i, want := range c.want {
		var rec record
		_, before, _ := w.seen()
		began := time.Now()
		d := w.proxy.policy.Decide(c.label+".allowed.test", 443)
		got := attempt{reason: d.Reason}
		if d.Verdict == egress.Allow {
			up, err := w.proxy.connect(context.Background(), d, 443, &rec)
			var ref *refusal
			switch {
			case err == nil:
				up.Close()
			case errors.As(err, &ref):
				got.reason = ref.reason
			default:
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took > w.proxy.limits.dialTime+2*time.Minute {
			wrong += fmt.Sprintf("connection %d took %v\n", i, took)
		}
		got.special, got.queries = rec.special, s.take()
		_, dials, _ := w.seen()
		got.dials = joinAddrs(dials[len(before):])
		if got != want {
			wrong += fmt.Sprintf("connection %d:\n got %+v\nwant %+v\n err %v\n", i, got, want, rec.err)
		}
	}
	return wrong
}

// joinAddrs leaves port 443 out.
func joinAddrs(list []netip.AddrPort) string {
	var s []string
	for _, a := range list {
		if a.Port() != 443 {
			s = append(s, a.String())
			continue
		}
		s = append(s, a.Addr().String())
	}
	slices.Sort(s)
	return strings.Join(s, " ")
}
