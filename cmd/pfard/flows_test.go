package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfard/setups"
	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
)

const withToken = "server {\n  command = \"sh\"\n}\nauth = { TOKEN = \"vault:a_token\" }\n"

// flowing is a set-up that somebody follows.
type flowing struct {
	t      *testing.T
	d      *daemon
	states chan control.Flow
	err    chan error
}

// begins has somebody begin a set-up.
func (d *daemon) begins(t *testing.T, p control.Peer, wish *control.SetUp) *flowing {
	t.Helper()
	f := &flowing{t, d, make(chan control.Flow, 99), make(chan error, 1)}
	ctx, leave := context.WithCancel(context.Background())
	t.Cleanup(leave)
	go func() {
		begin := control.Request{Verb: control.Begin, SettingUp: control.SettingUp{SetUp: wish}}
		f.err <- d.answer(ctx, p, begin, func(r control.Response) error {
			f.states <- *r.Flow
			return nil
		})
	}()
	return f
}

// until waits for a state.
func (f *flowing) until(state control.FlowState) control.Flow {
	f.t.Helper()
	late := time.After(2 * time.Minute)
	for {
		select {
		case now := <-f.states:
			switch now.State {
			case state:
				return now
			case control.FlowComplete, control.FlowFailed:
				f.t.Fatalf("it has ended as %+v, want %s", now, state)
			}
		case err := <-f.err:
			f.err <- err
			select {
			case now := <-f.states:
				f.states <- now
				continue
			default:
			}
			f.t.Fatalf("it has ended (%v), want %s", err, state)
		case <-late:
			f.t.Fatalf("it never is %s", state)
		}
	}
}

// joined waits until who follows has the present state.
func (f *flowing) joined() {
	f.t.Helper()
	select {
	case now := <-f.states:
		f.states <- now
	case err := <-f.err:
		f.t.Fatalf("it has ended: %v", err)
	case <-time.After(2 * time.Minute):
		f.t.Fatal("there is no state")
	}
}

func operator() control.Peer { return control.Peer{UID: os.Getuid()} }

// supplies answers a set-up.
func (d *daemon) supplies(t *testing.T, id, value string) (now control.Flow, err error) {
	t.Helper()
	q := control.Request{
		Verb:      control.Supply,
		SettingUp: control.SettingUp{Answer: &control.FlowAnswer{ID: id}},
		Secret:    value,
	}
	err = d.answer(t.Context(), operator(), q, func(r control.Response) error { now = *r.Flow; return nil })
	return now, err
}

// comesUp waits until a server has been started so often, and has it say that it runs, and what the gateway found out
// about its secrets.
func (d *daemon) comesUp(t *testing.T, m *machine, name string, starts int, v units.Verification) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); m.count(name) < starts; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s was started %d times, want %d", name, m.count(name), starts)
		}
	}
	d.within(t, func() { v.For = d.delivery.proof(*d.fleet.servers[name].want) })
	u := units.Update{Server: name, State: units.StateRunning, Tools: 3}
	d.fleet.changed(u)
	u.Verification = units.Verification{Result: units.Invalid, Words: "stale", For: "of earlier secrets"}
	d.fleet.changed(u)
	u.Verification = units.Verification{Result: units.Verifying, For: v.For}
	d.fleet.changed(u)
	u.Verification = v
	d.fleet.changed(u)
}

func proven() units.Verification { return units.Verification{Result: units.Verified, Tool: "get_me"} }

func texted(server, text string) *control.SetUp {
	return &control.SetUp{Server: server, Text: &control.Text{New: []byte(text)}}
}

