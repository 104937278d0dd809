package local

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// role is the variable that makes this binary a server of the test's.
const role = "PFAR_TEST_LOCAL"

func TestMain(m *testing.M) {
	if os.Getenv(role) == "" {
		os.Exit(m.Run())
	}
	network, at := os.Args[1], os.Args[2]
	if network == "late" { // there is a while in which nobody listens
		time.Sleep(100 * time.Millisecond)
		network = "unix"
	}
	l, err := net.Listen(network, at)
	if err == nil {
		err = http.Serve(l, toy())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(7)
}

// toy answers initialize. When a tool is called it kills this process, or only breaks the connection.
func toy() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /mcp", func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct{ Name string }
		}
		switch err := json.NewDecoder(r.Body).Decode(&m); {
		case err != nil:
			w.WriteHeader(http.StatusBadRequest)
		case m.ID == nil:
			w.WriteHeader(http.StatusAccepted)
		case m.Method == "initialize":
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{},`+
				`"serverInfo":{"name":"toy","version":"1"}}}`, m.ID)
		case m.Params.Name == "break":
			panic(http.ErrAbortHandler)
		default:
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		}
	})
	return mux
}

// bench is an adapter whose clock is the test's: nothing is late but when the test says so.
type bench struct {
	Adapter
	t           *testing.T
	in          *os.File      // the gateway's end
	out         *bufio.Reader // likewise
	log         string
	late, grace chan time.Time // the end of Limits.Listen, and of Limits.Grace
	dying       chan time.Time // likewise
	done        chan error
}

// never is longer than any test.
const never = time.Hour

func newBench(t *testing.T) *bench {
	t.Helper()
	theirs, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, in: in, out: bufio.NewReader(out), done: make(chan error, 1)}
	b.late, b.grace = make(chan time.Time), make(chan time.Time)
	b.dying = make(chan time.Time)
	b.log = filepath.Join(t.TempDir(), "log")
	log, err := os.Create(b.log)
	if err != nil {
		t.Fatal(err)
	}
	b.Adapter = Adapter{In: theirs, Out: to, Log: log, Getenv: os.Getenv, Limits: Limits{
		Listen: never, First: time.Millisecond, Last: 2 * time.Millisecond, Grace: 2 * never, Dying: 3 * never,
	}}
	b.After = func(d time.Duration) <-chan time.Time {
		switch d {
		case b.Limits.Listen:
			return b.late
		case b.Limits.Grace:
			return b.grace
		case b.Limits.Dying:
			return b.dying
		}
		return time.After(d)
	}
	t.Cleanup(func() {
		in.Close()
		out.Close()
	})
	return b
}

func (b *bench) start(verb func(context.Context, []string) error, args ...string) {
	go func() { b.done <- verb(b.t.Context(), args) }()
}

// later has the grace end so often.
func (b *bench) later(times int) {
	go func() {
		for range times {
			select {
			case b.grace <- time.Time{}:
			case <-b.t.Context().Done():
			}
		}
	}()
}

func (b *bench) say(line string) {
	b.t.Helper()
	if _, err := io.WriteString(b.in, line+"\n"); err != nil {
		b.t.Fatal(err)
	}
}

// hears wants words in the next line.
func (b *bench) hears(words string) {
	b.t.Helper()
	line, err := b.out.ReadString('\n')
	if err != nil || !strings.Contains(line, words) {
		b.t.Fatalf("the gateway reads %q, %v; want %q in it", line, err, words)
	}
}

// ends wants the adapter to end with an error that has words in it, "" for none.
func (b *bench) ends(words string) {
	b.t.Helper()
	err := <-b.done
	if words == "" && err != nil || words != "" && (err == nil || !strings.Contains(err.Error(), words)) {
		b.t.Fatalf("it ends with %v, want %q", err, words)
	}
}

const (
	initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{` +
		`"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"pfar","version":"1"}}}`
	call = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"x","arguments":{}}}`
)

// self is this binary as a server.
func self(t *testing.T, network, at string) []string {
	t.Setenv(role, "1")
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return []string{"--", path, network, at}
}

func freePort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// unheard wants that the gateway reads nothing more from an adapter that has ended.
func (b *bench) unheard() {
	b.t.Helper()
	b.Out.(*os.File).Close()
	if rest, err := io.ReadAll(b.out); len(rest) > 0 || err != nil {
		b.t.Errorf("the gateway reads %q, %v", rest, err)
	}
}

// TestStarted: a server that is started speaks once it listens, and its status is the adapter's. One that is killed in
// a call answers nothing: in the sandbox nobody but the kernel is believed to say that. One that runs on answers.
func TestStarted(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "made", "mcp.sock")
	port := freePort(t)
	type verb = func(Adapter, context.Context, []string) error
	for name, c := range map[string]struct {
		verb verb
		args []string
	}{
		"socket": {Adapter.UDS, append([]string{socket}, self(t, "late", socket)...)},
		"port":   {Adapter.Port, append([]string{"http://" + port + "/mcp"}, self(t, "tcp", port)...)},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.start(func(ctx context.Context, args []string) error { return c.verb(b.Adapter, ctx, args) }, c.args...)
			b.say(initialize)
			b.hears(`"name":"toy"`)
			b.say(strings.Replace(call, `"name":"x"`, `"name":"break"`, 1))
			b.dying <- time.Time{}
			b.hears("network_error")
			b.say(call)
			b.ends("status 137")
			b.unheard()
		})
	}
}

// TestStatus: a server that ends by itself takes the adapter with it, whether it has listened or not.
func TestStatus(t *testing.T) {
	for script, want := range map[string]Exit{"exit 3": 3, "kill -9 $$": 137, "exit 0": 0} {
		for _, verb := range []string{"uds", "pipe", "port"} {
			b := newBench(t)
			run, where := b.UDS, filepath.Join(t.TempDir(), "x", "s")
			switch verb {
			case "pipe":
				run = b.Pipe
			case "port":
				run, where = b.Port, "http://127.0.0.1:1/mcp"
			}
			b.start(run, where, "--", "sh", "-c", "echo words of its own; "+script)
			if err := <-b.done; !errors.Is(err, want) {
				t.Errorf("%s of %q ended with %v, want %v", verb, script, err, want)
			}
			if text, _ := os.ReadFile(b.log); !strings.Contains(string(text), "words of its own") {
				t.Errorf("%s of %q logged %q", verb, script, text)
			}
		}
	}
}

// TestGatewayLeaves: the server ends with the gateway, also one that does not listen, and one that is deaf to SIGTERM.
func TestGatewayLeaves(t *testing.T) {
	for name, script := range map[string]string{
		"silent": "exec sleep 1000",
		"deaf":   "trap '' TERM; exec sleep 1000", // ignored signals stay ignored (execve(2))
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.start(b.UDS, filepath.Join(t.TempDir(), "s"), "--", "sh", "-c", "echo up >&2; "+script)
			for text := []byte(nil); !strings.Contains(string(text), "up"); text, _ = os.ReadFile(b.log) {
				time.Sleep(time.Millisecond)
			}
			b.in.Close()
			b.later(2) // that of what is in flight, and that of the server
			b.ends("")
		})
	}
}

// TestNobody: what is not there within the time is said.
func TestNobody(t *testing.T) {
	dir := t.TempDir()
	t.Run("socket", func(t *testing.T) {
		b := newBench(t)
		b.start(b.UDS, filepath.Join(dir, "none"), "--", "sleep", "1000")
		b.late <- time.Time{}
		b.dying <- time.Time{}
		b.later(1)
		b.ends("does not listen at")
	})
	t.Run("reader", func(t *testing.T) {
		b := newBench(t)
		if err := makeFIFOs(filepath.Join(dir, "pipe")); err != nil {
			t.Fatal(err)
		}
		b.start(b.Pipe, filepath.Join(dir, "pipe"))
		b.late <- time.Time{}
		b.ends("nobody reads from")
	})
	t.Run("writer", func(t *testing.T) {
		b := newBench(t)
		if err := makeFIFOs(filepath.Join(dir, "half")); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(filepath.Join(dir, "half.in"), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		b.start(b.Pipe, filepath.Join(dir, "half"))
		b.late <- time.Time{}
		b.ends("nobody ")
	})
}

// TestPipe: lines go both ways, whichever end the server opens first, and the server's end ends it.
func TestPipe(t *testing.T) {
	for name, script := range map[string]string{
		"in first":  "exec cat <$1.in >$1.out",
		"out first": "exec cat >$1.out <$1.in",
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			path := filepath.Join(t.TempDir(), "made", "pipe")
			b.start(b.Pipe, path, "--", "sh", "-c", script, "sh", path)
			long := strings.Repeat("x", 1<<20)
			go func() { _, _ = io.WriteString(b.in, long+"\n") }() // no pipe holds so much
			b.hears(long)
			b.in.Close()
			if err := <-b.done; err != nil && !errors.Is(err, Exit(0)) {
				t.Errorf("it ends with %v", err)
			}
		})
	}
}

// TestPipeOfAnother: a server that runs without pfar and closes its pipe has gone.
func TestPipeOfAnother(t *testing.T) {
	b := newBench(t)
	path := filepath.Join(t.TempDir(), "pipe")
	if err := makeFIFOs(path); err != nil {
		t.Fatal(err)
	}
	b.start(b.Pipe, path)
	in, err := os.Open(path + ".in")
	if err != nil {
		t.Fatal(err)
	}
	out, err := os.OpenFile(path+".out", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	b.say("hello")
	if line, err := bufio.NewReader(in).ReadString('\n'); line != "hello\n" || err != nil {
		t.Fatalf("the server reads %q, %v", line, err)
	}
	fmt.Fprintln(out, "welcome")
	b.hears("welcome")
	out.Close()
	b.ends("has closed its pipe")
}

// attach listens at a socket, and has the adapter speak with what serves there.
func attach(t *testing.T, serve func(net.Listener)) (*bench, *net.UnixListener) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go serve(l)
	b := newBench(t)
	b.start(b.UDS, path)
	return b, l
}

// TestHostileSocket: whatever a server at a socket does, the gateway reads an error or the adapter ends.
func TestHostileSocket(t *testing.T) {
	each := func(do func(net.Conn)) func(net.Listener) { // with each connection once it has asked something
		return func(l net.Listener) {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					if r, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
						_, _ = io.Copy(io.Discard, r.Body)
						do(c)
					}
				}()
			}
		}
	}
	const html = `the server's response is "text/html; charset=utf-8", neither application/json nor text/event-stream`
	const noHTTP = "the server's answer is not HTTP"
	const closed = "the server closed the connection before it had answered"
	for name, c := range map[string]struct {
		serve         func(net.Listener)
		client, owner string // what each reads
	}{
		"garbage": {each(func(c net.Conn) { io.WriteString(c, "\x00\x01garbage\n\n") }), "network_error: " + noHTTP,
			noHTTP + ` (malformed HTTP response "\\x00\\x01garbage")`},
		"closes": {each(func(net.Conn) {}), "network_error: " + closed, closed},
		"a banner": {each(func(c net.Conn) { io.WriteString(c, "220 smtp ready\r\n"); io.Copy(io.Discard, c) }),
			"network_error: " + noHTTP, noHTTP + ` (malformed HTTP status code "smtp")`},
		"no MCP": {func(l net.Listener) { _ = http.Serve(l, http.NotFoundHandler()) },
			"not_found: HTTP 404 Not Found: 404 page not found", "HTTP 404 Not Found: 404 page not found"},
		"HTML": {func(l net.Listener) {
			_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") }))
		}, "schema: " + html, html},
	} {
		t.Run(name, func(t *testing.T) {
			const key = "pfar/error"
			b, _ := attach(t, c.serve)
			b.say(initialize)
			line, err := b.out.ReadString('\n')
			var told struct {
				ID    int
				Error struct {
					Message string
					Data    map[string]struct{ Detail string }
				}
			}
			if err := errors.Join(err, json.Unmarshal([]byte(line), &told)); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			e := told.Error
			if told.ID != 1 || e.Message != "server: "+c.client || e.Data[key].Detail != c.owner {
				t.Errorf("got %swant for the client %q, for the owner %q", line, c.client, c.owner)
			}
			b.in.Close()
			b.later(1)
			b.ends("")
		})
	}
}

