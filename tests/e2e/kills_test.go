package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
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
	"pipe":       {"", "pipe", "", nil}, // standard input and output
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
// With a certificate it speaks TLS, and wants a token.
func serveWrites(certificate string) error {
	by, address, journal := writesBy[os.Args[1]], os.Args[2], os.Args[3]
	note, err := os.OpenFile(journal, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	write := func(w writeArguments) {
		fmt.Fprintf(note, "begun %s\n", w.Name) // one write(2) each
		for w.Held {
			_, err := os.Stat(journal + ".held")
			w.Held = err == nil
			time.Sleep(10 * time.Millisecond)
		}
		fmt.Fprintf(note, "done %s\n", w.Name)
	}
	if by.handler == nil {
		return writesServer(write).Run(context.Background(), &mcp.StdioTransport{})
	}
	handler := by.handler(write)
	l, err := net.Listen(by.network, address)
	if err == nil && by.network == "unix" {
		err = os.Chmod(address, 0o666)
	}
	if err == nil && certificate != "" {
		var pair tls.Certificate
		pair, err = tls.LoadX509KeyPair(certificate, certificate)
		l, handler = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{pair}}), closedTo(handler)
	}
	if err != nil {
		return err
	}
	fmt.Println("ready")
	return http.Serve(l, handler)
}

// closedTo answers 401 to everybody who does not have the token.
func closedTo(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+remoteToken {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, r)
	})
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

// writesMore is what each declaration of a serveWrites says.
const writesMore = "retries = 5\ntimeout = \"1h\"\ntool \"write\" {\n  semantics = \"write\"\n}\n"

// declared is the text of a declaration of it: it runs already.
func (w *writer) declared() string {
	if w.by == "unix" {
		return attachedTo(w.address, writesMore)
	}
	return w.at("http://"+w.address) + "}\n" + writesMore + trust.Honest
}

// at begins a declaration of it at a host.
func (w *writer) at(host string) string {
	by := writesBy[w.by]
	return fmt.Sprintf("server {\n  transport = %q\n  url = %q\n", by.transport, host+by.path)
}

// started is the text of a declaration of it that has pfar start it.
func (w *writer) started() string {
	self, err := os.Executable()
	check(w.t, err)
	dir := filepath.Dir(w.journal)
	check(w.t, os.Chmod(dir, 0o777))
	by := writesBy[w.by]
	script := fmt.Sprintf("%s=writes exec %s %s %s %s", roleVariable, self, w.by, w.address, w.journal)
	where := fmt.Sprintf("path = %q\n", w.address)
	switch {
	case w.by == "pipe":
		script += fmt.Sprintf(" <%s.in >%[1]s.out", w.address)
	case by.network == "tcp":
		where = fmt.Sprintf("url = %q\n", "http://"+w.address+by.path)
	}
	return declare("sh", []string{"-c", script}, fmt.Sprintf("transport = %q\n%ssandbox {\n  read_only = [%q]\n"+
		"  writable = [%q]\n}\n%s", by.transport, where, self, dir, writesMore))
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

// death is a process that is killed while calls are with a server.
type death struct {
	by, how, victim string          // a key of writesBy, and constants below
	want            []failure.Class // of the calls
}

const (
	unstarted = "elsewhere" // it runs already: at an address of this machine, or at a socket
	behindTLS = "TLS"       // likewise, and its token is on the wire only
	inSandbox = "started"   // by pfar, in its sandbox

	itself = "the server itself"
)

const writesHost = "writes.vendor.example"

// TestKilledOnTheWay kills each process that a call passes through on its way to a server: one at the network, one at a
// socket, and one that pfar starts and speaks with by its adapter. It is killed while calls that write are with the
// server. Each of them ends with an error that says what has happened, and that they may have been carried out, or with
// its connection; no write is made twice, however often the declaration has pfar try; and the client's next call is
// answered.
func TestKilledOnTheWay(t *testing.T) {
	t.Parallel()
	network, died := []failure.Class{failure.NetworkError}, []failure.Class{failure.Died}
	cut := []failure.Class{unanswered}
	whole := []failure.Class{failure.NetworkError, failure.Died, unanswered} // all end at once, in any order
	short := []string{"streamable elsewhere pfar-egress", "streamable TLS pfar-egress", "unix started pfar-adapter",
		"pipe started " + itself, "streamable elsewhere " + itself, "streamable elsewhere pfar-gateway",
		"streamable elsewhere pfard"}
	for _, d := range []death{
		{"streamable", unstarted, "pfar-egress", network},
		{"streamable", unstarted, "pfar-adapter", died},
		{"streamable", unstarted, itself, network},
		{"streamable", unstarted, "pfar-gateway", cut},
		{"streamable", unstarted, "pfard", whole},
		{"streamable", behindTLS, "pfar-egress", network},
		{"streamable", behindTLS, "pfar-adapter", died},
		{"events", unstarted, "pfar-egress", network},
		{"events", unstarted, itself, network},
		{"events", unstarted, "pfar-adapter", died},
		{"events", unstarted, "pfar-gateway", cut},
		{"events", unstarted, "pfard", whole},
		{"modern", unstarted, "pfar-egress", network},
		{"modern", unstarted, itself, network},
		{"modern", unstarted, "pfar-adapter", died},
		{"modern", unstarted, "pfar-gateway", cut},
		{"modern", unstarted, "pfard", whole},
		{"unix", unstarted, "pfar-adapter", died},
		{"unix", unstarted, itself, network},
		{"unix", unstarted, "pfar-gateway", cut},
		{"unix", unstarted, "pfard", whole},
		{"unix", inSandbox, "pfar-adapter", died},
		{"unix", inSandbox, itself, died},
		{"streamable", inSandbox, "pfar-adapter", died},
		{"streamable", inSandbox, itself, died},
		{"events", inSandbox, itself, died},
		{"modern", inSandbox, itself, died},
		{"pipe", inSandbox, "pfar-adapter", died},
		{"pipe", inSandbox, itself, died},
		{"pipe", inSandbox, "pfar-gateway", cut},
		{"pipe", inSandbox, "pfard", whole},
	} {
		name := d.by + " " + d.how + " " + d.victim
		if testing.Short() && !slices.Contains(short, name) || d.how == behindTLS && os.Getuid() != 0 {
			continue // one example of each is enough; and another network takes root
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d.happens(t)
		})
	}
}