// TestSetUp: a person begins a set-up and gives the secret; the declaration is written, and the server runs. What
// happens is recorded, and the value is nowhere.
func TestSetUp(t *testing.T) {
	d, m, _ := fixture(t)
	f := d.begins(t, operator(), texted("a", withToken))
	asked := f.until(control.AwaitingCredential)
	if w := asked.Wants; w == nil || w.Key != "a_token" || w.Variable != "TOKEN" || asked.Deadline.IsZero() {
		t.Fatalf("it asks %+v", asked)
	}
	if got := d.folderText(t); got != "" {
		t.Errorf("written before the secret is there: %s", got)
	}
	if _, err := d.supplies(t, asked.ID, "hunter2-hunter2\n"); err != nil {
		t.Fatal(err)
	}
	d.comesUp(t, m, "a", 1, proven())
	done := f.until(control.FlowComplete)
	if done.Tools != 3 || done.Verified != "get_me" || done.Server != "a" || done.Wants != nil {
		t.Errorf("done: %+v", done)
	}
	if err := <-f.err; err != nil {
		t.Error(err)
	}
	if got := m.secret["a"]; !strings.Contains(got, "TOKEN:hunter2-hunter2]") {
		t.Errorf("given %q", got)
	}
	if text, err := os.ReadFile(filepath.Join(d.options.declarations, "a.hcl")); err != nil ||
		string(text) != withToken {
		t.Errorf("written %q, %v", text, err)
	}
	if left, err := os.ReadDir(d.options.dirs.Flows()); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
	var told []string
	for _, r := range d.audit.recorded(t, ownChain) {
		if strings.Contains(fmt.Sprintf("%+v", r), "hunter2") {
			t.Errorf("the record has the value: %+v", r)
		}
		if r.Kind == audit.SetUp {
			told = append(told, r.Method+" "+r.Server+" "+r.User)
		}
	}
	who := fmt.Sprintf(" a uid %d", os.Getuid())
	if got := strings.Join(told, "; "); got != "begin"+who+"; complete"+who {
		t.Errorf("recorded %q", got)
	}
	again := d.begins(t, operator(), texted("a", withToken))
	if now := again.until(control.FlowComplete); now.Detail != "it runs already" || now.ID != "" || m.count("a") != 1 {
		t.Errorf("again: %+v, %d starts", now, m.count("a"))
	}
	if _, err := d.supplies(t, asked.ID, "x"); !errors.Is(err, control.ErrNoFlow) {
		t.Errorf("a value after the end: %v", err)
	}
}

