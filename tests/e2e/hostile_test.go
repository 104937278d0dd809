package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/tests/doors"
	"github.com/pfar/pfar/units/control"
)

// probe is one attack of tests/hostile with something real at its target, where a target is needed.
type probe struct{ attack, target string }

// report is what tests/hostile says of it.
type report struct {
	Attack  string `json:"attack"`
	Blocked bool   `json:"blocked"`
	Detail  string `json:"detail"`
	Error   string `json:"error"`
}

// expectedEnvironment is every variable that a server finds, whatever it declares.
const expectedEnvironment = "PATH,HOME,USER,LOGNAME,SHELL,LANG,LC_ALL,TZ,TERM,TMPDIR,PWD,XDG_RUNTIME_DIR,XDG_CACHE_HOME," +
	"HTTP_PROXY,HTTPS_PROXY,NO_PROXY,ALL_PROXY,http_proxy,https_proxy,no_proxy,all_proxy,NODE_USE_ENV_PROXY,NODE_EXTRA_CA_CERTS,SSL_CERT_FILE,SSL_CERT_DIR,npm_config_update_notifier"

// prey is what lies outside of the sandbox for the attacker to find.
type prey struct {
	canary   string // in files and variables of others
	tcp, udp string // listeners on the host's loopback
	page     string // the link of a one-time page
	abstract string
	socket   string
	segment  string
	files    []string
	doors    string // a folder that the attacker may read, where every kind of file leads to this process
	written  string // a folder that the attacker may write to, of which versions are kept
}

// TestHostile runs every attack in a sandbox with everything that it aims at really there, and none may succeed.
func TestHostile(t *testing.T) {
	t.Parallel()
	q := layOut(t)
	p := prepare(t, map[string]string{
		"victim.hcl": declare(program(t, "echo"), nil, fmt.Sprintf(`
auth    = { VICTIM_TOKEN = "vault:victim_token" }
env     = { VICTIM_SETTING = %q }
sandbox { state = true }`, q.canary)),
		"hostile.hcl": "allowed_domains = [\"allowed.test\"]\n" + declare(program(t, "hostile"), nil, fmt.Sprintf(
			"sandbox {\n  tasks_max = 128\n  read_only = [%q]\n  writable = [%q]\n}", q.doors, q.written)),
	})
	p.env = append(p.env, "PFAR_E2E_SECRET="+q.canary)
	p.up()
	p.await("victim waiting", soon, inState("victim", control.Waiting))
	p.stdin = q.canary + "\n"
	if _, stderr, code := p.command("vault", "set", "victim_token"); code != 0 {
		t.Fatalf("pfar vault set: %d: %s", code, stderr)
	}
	r := p.awaitRunning("victim", "hostile")
	victim, hostile := server(r, "victim"), server(r, "hostile")
	if hostile.UID == 0 || os.Getuid() == 0 && hostile.UID == victim.UID {
		t.Errorf("uids: hostile %d, victim %d", hostile.UID, victim.UID)
	}
	for _, d := range descendants(hostile.PID) {
		if uids := hostUIDs(t, d.pid); os.Getuid() == 0 && slices.Contains(uids, "0") {
			t.Errorf("%s has the uids %v on the host", d.name, uids)
		}
	}
	homeOfVictim := filepath.Join(p.state(), "home", "victim")
	put(t, filepath.Join(homeOfVictim, "secret.txt"), q.canary)

	c := p.client("/mcp/hostile")
	covered := map[string]bool{"memory": true, "dump": true} // TestMemoryLimit, TestBrokered
	for _, pr := range q.probes(p, homeOfVictim) {
		covered[pr.attack] = true
		t.Run(strings.TrimSpace(pr.attack+" "+pr.target), func(t *testing.T) {
			got := attack(t, c, pr)
			if got.Error != "" {
				t.Errorf("could not be tried: %s", got.Error)
			} else if !got.Blocked {
				t.Errorf("not blocked: %s", got.Detail)
			} else {
				t.Log(got.Detail)
			}
		})
	}
	for _, name := range attackNames(t, c) {
		if !covered[name] {
			t.Errorf("attack %q is not among the probes", name)
		}
	}
	now := p.last()
	for _, before := range []control.Server{victim, hostile} {
		if s := server(now, before.Name); s.State != control.Running || s.PID != before.PID {
			t.Errorf("after all attacks %s is %+v, before %+v", s.Name, s, before)
		}
	}
}

