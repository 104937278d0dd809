package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/policies/firewall"
)

// namespaceVariable makes the test binary the one process of a server's namespace; it holds the policy.
const namespaceVariable = "PFAR_EGRESS_NAMESPACE"

// namespace is a network namespace as a server has it, with the ruleset of the kernel, and a process in it that opens
// connections for the test.
type namespace struct {
	t    testing.TB
	mu   sync.Mutex
	conn *net.UnixConn
}

// inside serves w's proxy, resolver and log on the sockets of a namespace of its own.
func (w *world) inside() *namespace {
	w.t.Helper()
	policy, err := json.Marshal(w.proxy.policy)
	if err != nil {
		w.t.Fatal(err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "ours"), os.NewFile(uintptr(pair[1]), "theirs")
	defer ours.Close()
	defer theirs.Close()
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), namespaceVariable+"="+string(policy))
	c.ExtraFiles = []*os.File{theirs}
	c.Stderr = os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}},
		AmbientCaps: []uintptr{unix.CAP_NET_ADMIN, unix.CAP_NET_BIND_SERVICE},
	}
	if err := c.Start(); err != nil {
		w.t.Fatal(err)
	}
	conn, err := net.FileConn(ours)
	if err != nil {
		w.t.Fatal(err)
	}
	n := &namespace{t: w.t, conn: conn.(*net.UnixConn)}
	w.t.Cleanup(func() {
		conn.Close() // and the process ends
		_ = c.Wait()
	})
	text, files := n.receive()
	if text != "sockets" {
		w.t.Fatalf("the namespace says %q", text)
	}
	var in sockets
	for _, f := range files {
		if err := in.add(f); err != nil {
			w.t.Fatal(err)
		}
		f.Close()
	}
	w.serve(&service{sources: w.proxy.sources(in, w.table), log: slog.New(slog.DiscardHandler)})
	return n
}

// receive reads one message and what came with it.
func (n *namespace) receive() (string, []*os.File) {
	n.t.Helper()
	b, oob := make([]byte, 4096), make([]byte, unix.CmsgSpace(4*16))
	size, oobn, _, _, err := n.conn.ReadMsgUnix(b, oob)
	if err != nil {
		n.t.Fatal(err)
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		n.t.Fatal(err)
	}
	var files []*os.File
	for i := range msgs {
		fds, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			n.t.Fatal(err)
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "inside"))
		}
	}
	return string(b[:size]), files
}

// dial connects from inside: what the program in the sandbox sees.
func (n *namespace) dial(network, address string) (net.Conn, error) {
	n.t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, err := n.conn.Write([]byte(network + " " + address)); err != nil {
		n.t.Fatal(err)
	}
	text, files := n.receive()
	if len(files) == 0 {
		return nil, errors.New(text)
	}
	defer files[0].Close()
	c, err := net.FileConn(files[0])
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		n.t.Fatal(err)
	}
	return c, nil
}

// open is dial for what has to be there.
func (n *namespace) open(address string) *net.TCPConn {
	n.t.Helper()
	c, err := n.dial("tcp", address)
	if err != nil {
		n.t.Fatalf("connecting to %s: %v", address, err)
	}
	return c.(*net.TCPConn)
}

// runNamespace is the process in the namespace.
func runNamespace(policy string) error {
	var p egress.Policy
	if err := json.Unmarshal([]byte(policy), &p); err != nil {
		return err
	}
	f := os.NewFile(3, "parent")
	c, err := net.FileConn(f)
	if err != nil {
		return err
	}
	conn := c.(*net.UnixConn)
	files, err := namespaceSockets(p)
	if err != nil {
		return err
	}
	if err := pass(conn, "sockets", files...); err != nil {
		return err
	}
	for {
		b := make([]byte, 4096)
		n, err := conn.Read(b)
		if err != nil || n == 0 {
			return nil
		}
		network, address, _ := strings.Cut(string(b[:n]), " ")
		text, files := "connected", []*os.File(nil)
		opened, err := net.DialTimeout(network, address, 20*time.Second)
		if err != nil {
			text = err.Error()
		} else if f, err := opened.(interface{ File() (*os.File, error) }).File(); err == nil {
			opened.Close()
			files = append(files, f)
		}
		if err := pass(conn, text, files...); err != nil {
			return err
		}
		for _, f := range files {
			f.Close()
		}
	}
}

func namespaceSockets(p egress.Policy) ([]*os.File, error) {
	ipv6, err := firewall.Loopback()
	if err != nil {
		return nil, err
	}
	if err := firewall.Apply(p.Ruleset()); err != nil {
		return nil, err
	}
	log, err := firewall.OpenLog(egress.LogGroup)
	if err != nil {
		return nil, err
	}
	files := []*os.File{log}
	addresses := []string{fmt.Sprintf("127.0.0.1:%d", egress.ProxyPort), fmt.Sprintf("127.0.0.1:%d", egress.RedirectPort), fmt.Sprintf("127.0.0.1:%d", egress.ResolverPort)}
	if ipv6 {
		addresses = append(addresses, fmt.Sprintf("[::1]:%d", egress.RedirectPort))
	}
	for _, a := range addresses {
		l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.MustParseAddrPort(a)))
		if err != nil {
			return nil, err
		}
		f, err := l.File()
		if err != nil {
			return nil, err
		}
		l.Close()
		files = append(files, f)
	}
	u, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: egress.ResolverPort})
	if err != nil {
		return nil, err
	}
	defer u.Close()
	uf, err := u.File()
	return append(files, uf), err
}

func pass(conn *net.UnixConn, text string, files ...*os.File) error {
	var fds []int
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	_, _, err := conn.WriteMsgUnix([]byte(text), unix.UnixRights(fds...), nil)
	return err
}

// lookup asks the resolver inside for a name's IPv4 address, over UDP.
func (n *namespace) lookup(name string) string {
	n.t.Helper()
	c, err := n.dial("udp", fmt.Sprintf("127.0.0.1:%d", egress.ResolverPort))
	if err != nil {
		n.t.Fatal(err)
	}
	defer c.Close()
	q := new(dns.Msg)
	q.SetQuestion(dns.Fqdn(name), dns.TypeA)
	client := dns.Client{Timeout: 5 * time.Second}
	r, _, err := client.ExchangeWithConn(q, &dns.Conn{Conn: c})
	switch {
	case err != nil:
		n.t.Fatal(err)
	case r.Rcode != dns.RcodeSuccess:
		return dns.RcodeToString[r.Rcode]
	case len(r.Answer) != 1:
		return fmt.Sprintf("%d answers", len(r.Answer))
	}
	return r.Answer[0].(*dns.A).A.String()
}
