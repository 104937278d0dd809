package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units/attach"
)

// heldHost sets this in the process that is a host of its own: network, resolv.conf, and its part of the cgroups.
const heldHost = "PFAR_HELD_HOST"

// A real bridge and the kernel's firewall: what is declared is reached, a bridge that has been taken over reaches
// nothing else, and neither a start of pfard nor one of the bridge changes that.
func TestABridgeIsHeld(t *testing.T) {
	if os.Getenv(heldHost) != "" {
		bridgeIsHeld(t)
		return
	}
	top := "/sys/fs/cgroup/unified"
	if _, err := os.Stat(top); err != nil {
		top = "/sys/fs/cgroup"
	}
	root := filepath.Join(top, fmt.Sprintf("pfar-test-%d", os.Getpid()))
	if err := os.MkdirAll(filepath.Join(root, "pfar-egress.slice"), 0o755); err != nil {
		t.Skipf("making control groups: %v", err)
	}
	defer func() {
		for _, dir := range []string{"pfar-egress.slice/pfar-egress@notion.service", "pfar-egress.slice", ""} {
			eventually(t, "the end of a control group", func() bool {
				err := os.Remove(filepath.Join(root, dir))
				return err == nil || errors.Is(err, os.ErrNotExist)
			})
		}
	}()
	bridge := filepath.Join(t.TempDir(), "pfar-egress")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", bridge, "../pfar-egress")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building pfar-egress: %v\n%s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestABridgeIsHeld$", "-test.v", "-test.timeout=1m")
	cmd.Env = append(os.Environ(), heldHost+"="+root, "PFAR_BRIDGE="+bridge, "GORACE=atexit_sleep_ms=0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	out, err := cmd.CombinedOutput()
	t.Logf("on the machine:\n%s", out)
	if err != nil || !strings.Contains(string(out), "--- PASS: TestABridgeIsHeld") {
		t.Error(err)
	}
}

const (
	heldPlan = `{"name":"notion","file":"/etc/pfar/mcp.d/notion.hcl","egress":%s}`
	heldDNS  = "127.0.0.53:53"
)

type heldWorld struct {
	t      *testing.T
	dir    string
	policy egress.Policy
	proxy  *net.TCPListener
	h      *hold
	attach *net.UnixListener
	conns  chan *attach.Conn
	cmd    *exec.Cmd
	log    bytes.Buffer
}

func bridgeIsHeld(t *testing.T) {
	w := &heldWorld{t: t, dir: t.TempDir(), policy: policyOf(t, "api.example.com:5432", "db.example.com:5432"), conns: make(chan *attach.Conn, 10)}
	// All addresses are this host's own, so it is meant to be them.
	w.policy.Private = []egress.Private{
		{Host: "api.example.com", Prefixes: []netip.Prefix{netip.MustParsePrefix("93.184.216.34/32")}},
		{Host: "db.example.com", Prefixes: []netip.Prefix{netip.MustParsePrefix("93.184.216.35/32")}},
	}
	w.prepare()
	w.startPfard()
	w.startBridge()

	w.reaches("api.example.com:5432", "200")
	w.reaches("evil.example.com:5432", "403")
	w.rogue("refused", "10.0.0.1:22", "169.254.169.254:80", "93.184.216.36:5432", "93.184.216.34:80", "93.184.216.35:5432", "127.0.0.1:9876")
	w.rogue("connected", "93.184.216.34:5432")

	w.stopPfard()
	w.reaches("api.example.com:5432", "200")
	w.rogue("refused", "10.0.0.1:22", "93.184.216.35:5432")
	done := make(chan struct{})
	go func() { w.reaches("db.example.com:5432", "200"); close(done) }()
	time.Sleep(100 * time.Millisecond)
	w.startPfard()
	<-done
	w.rogue("connected", "93.184.216.34:5432", "93.184.216.35:5432")

	if out, err := exec.Command("/usr/sbin/nft", "flush", "ruleset").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	eventually(t, "the table again", func() bool { return exec.Command("/usr/sbin/nft", "list", "table", "inet", "pfar").Run() == nil })
	w.rogue("refused", "10.0.0.1:22")
	w.rogue("connected", "93.184.216.34:5432")

	w.stopBridge()
	w.startBridge()
	w.rogue("refused", "93.184.216.34:5432", "10.0.0.1:22")
	w.reaches("api.example.com:5432", "200")
	w.rogue("connected", "93.184.216.34:5432")
	w.stopBridge()
	w.stopPfard()
}

