package resolver

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// served is a resolver on a loopback port of its own, over UDP and TCP.
type served struct {
	addr    string
	queries atomic.Int32
}

func serve(t *testing.T, r *Resolver) *served {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &served{addr: listener.Addr().String()}
	packets, err := net.ListenPacket("udp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		b := make([]byte, 1<<16)
		for {
			n, from, err := packets.ReadFrom(b)
			if err != nil {
				return
			}
			s.queries.Add(1)
			if response, _ := r.Answer(b[:n], false); response != nil {
				_, _ = packets.WriteTo(response, from)
			}
		}
	})
	wg.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				for s.exchange(c, r) == nil {
				}
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		packets.Close()
		wg.Wait()
	})
	return s
}

func (s *served) exchange(c net.Conn, r *Resolver) error {
	var size [2]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return err
	}
	b := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(c, b); err != nil {
		return err
	}
	s.queries.Add(1)
	response, _ := r.Answer(b, true)
	_, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(response))), response...))
	return err
}

func TestClientOfMiekg(t *testing.T) {
	s := serve(t, newResolver(t, false, true))
	for _, network := range []string{"udp", "tcp"} {
		client := &dns.Client{Net: network, Timeout: 5 * time.Second}
		for _, c := range []struct {
			name   string
			qtype  uint16
			rcode  int
			answer string
		}{
			{"api.example.com.", dns.TypeA, dns.RcodeSuccess, "60 A 198.18.1.1"},
			{"API.example.com.", dns.TypeAAAA, dns.RcodeSuccess, "60 AAAA 2001:2::c612:101"},
			{"api.example.com.", dns.TypeHTTPS, dns.RcodeSuccess, ""},
			{"evil.test.", dns.TypeA, dns.RcodeNameError, ""},
			{"1.1.18.198.in-addr.arpa.", dns.TypePTR, dns.RcodeSuccess, "60 PTR api.example.com."},
		} {
			q := new(dns.Msg).SetQuestion(c.name, c.qtype).SetEdns0(4096, true)
			m, _, err := client.Exchange(q, s.addr)
			if err != nil || m.Rcode != c.rcode || records(m) != c.answer || m.IsEdns0() == nil {
				t.Errorf("%s, %q: %v\n%v", network, c.name, err, m)
			}
		}
	}
	if n := s.queries.Load(); n != 10 {
		t.Errorf("%d queries for 10", n)
	}
}

// goResolver looks up as Go programs without cgo do, over one network.
func goResolver(s *served, network string) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, s.addr)
	}}
}

func TestClientOfGo(t *testing.T) {
	for _, network := range []string{"udp", "tcp"} {
		for _, ipv6 := range []bool{true, false} {
			s := serve(t, newResolver(t, false, ipv6))
			r, ctx := goResolver(s, network), t.Context()
			want := addrs("198.18.1.1")
			if ipv6 {
				want = append(want, addrs("2001:2::c612:101")...)
			}
			got, err := r.LookupNetIP(ctx, "ip", "api.example.com.")
			slices.SortFunc(got, netip.Addr.Compare)
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%s, IPv6 %t: %v, %v", network, ipv6, got, err)
			}
			if names, err := r.LookupAddr(ctx, "198.18.1.2"); err != nil || !slices.Equal(names, []string{"db.lan."}) {
				t.Errorf("%v, %v", names, err)
			}
			if n := s.queries.Load(); n != 3 {
				t.Errorf("%s, IPv6 %t: %d queries for 3", network, ipv6, n)
			}
			if texts, err := r.LookupTXT(ctx, "api.example.com."); !notFound(err) {
				t.Errorf("%v, %v", texts, err)
			}
		}
	}
}

// A refusal is one at once: no client asks a second time, or waits.
func TestClientOfGoRefused(t *testing.T) {
	for _, network := range []string{"udp", "tcp"} {
		s := serve(t, newResolver(t, false, true))
		if got, err := goResolver(s, network).LookupNetIP(t.Context(), "ip", "c2VjcmV0.evil.test."); !notFound(err) {
			t.Errorf("%s: %v, %v", network, got, err)
		}
		if n := s.queries.Load(); n != 2 { // A and AAAA
			t.Errorf("%s: %d queries for 2", network, n)
		}
	}
}

func notFound(err error) bool {
	var e *net.DNSError
	return errors.As(err, &e) && e.IsNotFound && !e.IsTimeout && !e.IsTemporary
}
