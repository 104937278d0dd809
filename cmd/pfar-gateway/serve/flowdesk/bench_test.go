package flowdesk_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
	"github.com/pfar/pfar/cmd/pfar-gateway/consent"
	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/enforce/enforcetest"
	"github.com/pfar/pfar/cmd/pfar-gateway/models"
	"github.com/pfar/pfar/cmd/pfar-gateway/native"
	"github.com/pfar/pfar/cmd/pfar-gateway/pins"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/registrytest"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/call"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/clients"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/flowdesk"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/audit/trail"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/flows"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/jsonrpc"
)

// TestMain lets the test's binary be the process that runs programs of jq.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == native.PickVerb {
		os.Exit(native.RunPick(os.Stdin, os.Stdout))
	}
	os.Exit(m.Run())
}

// tokens of the clients laptop and phone.
var tokens = map[string]string{"laptop": strings.Repeat("1", 32), "phone": strings.Repeat("2", 32)}

// bench is a gateway's endpoint with two clients and the servers that a test launches.
type bench struct {
	*registrytest.Registry
	dir      string
	gate     *enforce.Point
	consents consent.Store
	records  *records
	desk     *flowdesk.Desk
	models   *models.Models
	srv      *serve.Server
	pfard    func(context.Context) error // asks pfard for an answer; nil: there is nobody to ask
	addr     string
	socket   string
	files    string
	close    func()

	mu     sync.Mutex
	called []string // of the servers: "server.tool arguments"
}

// records keeps what is recorded.
type records struct {
	enforce.Trail
	mu    sync.Mutex
	all   []audit.Record
	notes []audit.Record // of what somebody does with a run
}

func (r *records) Open(a *audit.Record) error {
	err := r.Trail.Open(a)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, *a)
	return err
}

func (r *records) of(tool string) (list []audit.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.all {
		if a.Tool == tool {
			list = append(list, a)
		}
	}
	return list
}

// Append keeps what is recorded of a run itself.
func (r *records) Append(a *audit.Record) error {
	err := r.Trail.Append(a)
	r.mu.Lock()
	defer r.mu.Unlock()
	if a.Kind == audit.Session {
		r.notes = append(r.notes, *a)
	}
	return err
}

func (r *records) noted() []audit.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.notes)
}

