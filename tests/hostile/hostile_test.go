package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/tests/doors"
)

// needsRoot is what an ordinary user cannot do even where nothing confines it.
var needsRoot = []string{
	"overwrite", "open-for-writing", "cgroup", "kernel-memory", "kernel-symbols", "kernel-log", "device", "file-handle",
	"socket-[!mu]*", "interfaces", "routes", "mount", "umount", "fsopen", "open-tree", "move-mount", "mount-setattr",
	"pivot-root", "chroot", "swapon", "process-vm-read", "bpf", "perf-event", "fanotify", "module", "kexec", "reboot", "set-time",
	"hostname", "root-user", "groups", "priority", "real-time", "clone*", "unshare-*", "setns-*", "capabilities",
	"host-root", "raise-limit", "oom-score", "environment-of-init", "environments",
}

// needsResource is what also root cannot do in a container without CAP_SYS_RESOURCE.
var needsResource = []string{"raise-limit", "oom-score"}

// lacking is how a kernel says that it was built, or set, without something; mayLack is what it may be without.
var (
	lacking = regexp.MustCompile(`not implemented|no such file|not supported|masked`)
	mayLack = []string{"kernel-memory", "kernel-symbols", "socket-crypto", "socket-vsock", "socket-mptcp", "socket-udplite", "asynchronous-io", "io-uring", "directory-notify", "extended-attribute", "userfaultfd", "bpf",
		"perf-event", "kexec", "module", "x32", "i386", "fanotify", "setns-time", "unshare-time"}
)

func matches(patterns []string, name string) bool {
	for _, p := range patterns {
		if ok, _ := filepath.Match(p, name); ok {
			return true
		}
	}
	return false
}

// TestHostileWorksUnconfined tries every attack with nothing in its way but namespaces that keep the host as it is.
// Each must say that it was not blocked: one that cannot succeed would prove nothing when it fails in a sandbox.
func TestHostileWorksUnconfined(t *testing.T) {
	binary := build(t)
	targets := unconfinedTargets(t)
	for _, a := range all(nil) {
		t.Run(a.Name, func(t *testing.T) {
			if os.Getuid() != 0 && matches(needsRoot, a.Name) {
				return // proved by the run as root
			}
			target, ok := targets[a.Name]
			if !ok && a.Target != "" {
				t.Fatalf("no target here for %q: %s", a.Name, a.Target)
			}
			if matches(needsResource, a.Name) && !holds(t, unix.CAP_SYS_RESOURCE) {
				t.Log("this root has no CAP_SYS_RESOURCE to lose")
				return
			}
			r := try(t, binary, a, target)
			switch {
			case r.Error != "":
				t.Errorf("could not be tried: %s", r.Error)
			case r.Blocked && matches(mayLack, a.Name) && lacking.MatchString(r.Detail):
				t.Logf("this kernel lacks it: %s", r.Detail)
			case r.Blocked:
				t.Errorf("blocked where nothing blocks it: %s", r.Detail)
			}
		})
	}
}

func TestUnknownAttack(t *testing.T) {
	var r report
	if err := json.Unmarshal(all(nil).run("no-such", ""), &r); err != nil || r.Error == "" || r.Blocked {
		t.Errorf("an unknown attack is reported as %+v, %v", r, err)
	}
	if err := json.Unmarshal(all(nil).run("read", ""), &r); err != nil || r.Error == "" || r.Blocked {
		t.Errorf("an attack without its target is reported as %+v, %v", r, err)
	}
}

func TestNamesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, a := range all(nil) {
		if seen[a.Name] {
			t.Errorf("two attacks are called %q", a.Name)
		}
		seen[a.Name] = true
	}
	if len(seen) <= 100 {
		t.Errorf("the README promises more than 100 attacks, and there are %d", len(seen))
	}
}

func build(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hostile")
	c := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", path, ".")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("building: %v\n%s", err, out)
	}
	return path
}

// surroundings are what an attack must find, in network and pid namespaces of its own.
var surroundings = map[string]string{
	"interfaces":          withInterface,
	"routes":              withInterface,
	"environment-of-init": withInit,
	"environments":        withInit,
}

const (
	withInterface = `ip link add pfar0 type veth peer name pfar1 && ip addr add 192.0.2.1/24 dev pfar0 && ip link set pfar0 up && exec "$@"`
	withInit      = `mount -t proc proc /proc && "$@"; exit $?` // the shell stays, as pid 1
)

