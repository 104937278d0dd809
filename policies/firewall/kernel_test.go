package firewall

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"golang.org/x/tools/txtar"

	"github.com/pfar/pfar/policies/egress"
)

func policy(t testing.TB, entries ...string) egress.Policy {
	t.Helper()
	var p egress.Policy
	for _, s := range entries {
		e, err := egress.ParseEndpoint(s)
		if err != nil {
			t.Fatal(err)
		}
		p.Endpoints = append(p.Endpoints, e)
	}
	return p
}

// many is a policy as long as a declaration can make it, of rules as long as they get.
func many() egress.Policy {
	var p egress.Policy
	for i := range 256 {
		a := netip.MustParseAddr("2001:db8::").As16()
		a[5], a[15] = byte(i), 1
		p.Endpoints = append(p.Endpoints, egress.Endpoint{Prefix: netip.PrefixFrom(netip.AddrFrom16(a), 127).Masked()})
	}
	return p
}

// Without capabilities everything ends in EPERM, and it is the first step that says so.
func TestWithoutCapabilities(t *testing.T) {
	// An id other than root's, and none that is ambient, leave nothing after execve(2).
	if !(namespace{uid: 65534}).runs(t) {
		return
	}
	_, err := Loopback()
	if !errors.Is(err, unix.EPERM) || err.Error() != "setting lo up: operation not permitted" {
		t.Errorf("Loopback: %v", err)
	}
	if err := Apply(egress.Policy{}.Ruleset()); !errors.Is(err, unix.EPERM) || !strings.HasPrefix(err.Error(), `loading table "pfar": `) {
		t.Errorf("Apply: %v", err)
	}
	if f, err := OpenLog(egress.LogGroup); !errors.Is(err, unix.EPERM) {
		t.Errorf("OpenLog: %v, %v", f, err)
	}
}

// The kernel, and nft(8) reading from it, have the last word on the goldens of policies/egress.
func TestApplyGoldens(t *testing.T) {
	if !likeAServer().runs(t) {
		return
	}
	files, err := filepath.Glob("../egress/testdata/*.txtar")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d golden files, %v", len(files), err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		a := txtar.Parse(b)
		if len(a.Files) != 2 || a.Files[0].Name != "allowed_domains" || a.Files[1].Name != "nft" {
			t.Fatalf("%s is no golden of a ruleset", file)
		}
		// Each takes the place of the one before.
		if err := Apply(policy(t, strings.Fields(string(a.Files[0].Data))...).Ruleset()); err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if got := nft(t, "list", "ruleset"); normal(got) != normal(string(a.Files[1].Data)) {
			t.Errorf("%s: the kernel has\n%s", file, got)
		}
	}
}

// normal leaves out how versions of nft(8) lay out the same rules.
func normal(s string) string {
	s = strings.ReplaceAll(s, "limit rate 20/second burst 50 packets", "limit rate 20/second burst 50") // the unit is left out by some
	return strings.Join(strings.Fields(s), " ")
}

func TestApplyTheLongest(t *testing.T) {
	if !likeAServer().runs(t) {
		return
	}
	want := many().Ruleset()
	for range 3 {
		if err := Apply(want); err != nil {
			t.Fatal(err)
		}
	}
	if got := nft(t, "list", "ruleset"); normal(got) != normal(want.String()) {
		t.Errorf("the kernel has\n%s", got)
	}
}

// What the kernel refuses is named, and leaves the table of before in place.
func TestApplyIsAllOrNothing(t *testing.T) {
	if !likeAServer().runs(t) {
		return
	}
	before := policy(t, "192.0.2.0/24:5432").Ruleset()
	if err := Apply(before); err != nil {
		t.Fatal(err)
	}
	bad := policy(t, "192.0.2.0/24:6432").Ruleset()
	misplaced := egress.Rule{Protocol: "tcp", Action: egress.Redirect, RedirectTo: 1} // only a nat chain has it
	bad.Chains[1].Rules = append([]egress.Rule{misplaced}, bad.Chains[1].Rules...)
	err := Apply(bad)
	if err == nil || !strings.Contains(err.Error(), `adding rule "meta l4proto tcp redirect to :1"`) {
		t.Errorf("Apply of a misplaced redirect: %v", err)
	}
	// More refusals than the socket has room for do not hide the first.
	bad.Chains[1].Rules = append([]egress.Rule{misplaced}, slices.Repeat([]egress.Rule{{Protocol: "udp", Action: egress.Redirect, RedirectTo: 2}}, 800)...)
	if err = Apply(bad); err == nil || !strings.Contains(err.Error(), `adding rule "meta l4proto tcp redirect to :1"`) {
		t.Errorf("Apply of many misplaced redirects: %v", err)
	}
	if got := nft(t, "list", "ruleset"); normal(got) != normal(before.String()) {
		t.Errorf("after a ruleset that was refused the kernel has\n%s", got)
	}
}

