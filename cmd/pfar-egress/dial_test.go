package main

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// nameServer answers what the resolver asks over UDP and keeps the questions.
type nameServer struct {
	addr    string
	answers map[string][]dnsmessage.ResourceBody
	code    dnsmessage.RCode // of names without an answer

	mu    sync.Mutex
	asked []string
}

func (s *nameServer) start(t *testing.T) {
	t.Helper()
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	s.addr = c.LocalAddr().String()
	go func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := c.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			if reply := s.reply(buf[:n]); reply != nil {
				_, _ = c.WriteToUDPAddrPort(reply, from)
			}
		}
	}()
}

func (s *nameServer) reply(b []byte) []byte {
	var m dnsmessage.Message
	if m.Unpack(b) != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	s.mu.Lock()
	s.asked = append(s.asked, q.Name.String())
	s.mu.Unlock()
	m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
	bodies, known := s.answers[q.Name.String()]
	if !known {
		m.RCode = s.code
	}
	name := q.Name
	for _, body := range bodies {
		h := dnsmessage.ResourceHeader{Name: name, Class: dnsmessage.ClassINET}
		switch b := body.(type) {
		case *dnsmessage.CNAMEResource:
			name = b.CNAME
		case *dnsmessage.AResource:
			if q.Type != dnsmessage.TypeA {
				continue
			}
		case *dnsmessage.AAAAResource:
			if q.Type != dnsmessage.TypeAAAA {
				continue
			}
		}
		m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: body})
	}
	out, err := m.Pack()
	if err != nil {
		return nil
	}
	return out
}

func a(s string) *dnsmessage.AResource {
	return &dnsmessage.AResource{A: netip.MustParseAddr(s).As4()}
}

func aaaa(s string) *dnsmessage.AAAAResource {
	return &dnsmessage.AAAAResource{AAAA: netip.MustParseAddr(s).As16()}
}

func TestResolver(t *testing.T) {
	s := &nameServer{code: dnsmessage.RCodeServerFailure, answers: map[string][]dnsmessage.ResourceBody{
		"both.allowed.test.":  {a("1.2.3.4"), aaaa("2606:4700::1")},
		"alias.allowed.test.": {&dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName("internal.lan.")}, a("10.0.0.5")},
		"map.allowed.test.":   {aaaa("::ffff:127.0.0.1")},
		"none.allowed.test.":  {},
	}}
	s.start(t)
	d := newDialer(func(ctx context.Context, network, _ string) (net.Conn, error) {
		var n net.Dialer
		return n.DialContext(ctx, network, s.addr)
	})
	w := newWorld(t, func(w *world) {
		w.proxy.out.lookup = d.lookup
		w.proxy.limits.dialTime = 4 * time.Second
	}, "*.allowed.test")
	w.serveOrigin(echo)
	w.tunnelTo("both.allowed.test:443").Close()
	for target, reason := range map[string]string{
		"alias.allowed.test:443": "address-refused", // a CNAME into the operator's network
		"map.allowed.test:443":   "address-refused",
		"none.allowed.test:443":  "not-resolved",
		"fail.allowed.test:443":  "not-resolved",
		"secret.evil.test:443":   "name-not-declared",
	} {
		if _, got := outcome(w.ask(connectTo(target))); got != reason {
			t.Errorf("%s: %s, want %s", target, got, reason)
		}
	}
	_, dials, _ := w.seen()
	for _, to := range dials {
		if to.Addr() != netip.MustParseAddr("1.2.3.4") && to.Addr() != netip.MustParseAddr("2606:4700::1") {
			t.Errorf("dialled %v", to)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	want := []string{"alias.allowed.test.", "both.allowed.test.", "fail.allowed.test.", "map.allowed.test.", "none.allowed.test."}
	slices.Sort(s.asked)
	if asked := slices.Compact(s.asked); !slices.Equal(asked, want) { // no search domain, nothing undeclared
		t.Errorf("asked for %q, want %q", asked, want)
	}
}

func TestOwnAddresses(t *testing.T) {
	d := newDialer(nil)
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

func TestRaceDoesNotWaitForABlackHole(t *testing.T) {
	w := newWorld(t, nil, "api.allowed.test")
	w.serveOrigin(echo)
	w.answers["api.allowed.test."] = addrs("2606:4700::1", "1.2.3.4")
	w.refuses[netip.MustParseAddr("2606:4700::1")] = nil
	began := time.Now()
	w.tunnelTo("api.allowed.test:443").Close()
	if d := time.Since(began); d < stagger || d > 4*time.Second {
		t.Errorf("it took %v", d)
	}
	w.mu.Lock()
	w.refuses[netip.MustParseAddr("2606:4700::1")] = syscall.ENETUNREACH
	w.mu.Unlock()
	began = time.Now()
	w.tunnelTo("api.allowed.test:443").Close()
	if d := time.Since(began); d > stagger-50*time.Millisecond {
		t.Errorf("after a refusal, the next address is tried only after %v", d)
	}
}

func TestRaceTriesAFewAddressesOnly(t *testing.T) {
	w := newWorld(t, nil, "api.allowed.test")
	for i := range 100 {
		a := netip.AddrFrom4([4]byte{1, 2, 3, byte(i)})
		w.answers["api.allowed.test."] = append(w.answers["api.allowed.test."], a)
		w.refuses[a] = syscall.ECONNREFUSED
	}
	if _, reason := outcome(w.ask(connectTo("api.allowed.test:443"))); reason != "not-reached" {
		t.Error(reason)
	}
	if _, dials, _ := w.seen(); len(dials) != maxAddresses {
		t.Errorf("%d dials", len(dials))
	}
}