// hostUIDs are the real, effective, saved and file system uids of a process as the host's namespace sees them.
func hostUIDs(t *testing.T, pid int) []string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	check(t, err)
	_, after, _ := strings.Cut(string(b), "\nUid:")
	line, _, _ := strings.Cut(after, "\n")
	uids := strings.Fields(line)
	if len(uids) != 4 {
		t.Fatalf("uids of %d: %q", pid, line)
	}
	return uids
}

// layOut puts everything on the host that the attacks look for.
func layOut(t *testing.T) prey {
	t.Helper()
	q := prey{canary: "canary" + strings.ReplaceAll(marker(t), "-", ""), abstract: "@" + marker(t)}
	dir := directory(t, "")
	q.files = []string{filepath.Join(dir, "readable.txt")}
	put(t, q.files[0], q.canary) // readable by all: only the sandbox is in the way
	q.socket = filepath.Join(dir, "socket")
	for _, path := range []string{q.socket, q.abstract} {
		l, err := net.Listen("unix", path)
		check(t, err)
		t.Cleanup(func() { l.Close() })
	}
	check(t, os.Chmod(q.socket, 0o777))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	t.Cleanup(func() { l.Close() })
	q.tcp = l.Addr().String()
	u, err := net.ListenPacket("udp", "127.0.0.1:0")
	check(t, err)
	t.Cleanup(func() { u.Close() })
	go echoDatagrams(u)
	q.udp = u.LocalAddr().String()
	q.page = startPage(t, asks()).link
	q.doors = directory(t, "")
	doors.Open(t, q.doors)
	q.written = directory(t, "")
	check(t, os.Chmod(q.written, 0o777))
	put(t, filepath.Join(q.written, "note.txt"), "a note")
	key := 0x70660000 | os.Getpid()&0xffff
	id, err := unix.SysvShmGet(key, 4096, unix.IPC_CREAT|0o666)
	check(t, err)
	t.Cleanup(func() { unix.SysvShmCtl(id, unix.IPC_RMID, nil) })
	q.segment = strconv.Itoa(key)
	return q
}

func echoDatagrams(c net.PacketConn) {
	b := make([]byte, 64)
	for {
		n, from, err := c.ReadFrom(b)
		if err != nil {
			return
		}
		c.WriteTo(b[:n], from)
	}
}