func newBench(t testing.TB) *bench {
	t.Helper()
	limits := registry.DefaultLimits()
	limits.Call, limits.Refresh = 20*time.Second, 20*time.Millisecond
	b := &bench{Registry: registrytest.New(t, limits), dir: t.TempDir(), files: t.TempDir()}
	store, err := pins.Open(registrytest.Dir(t), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	b.Pins, b.Trust = store, true
	b.Pin(store)
	b.start(t)
	t.Cleanup(func() { b.close() })
	return b
}

// start starts the endpoint on what the one before has left on the disk.
func (b *bench) start(t testing.TB) {
	t.Helper()
	b.gate, b.consents = enforcetest.Consenting(t, b.dir, "laptop", "phone")
	b.records = &records{Trail: b.gate.Trail}
	b.gate.Trail = b.records
	b.srv = serve.New(serve.Parts{
		Log: slog.New(slog.DiscardHandler), Version: "test", Registry: b.Registry.Registry, Gate: b.gate,
		Limits: serve.DefaultLimits(),
	})
	err := b.srv.Flow(func(calls *call.Calls) (serve.Flows, error) {
		b.models = &models.Models{Dir: registrytest.Dir(t)}
		nodes := &native.Nodes{
			Models: b.models,
			Files:  &native.Files{Dir: b.files, DB: b.consents.DB, Limits: native.DefaultFileLimits()},
			Picker: []string{os.Args[0], native.PickVerb}, Clock: calls.Clock, Log: slog.New(slog.DiscardHandler),
		}
		var err error
		b.desk, err = flowdesk.Open(flowdesk.Parts{
			Calls: calls, DB: b.consents.DB, Nodes: nodes, Models: b.models, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
			Pfard: b.pfard,
		})
		return b.desk, err
	})
	if err != nil {
		t.Fatal(err)
	}
	b.learn(nil)
	b.Watch(b.srv.Event)
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b.addr, b.socket = tcp.Addr().String(), filepath.Join(t.TempDir(), "socket")
	guarded, err := b.srv.Loopback([]byte(strings.Repeat("0", 32)), tcp.Addr().(*net.TCPAddr).Port)
	if err != nil {
		t.Fatal(err)
	}
	unix, err := net.ListenUnix("unix", &net.UnixAddr{Name: b.socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	loopback, local := b.srv.HTTP(guarded), b.srv.HTTP(b.srv.Local(uint32(os.Geteuid())))
	go loopback.Serve(tcp)
	peers := clients.Peers{UnixListener: unix, UIDs: []uint32{uint32(os.Geteuid())}, Log: slog.New(slog.DiscardHandler)}
	go local.Serve(peers)
	b.desk.Start()
	b.close = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		b.desk.Close(ctx)
		loopback.Close()
		local.Close()
		_ = b.records.Trail.(*trail.Log).End()
		b.consents.DB.Close()
	})
}

// learn declares the clients, with a change.
func (b *bench) learn(change func(*access.Client)) {
	var list []access.Client
	for name, token := range tokens {
		c := access.BuiltIn(name)
		c.Tokens = []access.Digest{access.DigestOf([]byte(token))}
		if change != nil {
			if change(&c); c.Name == "" {
				continue
			}
		}
		list = append(list, c)
	}
	b.srv.Learn(list)
}

// server is a server whose tools have these facts, by its owner's word. Each returns what it is told in "says".
func (b *bench) server(t testing.TB, name string, facts gate.Word, tools ...string) *registrytest.Launched {
	t.Helper()
	return b.scripted(t, name, facts, func(s *registrytest.Server, m jsonrpc.Message, _, arguments string) {
		var a struct{ Says string }
		_ = json.Unmarshal([]byte(arguments), &a)
		s.Result(m, fmt.Sprintf(`{"content":[{"type":"text","text":%s}]}`, jsonrpc.Quote("said: "+a.Says)))
	}, tools...)
}

func (b *bench) scripted(t testing.TB, name string, facts gate.Word,
	on func(s *registrytest.Server, m jsonrpc.Message, tool, arguments string), tools ...string) *registrytest.Launched {
	t.Helper()
	facts.From = "owner"
	declared, err := json.Marshal(gate.Declared{Server: name, Words: []gate.Word{facts}})
	if err != nil {
		t.Fatal(err)
	}
	list := ""
	for i, tool := range tools {
		if i > 0 {
			list += ","
		}
		list += fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object","properties":{"says":{"type":"string"},`+
			`"to":{"type":"string","default":"all"}},"required":["says"]},"annotations":{"readOnlyHint":true}}`, tool)
	}
	l := b.Launch(t, handover.Server{Name: name, Declared: declared}, registrytest.Script{
		Lists: map[string]string{"tools/list": `{"tools":[` + list + `]}`},
		On: func(s *registrytest.Server, m jsonrpc.Message) bool {
			if m.Method != "tools/call" {
				return false
			}
			var p struct {
				Name      string
				Arguments json.RawMessage
			}
			_ = json.Unmarshal(m.Params, &p)
			b.mu.Lock()
			b.called = append(b.called, name+"."+p.Name+" "+string(p.Arguments))
			b.mu.Unlock()
			on(s, m, p.Name, string(p.Arguments))
			return true
		},
	})
	l.Ready(t)
	return l
}

func (b *bench) calls() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.called...)
}

var (
	public = gate.Word{Confidentiality: gate.Public, Integrity: gate.Clean, Audience: gate.Public, Effect: gate.None}
	wild   = gate.Word{Confidentiality: gate.Public, Integrity: gate.Raw, Audience: gate.Public, Effect: gate.None}
	post   = gate.Word{
		Confidentiality: gate.Public, Integrity: gate.Clean, Audience: gate.Public, Effect: gate.Irreversible}
	diary = gate.Word{Confidentiality: gate.Sensitive, Integrity: gate.Clean, Audience: gate.Sensitive, Effect: gate.None}
)

