package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units/handover"
)

// TestMain lets the test's binary be the gateway, so that what is tested is a process with its own descriptors.
func TestMain(m *testing.M) {
	if os.Getenv("PFAR_GATEWAY_PROCESS") != "" {
		os.Unsetenv("PFAR_GATEWAY_PROCESS")
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const token = "0123456789abcdef0123456789abcdef"

type process struct {
	cmd    *exec.Cmd
	dir    string
	addr   string
	scrape string // address of the metrics
	notify *net.UnixConn
	log    *bytes.Buffer
}

// start runs a gateway with the listeners that are named, on addr.
func start(t *testing.T, addr, names, token string, args ...string) *process {
	t.Helper()
	p := &process{dir: t.TempDir(), log: new(bytes.Buffer)}
	var err error
	if p.notify, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(p.dir, "notify"), Net: "unixgram"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.notify.Close() })
	p.cmd = exec.Command(os.Args[0], append([]string{"--pins", filepath.Join(t.TempDir(), "pins"), "--state", filepath.Join(p.dir, "state")}, args...)...)
	for name := range strings.SplitSeq(names, ":") {
		p.cmd.ExtraFiles = append(p.cmd.ExtraFiles, p.listen(t, name, addr))
	}
	credentials := filepath.Join(p.dir, "credentials")
	if err := os.Mkdir(credentials, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(credentials, "token"), []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	p.cmd.Env = []string{
		"PFAR_GATEWAY_PROCESS=1", "LISTEN_FDNAMES=" + names, fmt.Sprintf("LISTEN_FDS=%d", len(p.cmd.ExtraFiles)),
		"NOTIFY_SOCKET=" + filepath.Join(p.dir, "notify"), "CREDENTIALS_DIRECTORY=" + credentials,
	}
	p.cmd.Stderr = p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	return p
}

func (p *process) listen(t *testing.T, name, addr string) *os.File {
	t.Helper()
	var l interface {
		File() (*os.File, error)
		Close() error
	}
	var err error
	switch name {
	case "http", "metrics":
		var tcp net.Listener
		if tcp, err = net.Listen("tcp", addr); err == nil {
			if l = tcp.(*net.TCPListener); name == "http" {
				p.addr = tcp.Addr().String()
			} else {
				p.scrape = tcp.Addr().String()
			}
		}
	case "unix", "operator", "passkey":
		var u *net.UnixListener
		u, err = net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(p.dir, name), Net: "unix"})
		u.SetUnlinkOnClose(false)
		l = u
	default:
		var u *net.UnixListener
		u, err = net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(p.dir, "servers"), Net: "unixpacket"})
		u.SetUnlinkOnClose(false)
		l = u
	}
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// await returns the first notification with text in it.
func (p *process) await(t *testing.T, text string) string {
	t.Helper()
	_ = p.notify.SetReadDeadline(time.Now().Add(2 * time.Minute))
	b := make([]byte, 4096)
	for {
		n, err := p.notify.Read(b)
		if err != nil {
			t.Fatalf("waiting for %q: %v\n%s", text, err, p.log)
		}
		if strings.Contains(string(b[:n]), text) {
			return string(b[:n])
		}
	}
}

