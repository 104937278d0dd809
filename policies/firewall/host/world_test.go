package host

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/egress"
)

const (
	inside  = "PFAR_HOST_TEST"   // set to a test's name in the process that runs it in its network namespace
	between = "PFAR_HOST_BOX"    // set to it in the process between, if there is one
	acting  = "PFAR_HOST_CLIENT" // set in a process that connects as it is told

	slice = "pfar-egress.slice"
	soon  = 2 * time.Minute
)

func TestMain(m *testing.M) {
	if os.Getenv(acting) != "" {
		act(os.Stdin, os.Stdout)
		return
	}
	os.Exit(m.Run())
}

// runs reports whether this is the process in the network namespace. Otherwise it has the calling test run in one.
func runs(t *testing.T) bool {
	t.Helper()
	return runsAs(t, inside, &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET})
}

// runsInContainer is like runs, with a cgroup namespace as well, whose root lies below the host's: it is where the
// process is that makes it, so another one is between.
func runsInContainer(t *testing.T) bool {
	t.Helper()
	if os.Getenv(inside) != "" {
		top, err := mount()
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
		if err == nil {
			err = unix.Unmount(top, unix.MNT_DETACH)
		}
		if err == nil {
			err = unix.Mount("cgroup2", top, "cgroup2", 0, "")
		}
		if err != nil {
			t.Fatal(err)
		}
		return true
	}
	if os.Getuid() != 0 {
		t.Skip("only root can make control groups")
	}
	top, err := mount()
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv(between) != "" {
		return runsAs(t, inside, &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP})
	}
	w := &world{t: t}
	box := filepath.Join(top, fmt.Sprintf("pfar-test-box-%d", os.Getpid()))
	if err := os.Mkdir(box, 0o755); err != nil {
		t.Fatal(err)
	}
	defer w.rmdir(box)
	dir, err := os.Open(box)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	return runsAs(t, between, &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())})
}

func runsAs(t *testing.T, as string, how *syscall.SysProcAttr) bool {
	t.Helper()
	if os.Getenv(inside) == t.Name() {
		return true
	}
	if os.Getuid() != 0 {
		t.Skip("only root can make control groups")
	}
	if _, err := mount(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "-test.run=^"+regexp.QuoteMeta(t.Name())+"$", "-test.v", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), as+"="+t.Name(), "GORACE=atexit_sleep_ms=0")
	how.Pdeathsig = unix.SIGKILL
	cmd.SysProcAttr = how
	out, err := cmd.CombinedOutput()
	t.Logf("in the namespace:\n%s", out)
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("the test did not run to its end: %v", err)
	}
	return false
}

// world is a host, in which all addresses are its own: what is let through arrives.
type world struct {
	t    testing.TB
	root string // the host's cgroups
}

const (
	declared  = "93.184.216.34"
	declared6 = "2606:2800:220:1::34"
	other     = "93.184.216.35"
	private   = "10.0.0.1"
	metadata  = "169.254.169.254"
	stub      = "127.0.0.53:53"
)

func newWorld(t testing.TB) *world {
	t.Helper()
	top, err := mount()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t, filepath.Join(top, fmt.Sprintf("pfar-test-%d", os.Getpid()))}
	run(t, "ip", "link", "set", "lo", "up")
	for _, a := range []string{declared, other, private, metadata} {
		run(t, "ip", "address", "add", a+"/32", "dev", "lo")
	}
	run(t, "ip", "address", "add", declared6+"/128", "dev", "lo", "nodad")
	for _, a := range []string{declared, other, private, metadata, declared6, "127.0.0.1"} {
		for _, port := range []string{"443", "80", "53"} {
			w.listen(net.JoinHostPort(a, port))
		}
	}
	w.listen(stub)
	for { // the kernel makes IPv6 addresses ready in the background
		if c, err := net.DialTimeout("tcp", net.JoinHostPort(declared6, "443"), time.Second); err == nil {
			c.Close()
			break
		}
	}
	for _, dir := range []string{w.root, filepath.Join(w.root, slice)} {
		w.mkdir(dir)
	}
	return w
}

// mkdir makes a cgroup for as long as the test runs.
func (w *world) mkdir(dir string) {
	w.t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { w.rmdir(dir) })
}