// try runs one attack in a child with a terminal, one descriptor and one variable too many, and a socket for stdout.
func try(t *testing.T, binary string, a attack, target string) report {
	t.Helper()
	pty, tty := terminal(t)
	defer pty.Close()
	defer tty.Close()
	ours, theirs := socketpair(t)
	defer ours.Close()
	args := []string{binary, "-attack", a.Name, "-target", target}
	attr := &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if os.Getuid() == 0 {
		attr.Unshareflags = unix.CLONE_NEWNS | unix.CLONE_NEWUTS // Go makes the mounts private
		if script := surroundings[a.Name]; script != "" {
			attr.Cloneflags = unix.CLONE_NEWNET | unix.CLONE_NEWPID
			args = append([]string{"sh", "-c", script, "sh"}, args...)
		}
	}
	c := exec.Command(args[0], args[1:]...)
	c.Stdin, c.Stdout, c.SysProcAttr = tty, theirs, attr
	c.ExtraFiles = []*os.File{tty}
	c.Env = append(os.Environ(), "PFAR_HOSTILE=canary-in-the-environment")
	var stderr strings.Builder
	c.Stderr = &stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	var r report
	err := json.NewDecoder(ours).Decode(&r) // past the newline that a passed descriptor comes with
	if werr := c.Wait(); werr != nil || err != nil {
		t.Fatalf("%v, %v: %s", werr, err, stderr.String())
	}
	return r
}

func holds(t *testing.T, capability uint) bool {
	t.Helper()
	effective, err := field("CapEff")
	if err != nil {
		t.Fatal(err)
	}
	set, err := strconv.ParseUint(effective, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return set&(1<<capability) != 0
}

func terminal(t *testing.T) (pty, tty *os.File) {
	t.Helper()
	pty, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(pty.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(pty.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return pty, tty
}

func socketpair(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
}

// unconfinedTargets has something real behind each target, made for the test.
func unconfinedTargets(t *testing.T) map[string]string {
	t.Helper()
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("canary-in-a-file"), 0o600); err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})) // lets everything pass
	t.Cleanup(proxy.Close)
	t.Setenv("HTTPS_PROXY", proxy.URL)
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "pfar on this computer")
	}))
	t.Cleanup(page.Close)
	t.Setenv("PFAR_HOSTILE", "canary-in-the-environment")
	socket := filepath.Join(dir, "socket")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	door := t.TempDir()
	doors.Open(t, door)
	file := filepath.Join(door, "file")
	return map[string]string{
		"watch": filepath.Join(door, "watched"), "directory-notify": filepath.Join(door, "watched"), "fifo": filepath.Join(door, "fifo"),
		"unix-datagram": filepath.Join(door, "datagram"), "lease": filepath.Join(door, "lease"),
		"lock-flock": filepath.Join(door, "flock"), "lock-posix": filepath.Join(door, "posix"), "lock-ofd": filepath.Join(door, "ofd"),
		"extended-attribute": file, "access-time": file, "page-residency": file, "cached-read": file,
		"read": secret, "search": dir + " canary-in-a-file", "write": dir,
		"overwrite": "/proc/sys/kernel/core_pattern", "open-for-writing": "/proc/sys/kernel/core_pattern",
		"connect": proxy.Listener.Addr().String(), "unix": socket, "datagram": echoDatagrams(t), "resolve": "pfar.test.@" + nameServer(t),
		"page":          page.URL + "/x",
		"proxy-connect": "example.com:443", "proxy-get": "http://example.com/",
		"environment": "PATH", "environment-of-init": "PATH", "environments": "canary-in-the-environment",
		"signal": strconv.Itoa(os.Getpid()), "shared-memory": segment(t),
		"dump":      veiled("canary-in-the-environment"),
		"fork-bomb": "50", "disk-fill": dir + " 1048576", "memory": "1048576", "terminals": "100",
	}
}

// veiled is the target of the attack "dump".
func veiled(secret string) string {
	b := []byte(secret)
	for i := range b {
		b[i] ^= veil
	}
	return hex.EncodeToString(b)
}

func echoDatagrams(t *testing.T) string {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		b := make([]byte, 64)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			c.WriteTo(b[:n], from)
		}
	}()
	return c.LocalAddr().String()
}

// nameServer says of every name that it is 192.0.2.1.
func nameServer(t *testing.T) string {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
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
			m.Response, m.Additionals = true, nil
			if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
				m.Answers = []dnsmessage.Resource{{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class}, Body: &dnsmessage.AResource{A: [4]byte{192, 0, 2, 1}},
				}}
			}
			if answer, err := m.Pack(); err == nil {
				c.WriteTo(answer, from)
			}
		}
	}()
	return c.LocalAddr().String()
}

func segment(t *testing.T) string {
	t.Helper()
	key := 0x70660000 | os.Getpid()&0xffff
	id, err := unix.SysvShmGet(key, 4096, unix.IPC_CREAT|unix.IPC_EXCL|0o666)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.SysvShmCtl(id, unix.IPC_RMID, nil) })
	return strconv.Itoa(key)
}