// TestTheTokenIsReadBeforeItSpeaks: a runner takes the credentials away once it hears from the process.
func TestTheTokenIsReadBeforeItSpeaks(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "token")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, "127.0.0.1:0", "http:unix:servers", "", "--token-file", fifo)
	f, err := os.OpenFile(fifo, os.O_WRONLY, 0) // returns when the gateway has opened it to read
	if err != nil {
		t.Fatal(err)
	}
	raw, err := p.notify.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	said := make([]byte, 4096)
	if err := raw.Read(func(fd uintptr) bool {
		n, _, err := unix.Recvfrom(int(fd), said, unix.MSG_DONTWAIT)
		if said = said[:max(n, 0)]; !errors.Is(err, unix.EAGAIN) {
			t.Errorf("it has said %q, %v", said, err)
		}
		return true
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(token); err != nil {
		t.Fatal(err)
	}
	f.Close()
	p.await(t, "READY=1")
}

func TestProcess(t *testing.T) {
	p := start(t, "127.0.0.1:0", "http:unix:servers", token+"\n")
	p.await(t, "READY=1")
	inR, inW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	go answer(inR, outW)
	c, err := handover.Dial(filepath.Join(p.dir, "servers"), handover.Message{
		Expect: &handover.Server{Name: "one", Pins: "trust-first"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Send(handover.Message{Hello: &handover.Hello{Name: "one"}}, inW, outR); err != nil {
		t.Fatal(err)
	}
	inW.Close()
	outR.Close()
	if m, _, err := c.Receive(); err != nil || m.Ready == nil || m.Ready.Tools != 1 {
		t.Fatalf("got %+v, %v", m, err)
	}
	p.await(t, "STATUS=1 server, 1 tool")
	if got := post(t, http.DefaultTransport, "http://"+p.addr+"/mcp", "Bearer "+token); got != 200 {
		t.Errorf("on loopback: %d", got)
	}
	if got := post(t, http.DefaultTransport, "http://"+p.addr+"/mcp", ""); got != 401 {
		t.Errorf("on loopback without the token: %d", got)
	}
	viaUnix := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(p.dir, "unix"))
	}}
	defer viaUnix.CloseIdleConnections()
	if got := post(t, viaUnix, "http://pfar/mcp/one", ""); got != 200 {
		t.Errorf("on the Unix socket: %d", got)
	}
	if err := p.cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.await(t, "STOPPING=1")
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v\n%s", err, p.log)
	}
	for { // it may be told that the gateway goes
		if _, _, err := c.Receive(); err != nil {
			if !errors.Is(err, io.EOF) {
				t.Errorf("the launcher's connection ends with %v", err)
			}
			break
		}
	}
	if strings.Contains(p.log.String(), token) {
		t.Error("the token is in the log")
	}
}

// answer is a server with one tool.
func answer(in, out *os.File) {
	defer in.Close()
	defer out.Close()
	id := regexp.MustCompile(`"id":(\d+)`)
	b := make([]byte, 64<<10)
	for {
		n, err := in.Read(b)
		if err != nil {
			return
		}
		for line := range strings.SplitSeq(string(b[:n]), "\n") {
			m := id.FindStringSubmatch(line)
			if m == nil {
				continue
			}
			result := `{"tools":[{"name":"t","inputSchema":{}}]}`
			if strings.Contains(line, `"initialize"`) {
				result = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}`
			}
			fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", m[1], result)
		}
	}
}

func post(t *testing.T, via http.RoundTripper, url, authorization string) int {
	t.Helper()
	r, err := http.NewRequest("POST", url, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	resp, err := via.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// TestRefusesANewerState: what a newer pfar has written stays as it is.
func TestRefusesANewerState(t *testing.T) {
	state := t.TempDir()
	if err := os.WriteFile(filepath.Join(state, "format.json"), []byte(`{"format":99,"pfar":"9.0.0"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	p := start(t, "127.0.0.1:0", "http:servers", token, "--pins", filepath.Join(state, "pins"), "--state", filepath.Join(state, "gateway"))
	if err := p.cmd.Wait(); err == nil || !strings.Contains(p.log.String(), "install pfar 9.0.0 or a later one again") {
		t.Errorf("%v, %q", err, p.log)
	}
	if entries, err := os.ReadDir(state); err != nil || len(entries) != 1 {
		t.Errorf("it has made %v, %v", entries, err)
	}
}

// TestRefusesToStart: what would serve the wrong people does not start.
func TestRefusesToStart(t *testing.T) {
	for name, c := range map[string]struct{ addr, names, token, want string }{
		"every address": {"0.0.0.0:0", "http:servers", token, "not loopback"},
		"no token":      {"127.0.0.1:0", "http:servers", "", "empty"},
		"blank token":   {"127.0.0.1:0", "http:servers", "\n", "at least 32"},
		"short token":   {"127.0.0.1:0", "http:servers", "hunter2", "at least 32"},
		"no servers":    {"127.0.0.1:0", "http", token, "servers"},
		"no clients":    {"127.0.0.1:0", "servers", token, "unix"},
		"other name":    {"127.0.0.1:0", "http:other", token, "other"},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, c.addr, c.names, c.token)
			err := p.cmd.Wait()
			if err == nil || !strings.Contains(p.log.String(), c.want) {
				t.Errorf("%v, %q, want %q", err, p.log, c.want)
			}
			if c.token != "" && strings.TrimSpace(c.token) != "" && strings.Contains(p.log.String(), c.token) {
				t.Error("the token is in the log")
			}
		})
	}
}