// rmdir waits for the kernel to let go of those that have ended.
func (w *world) rmdir(dir string) {
	w.t.Helper()
	var err error
	for range 200 {
		if err = os.Remove(dir); err == nil || errors.Is(err, os.ErrNotExist) {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	w.t.Error(err)
}

// listen answers on TCP, and echoes on UDP.
func (w *world) listen(address string) {
	w.t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { l.Close() })
	go serve(l)
	u, err := net.ListenPacket("udp", address)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { u.Close() })
	go func() {
		b := make([]byte, 100)
		for {
			n, from, err := u.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = u.WriteTo(b[:n], from)
		}
	}()
}

func serve(l net.Listener) {
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

// process stands in for a bridge, or for anybody else.
type process struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
	dir string
}

// start starts a process in a cgroup below the slice, or where it is about.
func (w *world) start(path ...string) *process {
	w.t.Helper()
	p := &process{t: w.t, cmd: exec.Command("/proc/self/exe"), dir: filepath.Join(append([]string{w.root}, path...)...)}
	if err := os.Mkdir(p.dir, 0o755); err != nil {
		w.t.Fatal(err)
	}
	dir, err := os.Open(p.dir)
	if err != nil {
		w.t.Fatal(err)
	}
	defer dir.Close()
	p.cmd.Env = append(os.Environ(), acting+"=1")
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	p.in, err = p.cmd.StdinPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	p.out = bufio.NewScanner(out)
	if err := p.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { w.stop(p) })
	return p
}

// stop ends a process, and its cgroup with it.
func (w *world) stop(p *process) {
	w.t.Helper()
	p.in.Close()
	_ = p.cmd.Wait() // the second time it is none
	w.rmdir(p.dir)
}

// bridge returns what the hold is to know of a process.
func (p *process) bridge(server string, to ...string) (b egress.Bridge, above egress.Cgroup) {
	p.t.Helper()
	b.Server = server
	var err error
	if b.Cgroup, above, err = Cgroups(p.cmd.Process.Pid, filepath.Base(p.dir), slice); err != nil {
		p.t.Fatal(err)
	}
	for _, s := range to {
		a := netip.MustParseAddrPort(s)
		b.Allowed = append(b.Allowed, egress.Allowed{Addr: a.Addr(), Port: a.Port(), Until: time.Now().Add(time.Minute)})
	}
	return b, above
}

// does has a process do something, and returns what came of it.
func (p *process) does(what string) string {
	p.t.Helper()
	fmt.Fprintln(p.in, what)
	if !p.out.Scan() {
		p.t.Fatalf("%q: the process is gone: %v", what, p.out.Err())
	}
	return p.out.Text()
}

// wants tries each of a list of "tcp ADDRESS:PORT", and the like.
func (p *process) wants(want string, list ...string) {
	p.t.Helper()
	for _, what := range list {
		got := p.does(what)
		refused := want == "refused" && (got == "connection refused" || got == "operation not permitted")
		if got != want && !refused {
			p.t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
}

// act does what each line says: "tcp ADDRESS" or "udp ADDRESS" exchanges a word, "listen ADDRESS"
// echoes there, "keep ADDRESS" leaves a connection open,
// "kept" exchanges a word over it, "apply" loads a table
// without having the right to.
func act(in io.Reader, out io.Writer) {
	lines := bufio.NewScanner(in)
	var kept net.Conn
	for lines.Scan() {
		what, to, _ := strings.Cut(lines.Text(), " ")
		var err error
		switch what {
		case "tcp", "udp":
			var c net.Conn
			if c, err = net.DialTimeout(what, to, soon); err == nil {
				err = word(c)
				c.Close()
			}
		case "listen":
			var l net.Listener
			if l, err = net.Listen("tcp", to); err == nil {
				go serve(l)
			}
		case "keep":
			kept, err = net.DialTimeout("tcp", to, soon)
		case "kept":
			err = word(kept)
		case "apply":
			var none [2]unix.CapUserData
			runtime.LockOSThread() // which has no capabilities any more
			if err = unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0]); err != nil {
				break
			}
			err = Apply(egress.Hold{Slice: egress.Cgroup{ID: 1, Level: 1}}, time.Now())
		}
		result := "ok"
		if errno := syscall.Errno(0); errors.As(err, &errno) {
			result = errno.Error()
		} else if err != nil {
			result = err.Error()
		}
		fmt.Fprintln(out, result)
	}
}

func word(c net.Conn) error {
	if err := c.SetDeadline(time.Now().Add(soon)); err != nil {
		return err
	}
	if _, err := c.Write([]byte("word")); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 4))
	return err
}

// run runs a program of the system.
func run(t testing.TB, name string, args ...string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		path = "/usr/sbin/" + name // not in an ordinary user's PATH on Debian
	}
	out, err := exec.Command(path, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}