func TestLoopback(t *testing.T) {
	if !likeAServer().runs(t) {
		return
	}
	for range 2 { // to do it again changes nothing
		ipv6, err := Loopback()
		if err != nil || !ipv6 {
			t.Fatalf("Loopback: %v, %v", ipv6, err)
		}
		lo, err := net.InterfaceByName("lo")
		if err != nil {
			t.Fatal(err)
		}
		addresses, err := lo.Addrs()
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(addresses, func(a, b net.Addr) int { return strings.Compare(a.String(), b.String()) })
		if got, want := fmt.Sprint(addresses), "[127.0.0.1/8 198.18.0.1/15 2001:2::1/128 ::1/128]"; got != want {
			t.Errorf("lo has %s, want %s", got, want)
		}
	}
	for _, a := range []string{"127.0.0.1", "::1", "198.18.0.0", "198.18.0.1", "198.19.255.254", "2001:2::1"} {
		c, err := net.ListenPacket("udp", net.JoinHostPort(a, "0"))
		if err != nil {
			t.Errorf("%s is not local: %v", a, err)
			continue
		}
		c.Close()
	}
}

func TestLoopbackWithoutIPv6(t *testing.T) {
	if !likeAServer().runs(t) {
		return
	}
	for _, name := range []string{"all", "lo"} {
		// Of a namespace's network its administrator may write all.
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/disable_ipv6", []byte("1"), 0); err != nil {
			t.Fatal(err)
		}
	}
	if ipv6, err := Loopback(); ipv6 || err != nil {
		t.Errorf("Loopback: %v, %v", ipv6, err)
	}
	if err := Apply(egress.Policy{}.Ruleset()); err != nil {
		t.Error(err)
	}
	refuse(t, "tcp", "192.0.2.7:443")
	refuse(t, "udp", "192.0.2.7:443")
	if c, err := net.Dial("tcp", "[2001:db8::1]:443"); err == nil {
		t.Errorf("connected to %v", c.RemoteAddr())
	}
}

func TestOpenLogTwice(t *testing.T) {
	if !likeAServer().runs(t) {
		return
	}
	first, err := OpenLog(egress.LogGroup)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := OpenLog(egress.LogGroup); !errors.Is(err, unix.EPERM) {
		t.Errorf("a second reader of a group: %v, %v", second, err)
	}
	raw, err := first.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	_ = raw.Control(func(fd uintptr) {
		if flags, err := unix.FcntlInt(fd, unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK == 0 {
			t.Errorf("the socket's flags are %#x, %v", flags, err)
		}
		if flags, err := unix.FcntlInt(fd, unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("the descriptor's flags are %#x, %v", flags, err)
		}
	})
	first.Close()
	again, err := OpenLog(egress.LogGroup)
	if err != nil {
		t.Fatalf("after the first reader has closed: %v", err)
	}
	again.Close()
}

// All that a server waits for before it starts, each time in a new namespace.
func BenchmarkApply(b *testing.B) {
	for name, p := range map[string]egress.Policy{"usual": policy(b, "api.example.com", "192.0.2.0/24:5432"), "longest": many()} {
		b.Run(name, func(b *testing.B) {
			n := likeAServer()
			n.capabilities = append(n.capabilities, unix.CAP_SYS_ADMIN) // for unshare(2)
			if !n.runs(b, "-test.run=^$", "-test.bench=^"+strings.ReplaceAll(b.Name(), "/", "$/^")+"$", "-test.benchtime=100x", "-test.cpu=1") {
				return
			}
			runtime.LockOSThread() // and never unlocked: the thread ends with its namespace
			for b.Loop() {
				b.StopTimer()
				if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				if _, err := Loopback(); err != nil {
					b.Fatal(err)
				}
				if err := Apply(p.Ruleset()); err != nil {
					b.Fatal(err)
				}
				log, err := OpenLog(egress.LogGroup)
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				log.Close()
				b.StartTimer()
			}
		})
	}
}

// reportOf reports as b's what a benchmark printed in its namespace.
func reportOf(b *testing.B, out string) {
	b.Helper()
	m := regexp.MustCompile(`([0-9.]+) ns/op`).FindStringSubmatch(out)
	if m == nil {
		b.Fatal("no result in the namespace")
	}
	ns, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(ns, "ns/op")
}
