package firewall

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/policies/firewall/nflog"
)

// soon is far above what a busy machine needs.
const soon = 2 * time.Minute

// prepare does all that a server's namespace wants.
func prepare(t *testing.T, p egress.Policy) *os.File {
	t.Helper()
	start := time.Now()
	if ipv6, err := Loopback(); err != nil || !ipv6 {
		t.Fatalf("Loopback: %v, %v", ipv6, err)
	}
	up := time.Now()
	if err := Apply(p.Ruleset()); err != nil {
		t.Fatal(err)
	}
	applied := time.Now()
	log, err := OpenLog(egress.LogGroup)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("Loopback %v, Apply %v, OpenLog %v", up.Sub(start), applied.Sub(up), time.Since(applied))
	t.Cleanup(func() { log.Close() })
	return log
}

func listen(t *testing.T, address string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// originalDestination asks as the bridge does.
func originalDestination(t *testing.T, c net.Conn) netip.AddrPort {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	six := c.LocalAddr().(*net.TCPAddr).IP.To4() == nil
	var to netip.AddrPort
	var asked error
	err = raw.Control(func(fd uintptr) {
		if six {
			var m *unix.IPv6MTUInfo // begins with a sockaddr_in6, which is what is written
			if m, asked = unix.GetsockoptIPv6MTUInfo(int(fd), unix.SOL_IPV6, unix.SO_ORIGINAL_DST); asked == nil {
				port := m.Addr.Port<<8 | m.Addr.Port>>8
				to = netip.AddrPortFrom(netip.AddrFrom16(m.Addr.Addr), port)
			}
			return
		}
		var m *unix.IPv6Mreq // has the sixteen octets of a sockaddr_in
		if m, asked = unix.GetsockoptIPv6Mreq(int(fd), unix.SOL_IP, unix.SO_ORIGINAL_DST); asked == nil {
			a := m.Multiaddr
			to = netip.AddrPortFrom(netip.AddrFrom4([4]byte(a[4:8])), uint16(a[2])<<8|uint16(a[3]))
		}
	})
	if err = errors.Join(err, asked); err != nil {
		t.Fatalf("asking for the original destination: %v", err)
	}
	return to
}

func TestTrafficIsRedirected(t *testing.T) {
	n := likeAServer()
	n.capabilities = append(n.capabilities, unix.CAP_NET_BIND_SERVICE) // for the resolver's port
	if !n.runs(t) {
		return
	}
	prepare(t, policy(t, "192.0.2.0/24:5432", "127.0.0.1:11434", "[2001:db8::1]:443", "[::1]:6379", "127.0.0.0/8", "127.0.0.1:53", "127.0.0.1:9876", "127.0.0.1:9877", "198.0.0.0/8:25"))
	port := strconv.Itoa(egress.RedirectPort)
	four, six := listen(t, "127.0.0.1:"+port), listen(t, "[::1]:"+port)
	for _, c := range []struct {
		to string
		at net.Listener
	}{
		{"198.18.0.1:443", four}, {"198.18.0.2:443", four}, {"198.19.255.254:1", four}, {"[2001:2::1]:443", six}, {"[2001:2:0:ffff::7]:5432", six},
		{"192.0.2.7:5432", four}, {"[2001:db8::1]:443", six}, {"198.51.100.7:25", four},
		{"127.0.0.1:11434", four}, {"[::1]:6379", six}, {"127.0.0.1:443", four}, {"127.255.255.254:80", four},
		{"127.0.0.1:9877", four}, {"[::1]:9877", six}, // not redirected, and yet it is the original destination
	} {
		to := netip.MustParseAddrPort(c.to)
		client, err := net.DialTimeout("tcp", c.to, soon)
		if err != nil {
			t.Errorf("%s: %v", c.to, err)
			continue
		}
		server, err := c.at.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if got := originalDestination(t, server); got != to {
			t.Errorf("%s arrives as a connection to %s", to, got)
		}
		pingPong(t, client, server)
		client.Close()
		server.Close()
	}
	// The namespace's own, which literals above take in.
	for _, own := range []string{"127.0.0.1:53", "127.0.0.1:9876", "127.0.0.1:8080", "[::1]:8080"} {
		l := listen(t, own)
		client, err := net.DialTimeout("tcp", own, soon)
		if err != nil {
			t.Errorf("%s: %v", own, err)
			continue
		}
		server, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		pingPong(t, client, server)
		client.Close()
		server.Close()
	}
}

// pingPong sends 1 MiB each way.
func pingPong(t *testing.T, a, b net.Conn) {
	t.Helper()
	want := bytes.Repeat([]byte{1, 2, 3, 4}, 256<<10)
	for range 2 {
		go func() { _, _ = a.Write(want) }() // the reader tells
		got := make([]byte, len(want))
		if _, err := io.ReadFull(b, got); err != nil || !bytes.Equal(got, want) {
			t.Errorf("from %v to %v: %v", a.LocalAddr(), b.LocalAddr(), err)
		}
		a, b = b, a
	}
}

// refused is what no server may do, and how the log has it.
var refused = []struct{ network, to string }{
	{"tcp", "192.0.2.7:443"}, {"tcp", "192.0.2.7:5433"}, {"tcp", "1.1.1.1:443"}, {"tcp", "169.254.169.254:80"}, {"tcp", "10.0.0.1:22"},
	{"tcp", "[2001:db8::1]:80"}, {"tcp", "[2606:4700::1111]:443"}, {"tcp", "[fd00::1]:22"},
	{"udp", "8.8.8.8:53"}, {"udp", "198.18.0.2:443"}, {"udp", "192.0.2.7:5432"}, {"udp", "[2001:db8::1]:443"}, {"udp", "[2001:2::2]:443"}, {"udp", "[2606:4700::1111]:53"},
}

// refuse tries one of them.
func refuse(t *testing.T, network, to string) {
	t.Helper()
	want := []error{unix.ECONNREFUSED}
	c, err := net.DialTimeout(network, to, soon)
	if err == nil {
		defer c.Close()
		if network == "udp" { // connect(2) of a datagram socket sends nothing
			want = []error{unix.EPERM, unix.EACCES}
			_, err = c.Write([]byte("question"))
		}
	}
	if !slices.ContainsFunc(want, func(w error) bool { return errors.Is(err, w) }) {
		t.Errorf("%s to %s: %v, want %v", network, to, err, want)
	}
}

// next reads one datagram of the log.
func next(t *testing.T, log *os.File) []nflog.Packet {
	t.Helper()
	if err := log.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 64<<10)
	n, err := log.Read(b)
	if err != nil {
		t.Fatalf("reading the log: %v", err)
	}
	list, err := nflog.Parse(b[:n])
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestTrafficIsRefusedAtOnceAndLogged(t *testing.T) {
	if !likeAServer().runs(t) {
		return
	}
	log := prepare(t, policy(t, "192.0.2.0/24:5432", "[2001:db8::1]:443"))
	for _, r := range refused {
		refuse(t, r.network, r.to)
		want := []nflog.Packet{{Protocol: r.network, Destination: netip.MustParseAddrPort(r.to)}}
		if got := next(t, log); !slices.Equal(got, want) {
			t.Errorf("%s to %s is logged as %+v", r.network, r.to, got)
		}
	}
	udp, err := net.ListenPacket("udp", "127.0.0.1:0") // its own loopback is no business of the log
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	if _, err := udp.WriteTo([]byte("x"), udp.LocalAddr()); err != nil {
		t.Errorf("udp to its own loopback: %v", err)
	}
	if n, _, err := udp.ReadFrom(make([]byte, 1)); n != 1 {
		t.Errorf("udp to its own loopback does not arrive: %v", err)
	}
	refuse(t, "udp", "203.0.113.1:1")
	if got := next(t, log); len(got) != 1 || got[0].Destination != netip.MustParseAddrPort("203.0.113.1:1") {
		t.Errorf("after its own loopback the log has %+v", got)
	}
}

func TestASecondApplyReplaces(t *testing.T) {
	if !likeAServer().runs(t) {
		return
	}
	prepare(t, policy(t, "192.0.2.0/24:5432"))
	l := listen(t, "127.0.0.1:"+strconv.Itoa(egress.RedirectPort))
	connected := func(to string) bool {
		c, err := net.DialTimeout("tcp", to, soon)
		if err != nil {
			return false
		}
		defer c.Close()
		s, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
		return true
	}
	if !connected("192.0.2.7:5432") || connected("192.0.2.7:6432") {
		t.Error("the first ruleset is not in force")
	}
	if err := Apply(policy(t, "192.0.2.0/24:6432").Ruleset()); err != nil {
		t.Fatal(err)
	}
	if connected("192.0.2.7:5432") || !connected("192.0.2.7:6432") {
		t.Error("the second ruleset is not in force")
	}
}

// A flood of refused packets is told of in part only, and is not slowed down by a log that nobody reads.
func TestLogIsLimited(t *testing.T) {
	if !likeAServer().runs(t) {
		return
	}
	log := prepare(t, egress.Policy{})
	c, err := net.Dial("udp", "192.0.2.7:53")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	start := time.Now()
	for range 20_000 {
		if _, err := c.Write([]byte("flood")); err == nil {
			t.Fatal("a packet is not refused")
		}
	}
	took := time.Since(start)
	if took > time.Minute {
		t.Errorf("20,000 packets were refused in %v", took)
	}
	most := 50 + int(20*took.Seconds()) + 2
	n := 0
	b := make([]byte, 64<<10)
	raw, err := log.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for {
		// All of it is there already: each packet is logged before send(2) returns.
		var size int
		var rerr error
		if err := raw.Control(func(fd uintptr) { size, rerr = unix.Read(int(fd), b) }); err != nil {
			t.Fatal(err)
		}
		if rerr == unix.EAGAIN {
			break
		}
		if rerr != nil {
			t.Fatal(rerr)
		}
		list, err := nflog.Parse(b[:size])
		if err != nil {
			t.Fatal(err)
		}
		n += len(list)
	}
	t.Logf("%d packets logged of 20,000 in %v", n, took)
	if n < 50 || n > most {
		t.Errorf("%d packets are logged, want 50 to %d", n, most)
	}
}

// The log is read by a process that is neither in the namespace nor has any right over it.
func TestLogIsReadFromOutside(t *testing.T) {
	const theirs = 3
	to := netip.MustParseAddrPort("192.0.2.7:25")
	n := likeAServer()
	if os.Getenv(inside) == "" {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		ours, report := os.NewFile(uintptr(pair[0]), "ours"), os.NewFile(uintptr(pair[1]), "report")
		defer ours.Close()
		n.files = []*os.File{report}
		n.meanwhile = func() {
			report.Close()
			log := receive(t, pair[0])
			defer log.Close()
			if got := next(t, log); len(got) != 1 || got[0] != (nflog.Packet{Protocol: "tcp", Destination: to}) {
				t.Errorf("the log has %+v", got)
			}
		}
	}
	if !n.runs(t) {
		return
	}
	log := prepare(t, egress.Policy{})
	raw, err := log.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	_ = raw.Control(func(fd uintptr) { err = unix.Sendmsg(theirs, []byte{0}, unix.UnixRights(int(fd)), nil, 0) })
	if err != nil {
		t.Fatal(err)
	}
	log.Close()
	refuse(t, "tcp", to.String())
}

func receive(t *testing.T, socket int) *os.File {
	t.Helper()
	b, oob := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(socket, b, oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	m, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(m) != 1 {
		t.Fatalf("%d control messages, %v", len(m), err)
	}
	fds, err := unix.ParseUnixRights(&m[0])
	if err != nil || len(fds) != 1 {
		t.Fatalf("%d descriptors, %v", len(fds), err)
	}
	return os.NewFile(uintptr(fds[0]), "log")
}
