package e2e

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Addresses that would be on the way to the real internet, and are on the wire as well.
const (
	googleAddress = "8.8.8.8"
	evilIPv6      = "2606:4700::1"
)

// packet is one that came over the wire from pfar's side.
type packet struct {
	protocol string // "tcp", "udp", or a number
	source   uint16 // port
	to       netip.AddrPort
	flags    byte // of TCP
	payload  int  // octets
	at       time.Time
}

const (
	flagFIN = 0x01
	flagSYN = 0x02
	flagRST = 0x04
	flagACK = 0x10
)

// flow is what a packet says of where something wants to go: "tcp 93.184.215.66:443". It is empty for the further
// packets of a connection.
func (p packet) flow() string {
	if p.protocol == "tcp" && p.flags&(flagSYN|flagACK) != flagSYN {
		return ""
	}
	return p.protocol + " " + p.to.String()
}

// wire is everything that pfar's side has sent to the internet's. Packets are taken where they arrive, so that it does
// not matter whether anybody listens at their destination.
type wire struct {
	near   int // process on pfar's side
	knocks int

	mu      sync.Mutex
	packets []packet
	err     error
	changed chan struct{} // closed and replaced at each packet
}

// tap watches what the process near, and all that runs with it, sends to the internet; and gives it a default route to
// there, so that whatever is sent anywhere would go over the wire.
func (in *world) tap(t *testing.T, near int) *wire {
	t.Helper()
	w := &wire{near: near, changed: make(chan struct{})}
	var socket int
	check(t, within(in.pid, func() (err error) {
		socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.ETH_P_ALL))))
		return err
	}))
	f := os.NewFile(uintptr(socket), "wire")
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.read(f)
	}()
	t.Cleanup(func() {
		f.Close()
		<-done
	})
	script := `set -e
far="nsenter --net=/proc/$2/ns/net ip" near="nsenter --net=/proc/$1/ns/net ip"
$far addr add ` + googleAddress + `/32 dev pfar1
$near route add default via ` + hostAddress + `
if [ -e /proc/net/if_inet6 ]; then
	$near addr add 2606:2800::13/64 dev pfar0 nodad
	$far addr add 2606:2800::14/64 dev pfar1 nodad
	$far addr add ` + evilIPv6 + `/128 dev pfar1 nodad
	$near route add default via 2606:2800::14 dev pfar0
fi`
	if out, err := exec.Command("sh", "-c", script, "sh", fmt.Sprint(near), fmt.Sprint(in.pid)).CombinedOutput(); err != nil {
		t.Fatalf("giving the wire its addresses: %v: %s", err, out)
	}
	return w
}

// within runs f in the network namespace of a process.
func within(pid int, f func() error) error {
	ended := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		ended <- func() error {
			ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
			if err != nil {
				return err
			}
			defer ns.Close()
			if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("entering the network namespace of %d: %w", pid, err)
			}
			return f()
		}()
	}()
	return <-ended
}