// TestSetUpRefuses: what is wrong, not known or not the peer's to ask begins nothing.
func TestSetUpRefuses(t *testing.T) {
	d, m, changed := fixture(t)
	d.put(t, "b.hcl", fmt.Sprintf(good, "x"))
	changed <- struct{}{}
	d.state(t)
	before, guest := d.folderText(t), control.Peer{UID: os.Getuid() + 7}
	client := func(s control.SetUp) *control.SetUp { s.For, s.Page = "claude", true; return &s }
	text, stray := &control.Text{New: []byte(withToken)}, map[string]string{"x": "y"}
	for what, c := range map[string]struct {
		p    control.Peer
		wish *control.SetUp
		want error
	}{
		"nothing to join":         {operator(), nil, control.ErrNoFlow},
		"no name":                 {operator(), &control.SetUp{Text: text}, control.ErrInvalid},
		"a path":                  {operator(), texted("../a", withToken), control.ErrInvalid},
		"no text":                 {operator(), texted("a", ""), control.ErrInvalid},
		"a text that is broken":   {operator(), texted("a", "server {"), control.ErrInvalid},
		"an unknown key":          {operator(), texted("a", withToken+"tokn = 1\n"), control.ErrInvalid},
		"another server's file":   {operator(), texted("b", withToken), control.ErrChanged},
		"no such service":         {operator(), &control.SetUp{Service: "no-such"}, control.ErrInvalid},
		"nothing of the name":     {operator(), &control.SetUp{Server: "no-such"}, control.ErrNoServer},
		"an answer too many":      {operator(), &control.SetUp{Service: "notion", Answers: stray}, control.ErrInvalid},
		"a page":                  {operator(), &control.SetUp{Service: "notion", Page: true}, control.ErrInvalid},
		"a guest for nobody":      {guest, &control.SetUp{Service: "notion", Page: true}, control.ErrInvalid},
		"a guest as the operator": {guest, nil, control.ErrInvalid},
		"a guest with a text":     {guest, client(control.SetUp{Server: "a", Text: text}), control.ErrDenied},
		"a guest with answers":    {guest, client(control.SetUp{Service: "notion", Answers: stray}), control.ErrDenied},
		"a guest with a name":     {guest, client(control.SetUp{Service: "notion", Server: "b"}), control.ErrDenied},
		"a guest without a page":  {guest, &control.SetUp{Service: "notion", For: "claude"}, control.ErrDenied},
		"a guest's own service":   {guest, client(control.SetUp{Service: "no-such"}), control.ErrInvalid},
		"a service that asks":     {guest, client(control.SetUp{Service: "postgres"}), control.ErrInvalid},
		"a guest's odd name":      {guest, &control.SetUp{Service: "notion", Page: true, For: "uid 0"}, control.ErrInvalid},
		"pages that are not":      {guest, client(control.SetUp{Service: "notion"}), control.ErrInvalid},
		"for a client, with text": {operator(), client(control.SetUp{Server: "a", Text: text}), control.ErrDenied},
	} {
		q := control.Request{Verb: control.Begin, SettingUp: control.SettingUp{SetUp: c.wish}}
		err := d.answer(t.Context(), c.p, q, func(r control.Response) error {
			t.Errorf("%s: begun: %+v", what, r.Flow)
			return errors.New("enough")
		})
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
	}
	for _, answer := range []*control.FlowAnswer{nil, {}, {ID: "x"}, {ID: "x", Cancel: true}} {
		q := control.Request{Verb: control.Supply, SettingUp: control.SettingUp{Answer: answer}, Secret: "hunter2"}
		err := d.answer(t.Context(), operator(), q, func(control.Response) error { return nil })
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("an answer %+v: %v", answer, err)
		}
	}
	if got := d.folderText(t); got != before || len(m.instances()) != 1 {
		t.Errorf("the directory has changed: %s", got)
	}
	for _, r := range d.audit.recorded(t, ownChain) {
		if r.Kind == audit.SetUp {
			t.Errorf("recorded: %+v", r)
		}
	}
	if err := d.do(func() error { return d.orders.turn(control.Stop, "b") }); err != nil {
		t.Fatal(err)
	}
	f := d.begins(t, operator(), &control.SetUp{Server: "b"})
	d.comesUp(t, m, "b", 2, units.Verification{})
	if now := f.until(control.FlowComplete); now.Tools != 3 {
		t.Errorf("one that is declared and stopped: %+v", now)
	}
}

// TestSetUpRefused: a value that the service refuses is told in the tool's words. Another one is stored in its place,
// and the server starts with it. Whoever hangs up and joins is told of the same set-up.
func TestSetUpRefused(t *testing.T) {
	d, m, _ := fixture(t)
	ask(t, d, control.Request{Verb: control.Store, Key: "a_token", Secret: "wrong-wrong"})
	f := d.begins(t, operator(), texted("a", withToken))
	d.comesUp(t, m, "a", 1, units.Verification{Result: units.Invalid, Words: "401\nwrong-wrong is no token"})
	asked := f.until(control.CredentialRefused)
	if asked.Attempts != 1 || asked.Wants == nil || asked.Wants.Key != "a_token" ||
		strings.Contains(asked.Detail, "wrong-wrong") || !strings.HasPrefix(asked.Detail, "401 ") {
		t.Fatalf("it asks %+v", asked)
	}
	joined := d.begins(t, operator(), nil)
	if now := joined.until(control.CredentialRefused); now.ID != asked.ID {
		t.Errorf("joined %+v", now)
	}
	if _, err := d.supplies(t, asked.ID, "right-right"); err != nil {
		t.Fatal(err)
	}
	d.comesUp(t, m, "a", 2, proven())
	for _, f := range []*flowing{f, joined} {
		if done := f.until(control.FlowComplete); done.Attempts != 1 || done.Verified != "get_me" {
			t.Errorf("done: %+v", done)
		}
	}
	if got := m.secret["a"]; !strings.Contains(got, "TOKEN:right-right") || m.count("a") != 2 {
		t.Errorf("given %q, %d starts", got, m.count("a"))
	}
}