// probes is every attack with every target worth trying.
func (q prey) probes(p *pfar, homeOfVictim string) []probe {
	_, port, _ := net.SplitHostPort(q.tcp)
	part := q.canary[:len(q.canary)/2] // the whole one is a secret of the vault's, and no argument
	list := []probe{
		{"search", "/ " + part}, {"homes", ""}, {"cgroup", ""}, {"kernel-memory", ""}, {"kernel-symbols", ""},
		{"descriptors", ""}, {"kernel-log", ""}, {"device", ""}, {"file-handle", ""}, {"datagram", q.udp}, {"datagram", "1.1.1.1:53"},
		{"resolve", "example.com."}, {"interfaces", ""}, {"routes", ""}, {"descriptor-passing", ""},
		{"shared-memory", q.segment}, {"environment", expectedEnvironment}, {"environment-of-init", expectedEnvironment},
		{"environments", part}, {"processes", ""}, {"signal", strconv.Itoa(os.Getpid())}, {"fork-bomb", "5000"}, {"terminals", "100"},
		{"disk-fill", "/tmp 8589934592"}, {"disk-fill", "/home/mcp 8589934592"}, {"disk-fill", "/dev/shm 8589934592"}, {"disk-fill", "/ 8589934592"},
	}
	add := func(attack string, targets ...string) {
		for _, target := range targets {
			list = append(list, probe{attack, target})
		}
	}
	add("read", slices.Concat([]string{"/etc/shadow", "/etc/gshadow", "/root", "/etc/ssh", "/etc/pfar", "/var/log", "/var/lib/pfar", "/boot",
		"/run/pfar", "/proc/kcore", "/proc/1/root/root", "/proc/1/cwd/root", "/proc/1/mem", "/dev/mem", "/dev/vda", "/dev/sda", "/sys/kernel/debug", "/sys/firmware",
		p.run, p.state(), p.declarations, homeOfVictim, filepath.Join(p.state(), "token"), filepath.Join(p.state(), "vault"),
		filepath.Join(p.state(), "log"), p.path("victim.hcl")}, q.files, q.kept(p))...)
	add("write", q.kept(p)...)
	add("open-for-writing", q.kept(p)...)
	add("write", "/", "/etc", "/usr", "/usr/bin", "/usr/lib", "/bin", "/lib", "/dev", "/sys", "/proc", "/proc/sys/kernel", "/sys/fs/cgroup", "/opt", "/var",
		"/run", "/home", "/root", "/boot", filepath.Dir(program(p.t, "hostile")), p.run, p.home)
	add("overwrite", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/vm/swappiness", "/proc/sys/net/ipv4/ip_forward", "/etc/passwd", "/etc/hosts", "/etc/resolv.conf")
	add("open-for-writing", "/proc/sysrq-trigger", "/proc/sys/vm/drop_caches", "/dev/kmsg", "/dev/mem", program(p.t, "hostile"))
	add("connect", q.tcp, "localhost:"+port, "[::1]:"+port, "169.254.169.254:80", "1.1.1.1:443", "[2606:4700:4700::1111]:443",
		"example.com:443", "10.0.0.1:22", "0.0.0.0:"+port)
	add("unix", q.abstract, q.socket, filepath.Join(p.run, "control.sock"), filepath.Join(p.run, "gateway.sock"), filepath.Join(p.run, "operator.sock"), filepath.Join(p.run, "servers.sock"),
		filepath.Join(q.doors, "socket"), "/run/dbus/system_bus_socket", "/run/systemd/private", "/run/systemd/notify", "/run/systemd/journal/stdout", "/run/docker.sock", "@/tmp/.X11-unix/X0")
	add("proxy-connect", "example.com:443", q.tcp, "localhost:"+port, "[::1]:"+port, "169.254.169.254:80", "2130706433:"+port, "0x7f.1:"+port,
		"allowed.test:22", "allowed.test:"+port, "sub.allowed.test:443", "allowed.test.evil.test:443", "evilallowed.test:443", "[::ffff:127.0.0.1]:"+port)
	add("proxy-get", "http://example.com/", "http://"+q.tcp+"/", "http://localhost:"+port+"/", "http://169.254.169.254/latest/meta-data/", "http://[::1]:"+port+"/")
	add("page", everyLink(q.page)...)
	for name, file := range map[string]string{"watch": "watched", "directory-notify": "watched", "fifo": "fifo", "unix-datagram": "datagram",
		"lease": "lease", "lock-flock": "flock", "lock-posix": "posix", "lock-ofd": "ofd", "extended-attribute": "file",
		"access-time": "file", "page-residency": "file", "cached-read": "file"} {
		add(name, filepath.Join(q.doors, file))
	}
	add("watch", "/usr/bin", "/usr/lib")
	add("read", "/proc/locks", "/proc/interrupts", "/proc/diskstats", "/proc/pressure", "/proc/cmdline", "/proc/vmstat", "/proc/partitions")
	for _, name := range []string{"icmp", "icmp6", "raw", "packet", "netlink", "crypto", "vsock", "mptcp", "udplite"} {
		add("socket-"+name, "")
	}
	for _, name := range []string{"user", "mnt", "net", "ipc", "uts", "pid", "cgroup", "time"} {
		add("unshare-"+name, "")
		add("setns-"+name, "")
	}
	for _, name := range []string{"mount", "umount", "fsopen", "open-tree", "move-mount", "mount-setattr", "pivot-root", "chroot", "swapon", "ptrace",
		"process-vm-read", "keyctl", "add-key", "request-key", "io-uring", "bpf", "perf-event", "userfaultfd", "fanotify", "personality",
		"tiocsti", "tiocsti-wide", "tioclinux", "terminal", "module", "kexec", "reboot", "set-time", "hostname", "root-user", "groups", "priority",
		"real-time", "clone-user", "clone3-user", "capabilities", "new-privileges", "unfiltered", "host-root", "parent-death-signal", "raise-limit", "core-limit", "set-user-id",
		"line-discipline", "asynchronous-io", "oom-score", "i386", "x32"} {
		add(name, "")
	}
	return list
}

// kept are the stores of what servers overwrite, and what is in them: the attacker's own too.
func (q prey) kept(p *pfar) []string {
	all := []string{filepath.Join(p.state(), "undo")}
	for _, name := range []string{"victim", "hostile"} {
		dir := filepath.Join(p.state(), "undo", name)
		for _, path := range []string{dir, filepath.Join(dir, "log"), filepath.Join(dir, "objects")} {
			if _, err := os.Stat(path); err != nil {
				p.t.Errorf("nothing is kept of %s: %v", name, err)
			}
			all = append(all, path)
		}
	}
	return all
}

func attack(t *testing.T, c *client, pr probe) report {
	t.Helper()
	var got report
	text := c.must("attack", map[string]any{"name": pr.attack, "target": pr.target})
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return got
}

func attackNames(t *testing.T, c *client) []string {
	t.Helper()
	var list []struct {
		Name string `json:"name"`
	}
	check(t, json.Unmarshal([]byte(c.must("attacks", map[string]any{})), &list))
	var names []string
	for _, a := range list {
		names = append(names, a.Name)
	}
	return names
}

// TestMemoryLimit wants the limit to hold, or the status to say that it does not.
func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	p := start(t, map[string]string{"hostile.hcl": declare(program(t, "hostile"), nil, `sandbox { memory_limit = "64m" }`)})
	limits := server(p.awaitRunning("hostile"), "hostile").Limits
	holds, fails, _ := strings.Cut(limits, "NOT held")
	switch {
	case strings.Contains(fails, "memory"):
		t.Logf("no cgroup for memory here, and the status says so: %s", limits)
	case !strings.Contains(holds, "memory 64 MiB"):
		t.Errorf("the status says nothing of memory: %q", limits)
	default:
		r, err := p.client("/mcp/hostile").call("attack", map[string]any{"name": "memory", "target": "268435456"})
		var got report
		if err == nil && (json.Unmarshal([]byte(r.text), &got) != nil || !got.Blocked) {
			t.Errorf("256 MiB under a limit of 64 MiB: %+v", r)
		}
	}
}

