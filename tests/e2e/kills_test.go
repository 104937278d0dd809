package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	mcpgo "github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/tests/trust"
	"github.com/pfar/pfar/units/control"
)

// writeArguments are those of the only tool of serveWrites.
type writeArguments struct {
	Name string `json:"name"`
	Held bool   `json:"held,omitempty"` // it is not done until the test lets it
}

// writesBy are the ways to speak with serveWrites: the network, what is declared, and the server.
var writesBy = map[string]struct {
	network, transport, path string
	handler                  func(write func(writeArguments)) http.Handler
}{
	"streamable": {"tcp", "stream-http", "/mcp", writesStreamable},
	"unix":       {"unix", "uds", "", writesStreamable},
	"events": {"tcp", "sse", "/sse", func(write func(writeArguments)) http.Handler {
		return mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return writesServer(write) }, nil)
	}},
	"modern": {"tcp", "stream-http", "/mcp", func(write func(writeArguments)) http.Handler { // of 2026-07-28
		s := mcpserver.NewMCPServer("writes", "1")
		s.AddTool(mcpgo.NewTool("write", mcpgo.WithString("name"), mcpgo.WithBoolean("held")),
			func(_ context.Context, r mcpgo.CallToolRequest) (*mcpgo.CallToolResult, error) {
				write(writeArguments{r.GetString("name", ""), r.GetBool("held", false)})
				return mcpgo.NewToolResultText("written"), nil
			})
		return mcpserver.NewStreamableHTTPServer(s)
	}},
}

func writesStreamable(write func(writeArguments)) http.Handler {
	s := writesServer(write)
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil)
}

func writesServer(write func(writeArguments)) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "writes", Version: "1"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "write", Description: "Write"},
		func(_ context.Context, _ *mcp.CallToolRequest, w writeArguments) (*mcp.CallToolResult, any, error) {
			write(w)
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "written"}}}, nil, nil
		})
	return s
}

// serveWrites is a server with one tool that writes, by the way and at the address that the first arguments name. It
// notes in a file each write that it has begun, and each that it has done: it does not give one up because
// nobody listens.
// While there is a file beside that one, of the same name with ".held", it does none that is to be held.
func serveWrites(string) error {
	by, address, journal := writesBy[os.Args[1]], os.Args[2], os.Args[3]
	note, err := os.OpenFile(journal, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	handler := by.handler(func(w writeArguments) {
		fmt.Fprintf(note, "begun %s\n", w.Name) // one write(2) each
		for w.Held {
			_, err := os.Stat(journal + ".held")
			w.Held = err == nil
			time.Sleep(10 * time.Millisecond)
		}
		fmt.Fprintf(note, "done %s\n", w.Name)
	})
	l, err := net.Listen(by.network, address)
	if err == nil && by.network == "unix" {
		err = os.Chmod(address, 0o666)
	}
	if err != nil {
		return err
	}
	fmt.Println("ready")
	return http.Serve(l, handler)
}

// writer is a serveWrites and its journal.
type writer struct {
	t                    *testing.T
	by, address, journal string
	process              *os.Process
}

// listen starts it, also in the place of one that was killed.
func (w *writer) listen() {
	w.t.Helper()
	if w.by == "unix" {
		_ = os.Remove(w.address)
	}
	self, err := os.Executable()
	check(w.t, err)
	c := exec.Command(self, w.by, w.address, w.journal)
	c.Env, c.Stderr = append(os.Environ(), roleVariable+"=writes"), os.Stderr
	stdout, err := c.StdoutPipe()
	check(w.t, err)
	startTied(w.t, c)
	w.t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
	})
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
		w.t.Fatalf("the server says %q, %v", line, err)
	}
	w.process = c.Process
}

// noted counts what the journal has of a write.
func (w *writer) noted(what, name string) int {
	w.t.Helper()
	b, err := os.ReadFile(w.journal)
	check(w.t, err)
	return strings.Count(string(b), what+" "+name+"\n")
}

// declared is the text of a declaration of it.
func (w *writer) declared() string {
	const more = "retries = 5\ntimeout = \"1h\"\ntool \"write\" {\n  semantics = \"write\"\n}\n"
	if w.by == "unix" {
		return attachedTo(w.address, more)
	}
	by := writesBy[w.by]
	url := fmt.Sprintf("server {\n  transport = %q\n  url = \"http://%s%s\"\n}\n", by.transport, w.address, by.path)
	return url + more + trust.Honest
}

// ended is what became of a call.
type ended struct {
	answer spoken
	err    error // of the client's connection
}

// unanswered is the class of a call whose connection ended.
const unanswered = failure.Class("no answer")

func (e ended) class(t *testing.T) failure.Class {
	switch {
	case e.err != nil:
		return unanswered
	case e.answer.member == "error":
		return toldOf(t, e.answer.value).Class
	}
	return "none"
}

func (e ended) String() string {
	return fmt.Sprintf("%v %s %s", e.err, e.answer.member, e.answer.value)
}

// write calls the tool.
func (w *writer) write(c *rawHTTP, name string, held bool) ended {
	params := fmt.Sprintf(`{"name":"writes__write","arguments":{"name":%q,"held":%t}}`, name, held)
	a, err := c.ask("tools/call", params, strconv.Quote(name), "", "")
	return ended{a, err}
}

const heldWrites = 3

func heldWrite(n int) string { return fmt.Sprintf("held-%d", n) }