func (w *heldWorld) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatalf("%v\n%s", err, w.log.String())
	}
}

// prepare makes the host: addresses, name server, listeners.
func (w *heldWorld) prepare() {
	resolv := filepath.Join(w.dir, "resolv.conf")
	w.must(os.WriteFile(resolv, []byte("nameserver 127.0.0.53\n"), 0o644))
	target, err := filepath.EvalSymlinks("/etc/resolv.conf")
	w.must(err)
	w.must(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	w.must(unix.Mount(resolv, target, "", unix.MS_BIND, ""))
	ip := func(args ...string) {
		out, err := exec.Command("/sbin/ip", args...).CombinedOutput()
		if err != nil {
			w.t.Fatalf("ip %q: %v\n%s", args, err, out)
		}
	}
	ip("link", "set", "lo", "up")
	for _, a := range []string{"93.184.216.34", "93.184.216.35", "93.184.216.36", "10.0.0.1", "169.254.169.254"} {
		ip("address", "add", a+"/32", "dev", "lo")
		for _, port := range []string{"5432", "80", "22"} {
			l, err := net.Listen("tcp", net.JoinHostPort(a, port))
			w.must(err)
			go echoAll(l)
		}
	}
	c, err := net.ListenPacket("udp", heldDNS)
	w.must(err)
	go serveNames(c, map[string][4]byte{"api.example.com.": {93, 184, 216, 34}, "db.example.com.": {93, 184, 216, 35}})
	w.proxy, err = net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9876})
	w.must(err)
}

func echoAll(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			_, _ = io.Copy(c, c)
			c.Close()
		}()
	}
}

func serveNames(c net.PacketConn, names map[string][4]byte) {
	b := make([]byte, 512)
	for {
		n, from, err := c.ReadFrom(b)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(b[:n]) != nil || len(m.Questions) != 1 {
			continue
		}
		q := m.Questions[0]
		m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
		if a, ok := names[q.Name.String()]; ok && q.Type == dnsmessage.TypeA {
			m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 60}, Body: &dnsmessage.AResource{A: a}}}
		}
		if packed, err := m.Pack(); err == nil {
			_, _ = c.WriteTo(packed, from)
		}
	}
}

// startPfard is what pfard's attach server does with bridges.
func (w *heldWorld) startPfard() {
	var err error
	w.h, err = newHold(holdConfig{State: filepath.Join(w.dir, "hold.json"), ResolvConf: "/etc/resolv.conf", Log: slog.New(slog.NewTextHandler(&w.log, nil))})
	w.must(err)
	w.attach, err = net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(w.dir, "attach.sock"), Net: "unixpacket"})
	w.must(err)
	h, l := w.h, w.attach
	go func() {
		for {
			u, err := l.AcceptUnix()
			if err != nil {
				return
			}
			c := attach.Accepted(u)
			w.conns <- c
			go w.serveBridge(h, c)
		}
	}()
}

func (w *heldWorld) serveBridge(h *hold, c *attach.Conn) {
	defer c.Close()
	peer, err := c.Peer()
	if err != nil {
		return
	}
	if m, _, err := c.Receive(); err != nil || m.Hello == nil {
		return
	}
	b, why := h.Hello("notion", int(peer.Pid), w.policy)
	if why != "" {
		w.t.Errorf("the bridge is not held: %s", why)
	}
	_ = c.Send(attach.Message{Welcome: &attach.Welcome{Held: why}})
	for {
		m, _, err := c.Receive()
		if err != nil {
			break
		}
		if m.Allow != nil {
			go func() {
				answer := attach.Allowed{ID: m.Allow.ID}
				if err := b.Allow(*m.Allow); err != nil {
					answer.Error = err.Error()
				}
				_ = c.Send(attach.Message{Allowed: &answer})
			}()
		}
	}
	select {
	case <-h.done: // pfard has ended, not the bridge
	default:
		b.Gone()
	}
}