// TestPlantedLinks has a server prepare its home for the next start: whatever pfar, pfar-sandbox or bwrap makes or
// opens below it then goes elsewhere.
func TestPlantedLinks(t *testing.T) {
	t.Parallel()
	trap := directory(t, "")
	check(t, os.Chmod(trap, 0o777))
	put(t, filepath.Join(trap, "file"), "untouched")
	p := start(t, map[string]string{"hostile.hcl": declare(program(t, "hostile"), nil, `sandbox { state = true }`)})
	p.awaitRunning("hostile")
	if planted := p.client("/mcp/hostile").must("plant", map[string]any{"target": trap}); planted == "0" {
		t.Fatal("no link could be planted: the test tests nothing")
	}
	before := p.mark()
	if _, stderr, code := p.command("restart", "hostile"); code != 0 {
		t.Fatalf("pfar restart: %d: %s", code, stderr)
	}
	p.awaitFrom(before, "hostile again", soon, inState("hostile", control.Running))
	c := p.client("/mcp/hostile")
	if got := attack(t, c, probe{"write", trap}); !got.Blocked || got.Error != "" {
		t.Errorf("after a restart: %+v", got)
	}
	p.again()
	p.awaitRunning("hostile")
	entries, err := os.ReadDir(trap)
	check(t, err)
	b, err := os.ReadFile(filepath.Join(trap, "file"))
	if len(entries) != 1 || err != nil || string(b) != "untouched" {
		t.Errorf("the place that the links point to now holds %v, %q, %v", entries, b, err)
	}
}