// stage starts the server and pfar, and returns a function for a client's session.
func (d death) stage(t *testing.T) (*writer, *pfar, func() *rawHTTP) {
	t.Helper()
	dir := directory(t, "")
	w := &writer{t: t, by: d.by, journal: filepath.Join(dir, "journal"), address: "127.0.0.1:" + freePort(t)}
	switch {
	case d.by == "unix" && d.how == inSandbox, d.by == "pipe":
		w.address = "/run/writes/end"
	case d.by == "unix":
		w.address = filepath.Join(dir, "mcp.sock")
	}
	if d.how == behindTLS {
		_, wrap := startStandIn[struct{}](t, "writes", []string{writesHost}, d.by, ":443", w.journal)
		p := prepare(t, map[string]string{"writes.hcl": w.at("https://"+writesHost) + "}\n" + writesMore + trust.Honest +
			"auth = { token = \"vault:writes_token\" }\n"})
		p.up(wrap...)
		p.keep("set", "writes_token", remoteToken)
		return w, p, func() *rawHTTP { return p.agent(p.token()) } // its port is in another network
	}
	text := w.started
	if d.how == unstarted {
		w.listen()
		text = w.declared
	}
	p := start(t, map[string]string{"writes.hcl": text()})
	return w, p, func() *rawHTTP { return p.speakHTTP(false, "/mcp") }
}

// kill ends the process.
func (d death) kill(w *writer, p *pfar) {
	w.t.Helper()
	victim := 0
	switch {
	case d.victim != itself:
		victim = p.only(d.victim)
	case d.how == inSandbox:
		self, err := os.Executable()
		check(w.t, err)
		name := filepath.Base(self)
		victim = p.only(name[:min(len(name), 15)]) // TASK_COMM_LEN, less the NUL
	default:
		victim = w.process.Pid
	}
	check(w.t, syscall.Kill(victim, syscall.SIGKILL))
}

func (d death) happens(t *testing.T) {
	w, p, session := d.stage(t)
	r := p.awaitRunning("writes")
	newer := d.by == "modern" || d.by == "pipe" // the library has it without HTTP
	if got := server(r, "writes").Protocol; (got == "2026-07-28") != newer {
		t.Errorf("pfar speaks %s with it", got)
	}
	client := session()
	answers := w.begin(client)
	mark := p.mark()
	d.kill(w, p)
	for range heldWrites {
		a := <-answers
		if class := a.class(t); !slices.Contains(d.want, class) ||
			class != unanswered && !strings.Contains(a.String(), "may have been carried out") {
			t.Errorf("a call ended with %s, want %s", a, d.want)
		}
	}
	if d.victim == itself && d.how == unstarted {
		p.awaitFrom(mark, "it is gone", soon, inState("writes", control.Offline))
		w.listen()
	}
	if d.how == inSandbox && d.victim != "pfar-gateway" && d.victim != "pfard" { // the sandbox has ended
		p.awaitFrom(mark, "it has crashed", soon, inState("writes", control.BackOff))
	}
	check(t, os.Remove(w.journal+".held"))
	if d.victim == "pfard" {
		<-p.ended
		p.again()
		p.awaitRunning("writes")
	}
	if slices.Contains(d.want, unanswered) { // its session is gone too
		client = session()
	}
	w.answersNext(client)
	done := 1 // the server goes on with it, whoever listens
	if d.victim == itself || d.how == inSandbox && d.victim != "pfar-gateway" {
		done = 0 // the sandbox ends with its adapter, and with pfard
	}
	for n := range heldWrites {
		name := heldWrite(n)
		until(t, name+" done", func() bool { return w.noted("done", name) >= done })
		if begun := w.noted("begun", name); begun != 1 || w.noted("done", name) != done {
			t.Errorf("%s is begun %d times and done %d times", name, begun, w.noted("done", name))
		}
	}
}
