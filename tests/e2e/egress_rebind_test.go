package e2e

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	mcpserver "github.com/mark3labs/mcp-go/server"
	"github.com/miekg/dns"

	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/tests/trust"
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
	n.turn(hostAddress)
	r := in.startRemote(t, c.p)
	var lured sync.Map
	for _, address := range []string{"127.0.0.1", ourAddress, "[::1]"} {
		lure(t, near, address+":7777", &lured)
		lure(t, near, address+reboundPort, &lured)
	}
	to := c.p.client("/mcp")
	r.client = c.p.agent(c.p.token())
	const good, reset = "echo of hello", "connection reset by peer"
	for turn, tt := range []struct {
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
		{[]string{lanAddress}, reset}, // which is declared of one remote, and not of what else there is
		{[]string{"10.77.0.1"}, reset},
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
		if !testing.Short() || turn < 2 || slices.Contains(tt.leads, lanAddress) {
			r.calls(t, c.p, tt.leads, tt.wants == good)
		}
		names := n.names()
		if len(names) == 0 {
			t.Error("the name server was asked nothing")
		}
		for _, name := range names {
			if name != "api.allowed.example." && name != reboundHost+"." {
				t.Errorf("the name server was asked for %s", name)
			}
		}
	}
	lured.Range(func(address, _ any) bool {
		t.Errorf("%s was connected to", address)
		return true
	})
	w.only(t, "tcp "+hostAddress+":7777", "tcp "+hostAddress+reboundPort, "tcp "+lanAddress+reboundPort)
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

const (
	reboundHost = "mcp.wild.example"
	reboundPort = ":4443"
)

// rebound is a remote server whose name leads elsewhere from one call to the next. It is declared twice: "lent" may
// lead to lanAddress as well.
type rebound struct {
	client *rawHTTP
	mu     sync.Mutex
	at     []string // addresses that requests with the token came to
}

// startRemote serves it where the internet is. No connection stays for a second request.
func (in *world) startRemote(t *testing.T, p *pfar) *rebound {
	t.Helper()
	certificate := filepath.Join(filepath.Dir(in.authority), "server.pem")
	pair, err := tls.LoadX509KeyPair(certificate, certificate)
	check(t, err)
	var l net.Listener
	check(t, within(in.pid, func() (err error) {
		l, err = net.Listen("tcp4", reboundPort)
		return err
	}))
	r := &rebound{}
	handler := mcpserver.NewStreamableHTTPServer(mcpGoServer(), mcpserver.WithDisableStreaming(true))
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Header.Get("Authorization") != "Bearer "+remoteToken {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		at, _, _ := net.SplitHostPort(q.Context().Value(http.LocalAddrContextKey).(net.Addr).String())
		r.mu.Lock()
		r.at = append(r.at, at)
		r.mu.Unlock()
		handler.ServeHTTP(w, q)
	})}
	s.SetKeepAlivesEnabled(false)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{pair}})) }()
	t.Cleanup(func() {
		s.Close()
		<-ended
	})
	const text = "auth = { token = \"vault:%s_token\" }\n" +
		"server {\n  transport = \"stream-http\"\n  url = \"https://%s%s/mcp\"\n  ca = %q\n}\n"
	for name, more := range map[string]string{
		"strict": "", "lent": fmt.Sprintf("allow_private = { %q = [%q] }\n", reboundHost, lanAddress),
	} {
		server := fmt.Sprintf(text, name, reboundHost, reboundPort, in.authority)
		p.write(name+".hcl", more+readsEcho+trust.Honest+server)
		p.keep("set", name+"_token", remoteToken)
	}
	p.awaitRunning("strict", "lent")
	return r
}

// calls has both of its declarations called. What is refused goes nowhere, and says why.
func (r *rebound) calls(t *testing.T, p *pfar, leads []string, good bool) {
	t.Helper()
	for server, allowed := range map[string]bool{"strict": good, "lent": good || slices.Contains(leads, lanAddress)} {
		r.mu.Lock()
		r.at = nil
		r.mu.Unlock()
		params := fmt.Sprintf(`{"name":"%s__echo","arguments":{"message":"hello"}}`, server)
		a, err := r.client.ask("tools/call", params, `"x"`, "", "")
		check(t, err)
		r.mu.Lock()
		at := slices.Compact(slices.Clone(r.at))
		r.mu.Unlock()
		if allowed {
			if !strings.Contains(string(a.value), "Echo: hello") || len(at) != 1 || !slices.Contains(leads, at[0]) {
				t.Errorf("%s at %q: asked at %q, it answers %s", server, leads, at, a.value)
			}
			continue
		}
		if told := toldOf(t, a.value); told.Class != failure.NetworkError || told.Tries != 1 || len(at) != 0 {
			t.Errorf("%s at %q: asked at %q, class %q: %s", server, leads, at, told.Class, a.value)
		}
		why := "address-refused"
		if leads == nil {
			why = "not-resolved"
		}
		until(t, "pfar egress "+server+" saying "+why, func() bool {
			return strings.Contains(p.succeeds("egress", server), why)
		})
	}
}
