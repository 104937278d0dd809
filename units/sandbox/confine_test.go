package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// roleVariable makes this test binary the program in the sandbox.
const roleVariable = "PFAR_TEST_ROLE"

// nobody is the user that a server is on the host in these tests.
const nobody = 65534

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "":
		// What whoever runs the tests left open is none of a server's, as the launcher has it.
		if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
			panic(err)
		}
		os.Exit(m.Run())
	case "probe":
		probe()
	}
}

// probe tries what must not work, and prints what came of it.
func probe() {
	result := map[string]string{"descriptors": strings.Join(descriptors(), " ")}
	note := func(name string, err error) {
		result[name] = "ok"
		var e unix.Errno
		if errors.As(err, &e) {
			result[name] = unix.ErrnoName(e)
		} else if err != nil {
			result[name] = err.Error()
		}
	}
	system := func(name string, number uintptr, args ...uintptr) {
		args = append(args, 0, 0, 0, 0, 0, 0)
		_, _, e := unix.Syscall6(number, args[0], args[1], args[2], args[3], args[4], args[5])
		if e != 0 {
			note(name, e)
		} else {
			note(name, nil)
		}
	}
	note("unshare", unix.Unshare(unix.CLONE_NEWUSER))
	system("clone", unix.SYS_CLONE, unix.CLONE_NEWUSER|uintptr(unix.SIGCHLD))
	system("clone3", unix.SYS_CLONE3)
	note("mount", unix.Mount("none", "/tmp", "tmpfs", 0, ""))
	system("ptrace", unix.SYS_PTRACE)
	system("io_uring", unix.SYS_IO_URING_SETUP)
	system("bpf", unix.SYS_BPF)
	system("keyctl", unix.SYS_KEYCTL)
	system("tiocsti", unix.SYS_IOCTL, 0, 0x1_0000_5412)
	system("newer", 470)
	for name, s := range map[string][3]int{
		"inet": {unix.AF_INET, unix.SOCK_STREAM, 0}, "packet": {unix.AF_PACKET, unix.SOCK_RAW, 0},
		"alg": {unix.AF_ALG, unix.SOCK_SEQPACKET, 0}, "route": {unix.AF_NETLINK, unix.SOCK_RAW, 0},
		"netfilter": {unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER},
	} {
		_, err := unix.Socket(s[0], s[1], s[2])
		note("socket-"+name, err)
	}
	for _, path := range []string{"/x", "/etc/x", "/usr/x", "/dev/x", "/proc/sys/kernel/hostname", "/tmp/x", "/data/x", "/home/mcp/x"} {
		note("write "+path, os.WriteFile(path, []byte("x"), 0o600))
	}
	for _, path := range []string{"/etc/shadow", "/root", "/home/mcp/../../work"} {
		_, err := os.Stat(path)
		note("stat "+path, err)
	}
	_, err := exec.Command("/bin/true").CombinedOutput()
	note("exec", err)
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if k, v, _ := strings.Cut(line, ":"); strings.HasPrefix(k, "Cap") || k == "NoNewPrivs" || k == "Seccomp" {
			result[k] = strings.TrimSpace(v)
		}
	}
	host, _ := os.Hostname()
	dir, _ := os.Getwd()
	result["uid"], result["gid"], result["hostname"], result["dir"] = strconv.Itoa(os.Getuid()), strconv.Itoa(os.Getgid()), host, dir
	environment := os.Environ()
	slices.Sort(environment)
	result["environment"] = strings.Join(environment, " ")
	json.NewEncoder(os.Stdout).Encode(result)
}

// descriptors are those that this process was started with.
func descriptors() []string {
	fds, _ := os.ReadDir("/proc/self/fd")
	var open []string
	for _, f := range fds {
		target, err := os.Readlink("/proc/self/fd/" + f.Name())
		if err == nil && !strings.HasPrefix(target, "anon_inode:") && !strings.HasPrefix(target, "/proc/") { // the runtime's own
			open = append(open, f.Name())
		}
	}
	return open
}