// TestGone: when nobody listens any more, the adapter ends without being asked anything.
func TestGone(t *testing.T) {
	server := &http.Server{Handler: toy()}
	b, l := attach(t, func(l net.Listener) { _ = server.Serve(l) })
	b.say(initialize)
	b.hears(`"name":"toy"`)
	l.SetUnlinkOnClose(false)
	server.Close()
	b.ends("has gone")
}

// TestSilent: one that accepts and never answers is there for as long as its socket is.
func TestSilent(t *testing.T) {
	accepted := make(chan net.Conn, 16)
	b, l := attach(t, func(l net.Listener) {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	})
	<-accepted
	l.Close()
	for len(accepted) > 0 {
		(<-accepted).Close()
	}
	go func() {
		for c := range accepted {
			c.Close()
		}
	}()
	b.ends("has gone")
}

// TestUsage: nothing runs by half.
func TestUsage(t *testing.T) {
	a := New()
	for _, args := range [][]string{
		nil, {"--"}, {"s", "--"}, {"s", "t"}, {"--x", "s"}, {"--url", "ftp://x/", "s"}, {"--token-env", "NONE", "s"},
	} {
		if err := a.UDS(t.Context(), args); err == nil {
			t.Errorf("uds %q runs", args)
		}
	}
	for _, args := range [][]string{nil, {"http://127.0.0.1:1/"}, {"--", "true"}} {
		if err := a.Port(t.Context(), args); err == nil || errors.As(err, new(Exit)) {
			t.Errorf("port %q runs: %v", args, err)
		}
	}
}
