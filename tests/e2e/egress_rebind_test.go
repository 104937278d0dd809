package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"
)

// nameServers answer as the test wants at the moment. They stand where the internet's own did.
type nameServers struct {
	mu    sync.Mutex
	leads []string // addresses that every name leads to
	asked []string
}

// turn has every name lead elsewhere, and what was asked forgotten.
func (n *nameServers) turn(addresses ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.leads, n.asked = addresses, nil
}

func (n *nameServers) names() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.asked)
}

// ServeDNS answers with a TTL of zero, as those do who want to be asked again.
func (n *nameServers) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	n.mu.Lock()
	defer n.mu.Unlock()
	r := new(dns.Msg).SetReply(q)
	for _, question := range q.Question {
		n.asked = append(n.asked, question.Name)
		for _, address := range n.leads {
			ip, four, h := net.ParseIP(address), !strings.Contains(address, ":"), dns.RR_Header{Name: question.Name, Class: dns.ClassINET}
			switch {
			case question.Qtype == dns.TypeA && four:
				h.Rrtype = dns.TypeA
				r.Answer = append(r.Answer, &dns.A{Hdr: h, A: ip})
			case question.Qtype == dns.TypeAAAA && !four:
				h.Rrtype = dns.TypeAAAA
				r.Answer = append(r.Answer, &dns.AAAA{Hdr: h, AAAA: ip})
			}
		}
	}
	_ = w.WriteMsg(r) // who asked may have gone
}

// usurp has queries to the internet's name server answered by another.
func (in *world) usurp(t *testing.T) *nameServers {
	t.Helper()
	n := &nameServers{}
	var datagrams net.PacketConn
	check(t, within(in.pid, func() (err error) {
		datagrams, err = net.ListenPacket("udp4", ":0")
		return err
	}))
	s := &dns.Server{PacketConn: datagrams, Handler: n}
	ended := make(chan error, 1)
	go func() { ended <- s.ActivateAndServe() }()
	t.Cleanup(func() {
		datagrams.Close()
		<-ended
	})
	_, port, err := net.SplitHostPort(datagrams.LocalAddr().String())
	check(t, err)
	rules := exec.Command("nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", in.pid), "nft", "-f", "-")
	rules.Stdin = strings.NewReader(`table ip usurp {
	chain prerouting {
		type nat hook prerouting priority dstnat
		udp dport 53 redirect to :` + port + `
	}
}`)
	if out, err := rules.CombinedOutput(); err != nil {
		t.Fatalf("nft: %v: %s", err, out)
	}
	return n
}

// TestEgressRebinding has a declared name lead elsewhere from one connection to the next, while listeners on pfar's
// side wait for what comes.
func TestEgressRebinding(t *testing.T) {
	if os.Getuid() != 0 {
		return
	}
	t.Parallel()
	c, in := startClients(t)
	near := c.p.cmd.Process.Pid
	n, w := in.usurp(t), in.tap(t, near)
	var lured sync.Map
	for _, address := range []string{"127.0.0.1:7777", ourAddress + ":7777", "[::1]:7777"} {
		lure(t, near, address, &lured)
	}
	to := c.p.client("/mcp")
	const good, reset = "echo of hello", "connection reset by peer"
	for _, tt := range []struct {
		leads []string
		wants string
	}{
		{[]string{hostAddress}, good},
		{[]string{"127.0.0.1"}, reset},
		{[]string{hostAddress}, good},
		{[]string{ourAddress}, reset},
		{[]string{"::1"}, reset},
		{[]string{"::ffff:127.0.0.1"}, reset},
		{[]string{"0.0.0.0"}, reset},
		{[]string{lanAddress}, reset},
		{[]string{"169.254.169.254"}, reset},
		{[]string{"198.18.1.1"}, reset},
		{[]string{"127.0.0.1", hostAddress, ourAddress, "::1"}, good}, // the one that is good, and no other
		{nil, reset},
		{[]string{hostAddress}, good},
	} {
		n.turn(tt.leads...)
		for _, how := range []string{"tcp", "tunnel"} {
			argv := []string{"go", "tcp", "api.allowed.example:7777"}
			wants := tt.wants
			if how == "tunnel" {
				argv = []string{"/usr/bin/python3", "-c", `
import socket
s = socket.create_connection(("127.0.0.1", 9876))
s.sendall(b"CONNECT api.allowed.example:7777 HTTP/1.1\r\nHost: api.allowed.example:7777\r\n\r\n")
answer = s.recv(1000)
s.sendall(b"hello\n")
print(answer.split(b"\r\n")[0].decode(), s.recv(1000).decode())`}
				wants = map[bool]string{true: "HTTP/1.1 200 Connection established echo of hello", false: "HTTP/1.1 403 Forbidden"}[tt.wants == good]
				if tt.leads == nil {
					wants = "HTTP/1.1 502 Bad Gateway"
				}
			}
			if got := c.run(to, false, argv...); !strings.Contains(got.Wrote, wants) {
				t.Errorf("%s, the name leads to %q: %q, want %q", how, tt.leads, got.Wrote, wants)
			}
		}
		names := n.names()
		if len(names) == 0 {
			t.Error("the name server was asked nothing")
		}
		for _, name := range names {
			if name != "api.allowed.example." {
				t.Errorf("the name server was asked for %s", name)
			}
		}
	}
	lured.Range(func(address, _ any) bool {
		t.Errorf("%s was connected to", address)
		return true
	})
	w.only(t, "tcp "+hostAddress+":7777")
}

// lure listens on pfar's side, and notes whether somebody connects.
func lure(t *testing.T, near int, address string, lured *sync.Map) {
	t.Helper()
	var l net.Listener
	check(t, within(near, func() (err error) {
		l, err = net.Listen("tcp", address)
		return err
	}))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			lured.Store(address, true)
			c.Close()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-ended
	})
}