// asking is who gives an order: a client by its token, or the operator at the Unix socket for a path.
type asking struct {
	client string // "": the operator
	path   string // behind /flows
}

var laptop, phone, operator = asking{client: "laptop"}, asking{client: "phone"}, asking{path: "/operator/default"}

// send gives an order. The answer is to be closed.
func (b *bench) send(t testing.TB, who asking, o flows.Order) *http.Response {
	t.Helper()
	body, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return b.post(t, who, string(body), nil)
}

func (b *bench) post(t testing.TB, who asking, body string, edit func(*http.Request)) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+b.addr+"/flows"+who.path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+tokens[who.client])
	transport := &http.Transport{DisableKeepAlives: true}
	if who.client == "" {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", b.socket)
		}
	}
	if edit != nil {
		edit(r)
	}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// order gives an order that is carried out, and returns the first line of the answer.
func (b *bench) order(t testing.TB, who asking, o flows.Order) flows.Answer {
	t.Helper()
	resp := b.send(t, who, o)
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		t.Fatalf("%+v: %d %s", o, resp.StatusCode, text)
	}
	var a flows.Answer
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		t.Fatal(err)
	}
	return a
}

// refused gives an order that is refused, with a status and words.
func (b *bench) refused(t testing.TB, who asking, o flows.Order, status int, want string) {
	t.Helper()
	resp := b.send(t, who, o)
	text, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != status || !bytes.Contains(text, []byte(want)) {
		t.Errorf("%+v: %d %s, want %d with %q", o, resp.StatusCode, text, status, want)
	}
}

// follower reads the answer to run or resume.
type follower struct {
	t     testing.TB
	lines *bufio.Scanner
	last  flows.Status
	first flows.Answer
}

func (b *bench) follow(t testing.TB, who asking, o flows.Order) *follower {
	t.Helper()
	resp := b.send(t, who, o)
	f := &follower{t: t, lines: bufio.NewScanner(resp.Body)}
	f.lines.Buffer(nil, 16<<20)
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		t.Fatalf("%d %s", resp.StatusCode, text)
	}
	return f
}

// run runs a line.
func (b *bench) run(t testing.TB, who asking, line string) *follower {
	t.Helper()
	return b.follow(t, who, flows.Order{Verb: flows.Run, Form: "line", Text: line})
}

// until reads on to a state of the run.
func (f *follower) until(states ...flows.State) flows.Status {
	f.t.Helper()
	for f.lines.Scan() {
		var a flows.Answer
		if err := json.Unmarshal(f.lines.Bytes(), &a); err != nil {
			f.t.Fatalf("%s: %v", f.lines.Bytes(), err)
		}
		if a.Run == nil {
			f.t.Fatalf("there is no run: %s", f.lines.Bytes())
		}
		if f.first.Run == nil {
			f.first = a
		}
		trace := f.last.Trace
		f.last = *a.Run
		f.last.Trace = append(trace, a.Run.Trace...)
		for _, s := range states {
			if f.last.State == s {
				return f.last
			}
		}
		if f.last.State != flows.Running && f.last.State != flows.Waiting {
			f.t.Fatalf("the run is %s (%s), want %s", f.last.State, f.last.Reason, states)
		}
	}
	f.t.Fatalf("the answer has ended in the state %s: %v", f.last.State, f.lines.Err())
	return f.last
}

// answer has a person answer what waits.
func (b *bench) answer(t testing.TB, id string, approve bool) approval.Shown {
	t.Helper()
	shown, err := b.gate.Approvals.Show(id)
	if err != nil {
		t.Fatalf("%s: %v", id, err)
	}
	answer := approval.Answer{Approve: approve, Digest: shown.Digest}
	err = b.gate.Approvals.Answer(id, answer, approval.Approver{Name: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	return shown
}
