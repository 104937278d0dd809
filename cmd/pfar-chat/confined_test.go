package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/inspector"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/confine"
	"github.com/pfar/pfar/units/plan"
)

// confinedVariable makes the test binary a pfar-chat with that directory: its way is the socket "way" there.
const confinedVariable = "PFAR_TEST_CHAT"

func TestMain(m *testing.M) {
	dir := os.Getenv(confinedVariable)
	if dir == "" {
		os.Exit(m.Run())
	}
	go func() { // whoever has taken the process over
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		_, other := os.ReadFile(filepath.Join(dir, "secret"))
		own := os.WriteFile(filepath.Join(dir, "state", "own"), nil, 0o600)
		fmt.Println(other == nil, own == nil)
		os.Exit(0)
	}()
	way := filepath.Join(dir, "way")
	err := run(context.Background(), options{way: way, control: way, gateway: way, state: filepath.Join(dir, "state")})
	fmt.Println("it ends:", err)
}

// TestConfines: as soon as it speaks with the homeserver the process opens no file but those of its state.
func TestConfines(t *testing.T) {
	if confine.Raced {
		t.Skip("NOT RUN: with the race detector a process does not confine itself")
	}
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		t.Skipf("this kernel has no Landlock: version %d, %v", version, errno)
	}
	dir := t.TempDir()
	raw, err := json.Marshal(plan.Inspection{Inspector: inspector.External{
		Name: "home", URL: "https://home.test", Key: "vault:matrix",
		Role: inspector.Role{Account: &inspector.Account{User: "@pfar:home.test", Owner: "@ada:home.test"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"plan": string(raw), "secret": "x"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("unix", filepath.Join(dir, "way"))
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan struct{}, 8)
	home := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(`{"errcode":"M_UNKNOWN_TOKEN"}`))
	})}
	go func() { _ = home.Serve(l) }()
	defer home.Close()
	notices, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "notices"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer notices.Close()
	passed, err := notices.File()
	if err != nil {
		t.Fatal(err)
	}
	defer passed.Close()
	// The program itself says that the socket is for it, as a runner does.
	chat := exec.Command("sh", "-c", `LISTEN_PID=$$ exec "$0"`, os.Args[0])
	chat.ExtraFiles = []*os.File{passed}
	chat.Env = append(os.Environ(), confinedVariable+"="+dir, "CREDENTIALS_DIRECTORY="+dir,
		"LISTEN_FDS=1", "LISTEN_FDNAMES="+units.FDInspect)
	in, err := chat.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := chat.StdoutPipe()
	if err == nil {
		err = chat.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	said := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(out).ReadString('\n')
		said <- line
	}()
	select {
	case <-asked:
	case line := <-said:
		t.Fatalf("it says %q before it asks the homeserver", line)
	}
	if _, err := fmt.Fprintln(in, "now"); err != nil {
		t.Fatal(err)
	}
	if got := <-said; got != "false true\n" {
		t.Errorf("it reads another file and writes its own: %q", got)
	}
	_ = chat.Wait()
}
