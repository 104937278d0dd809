package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pfar/pfar/units/control"
)

// holders are programs that open a connection to a port of api.allowed.example, say hello, and then do not end,
// whatever becomes of the connection.
var holders = []string{`
import socket, sys, time
s = socket.create_connection(("api.allowed.example", int(sys.argv[1])))
s.sendall(b"hello\n")
time.sleep(60)`, `
import socket, sys, time
s = socket.create_connection(("127.0.0.1", 9876))
s.sendall(b"CONNECT api.allowed.example:%s HTTP/1.1\r\nHost: api.allowed.example:%s\r\n\r\n" % ((sys.argv[1].encode(),) * 2))
s.recv(1000)
s.sendall(b"hello\n")
time.sleep(60)`,
}

// TestEgressIsCut takes away from a server what it has open: a connection whose host is no longer allowed ends at once.
// The server itself is slow to end: it is not by its end that its connections end.
func TestEgressIsCut(t *testing.T) {
	if os.Getuid() != 0 {
		return
	}
	t.Parallel()
	c, in := startClients(t)
	w := in.tap(t, c.p.cmd.Process.Pid)
	var stopped sync.WaitGroup
	defer stopped.Wait()
	for _, tt := range []struct {
		name string
		port uint16
		ends bool // the server does as well
		act  func()
	}{
		{"by stopping the server", 7777, true, func() {
			stopped.Go(func() { c.p.command("stop", "clients") }) // answers when the server has ended
		}},
		{"by its declaration", 7777, false, func() {
			b, err := os.ReadFile(c.p.path("clients.hcl"))
			check(t, err)
			c.p.write("clients.hcl", strings.Replace(string(b), `"api.allowed.example:7777", `, "", 1))
		}},
		{"by the end of its declaration", 8443, true, func() {
			check(t, os.Remove(c.p.path("clients.hcl")))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if server(c.p.last(), "clients").State != control.Running {
				if _, stderr, code := c.p.command("start", "clients"); code != 0 {
					t.Fatalf("pfar start: %d, %s", code, stderr)
				}
				c.p.awaitRunning("clients")
			}
			target := netip.AddrPortFrom(netip.MustParseAddr(hostAddress), tt.port)
			open := c.hold(t, w, target)
			before := server(c.p.last(), "clients")
			program, _, ok := stat(before.PID)
			if !ok {
				t.Fatal("the server has no process")
			}
			mark, begin := w.mark(), time.Now()
			tt.act()
			for len(open) > 0 {
				var p packet
				p, mark = w.await(t, "the end of the connections", mark, func(p packet) bool {
					return p.to == target && p.flags&(flagFIN|flagRST) != 0 && open[p.source]
				})
				delete(open, p.source)
				if took := p.at.Sub(begin); took >= 5*time.Second { // when the server itself would be told to end
					t.Errorf("cut after %v", took)
				}
			}
			if !program.alive() {
				t.Error("the server has ended already, and its connections perhaps with it")
			}
			if !tt.ends {
				c.p.await("the edit", soon, func(r control.Report) bool { return len(server(r, "clients").Domains) < len(before.Domains) })
				if now := server(c.p.last(), "clients"); now.PID != before.PID || now.Since != before.Since || !program.alive() {
					t.Errorf("the edit has restarted the server: it is %+v", now)
				}
				return
			}
			c.p.await("the old server's end", soon, func(control.Report) bool { return !program.alive() })
		})
	}
}

// hold runs the holders, and returns the ports from which the connections come at the internet.
func (c *clients) hold(t *testing.T, w *wire, target netip.AddrPort) map[uint16]bool {
	t.Helper()
	to := c.p.client("/mcp")
	open, mark := map[uint16]bool{}, w.mark()
	for _, program := range holders {
		go to.call("clients__run", map[string]any{"argv": []string{"/usr/bin/python3", "-c", program, fmt.Sprint(target.Port())}}) // ends with its server
	}
	for len(open) < len(holders) {
		var p packet
		p, mark = w.await(t, "a connection", mark, func(p packet) bool { return p.to == target && p.payload > 0 && !open[p.source] })
		open[p.source] = true
	}
	return open
}