// TestSetUpCancelled: the server is stopped, the secret stays, and the next set-up needs nobody.
func TestSetUpCancelled(t *testing.T) {
	d, m, _ := fixture(t)
	f := d.begins(t, operator(), texted("a", withToken))
	asked := f.until(control.AwaitingCredential)
	if _, err := d.supplies(t, asked.ID, "hunter2-hunter2"); err != nil {
		t.Fatal(err)
	}
	d.comesUp(t, m, "a", 1, units.Verification{Result: units.Invalid, Words: "no"})
	f.until(control.CredentialRefused)
	if now, err := d.supplies(t, asked.ID, " NeverMind\n"); err != nil || now.State != control.FlowFailed {
		t.Fatalf("%+v, %v", now, err)
	}
	if now := f.until(control.FlowFailed); now.Detail != "cancelled" {
		t.Errorf("it ended as %+v", now)
	}
	if s := d.state(t)["a"]; s.State != control.Stopped || len(m.instances()) > 0 {
		t.Errorf("the server is %+v", s)
	}
	again := d.begins(t, operator(), texted("a", withToken))
	d.comesUp(t, m, "a", 2, proven())
	again.until(control.FlowComplete)
}

// TestSetUpWhileTheLastOneStops: a set-up starts the server that the one before it is stopping.
func TestSetUpWhileTheLastOneStops(t *testing.T) {
	d, m, _ := fixture(t)
	stopping, stopped := make(chan struct{}, 1), make(chan struct{})
	m.gate = func(string) {
		select {
		case stopping <- struct{}{}:
		default: // at the end
		}
		<-stopped
	}
	f := d.begins(t, operator(), texted("a", withToken))
	asked := f.until(control.AwaitingCredential)
	if _, err := d.supplies(t, asked.ID, "hunter2-hunter2"); err != nil {
		t.Fatal(err)
	}
	d.comesUp(t, m, "a", 1, units.Verification{Result: units.Invalid, Words: "no"})
	f.until(control.CredentialRefused)
	if _, err := d.supplies(t, asked.ID, "cancel"); err != nil {
		t.Fatal(err)
	}
	f.until(control.FlowFailed)
	<-stopping
	again := d.begins(t, operator(), texted("a", withToken))
	for runs, deadline := false, time.Now().Add(time.Minute); !runs; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nobody has the server started")
		}
		d.within(t, func() { runs = d.fleet.servers["a"].run })
	}
	close(stopped)
	d.comesUp(t, m, "a", 2, proven())
	again.until(control.FlowComplete)
}

// TestSetUpGrants: a value that a person gives for a server is given to it, whoever else is. One that is there and
// somebody else's is not.
func TestSetUpGrants(t *testing.T) {
	d, m, changed := fixture(t)
	d.put(t, "other.hcl", withToken)
	changed <- struct{}{}
	d.state(t)
	f := d.begins(t, operator(), texted("a", withToken))
	asked := f.until(control.AwaitingCredential)
	if _, err := d.supplies(t, asked.ID, "hunter2-hunter2"); err != nil {
		t.Fatal(err)
	}
	d.comesUp(t, m, "a", 1, proven())
	f.until(control.FlowComplete)

	f = d.begins(t, operator(), texted("thief", withToken))
	now := f.until(control.FlowFailed)
	if !strings.Contains(now.Detail, "pfar vault give thief") || m.count("thief") != 0 {
		t.Errorf("it ended as %+v, %d starts", now, m.count("thief"))
	}
}