// typical is a sandbox of the shape that the compiler makes.
func typical(t *testing.T, command string) Sandbox {
	t.Helper()
	const mib = 1 << 20
	s := Sandbox{
		Mounts: []Mount{
			{Kind: Tmpfs, Dest: "/", Size: mib},
			{Kind: ROBind, Source: "/usr", Dest: "/usr"},
			{Kind: Tmpfs, Dest: "/etc", Size: mib},
			{Kind: Data, Dest: "/etc/passwd", Text: "mcp:x:1000:1000::/home/mcp:/bin/sh\n"},
			{Kind: Proc, Dest: "/proc"},
			{Kind: ROBind, Source: "/proc/sys", Dest: "/proc/sys"},
			{Kind: Dev, Dest: "/dev"},
			{Kind: Tmpfs, Dest: "/dev/shm", Size: mib, Perms: 0o1777},
			{Kind: Tmpfs, Dest: "/tmp", Size: mib, Perms: 0o1777},
			{Kind: Dir, Dest: "/run"},
			{Kind: Dir, Dest: "/home"},
			{Kind: Tmpfs, Dest: "/home/mcp", Size: mib, Perms: 0o700},
		},
		Env:     []Env{{Name: "PATH", Value: "/usr/bin:/bin"}, {Name: "TOKEN", Credential: "TOKEN"}},
		Command: command, Dir: "/home/mcp", Hostname: "typical", Limits: Limits{Memory: 256 << 20, Tasks: 64},
	}
	for _, link := range []string{"/bin", "/lib", "/lib64", "/sbin"} {
		if text, err := os.Readlink(link); err == nil {
			s.Mounts = append(s.Mounts, Mount{Kind: Symlink, Source: text, Dest: link})
		} else if _, err := os.Stat(link); err == nil {
			s.Mounts = append(s.Mounts, Mount{Kind: ROBind, Source: link, Dest: link})
		}
	}
	return s
}

// sealed adds what comes last.
func sealed(s Sandbox) Sandbox {
	s.Mounts = append(s.Mounts, Mount{Kind: Remount, Dest: "/etc"}, Mount{Kind: Remount, Dest: "/dev"}, Mount{Kind: Remount, Dest: "/"})
	return s
}

// confine runs a sandbox as the launcher does, but in the network namespace that the test has.
func confine(t *testing.T, s Sandbox) (stdout, stderr string, err error) {
	t.Helper()
	bwrap, err := exec.LookPath("bwrap")
	if err != nil {
		t.Fatalf("this test needs bubblewrap (apt install bubblewrap): %v", err)
	}
	const first = 4
	var files []*os.File
	pass := func(f *os.File) int {
		t.Cleanup(func() { f.Close() })
		files = append(files, f)
		return first + len(files) - 1
	}
	o := Options{BindFD: map[int]int{}, DataFD: map[int]int{}, Credentials: map[string][]byte{"TOKEN": []byte("token of the test")}}
	filter, err := Seccomp(runtime.GOARCH)
	if err != nil {
		t.Fatal(err)
	}
	o.SeccompFD = pass(memory(t, filter))
	status, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	o.StatusFD = pass(status)
	for i, m := range s.Mounts {
		switch m.Kind {
		case ROBind, Bind:
			fd, err := unix.Open(m.Source, unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
			if err != nil {
				t.Fatalf("%s: %v", m.Source, err)
			}
			o.BindFD[i] = pass(os.NewFile(uintptr(fd), m.Source))
		case Data:
			o.DataFD[i] = pass(memory(t, []byte(m.Text)))
		}
	}
	args, err := s.Arguments(o)
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(bwrap, append([]string{"--args", "3", "--", s.Command}, s.Args...)...)
	c.ExtraFiles = append([]*os.File{memory(t, args)}, files...)
	c.Env, c.Dir = []string{}, "/"
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if os.Getuid() == 0 { // a server is never root on the host
		c.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	err = c.Run()
	return out.String(), errs.String(), err
}

func memory(t *testing.T, b []byte) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "test")
	t.Cleanup(func() { f.Close() })
	if _, err := f.Write(b); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Seek(0, 0); err != nil {
		t.Fatal(err)
	}
	return f
}

// self is a copy of this test binary where any user may reach it, bound into a sandbox.
func self(t *testing.T) (Sandbox, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "pfar-sandbox-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	b, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "program")
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, b, 0o755); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(data, 0o777); err != nil {
		t.Fatal(err)
	}
	s := typical(t, "/opt/program")
	s.Mounts = append(s.Mounts, Mount{Kind: ROBind, Source: program, Dest: "/opt/program"}, Mount{Kind: Bind, Source: data, Dest: "/data"})
	return s, data
}