// begin makes calls that are held, and returns when the server has begun each.
func (w *writer) begin(c *rawHTTP) <-chan ended {
	w.t.Helper()
	put(w.t, w.journal+".held", "")
	answers := make(chan ended, heldWrites)
	for n := range heldWrites {
		go func() { answers <- w.write(c, heldWrite(n), true) }()
	}
	until(w.t, "all writes are begun", func() bool {
		b, _ := os.ReadFile(w.journal)
		return strings.Count(string(b), "begun ") == heldWrites
	})
	return answers
}

// answersNext calls until a call is answered. Each before that has to end with an error of a class, and is not sent.
func (w *writer) answersNext(c *rawHTTP) {
	w.t.Helper()
	for n, end := 0, time.Now().Add(soon); ; n++ {
		name := fmt.Sprintf("next-%d", n)
		a := w.write(c, name, false)
		if a.answer.member == "result" {
			if w.noted("begun", name) != 1 || w.noted("done", name) != 1 || !strings.Contains(a.String(), "written") {
				w.t.Errorf("%s: it is begun %d times and done %d times", a, w.noted("begun", name), w.noted("done", name))
			}
			return
		}
		if class := a.class(w.t); class == unanswered || class == "" || w.noted("begun", name) != 0 || time.Now().After(end) {
			w.t.Fatalf("the next call ended with %s", a)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// only is the process of pfar's that has a name.
func (p *pfar) only(name string) int {
	p.t.Helper()
	all := descendants(p.cmd.Process.Pid)
	others := func(d process) bool { return d.name != name }
	if all = slices.DeleteFunc(all, others); len(all) != 1 {
		p.t.Fatalf("%d processes are %s", len(all), name)
	}
	return all[0].pid
}

// TestKilledOnTheWay kills each process that a call passes through, on its way to a server that pfar does not start:
// one at the network, and one at a socket. It is killed while calls that write are with the server. Each of them ends
// with an error that says what has happened, or with its connection; no write is made twice, however often the
// declaration has pfar try; and the client's next call is answered.
func TestKilledOnTheWay(t *testing.T) {
	t.Parallel()
	const remote = "the server itself"
	const network, died = failure.NetworkError, failure.Died
	for _, row := range []struct {
		by, victim string
		want       []failure.Class
	}{
		{"streamable", "pfar-egress", []failure.Class{network}},
		{"streamable", "pfar-adapter", []failure.Class{died}},
		{"streamable", remote, []failure.Class{network}},
		{"streamable", "pfar-gateway", []failure.Class{unanswered}},
		{"streamable", "pfard", []failure.Class{network, died, unanswered}}, // all end at once, in any order
		{"events", "pfar-egress", []failure.Class{network}},
		{"events", remote, []failure.Class{network}},
		{"events", "pfar-adapter", []failure.Class{died}},
		{"modern", "pfar-egress", []failure.Class{network}},
		{"modern", remote, []failure.Class{network}},
		{"modern", "pfar-adapter", []failure.Class{died}},
		{"unix", "pfar-adapter", []failure.Class{died}},
		{"unix", remote, []failure.Class{network}},
		{"unix", "pfar-gateway", []failure.Class{unanswered}},
		{"unix", "pfard", []failure.Class{network, died, unanswered}},
	} {
		t.Run(row.by+" "+row.victim, func(t *testing.T) {
			if testing.Short() && (row.by != "streamable" || row.victim != "pfar-egress") {
				return // one example is enough
			}
			t.Parallel()
			dir := directory(t, "")
			w := &writer{t: t, by: row.by, journal: filepath.Join(dir, "journal")}
			if row.by == "unix" {
				w.address = filepath.Join(dir, "mcp.sock")
			} else {
				w.address = "127.0.0.1:" + freePort(t)
			}
			w.listen()
			p := start(t, map[string]string{"writes.hcl": w.declared()})
			r := p.awaitRunning("writes")
			if got := server(r, "writes").Protocol; (got == "2026-07-28") != (row.by == "modern") {
				t.Errorf("pfar speaks %s with it", got)
			}
			client := p.speakHTTP(false, "/mcp")
			answers := w.begin(client)
			mark, victim := p.mark(), w.process.Pid
			if row.victim != remote {
				victim = p.only(row.victim)
			}
			check(t, syscall.Kill(victim, syscall.SIGKILL))
			for range heldWrites {
				if a := <-answers; !slices.Contains(row.want, a.class(t)) {
					t.Errorf("a call ended with %s, want %s", a, row.want)
				}
			}
			if row.victim == remote {
				p.awaitFrom(mark, "it is gone", soon, inState("writes", control.Offline))
				w.listen()
			}
			check(t, os.Remove(w.journal+".held"))
			if row.victim == "pfard" {
				<-p.ended
				p.again()
				p.awaitRunning("writes")
			}
			if slices.Contains(row.want, unanswered) { // its session is gone too
				client = p.speakHTTP(false, "/mcp")
			}
			w.answersNext(client)
			done := 1 // the server goes on with it, whoever listens
			if row.victim == remote {
				done = 0
			}
			for n := range heldWrites {
				name := heldWrite(n)
				until(t, name+" done", func() bool { return w.noted("done", name) >= done })
				if begun := w.noted("begun", name); begun != 1 || w.noted("done", name) != done {
					t.Errorf("%s is begun %d times and done %d times", name, begun, w.noted("done", name))
				}
			}
		})
	}
}