// known has the catalogue know a service whose package mcp-x an installer leaves, with a secret that is optional.
func (d *daemon) known(t *testing.T) (fails chan string) {
	t.Helper()
	bin, dir := t.TempDir(), t.TempDir()
	for _, name := range []string{"npm", "node"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	if err := os.WriteFile(filepath.Join(dir, "x.hcl"), []byte(service), 0o644); err != nil {
		t.Fatal(err)
	}
	n := npm{t, d, make(chan string)}
	d.within(t, func() { d.reader.services.dir = dir; d.orders.installs.jobs.Run(n) })
	return n.fails
}

const service = `service "x" {
  setup {
    title   = "X"
    summary = "things"
    package = "npm:mcp-x@1.0.0"
    domains = ["api.example.com"]

    secret "X_EXTRA" {
      key      = "x_extra"
      deliver  = "env"
      where    = "Copy it."
      optional = true
    }

    secret "X_TOKEN" {
      key      = "x_token"
      deliver  = "broker"
      prefixes = ["x_"]
      where    = "Make one."
      url      = "https://example.com/tokens"
    }
  }
}
`

// TestSetUpOfService: the declaration is made of the catalogue's entry when the secrets are there, without the optional
// one that was left out, after the package was installed.
func TestSetUpOfService(t *testing.T) {
	d, m, _ := fixture(t)
	installs := d.known(t)
	f := d.begins(t, operator(), &control.SetUp{Service: "x"})
	asked := f.until(control.AwaitingCredential)
	if w := asked.Wants; w.Variable != "X_EXTRA" || !w.Optional || w.Where != "Copy it." {
		t.Fatalf("it asks %+v", w)
	}
	q := control.Request{
		Verb:      control.Supply,
		SettingUp: control.SettingUp{Answer: &control.FlowAnswer{ID: asked.ID, Skip: true}},
	}
	if w := ask(t, d, q).Flow.Wants; w == nil || w.Variable != "X_TOKEN" || w.URL == "" || w.Optional {
		t.Fatalf("then it asks %+v", w)
	}
	if _, err := d.supplies(t, asked.ID, "x_hunter2-hunter2"); err != nil {
		t.Fatal(err)
	}
	if got := d.folderText(t); got != "" {
		t.Errorf("written before the package is there: %s", got)
	}
	installs <- ""
	d.comesUp(t, m, "x", 1, proven())
	f.until(control.FlowComplete)
	if text := d.folderText(t); strings.Contains(text, "X_EXTRA") || !strings.Contains(text, "X_TOKEN") ||
		!strings.Contains(text, "npm:mcp-x@1.0.0") || strings.Contains(text, "hunter2") {
		t.Errorf("written: %s", text)
	}
}

// TestSetUpNotInstalled: what cannot be installed is told, and nothing is written.
func TestSetUpNotInstalled(t *testing.T) {
	d, m, _ := fixture(t)
	installs := d.known(t)
	ask(t, d, control.Request{Verb: control.Store, Key: "x_token", Secret: "x_hunter2-hunter2"})
	ask(t, d, control.Request{Verb: control.Store, Key: "x_extra", Secret: "hunter2-hunter2"})
	f := d.begins(t, operator(), &control.SetUp{Service: "x"})
	installs <- "no network"
	if now := f.until(control.FlowFailed); !strings.Contains(now.Detail, "no network") {
		t.Errorf("it ended as %+v", now)
	}
	if got := d.folderText(t); got != "" || len(m.instances()) > 0 {
		t.Errorf("written: %s", got)
	}
}

// sheets are pages that nobody sees.
type sheets struct{}

func (sheets) Open(o setups.Order) (string, error) { return "http://127.0.0.1:1/" + o.Flow.Server, nil }
func (sheets) Close(string)                        {}

// TestSetUpOfClient: the gateway begins a set-up for a client, and is told where its page is; it is not told of
// another's, and nothing is done before a person has used the page.
func TestSetUpOfClient(t *testing.T) {
	d, m, _ := fixture(t)
	installs := d.known(t)
	d.orders.flows.UsePages(sheets{})
	ask(t, d, control.Request{Verb: control.Store, Key: "x_token", Secret: "x_hunter2-hunter2"})
	ask(t, d, control.Request{Verb: control.Store, Key: "x_extra", Secret: "hunter2-hunter2"})
	guest := control.Peer{UID: os.Getuid() + 7}
	f := d.begins(t, guest, &control.SetUp{Service: "x", For: "claude", Page: true})
	now := f.until(control.AwaitingCredential)
	for now.Page == "" {
		now = f.until(control.AwaitingCredential)
	}
	if now.Wants != nil || now.Principal != "client claude" || m.count("x") != 0 || d.folderText(t) != "" {
		t.Fatalf("it is %+v", now)
	}
	joined := d.begins(t, guest, &control.SetUp{For: "claude"})
	if again := joined.until(control.AwaitingCredential); again.Page != now.Page {
		t.Errorf("joined %+v", again)
	}
	for _, other := range []*control.SetUp{{For: "cursor"}, {Service: "x", For: "cursor", Page: true}} {
		q := control.Request{Verb: control.Begin, SettingUp: control.SettingUp{SetUp: other}}
		err := d.answer(t.Context(), guest, q, func(r control.Response) error {
			return fmt.Errorf("told %+v", r.Flow)
		})
		if !errors.Is(err, control.ErrNoFlow) && !errors.Is(err, control.ErrBusy) {
			t.Errorf("another client: %v", err)
		}
	}
	if _, err := d.supplies(t, now.ID, ""); err != nil { // the person on the page
		t.Fatal(err)
	}
	installs <- ""
	d.comesUp(t, m, "x", 1, proven())
	f.until(control.FlowComplete)
	d.orders.flows.clients.SetBurst(0)
	q := control.Request{
		Verb:      control.Begin,
		SettingUp: control.SettingUp{SetUp: &control.SetUp{Service: "notion", For: "claude", Page: true}},
	}
	if err := d.answer(t.Context(), guest, q, nil); !errors.Is(err, control.ErrBusy) {
		t.Errorf("one set-up after another: %v", err)
	}
	if !slices.Contains(gatewayGuest(1).Verbs, control.Begin) ||
		slices.Contains(gatewayGuest(1).Verbs, control.Supply) {
		t.Error("the gateway may give secrets, or not begin a set-up")
	}
}

// TestSetUpNextPfard: pfard ends at each step, and what it runs with it. The next one goes on by itself, but for a
// value that nobody has stored yet.
func TestSetUpNextPfard(t *testing.T) {
	steps := []string{"asked", "installing", "starting", "verifying", "refused"}
	for at, step := range steps {
		o := options{
			declarations: t.TempDir(), servers: "/srv/servers", dirs: control.Dirs{Run: t.TempDir(), State: t.TempDir()},
		}
		v := vaultIn(t, o.dirs)
		d, m, _, end := over(t, o, v)
		installs := d.known(t)
		f := d.begins(t, operator(), &control.SetUp{Service: "x"})
		asked := f.until(control.AwaitingCredential)
		ask(
			t,
			d,
			control.Request{
				Verb:      control.Supply,
				SettingUp: control.SettingUp{Answer: &control.FlowAnswer{ID: asked.ID, Skip: true}},
			},
		)
		f.until(control.AwaitingCredential)
		if at >= 1 {
			if _, err := d.supplies(t, asked.ID, "x_hunter2-hunter2"); err != nil {
				t.Fatal(err)
			}
		}
		if at >= 2 {
			installs <- ""
		}
		if at >= 3 {
			v := units.Verification{Result: units.Verifying}
			if step == "refused" {
				v = units.Verification{Result: units.Invalid, Words: "no such token"}
			}
			d.comesUp(t, m, "x", 1, v)
		}
		switch step {
		case "installing", "starting":
			f.until(control.FlowSpawning)
		case "verifying":
			f.until(control.FlowVerifying)
		case "refused":
			f.until(control.CredentialRefused)
		}
		if at == 2 {
			d.awaits(t, "x was started", func() bool { return m.count("x") == 1 })
		}
		dir := d.reader.services.dir
		end()
		if err := d.audit.own.End(); err != nil {
			t.Fatal(err)
		}
		if err := <-f.err; err == nil {
			t.Errorf("%s: who follows is told nothing", step)
		}

		installs = make(chan string)
		d, m, _, _ = over(t, o, v, func(d *daemon) {
			d.reader.services.dir = dir
			d.orders.installs.jobs.Run(npm{t, d, installs})
		})
		f = d.begins(t, operator(), nil)
		f.joined()
		if step == "asked" || step == "refused" {
			now := f.until(map[bool]control.FlowState{
				true: control.AwaitingCredential, false: control.CredentialRefused,
			}[step == "asked"])
			if now.ID != asked.ID || now.Wants == nil || now.Wants.Variable != "X_TOKEN" {
				t.Fatalf("%s: the next one asks %+v", step, now)
			}
			if _, err := d.supplies(t, asked.ID, "x_right-right-right"); err != nil {
				t.Fatal(err)
			}
		}
		if at < 2 {
			installs <- ""
		}
		starts := 1
		if step == "refused" { // it starts as it is declared, and again with the value
			starts = 2
		}
		d.comesUp(t, m, "x", starts, proven())
		if now := f.until(control.FlowComplete); now.ID != asked.ID || now.Verified != "get_me" {
			t.Errorf("%s: it ended as %+v", step, now)
		}
		if left, err := os.ReadDir(o.dirs.Flows()); err != nil || len(left) > 0 {
			t.Errorf("%s: left %v, %v", step, left, err)
		}
	}
}

// awaits waits until something is so.
func (d *daemon) awaits(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not so: %s", what)
		}
	}
}