// TestSwappedSource has the source of a bind inside a directory that the server may write, and the server puts a link
// in its place. Refusing such a declaration is as good as not following the link.
func TestSwappedSource(t *testing.T) {
	t.Parallel()
	outside, dir := directory(t, ""), directory(t, "")
	check(t, os.Chmod(dir, 0o777))
	put(t, filepath.Join(outside, "secret.txt"), "secret")
	sub := filepath.Join(dir, "sub")
	check(t, os.Mkdir(sub, 0o777))
	check(t, os.Chmod(sub, 0o777))
	text := declare(program(t, "hostile"), nil, fmt.Sprintf("sandbox {\n  writable  = [%q]\n  read_only = [%q]\n}", dir, sub))
	p := start(t, map[string]string{"hostile.hcl": text})
	r := p.await("hostile decided", soon, func(r control.Report) bool {
		s := server(r, "hostile").State
		return len(r.Diagnostics) > 0 || s == control.Running || s == control.Failed
	})
	if server(r, "hostile").State != control.Running {
		t.Logf("refused: %+v", r.Diagnostics)
	}
	// The worst that it could have done, were it running.
	check(t, os.Remove(sub))
	check(t, os.Symlink(outside, sub))
	p.again()
	r = p.await("hostile decided", soon, func(r control.Report) bool {
		s := server(r, "hostile").State
		return len(r.Diagnostics) > 0 || s == control.Running || s == control.Failed || s == control.BackOff
	})
	if server(r, "hostile").State != control.Running {
		return
	}
	c := p.client("/mcp/hostile")
	for _, path := range []string{outside, filepath.Join(sub, "secret.txt")} {
		if got := attack(t, c, probe{"read", path}); !got.Blocked || got.Error != "" {
			t.Errorf("reading %s: %+v", path, got)
		}
	}
}

// TestDescriptorsStay counts the bridge's descriptors while a server sends it some: the bridge keeps none.
func TestDescriptorsStay(t *testing.T) {
	t.Parallel()
	p := start(t, map[string]string{"hostile.hcl": "allowed_domains = [\"allowed.test\"]\n" + declare(program(t, "hostile"), nil, "")})
	p.awaitRunning("hostile")
	c := p.client("/mcp/hostile")
	attack(t, c, probe{"proxy-connect", "example.com:443"}) // starts the bridge, should it be lazy
	count := func() int {
		total := 0
		for _, d := range descendants(p.cmd.Process.Pid) {
			if d.name == "pfar-egress" {
				entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", d.pid))
				total += len(entries)
			}
		}
		return total
	}
	before := count()
	if before == 0 && os.Getuid() == 0 {
		t.Fatal("no bridge to count the descriptors of")
	}
	for range 20 {
		if got := attack(t, c, probe{"descriptor-passing", ""}); !got.Blocked {
			t.Fatalf("%+v", got)
		}
		attack(t, c, probe{"proxy-connect", "example.com:443"})
	}
	deadline := time.Now().Add(soon)
	for count() > before+2 { // closing a connection takes the bridge a moment
		if time.Now().After(deadline) {
			t.Fatalf("the bridge had %d descriptors, now %d", before, count())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestNoSandboxNoServer takes bwrap away: nothing weaker takes its place.
func TestNoSandboxNoServer(t *testing.T) {
	t.Parallel()
	p := prepare(t, map[string]string{"a.hcl": echo(t)})
	p.env = append(p.env, "PATH="+directory(t, "")) // the last one counts
	p.up()
	r := p.await("a decided", soon, func(r control.Report) bool {
		s := server(r, "a")
		return s.State == control.Running || s.State == control.Failed || s.State == control.BackOff || len(r.Diagnostics)+len(r.Notes) > 0 && s.State != control.Starting
	})
	if s := server(r, "a"); s.State == control.Running || s.Tools > 0 {
		t.Errorf("without bwrap it runs: %+v", s)
	}
	if text := fmt.Sprint(server(r, "a").Detail, r.Notes, r.Diagnostics); !strings.Contains(text, "bwrap") && !strings.Contains(text, "bubblewrap") {
		t.Errorf("nothing names what is missing: %s", text)
	}
}