func (w *heldWorld) stopPfard() {
	w.h.close()
	w.attach.Close()
	for len(w.conns) > 0 {
		(<-w.conns).Close()
	}
}

func (w *heldWorld) cgroup() string {
	return filepath.Join(os.Getenv(heldHost), "pfar-egress.slice", "pfar-egress@notion.service")
}

// inCgroup has a command run as one of the bridge's unit.
func (w *heldWorld) inCgroup(cmd *exec.Cmd) func() {
	dir, err := os.Open(w.cgroup())
	w.must(err)
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd()), Pdeathsig: unix.SIGKILL}
	return func() { dir.Close() }
}

func (w *heldWorld) startBridge() {
	w.must(os.Mkdir(w.cgroup(), 0o755))
	policy, err := json.Marshal(w.policy)
	w.must(err)
	w.must(os.WriteFile(filepath.Join(w.dir, "plan"), fmt.Appendf(nil, heldPlan, policy), 0o600))
	f, err := w.proxy.File()
	w.must(err)
	defer f.Close()
	w.cmd = exec.Command(os.Getenv("PFAR_BRIDGE"), "--attach", filepath.Join(w.dir, "attach.sock"), "--idle", "0")
	w.cmd.Env = []string{"LISTEN_FDS=1", "LISTEN_FDNAMES=egress", "CREDENTIALS_DIRECTORY=" + w.dir}
	w.cmd.ExtraFiles = []*os.File{f}
	w.cmd.Stderr = os.Stderr
	defer w.inCgroup(w.cmd)()
	w.must(w.cmd.Start())
}

func (w *heldWorld) stopBridge() {
	w.must(w.cmd.Process.Signal(unix.SIGTERM))
	w.must(w.cmd.Wait())
	eventually(w.t, "the end of the bridge's cgroup", func() bool { return os.Remove(w.cgroup()) == nil })
}

// reaches asks the bridge for a tunnel, and exchanges a word if there is to be one.
func (w *heldWorld) reaches(target, status string) {
	w.t.Helper()
	c, err := net.DialTimeout("tcp", w.proxy.Addr().String(), 5*time.Second)
	w.must(err)
	defer c.Close()
	w.must(c.SetDeadline(time.Now().Add(2 * time.Minute)))
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target)
	b := make([]byte, 4096)
	n, err := c.Read(b)
	if got, _, _ := strings.Cut(strings.TrimPrefix(string(b[:n]), "HTTP/1.1 "), " "); err != nil || got != status {
		w.t.Errorf("%s: %q, %v, want %s\n%s", target, b[:n], err, status, w.log.String())
		return
	}
	if status != "200" {
		return
	}
	fmt.Fprint(c, "word")
	if _, err := io.ReadFull(c, b[:4]); err != nil || string(b[:4]) != "word" {
		w.t.Errorf("%s: through the tunnel comes %q, %v", target, b[:4], err)
	}
}

// rogue has another process of the bridge's unit connect.
func (w *heldWorld) rogue(want string, targets ...string) {
	w.t.Helper()
	for _, target := range targets {
		host, port, _ := strings.Cut(target, ":")
		cmd := exec.Command("/bin/bash", "-c", "exec 3<>/dev/tcp/"+host+"/"+port)
		closing := w.inCgroup(cmd)
		out, err := cmd.CombinedOutput()
		closing()
		got := "connected"
		if strings.Contains(string(out), "Connection refused") {
			got = "refused"
		} else if err != nil {
			got = string(out)
		}
		if got != want {
			w.t.Errorf("a process beside the bridge to %s: %s, want %s\n%s", target, got, want, w.log.String())
		}
	}
}