// TestSetUpLeadsOn: a value that comes into the vault in another way has a set-up go on that waits for it, also for one
// in place of a value that was refused. One that was there already changes nothing.
func TestSetUpLeadsOn(t *testing.T) {
	d, m, _ := fixture(t)
	f := d.begins(t, operator(), texted("a", withToken))
	asked := f.until(control.AwaitingCredential)
	ask(t, d, control.Request{Verb: control.Store, Key: "other", Secret: "hunter2-hunter2"})
	ask(t, d, control.Request{Verb: control.Store, Key: "a_token", Secret: "wrong-wrong"})
	d.comesUp(t, m, "a", 1, units.Verification{Result: units.Invalid, Words: "no"})
	refused := f.until(control.CredentialRefused)
	if refused.ID != asked.ID || refused.Attempts != 1 {
		t.Errorf("it is %+v", refused)
	}
	ask(t, d, control.Request{Verb: control.Store, Key: "a_token", Secret: "wrong-wrong"})
	if now, err := d.orders.logins.flows.Wanted(asked.ID); err != nil || now.Key != "a_token" {
		t.Errorf("the refused value once more: %+v, %v", now, err)
	}
	starts := m.count("a")
	ask(t, d, control.Request{Verb: control.Rotate, Key: "a_token", Secret: "right-right"})
	d.comesUp(t, m, "a", starts+1, proven())
	if done := f.until(control.FlowComplete); done.Attempts != 1 || done.Verified != "get_me" {
		t.Errorf("done: %+v", done)
	}
}

