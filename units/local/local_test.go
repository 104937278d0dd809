package local

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units"
)

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func testDirs(t *testing.T) dirs {
	t.Helper()
	d := dirs{run: t.TempDir(), state: t.TempDir()}
	if err := d.make(); err != nil {
		t.Fatal(err)
	}
	return d
}

// event is one call of a service's changed.
type event struct {
	phase phase
	code  int
}

// shell is a service whose process is a shell script; its events come on the channel.
func shell(t *testing.T, script string, change func(*service, *spec)) (*service, chan event, dirs) {
	t.Helper()
	d, events := testDirs(t), make(chan event, 100)
	s := &service{
		name: "test@x", dirs: d, log: quiet(), timeout: time.Minute, restart: onFailure,
		notice: func(m notification) { m.close() },
		changed: func(p phase, _ *process, code int) {
			events <- event{p, code}
		},
	}
	s.prepare = func() (spec, error) {
		sp := spec{argv: []string{"/bin/sh", "-c", script}, log: d.log("x")}
		if change != nil {
			change(s, &sp)
		}
		return sp, nil
	}
	return s, events, d
}

func wait(t *testing.T, events chan event, want event) {
	t.Helper()
	select {
	case got := <-events:
		if got != want {
			t.Fatalf("got phase %d code %d, want phase %d code %d", got.phase, got.code, want.phase, want.code)
		}
	case <-time.After(2 * time.Minute):
		t.Fatalf("nothing came; want phase %d", want.phase)
	}
}

func TestServiceExitCodes(t *testing.T) {
	for code, want := range map[int]phase{
		0: inactive, units.ExitDisabled: failed, units.ExitCrashed: autoRestart, units.ExitGateway: autoRestart, 7: autoRestart,
	} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			s, events, _ := shell(t, fmt.Sprintf("exit %d", code), nil)
			s.start()
			wait(t, events, event{activating, 0})
			wait(t, events, event{want, code})
			if want == autoRestart {
				wait(t, events, event{activating, 0})
			}
			s.stop()
		})
	}
}

// TestServiceStartsAgain: what a process needs another one of the same user may hold for a while. No service is given
// up for that, unless it is never to start again.
func TestServiceStartsAgain(t *testing.T) {
	for name, c := range map[string]struct {
		restart func(int) (time.Duration, bool)
		want    []event
	}{
		"launcher": {onFailure, []event{{autoRestart, notStarted}, {activating, 0}, {inactive, 0}}},
		"gateway":  {new(impatience).again, []event{{autoRestart, notStarted}, {activating, 0}, {autoRestart, 0}}},
		"session":  {never, []event{{failed, notStarted}}},
	} {
		t.Run(name, func(t *testing.T) {
			s, events, _ := shell(t, "exit 0", nil)
			good, tries := s.prepare, 0
			s.restart = c.restart
			s.prepare = func() (spec, error) {
				if tries++; tries == 1 {
					return spec{}, unix.ENOSPC
				}
				return good()
			}
			s.start()
			for _, e := range c.want {
				wait(t, events, e)
			}
			s.stop()
		})
	}
}

func TestServiceStop(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		code   int
	}{
		"ends on SIGTERM":  {"trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done", 0},
		"ignores SIGTERM":  {"trap '' TERM; echo up; while :; do sleep 0.05; done", 128 + 9},
		"dies of SIGTERM":  {"echo up; while :; do sleep 0.05; done", 128 + 15},
		"ends with status": {"trap 'exit 1' TERM; echo up; while :; do sleep 0.05; done", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, events, d := shell(t, c.script, nil)
			if c.code == 128+9 {
				s.timeout = time.Second
			}
			s.start()
			wait(t, events, event{activating, 0})
			eventually(t, "the script is up", func() bool { b, _ := os.ReadFile(d.log("x")); return string(b) == "up\n" })
			s.stop()
			wait(t, events, event{deactivating, 0})
			wait(t, events, event{inactive, c.code})
		})
	}
}