func TestConfinement(t *testing.T) {
	s, data := self(t)
	s.Env = append(s.Env, Env{Name: roleVariable, Value: "probe"})
	stdout, stderr, err := confine(t, sealed(s))
	if err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	got := map[string]string{}
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatalf("%v: %s", err, stdout)
	}
	want := map[string]string{
		"unshare": "EPERM", "clone": "EPERM", "clone3": "ENOSYS", "mount": "EPERM", "ptrace": "EPERM", "io_uring": "EPERM", "bpf": "EPERM",
		"keyctl": "EPERM", "tiocsti": "EPERM", "newer": "ENOSYS", "exec": "ok",
		"socket-inet": "ok", "socket-packet": "EAFNOSUPPORT", "socket-alg": "EAFNOSUPPORT", "socket-route": "ok", "socket-netfilter": "EAFNOSUPPORT",
		"write /x": "EROFS", "write /etc/x": "EROFS", "write /usr/x": "EROFS", "write /dev/x": "EROFS", "write /proc/sys/kernel/hostname": "EROFS",
		"write /tmp/x": "ok", "write /data/x": "ok", "write /home/mcp/x": "ok",
		"stat /etc/shadow": "ENOENT", "stat /root": "ENOENT", "stat /home/mcp/../../work": "ENOENT",
		"CapInh": strings.Repeat("0", 16), "CapPrm": strings.Repeat("0", 16), "CapEff": strings.Repeat("0", 16), "CapBnd": strings.Repeat("0", 16),
		"CapAmb": strings.Repeat("0", 16), "NoNewPrivs": "1", "Seccomp": "2",
		"uid": "1000", "gid": "1000", "hostname": "typical", "dir": "/home/mcp", "descriptors": "0 1 2",
		"environment": "PATH=/usr/bin:/bin PFAR_TEST_ROLE=probe PWD=/home/mcp TOKEN=token of the test",
	}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s: %q, want %q", k, got[k], v)
		}
	}
	if b, err := os.ReadFile(filepath.Join(data, "x")); err != nil || string(b) != "x" {
		t.Errorf("what was written to /data is not in its source: %q, %v", b, err)
	}
}

// What servers need goes on working: threads, children, sockets, timers, interfaces, shared memory.
func TestNodeRuns(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatalf("this test needs node: %v", err)
	}
	if node, err = filepath.EvalSymlinks(node); err != nil {
		t.Fatal(err)
	}
	s := typical(t, node)
	if !Below(node, "/usr") {
		s.Mounts = append(s.Mounts, Mount{Kind: ROBind, Source: node, Dest: node})
	}
	s.Args = []string{"-e", `
const os = require('os'), net = require('net'), fs = require('fs'), {Worker} = require('worker_threads'), {execFileSync} = require('child_process');
const seen = {interfaces: Object.keys(os.networkInterfaces()).length >= 0, user: os.userInfo().username, cpus: os.cpus().length > 0};
seen.child = execFileSync('/bin/sh', ['-c', 'echo child']).toString().trim();
const watcher = fs.watch('/tmp');
const server = net.createServer(c => c.end('hello')).listen(0, '127.0.0.1', () => {
  net.connect(server.address().port, '127.0.0.1').on('data', d => {
    seen.socket = d.toString();
    new Worker('require("worker_threads").parentPort.postMessage(new SharedArrayBuffer(8).byteLength)', {eval: true}).on('message', m => {
      seen.worker = m;
      server.close(); watcher.close();
      console.log(JSON.stringify(seen));
    });
  });
});`}
	stdout, stderr, err := confine(t, sealed(s))
	const want = `{"interfaces":true,"user":"mcp","cpus":true,"child":"child","socket":"hello","worker":8}` + "\n"
	if err != nil || stdout != want || stderr != "" {
		t.Errorf("%v: %q, stderr %q", err, stdout, stderr)
	}
}

// A shell, a pipe, and a program in Python where there is one, so that more than one language is tried.
func TestShellRuns(t *testing.T) {
	s := typical(t, "/bin/sh")
	s.Args = []string{"-c", `ls / | tr '\n' ' '; for p in /usr/bin/python3 /usr/bin/perl; do if [ -x $p ]; then echo 'print(6*7);' | $p -; fi; done`}
	stdout, stderr, err := confine(t, sealed(s))
	if err != nil || !strings.HasPrefix(stdout, "bin dev etc home lib lib64 proc run sbin tmp usr ") || stderr != "" {
		t.Errorf("%v: %q, stderr %q", err, stdout, stderr)
	}
}