// TestSetUpLateAnswer: a value for one secret is not stored for another one, which the set-up asks for by now.
func TestSetUpLateAnswer(t *testing.T) {
	d, _, _ := fixture(t)
	const text = "server {\n  command = \"sh\"\n}\nauth = { ONE = \"vault:one\", TWO = \"vault:two\" }\n"
	f := d.begins(t, operator(), texted("a", text))
	asked := f.until(control.AwaitingCredential)
	if asked.Wants.Key != "one" {
		t.Fatalf("it asks %+v", asked.Wants)
	}
	ask(t, d, control.Request{Verb: control.Store, Key: "one", Secret: "hunter2-hunter2"})
	for asked.Wants == nil || asked.Wants.Key != "two" {
		asked = f.until(control.AwaitingCredential)
	}
	for _, late := range []control.Request{
		{Secret: "late-late-late", SettingUp: control.SettingUp{Answer: &control.FlowAnswer{ID: asked.ID, Key: "one"}}},
		{SettingUp: control.SettingUp{Answer: &control.FlowAnswer{ID: asked.ID, Key: "one", Skip: true}}},
	} {
		late.Verb = control.Supply
		err := d.answer(t.Context(), operator(), late, func(control.Response) error { return nil })
		if !errors.Is(err, control.ErrInvalid) || strings.Contains(err.Error(), "late-late") ||
			!strings.Contains(err.Error(), "the answer is for ONE, and it waits for TWO; nothing was stored") {
			t.Errorf("a late answer: %v", err)
		}
	}
	if keys, err := d.vault.Keys(); err != nil || !slices.Equal(keys, []string{"one"}) {
		t.Errorf("the vault has %v, %v", keys, err)
	}
}