// eventually waits for what a process outside this one does, which has no event to wait for.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("not so after 10 s: %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestServiceDescriptorsAndCredentials(t *testing.T) {
	script := `cat <&3; cat "$CREDENTIALS_DIRECTORY/TOKEN"; echo " $LISTEN_FDS $LISTEN_FDNAMES ${LISTEN_PID-none}"; stat -c %a "$CREDENTIALS_DIRECTORY" "$CREDENTIALS_DIRECTORY/TOKEN"; env | grep -c SECRET_OF_PFARD; exit 0`
	t.Setenv("SECRET_OF_PFARD", "x")
	s, events, d := shell(t, script, func(_ *service, sp *spec) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Error(err)
			return
		}
		w.WriteString("piped ")
		w.Close()
		sp.descriptors = []descriptor{{"in", r}}
		sp.credentials = map[string][]byte{"TOKEN": []byte("hunter2")}
	})
	s.start()
	wait(t, events, event{activating, 0})
	wait(t, events, event{inactive, 0})
	got, err := os.ReadFile(d.log("x"))
	if want := "piped hunter2 1 in none\n500\n400\n0\n"; err != nil || string(got) != want {
		t.Errorf("the process saw %q (%v), want %q", got, err, want)
	}
	if _, err := os.Stat(d.credentials("test@x")); !os.IsNotExist(err) {
		t.Errorf("the credentials are still there after the end: %v", err)
	}
}

