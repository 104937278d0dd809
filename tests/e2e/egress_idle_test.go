package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units/control"
)

// TestEgressTells refuses something on each way out, and has it told to the operator.
func TestEgressTells(t *testing.T) {
	if os.Getuid() != 0 {
		return
	}
	t.Parallel()
	c, _ := startClients(t)
	to := c.p.client("/mcp")
	for _, tt := range []struct {
		proxy bool
		argv  string
		told  string
	}{
		{false, "go tcp evil.example:7777", "refused evil.example (name-not-declared)"},
		{false, "go tcp api.allowed.example:22", "refused api.allowed.example:22 (port-not-declared)"},
		{false, "go tcp secret-lan.example:7777", "refused secret-lan.example:7777 (address-refused)"},
		{false, "node tls api.allowed.example:443 evil.example", "refused api.allowed.example:443 (sni-contradicts)"},
		{false, "node http http://api.allowed.example/ evil.example", "refused api.allowed.example:80 (host-contradicts)"},
		{false, "go tcp 93.184.215.66:443", "refused 93.184.215.66:443 (not-declared)"},
		{false, "go udp 8.8.8.8:53", "refused 8.8.8.8:53 (protocol-udp)"},
		{true, "go http https://evil.example/", "refused evil.example:443 (name-not-declared)"},
	} {
		mark := c.p.mark()
		c.run(to, tt.proxy, fields(tt.argv)...)
		c.p.awaitFrom(mark, tt.told, soon, func(r control.Report) bool { return server(r, "clients").LastRefusal == tt.told })
		for _, args := range [][]string{{"status"}, {"status", "clients"}} {
			if stdout, stderr, code := c.p.command(args...); code != 0 || !strings.Contains(stdout, tt.told) {
				t.Errorf("%s: pfar %s: %d, %s%s", tt.argv, strings.Join(args, " "), code, stdout, stderr)
			}
		}
	}
}

// TestEgressIdle has the bridge end, for whatever reason. The names keep their addresses, for programs keep them too.
func TestEgressIdle(t *testing.T) {
	if os.Getuid() != 0 {
		return
	}
	t.Parallel()
	c, _ := startClients(t)
	to := c.p.client("/mcp")
	known := map[string]string{}
	look := func(names ...string) {
		t.Helper()
		const program = "import socket, sys; print(*[socket.getaddrinfo(n, 443, socket.AF_INET)[0][4][0] for n in sys.argv[1:]])"
		wrote := c.run(to, false, append([]string{"/usr/bin/python3", "-c", program}, names...)...).Wrote
		addresses := strings.Fields(wrote)
		if len(addresses) != len(names) {
			t.Fatalf("%q have the addresses %q", names, wrote)
		}
		for i, name := range names {
			if before := known[name]; before != "" && before != addresses[i] {
				t.Errorf("%s had the address %s, and has %s", name, before, addresses[i])
			}
			for other, address := range known {
				if other != name && address == addresses[i] {
					t.Errorf("%s and %s have the address %s", name, other, address)
				}
			}
			known[name] = addresses[i]
		}
	}
	look("api.allowed.example", "a.wild.example", "b.wild.example")
	first := c.bridge(t)
	check(t, unix.Kill(first.pid, unix.SIGKILL))
	awaitGone(t, soon, []process{first})
	look("c.wild.example", "b.wild.example", "a.wild.example", "db.allowed.example")
	second := c.bridge(t)
	if second == first {
		t.Fatal("the bridge was not started again")
	}
	if got := c.run(to, false, "go", "http", "https://a.wild.example/"); !strings.Contains(got.Wrote, "200 hello from a.wild.example") {
		t.Errorf("with a new bridge: %q", got.Wrote)
	}
	begin := time.Now()
	check(t, awaitEnd(second.pid, 45*time.Second))
	if idle := time.Since(begin); idle < 25*time.Second {
		t.Errorf("the bridge ended after %v", idle)
	}
	look("d.wild.example", "b.wild.example", "a.wild.example", "c.wild.example", "api.allowed.example", "db.allowed.example")
	if third := c.bridge(t); third == second {
		t.Error("the bridge was not started again")
	}
	if got := c.run(to, false, "go", "http", "https://a.wild.example/"); !strings.Contains(got.Wrote, "200 hello from a.wild.example") {
		t.Errorf("after it was idle: %q", got.Wrote)
	}
}

// bridge is the one egress bridge.
func (c *clients) bridge(t *testing.T) process {
	t.Helper()
	all := slices.DeleteFunc(descendants(c.p.cmd.Process.Pid), func(p process) bool { return p.name != "pfar-egress" })
	if len(all) != 1 {
		t.Fatalf("bridges: %v", all)
	}
	return all[0]
}

// awaitEnd returns when a process has ended.
func awaitEnd(pid int, within time.Duration) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for deadline := time.Now().Add(within); ; {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(max(0, time.Until(deadline)).Milliseconds()))
		switch {
		case err == unix.EINTR:
		case err != nil:
			return err
		case n == 0:
			return fmt.Errorf("%d has not ended within %v", pid, within)
		default:
			return nil
		}
	}
}
