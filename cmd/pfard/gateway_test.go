package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units/control"
)

// askAs asks with the ids of another user, on a thread that dies with them, and returns the answer's text.
func askAs(t *testing.T, path string, uid, gid int, request string) (string, error) {
	t.Helper()
	type result struct {
		text string
		err  error
	}
	results := make(chan result)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, and its credentials with it
		text, err := asUser(uid, gid, func() (string, error) { return converse(path, request) })
		results <- result{text, err}
	}()
	r := <-results
	return r.text, r.err
}

// asUser runs f on this thread as somebody else. The raw calls concern the thread alone, unlike those of package
// syscall.
func asUser(uid, gid int, f func() (string, error)) (string, error) {
	for _, call := range [][4]uintptr{
		{unix.SYS_SETGROUPS, 0, 0, 0},
		{unix.SYS_SETRESGID, uintptr(gid), uintptr(gid), uintptr(gid)},
		{unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)},
	} {
		if _, _, errno := unix.RawSyscall(call[0], call[1], call[2], call[3]); errno != 0 {
			return "", fmt.Errorf("becoming another user: %w", errno)
		}
	}
	return f()
}

func converse(path, request string) (string, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return "", err
	}
	_, _ = unix.Write(fd, []byte(request)) // whoever is refused before it is read finds out by the answer
	b := make([]byte, 4096)
	n, err := unix.Read(fd, b)
	return string(b[:max(0, n)]), err
}

// TestTheGatewaysUser: with a user of its own, the gateway gets the verbs of pfard's that it needs; anybody else gets
// nothing.
func TestTheGatewaysUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can be another user, and only root's pfard gives its gateway one")
	}
	const gateway, stranger = 61190, 61191
	dir, err := os.MkdirTemp("", "pfar") // t.TempDir is too long for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "control.sock")
	listener, err := listenUnix("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := askAs(t, path, gateway, gateway, `{"verb":"status"}`); !errors.Is(err, unix.EACCES) {
		t.Errorf("before it is admitted, the gateway connects: %v", err)
	}
	if err := admitGateway(path, gateway); err != nil {
		t.Fatal(err)
	}
	d, m, changed := ownFixture(t)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- control.Serve(ctx, listener, d.answer, gatewayGuest(gateway)) }()
	defer func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	if _, err := askAs(t, path, stranger, stranger, `{"verb":"open-session","server":"a","session":"aaaaaaaa"}`); !errors.Is(err, unix.EACCES) {
		t.Errorf("a stranger connects: %v", err)
	}
	text, err := askAs(t, path, stranger, gateway, `{"verb":"open-session","server":"a","session":"aaaaaaaa"}`)
	if err != nil || !strings.Contains(text, `"denied"`) {
		t.Errorf("a stranger in the gateway's group: %q, %v", text, err)
	}
	for _, verb := range []control.Verb{
		control.Status, control.Watch, control.Plan, control.Start, control.Stop, control.Restart, control.Enable, control.Disable, control.Learn, control.Store, control.Secrets, control.Remove, control.Rotate, control.Rekey, control.Export, control.Import, "format",
	} {
		text, err := askAs(t, path, gateway, gateway, fmt.Sprintf(`{"verb":%q,"server":"a","key":"k","secret":"s"}`, verb))
		if err != nil || !strings.Contains(text, `"denied"`) && verb != "format" || !strings.Contains(text, `"error"`) {
			t.Errorf("the gateway asks for %q: %q, %v", verb, text, err)
		}
	}
	changed <- struct{}{}
	if s := d.state(t)["a"]; s.State != control.Starting || len(s.Sessions) != 0 {
		t.Errorf("something of that was done: %+v", s)
	}
	for _, c := range []struct {
		verb control.Verb
		runs int
	}{{control.Open, 2}, {control.Close, 1}} {
		text, err := askAs(t, path, gateway, gateway, fmt.Sprintf(`{"verb":%q,"server":"a","session":"aaaaaaaa"}`, c.verb))
		d.state(t)
		if err != nil || text != "{}\n" || len(m.instances()) != c.runs {
			t.Errorf("the gateway asks for %q: %q, %v; running %q", c.verb, text, err, m.instances())
		}
	}
}

func TestAGatewayOfOurOwnUserIsAdmittedAlready(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := admitGateway(path, os.Getuid()); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v; want it as it was", st.Mode(), err)
	}
	if err := admitGateway(filepath.Join(t.TempDir(), "none"), os.Getuid()+1); err == nil {
		t.Error("admitted the gateway to a socket that is not there")
	}
}