func TestNotifyIsTakenFromTheMainProcessOnly(t *testing.T) {
	d := testDirs(t)
	socket, err := listenNotify(d.notify("x"), identity{})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.close()
	var seen []string
	s := &service{notice: func(m notification) { seen = append(seen, m.vars["STATUS"]); m.close() }, changed: func(phase, *process, int) {}}
	send := func(text string) {
		c, err := net.Dial("unixgram", d.notify("x"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	send("STATUS=mine")
	send("STATUS=" + strings.Repeat("x", maxNotification)) // cut: dropped
	socket.conn.SetReadDeadline(time.Now())
	s.follow(socket, &process{pid: os.Getpid()})
	send("STATUS=somebody else's")
	socket.conn.SetReadDeadline(time.Now())
	s.follow(socket, &process{pid: os.Getpid() + 1})
	if strings.Join(seen, ",") != "mine" {
		t.Errorf("taken: %q, want only the one from the main process", seen)
	}
}

// What a killed pfard leaves behind must not be a secret: a process has read its credentials when it first speaks.
func TestCredentialsAreGoneOnceRead(t *testing.T) {
	script := `exec python3 -c 'import os, socket, time
open(os.environ["CREDENTIALS_DIRECTORY"] + "/TOKEN").read()
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"STATUS=up", os.environ["NOTIFY_SOCKET"])
time.sleep(1000)'`
	s, events, d := shell(t, script, func(_ *service, sp *spec) { sp.credentials = map[string][]byte{"TOKEN": []byte("hunter2")} })
	s.start()
	defer s.stop()
	wait(t, events, event{activating, 0})
	eventually(t, "the credentials are gone", func() bool {
		_, err := os.Stat(d.credentials("test@x"))
		return os.IsNotExist(err)
	})
}

func TestActivation(t *testing.T) {
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	raw, err := l.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var listener *os.File
	raw.Control(func(fd uintptr) {
		n, err := unix.Dup(int(fd))
		if err != nil {
			t.Error(err)
		}
		listener = os.NewFile(uintptr(n), "listener")
	})
	events := make(chan event, 10)
	a := activate([]*os.File{listener}, nil, func(a *activation) *service {
		// Accepts one connection, as a bridge does, and goes when it is idle.
		s, e, _ := shell(t, `exec python3 -c 'import socket; socket.socket(fileno=3).accept()[0].sendall(b"served")'`, func(_ *service, sp *spec) {
			f, err := dup(a.sockets[0])
			if err != nil {
				t.Error(err)
				return
			}
			sp.descriptors = []descriptor{{"egress", f}}
		})
		go func() {
			for v := range e {
				events <- v
			}
		}()
		return s
	})
	select {
	case e := <-events:
		t.Fatalf("started before there was a connection: %v", e)
	case <-time.After(100 * time.Millisecond):
	}
	for range 2 { // a second time after it has gone
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(2 * time.Minute))
		if b, err := io.ReadAll(c); err != nil || string(b) != "served" {
			t.Fatalf("got %q, %v", b, err)
		}
		c.Close()
	}
	a.close()
	a.close() // twice is once
}

func TestUsers(t *testing.T) {
	dir := t.TempDir()
	make := func() *users {
		return &users{locks: dir, passwd: "/etc/passwd", held: map[string]*os.File{}, ids: map[string]int{}}
	}
	u, other := make(), make()
	seen := map[int]string{}
	for i := range 100 {
		name := fmt.Sprintf("pfar-mcp@s%d", i)
		id, err := u.acquire(name)
		if err != nil {
			t.Fatal(err)
		}
		if id.id < dynamicMin || id.id > dynamicMax || !id.set {
			t.Fatalf("%s got id %d", name, id.id)
		}
		if with := seen[id.id]; with != "" {
			t.Fatalf("%s and %s share id %d", name, with, id.id)
		}
		seen[id.id] = name
		if again, _ := u.acquire(name); again != id {
			t.Errorf("%s got %d, then %d", name, id.id, again.id)
		}
	}
	mine, _ := u.acquire("pfar-mcp@s1")
	theirs, err := other.acquire("pfar-mcp@s1")
	if err != nil || theirs == mine {
		t.Errorf("another holder got %d too (%v)", theirs.id, err)
	}
	other.release("pfar-mcp@s1")
	u.release("pfar-mcp@s1")
	if again, err := other.acquire("pfar-mcp@s1"); err != nil || again != mine {
		t.Errorf("a released id is not given again: %d, %v; want %d", again.id, err, mine.id)
	}
	if id, err := (&users{}).acquire("x"); err != nil || id.set {
		t.Errorf("an ordinary user got the id %d (%v)", id.id, err)
	}
	full := make()
	full.passwd = filepath.Join(t.TempDir(), "passwd")
	var accounts strings.Builder
	for id := dynamicMin; id <= dynamicMax; id++ {
		fmt.Fprintf(&accounts, "u%d:x:%d:%d::/:/bin/sh\n", id, id, id)
	}
	if err := os.WriteFile(full.passwd, []byte(accounts.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if id, err := full.acquire("x"); err == nil {
		t.Errorf("got %d though every id is an account's", id.id)
	}
}

func TestUsersOfANamespace(t *testing.T) {
	for _, c := range []struct {
		name, idMap string
		locks       func(dir string) string
		want        string // of the error; "": none
	}{
		{name: "all", idMap: "         0          0 4294967295\n"},
		{name: "enough", idMap: "0 100000 61000\n65000 200000 100\n"},
		{name: "root alone", idMap: "0 1000 1\n", want: "has no user ids for servers"},
		{name: "too few", idMap: "0 100000 61184\n", want: "Map them, or run pfar as an ordinary user"},
		{name: "nonsense", idMap: "0 1000\n", want: `"0 1000"`},
		{name: "lock files that cannot be made", idMap: "0 0 4294967295\n", want: "finding a user id",
			locks: func(dir string) string { return filepath.Join(dir, "locks") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			u := &users{locks: dir, passwd: "/etc/passwd", idMap: filepath.Join(dir, "uid_map"), held: map[string]*os.File{}, ids: map[string]int{}}
			if err := os.WriteFile(u.idMap, []byte(c.idMap), 0o600); err != nil {
				t.Fatal(err)
			}
			if c.locks != nil { // a folder stands where each file would
				u.locks = c.locks(dir)
				for id := dynamicMin; id <= dynamicMax; id++ {
					if err := os.MkdirAll(filepath.Join(u.locks, fmt.Sprint(id)), 0o700); err != nil {
						t.Fatal(err)
					}
				}
			}
			id, err := u.acquire("x")
			if c.want == "" {
				ranges, _ := u.mappings()
				if err != nil || !mapped(ranges, id.id) {
					t.Errorf("got %d, %v", id.id, err)
				}
			} else if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %d, %v; want an error with %q", id.id, err, c.want)
			}
		})
	}
}

func TestRotate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.log")
	if err := rotate(path, 10); err != nil {
		t.Errorf("no log yet: %v", err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.WriteString("short")
	if err := rotate(path, 10); err != nil {
		t.Error(err)
	}
	f.WriteString(" and long")
	if err := rotate(path, 10); err != nil {
		t.Error(err)
	}
	f.WriteString("next")
	now, _ := os.ReadFile(path)
	old, _ := os.ReadFile(path + ".1")
	if string(now) != "next" || string(old) != "short and long" {
		t.Errorf("log %q, old %q", now, old)
	}
}

// A process that was taken over can send descriptors whose mere closing waits for it. It gets to send none but those of
// a namespace, once.
func TestOddDescriptorsEndTheirSender(t *testing.T) {
	const program = `
import array, os, socket, sys, time
n = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
n.connect(os.environ["NOTIFY_SOCKET"])
def send(text, *fds): n.sendmsg([text], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
tcp = socket.create_server(("127.0.0.1", 0))
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
unix = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
loose = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
%s
time.sleep(30)`
	for name, c := range map[string]struct {
		script string
		killed bool
	}{
		"a pipe":                   {`send(b"FDSTORE=1\nFDNAME=egress", os.pipe()[0])`, true},
		"a Unix socket":            {`send(b"FDSTORE=1\nFDNAME=egress", tcp.fileno(), unix.fileno())`, true},
		"a socket not listening":   {`send(b"FDSTORE=1\nFDNAME=egress", loose.fileno())`, true},
		"sockets for no store":     {`send(b"READY=1", tcp.fileno())`, true},
		"sockets twice":            {`send(b"FDSTORE=1\nFDNAME=egress", tcp.fileno()); send(b"FDSTORE=1\nFDNAME=egress", tcp.fileno())`, true},
		"the sockets of namespace": {`send(b"FDSTORE=1\nFDNAME=egress", tcp.fileno(), udp.fileno()); sys.exit(0)`, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, events, _ := shell(t, "exec python3 -c '"+fmt.Sprintf(program, c.script)+"'", nil)
			s.restart = never
			s.start()
			defer s.stop()
			wait(t, events, event{activating, 0})
			if c.killed {
				wait(t, events, event{failed, 128 + int(unix.SIGKILL)})
			} else {
				wait(t, events, event{inactive, 0})
			}
		})
	}
}

// A bridge begins when the one before it has gone, with which it shares its files, and can be closed while it waits.
func TestActivationWaitsForTheOneBefore(t *testing.T) {
	ready := func() *os.File { // has something to read from the beginning
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(pair[1]) })
		if _, err := unix.Write(pair[1], []byte("x")); err != nil {
			t.Fatal(err)
		}
		return os.NewFile(uintptr(pair[0]), "ready")
	}
	previous, began := make(chan struct{}), make(chan struct{}, 10)
	start := func(*activation) *service {
		began <- struct{}{}
		s, _, _ := shell(t, "exec sleep 30", nil)
		return s
	}
	waiting := activate([]*os.File{ready()}, previous, start)
	closed := activate([]*os.File{ready()}, previous, start)
	closed.close()
	select {
	case <-began:
		t.Fatal("a service began before the one before it had gone")
	case <-time.After(100 * time.Millisecond):
	}
	close(previous)
	select {
	case <-began:
	case <-time.After(2 * time.Minute):
		t.Fatal("no service began")
	}
	waiting.close()
	if len(began) > 0 {
		t.Error("what was closed while it waited began all the same")
	}
}

// TestProcessesAreConfined: as units have NoNewPrivileges= and SystemCallFilter=, so have processes without systemd.
func TestProcessesAreConfined(t *testing.T) {
	ours := func() string {
		out, err := exec.Command("grep", "-E", "^(NoNewPrivs|Seccomp):", "/proc/self/status").Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	before := ours()
	const script = `grep -E '^(NoNewPrivs|Seccomp):' /proc/self/status; unshare --user true 2>&1 | grep -o 'Operation not permitted' || echo made`
	for makes, want := range map[bool]string{
		false: "NoNewPrivs:\t1\nSeccomp:\t2\nOperation not permitted\n",
		true:  "NoNewPrivs:\t1\nSeccomp:\t2\nmade\n",
	} {
		s, events, d := shell(t, script, func(_ *service, sp *spec) { sp.makes = makes })
		s.start()
		wait(t, events, event{activating, 0})
		wait(t, events, event{inactive, 0})
		s.stop()
		if b, err := os.ReadFile(d.log("x")); err != nil || string(b) != want {
			t.Errorf("makes sandboxes %v: %q, %v; want %q", makes, b, err, want)
		}
	}
	// What confines them must not reach the threads that go on: pfard runs newuidmap(1), which is set-user-ID.
	if after := ours(); after != before {
		t.Errorf("what this process starts itself has %q, had %q", after, before)
	}
}

// putProgram writes a program while no process begins: that one would have the file open for writing, and then the
// kernel starts no program from it (execve(2), ETXTBSY).
func putProgram(path string, text []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, text, 0o755)
}