func (w *wire) read(f *os.File) {
	raw, err := f.SyscallConn()
	b := make([]byte, 64<<10)
	for err == nil {
		var n int
		var from unix.Sockaddr
		rerr := raw.Read(func(fd uintptr) bool {
			n, from, err = unix.Recvfrom(int(fd), b, 0)
			return !errors.Is(err, unix.EAGAIN)
		})
		if err = errors.Join(rerr, err); err == nil {
			w.add(b[:n], from)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
	close(w.changed)
	w.changed = nil
}

func (w *wire) add(b []byte, from unix.Sockaddr) {
	const loopback = 1 // index of lo, in every namespace
	link, ok := from.(*unix.SockaddrLinklayer)
	if !ok || link.Pkttype == unix.PACKET_OUTGOING || link.Ifindex == loopback {
		return
	}
	p, ok := parsePacket(b)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.packets = append(w.packets, p)
	close(w.changed)
	w.changed = make(chan struct{})
}

// parsePacket reads a packet of IP that is not the link's own business.
func parsePacket(b []byte) (p packet, ok bool) {
	p.at = time.Now()
	var number byte
	var to netip.Addr
	var rest []byte
	switch {
	case len(b) >= 20 && b[0]>>4 == 4:
		number, rest = b[9], b[min(len(b), int(b[0]&0xf)*4):min(len(b), int(binary.BigEndian.Uint16(b[2:])))]
		to, _ = netip.AddrFromSlice(b[16:20])
	case len(b) >= 40 && b[0]>>4 == 6:
		number, rest = b[6], b[40:]
		to, _ = netip.AddrFromSlice(b[24:40])
		if to.IsMulticast() || to.IsLinkLocalUnicast() || number == unix.IPPROTO_ICMPV6 { // neighbour discovery (RFC 4861)
			return p, false
		}
	default:
		return p, false // ARP
	}
	port := uint16(0)
	if len(rest) >= 4 {
		p.source, port = binary.BigEndian.Uint16(rest), binary.BigEndian.Uint16(rest[2:])
	}
	switch {
	case number == unix.IPPROTO_TCP && len(rest) >= 20:
		p.protocol, p.flags, p.payload = "tcp", rest[13], len(rest)-int(rest[12]>>4)*4
	case number == unix.IPPROTO_UDP && len(rest) >= 8:
		p.protocol, p.payload = "udp", len(rest)-8
	default:
		p.protocol, port = fmt.Sprint("protocol ", number), 0
	}
	p.to = netip.AddrPortFrom(to, port)
	return p, true
}

// await returns the first packet, from number from on, that meets a condition, and the next one's number.
func (w *wire) await(t *testing.T, what string, from int, met func(packet) bool) (packet, int) {
	t.Helper()
	timeout := time.NewTimer(soon)
	defer timeout.Stop()
	for {
		w.mu.Lock()
		packets, changed, err := w.packets, w.changed, w.err
		w.mu.Unlock()
		for ; from < len(packets); from++ {
			if met(packets[from]) {
				return packets[from], from + 1
			}
		}
		if err != nil {
			t.Fatalf("waiting for %s: the wire: %v", what, err)
		}
		select {
		case <-changed:
		case <-timeout.C:
			t.Fatalf("waiting for %s: not within %v", what, soon)
		}
	}
}

// mark is the number of the next packet.
func (w *wire) mark() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.packets)
}

// flows are where anything wanted to go up to now, sorted. A knock at the evil host's door comes last: it is seen after
// all that came before it, and that it is seen shows that the rest would have been.
func (w *wire) flows(t *testing.T) []string {
	t.Helper()
	w.knocks++
	door := net.JoinHostPort(evilAddress, fmt.Sprint(w.knocks))
	check(t, within(w.near, func() error {
		c, err := net.Dial("tcp", door)
		if err == nil {
			c.Close()
		} else if errors.Is(err, unix.ECONNREFUSED) {
			return nil
		}
		return err
	}))
	_, end := w.await(t, "the knock", 0, func(p packet) bool { return p.flow() == "tcp "+door })
	w.mu.Lock()
	defer w.mu.Unlock()
	var flows []string
	for _, p := range w.packets[:end] {
		if f := p.flow(); f != "" && (p.to.Addr().String() != evilAddress || int(p.to.Port()) > w.knocks) {
			flows = append(flows, f)
		}
	}
	slices.Sort(flows)
	return slices.Compact(flows)
}

// only fails the test if anything went elsewhere than to the name server and to those.
func (w *wire) only(t *testing.T, expected ...string) {
	t.Helper()
	for _, f := range w.flows(t) {
		if f != "udp "+resolveAddress+":53" && !slices.Contains(expected, f) {
			t.Errorf("a packet went to %s; only %s may be", f, strings.Join(expected, ", "))
		}
	}
}
