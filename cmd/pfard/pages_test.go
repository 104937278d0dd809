package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/oauth"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/page"
)

// browsed stands in for the processes of pages: a test says what they say.
type browsed struct {
	opened chan *browser
	fail   error
	silent bool
}

// runChecks finds nothing.
func (b *browsed) runChecks(context.Context) ([]byte, error) { return []byte("[]"), b.fail }

// verifyAudit finds no chain.
func (b *browsed) verifyAudit(context.Context) ([]byte, error) { return []byte("[]"), b.fail }

// browser is one page's process, and the person before it.
type browser struct {
	conn     *attach.Conn
	task     page.Task
	instance string
}

func (b *browsed) runPage(ctx context.Context, instance string, talk pageTalk) error {
	if b.fail != nil {
		return b.fail
	}
	ours, theirs, err := ends()
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { ours.Close() })()
	over := make(chan struct{})
	go func() {
		defer close(over)
		talk(ours)
	}()
	_, files, err := theirs.Receive()
	if err != nil || len(files) != 1 {
		return errors.New("no welcome")
	}
	text, err := units.ReadSealed(files[0], page.MaxTask)
	if err != nil {
		return err
	}
	w := &browser{conn: theirs, instance: instance}
	if err := json.Unmarshal(text, &w.task); err != nil {
		return err
	}
	listens := attach.Listens{Port: 4711}
	if b.silent {
		listens = attach.Listens{Error: "listening on 127.0.0.1:1: another program has the port"}
	}
	if err := theirs.Send(attach.Message{PageTalk: attach.PageTalk{Listens: &listens}}); err != nil {
		return err
	}
	b.opened <- w
	<-over
	ours.Close()
	return nil
}

func (w *browser) acts(t *testing.T, act page.Act, value string) {
	t.Helper()
	w.actsFor(t, "", act, value)
}

func (w *browser) actsFor(t *testing.T, key string, act page.Act, value string) {
	t.Helper()
	var files []*os.File
	if value != "" {
		f, err := units.Sealed("value", []byte(value))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files = append(files, f)
	}
	acted := attach.Message{PageTalk: attach.PageTalk{Acted: &attach.Acted{Act: act, Key: key}}}
	if err := w.conn.Send(acted, files...); err != nil {
		t.Fatal(err)
	}
}

// until waits until the page shows something.
func (w *browser) until(t *testing.T, is func(page.State) bool) page.State {
	t.Helper()
	stop := time.AfterFunc(2*time.Minute, func() { w.conn.Close() })
	defer stop.Stop()
	for {
		m, _, err := w.conn.Receive()
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(m)
		if err != nil || strings.Contains(string(text), "hunter2") {
			t.Fatalf("the page's process sees a secret: %s, %v", text, err)
		}
		if m.Shown != nil && is(*m.Shown) {
			return *m.Shown
		}
	}
}

func phase(want page.Phase) func(page.State) bool {
	return func(s page.State) bool { return s.Phase == want }
}

func withPages(t *testing.T) (*daemon, *machine, *browsed) {
	t.Helper()
	d, m, _ := fixture(t)
	b := &browsed{opened: make(chan *browser, 9)}
	d.servePages(b)
	return d, m, b
}

func paged(server, text string) *control.SetUp {
	s := texted(server, text)
	s.Page = true
	return s
}

// TestPage: a person's value goes from the page to the vault, and the page shows what comes of it. It is told what the
// server will see, reach and hold; the link is nobody's but of whoever has begun the set-up.
func TestPage(t *testing.T) {
	d, m, b := withPages(t)
	f := d.begins(t, operator(), paged("a", withToken))
	asked := f.until(control.AwaitingCredential)
	w := <-b.opened
	for asked.Page == "" {
		asked = f.until(control.AwaitingCredential)
	}
	if asked.Page != page.Link(w.task.Nonce, 4711) || len(w.task.Nonce) < 26 ||
		w.task.Title != "a" || w.task.Asker != "" ||
		w.task.Program != "sh" || !slices.Equal(w.task.Holds, []string{"TOKEN"}) ||
		w.task.State.Wanted.Name != "TOKEN" ||
		w.task.State.Words != "" ||
		w.task.State.Deadline.IsZero() {
		t.Fatalf("%+v at %q", w.task, asked.Page)
	}
	if !units.IsSession(w.instance) || strings.Contains(w.instance, strings.ToLower(w.task.Nonce[:8])) {
		t.Errorf("the unit is %q", w.instance)
	}
	w.acts(t, page.Enter, "hunter2-hunter2")
	d.comesUp(t, m, "a", 1, proven())
	if s := w.until(t, func(s page.State) bool { return s.Phase.Over() }); s.Phase != page.Done || s.Tools != 3 {
		t.Errorf("%+v", s)
	}
	f.until(control.FlowComplete)
	if got := m.secret["a"]; !strings.Contains(got, "TOKEN:hunter2-hunter2]") {
		t.Errorf("given %q", got)
	}
	for _, r := range d.audit.recorded(t, ownChain) {
		b, _ := json.Marshal(r)
		if strings.Contains(string(b), w.task.Nonce) || strings.Contains(string(b), "hunter2") {
			t.Errorf("recorded: %s", b)
		}
	}
	w.conn.Close()
}

// TestPageActs: what else a person may do, and what the process of a page may say.
func TestPageActs(t *testing.T) {
	d, _, b := withPages(t)
	f := d.begins(t, operator(), paged("a", withToken))
	w := <-b.opened
	w.acts(t, page.Enter, "") // no button does that while a value is wanted
	if s := w.until(t, phase(page.Waiting)); s.Words == "" || s.Wanted == nil {
		t.Errorf("nothing entered: %+v", s)
	}
	w.acts(t, page.Skip, "")
	if s := w.until(t, phase(page.Waiting)); !strings.Contains(s.Words, "TOKEN") {
		t.Errorf("skipped what must be: %+v", s)
	}
	w.acts(t, "store", "hunter2-hunter2")
	if s := w.until(t, phase(page.Waiting)); !strings.Contains(s.Words, "no button") {
		t.Errorf("another act: %+v", s)
	}
	if err := w.conn.Send(attach.Message{PageTalk: attach.PageTalk{Listens: &attach.Listens{Port: 1}}}); err != nil {
		t.Fatal(err)
	}
	w.acts(t, page.Cancel, "")
	if s := w.until(t, phase(page.Failed)); s.Words != "cancelled" {
		t.Errorf("%+v", s)
	}
	if now := f.until(control.FlowFailed); now.Page != "" {
		t.Errorf("%+v", now)
	}
	if stored, err := d.vault.Keys(); err != nil || len(stored) > 0 {
		t.Errorf("stored %v, %v", stored, err)
	}
}

// TestPageSignIn: a person signs in on the page. Its process sees the code, and no token. A sign-in that fails, or that
// the person gives up, leaves the set-up as it was.
func TestPageSignIn(t *testing.T) {
	d, m, _, f, _ := bureau(t)
	if err := d.vault.Set("acme_client", []byte("CS-login-hunter2")); err != nil {
		t.Fatal(err)
	}
	b := &browsed{opened: make(chan *browser, 9)}
	d.servePages(b)
	follow := d.begins(t, operator(), paged("b", declaresToken))
	w := <-b.opened
	if wanted := w.task.State.Wanted; !wanted.SignIn || wanted.Key != "drive" {
		t.Fatalf("%+v", wanted)
	}
	w.actsFor(t, "other", page.SignIn, "")
	w.until(t, func(s page.State) bool { return s.Phase == page.Waiting && strings.Contains(s.Words, "now waits for") })
	w.acts(t, page.GiveUp, "")
	w.until(t, phase(page.Waiting))

	shows := attach.Progress{URL: "https://login.example/d", Code: "A-B", Complete: "https://login.example/d?c",
		Life: time.Minute}
	w.actsFor(t, "drive", page.SignIn, "")
	denied := make(chan struct{})
	f.acts <- func(_ oauth.Task, e errand) error {
		if err := e.show(shows, f); err != nil {
			t.Error(err)
		}
		<-denied
		return gives(e, attach.Refreshed{Error: "the sign-in was refused"}, oauth.Answer{})
	}
	is := w.until(t, phase(page.SigningIn))
	if is.Device == nil || is.Device.Code != "A-B" || is.Device.URL != shows.URL || is.Device.Complete != shows.Complete ||
		is.Device.Until.IsZero() {
		t.Errorf("the page shows %+v", is.Device)
	}
	w.actsFor(t, "drive", page.SignIn, "") // a second time: it shows the first
	w.until(t, phase(page.SigningIn))
	close(denied)
	is = w.until(t, func(s page.State) bool { return s.Phase == page.Waiting && s.Words != "" })
	if !strings.Contains(is.Words, "the sign-in was refused") || is.Left != 0 || is.Wanted == nil {
		t.Errorf("denied: %+v", is)
	}

	w.actsFor(t, "drive", page.SignIn, "")
	f.acts <- func(_ oauth.Task, e errand) error { return e.show(shows, f) }
	w.until(t, func(s page.State) bool { return strings.Contains(s.Words, "without an answer") })
	for len(f.ended) > 0 {
		<-f.ended
	}
	w.actsFor(t, "drive", page.SignIn, "") // nobody acts: it waits for the provider
	for !d.orders.logins.under("drive") {
		time.Sleep(time.Millisecond)
	}
	w.acts(t, page.GiveUp, "")
	if key := <-f.ended; key != "drive" {
		t.Errorf("the process of %q has ended", key)
	}
	w.until(t, func(s page.State) bool { return s.Phase == page.Waiting && s.Words == "" })

	w.actsFor(t, "drive", page.SignIn, "")
	f.acts <- func(_ oauth.Task, e errand) error { return gives(e, attach.Refreshed{}, granted()) }
	d.comesUp(t, m, "b", 1, proven())
	w.until(t, phase(page.Done))
	if done := follow.until(control.FlowComplete); done.Attempts != 0 {
		t.Errorf("%+v", done)
	}
}

// TestPageSignInConsents: a person who signs in on a client's page consents; a login for the same key elsewhere is no
// word about that set-up.
func TestPageSignInConsents(t *testing.T) {
	d, m, _, f, _ := bureau(t)
	installs := d.known(t)
	if err := d.vault.Set("acme_client", []byte("CS-login-hunter2")); err != nil {
		t.Fatal(err)
	}
	if err := d.vault.Set("x_extra", []byte("hunter2-hunter2")); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(d.tokens.signIns.dir, "acme.hcl"))
	if err != nil {
		t.Fatal(err)
	}
	with := strings.Replace(string(text), `"drive"`, `"x_token"`, 1)
	if err := os.WriteFile(filepath.Join(d.tokens.signIns.dir, "acme.hcl"), []byte(with), 0o644); err != nil {
		t.Fatal(err)
	}
	d.within(t, func() { d.tokens.signIns.read() })
	b := &browsed{opened: make(chan *browser, 9)}
	d.servePages(b)
	guest, before := control.Peer{UID: 4242}, d.folderText(t)
	for _, signs := range []bool{false, true} {
		follow := d.begins(t, guest, &control.SetUp{Service: "x", For: "desk", Page: true})
		w := <-b.opened
		if !signs {
			_, ended := d.logsIn(t.Context(), "acme", oauth.ByDevice)
			f.acts <- func(_ oauth.Task, e errand) error { return gives(e, attach.Refreshed{}, granted()) }
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			w.until(t, func(s page.State) bool { return s.Phase == page.Waiting && s.Wanted == nil })
			if d.folderText(t) != before || m.count("x") != 0 {
				t.Errorf("begun without consent: %s", d.folderText(t))
			}
			w.acts(t, page.Cancel, "")
			follow.until(control.FlowFailed)
			ask(t, d, control.Request{Verb: control.Remove, Key: "x_token"})
			continue
		}
		w.actsFor(t, "x_token", page.SignIn, "")
		f.acts <- func(_ oauth.Task, e errand) error { return gives(e, attach.Refreshed{}, granted()) }
		installs <- ""
		d.comesUp(t, m, "x", 1, proven())
		w.until(t, phase(page.Done))
		follow.until(control.FlowComplete)
	}
}

// TestPageDies: a set-up whose page is gone ends, and says why; nothing was written.
func TestPageDies(t *testing.T) {
	d, _, b := withPages(t)
	f := d.begins(t, operator(), paged("a", withToken))
	w := <-b.opened
	for f.until(control.AwaitingCredential).Page == "" {
	}
	w.conn.Close()
	if now := f.until(control.FlowFailed); !strings.Contains(now.Detail, "its page was closed") {
		t.Errorf("%+v", now)
	}
	if got := d.folderText(t); got != "" {
		t.Errorf("written: %s", got)
	}
	for name, b := range map[string]*browsed{
		"cannot be started": {opened: make(chan *browser, 1), fail: errors.New("no such unit")},
		"another program":   {opened: make(chan *browser, 1), silent: true},
	} {
		d.servePages(b)
		f := d.begins(t, operator(), paged("a", withToken))
		want := map[bool]string{true: "no such unit", false: "another program"}[b.fail != nil]
		if now := f.until(control.FlowFailed); !strings.Contains(now.Detail, want) {
			t.Errorf("%s: %+v", name, now)
		}
	}
}

// TestPageOfAClient: the gateway begins a set-up for a client, and may name a service alone. Nothing is written or
// started before a person has used the page, though no secret is missing.
func TestPageOfAClient(t *testing.T) {
	d, _, b := withPages(t)
	guest := control.Peer{UID: 4242}
	for name, wish := range map[string]*control.SetUp{
		"nobody's":        {Service: "notion", Page: true},
		"without a page":  {Service: "notion", For: "desk"},
		"a text":          {Server: "a", Text: &control.Text{New: []byte(withToken)}, For: "desk", Page: true},
		"another name":    {Server: "evil", Service: "notion", For: "desk", Page: true},
		"answers":         {Service: "notion", Answers: map[string]string{"a": "b"}, For: "desk", Page: true},
		"no service":      {Service: "none-such", For: "desk", Page: true},
		"an odd client":   {Service: "notion", For: "../x", Page: true},
		"join as nobody":  {},
		"join of another": {For: "other"},
	} {
		f := d.begins(t, guest, wish)
		if err := <-f.err; err == nil {
			t.Errorf("%s: the gateway may", name)
		}
	}
	select {
	case w := <-b.opened:
		t.Errorf("a page was opened: %+v", w.task)
	default:
	}
}

// TestPageStates: a state is what a page shows of it.
func TestPageStates(t *testing.T) {
	wants := &control.Wanted{
		Key:      "token",
		Ways:     []string{"code", "device"},
		Variable: "TOKEN",
		Where:    "there",
		URL:      "https://a.test/",
		Scopes:   []string{"read"},
		Optional: true,
	}
	for name, c := range map[string]struct {
		flow control.Flow
		want page.State
	}{
		"asks": {
			control.Flow{State: control.AwaitingCredential, Detail: "waiting for TOKEN", Wants: wants},
			page.State{Phase: page.Waiting},
		},
		"a yes": {
			control.Flow{State: control.AwaitingCredential, Detail: "waiting for a person's consent"},
			page.State{Phase: page.Waiting},
		},
		"unstored": {
			control.Flow{State: control.AwaitingCredential, Detail: "the disk is full", Retry: true, Wants: wants},
			page.State{Phase: page.Waiting, Words: "the disk is full"},
		},
		"refused": {
			control.Flow{State: control.CredentialRefused, Detail: "401", Retry: true, Attempts: 2, Wants: wants},
			page.State{Phase: page.Waiting, Words: "401", Left: 1},
		},
		"at work": {
			control.Flow{State: control.FlowSpawning, Detail: "installing x"},
			page.State{Phase: page.Working, Words: "installing x"},
		},
		"tests": {
			control.Flow{State: control.FlowVerifying, Detail: "calling"},
			page.State{Phase: page.Working, Words: "calling"},
		},
		"done": {
			control.Flow{State: control.FlowComplete, Tools: 4, Verified: "whoami"},
			page.State{Phase: page.Done, Tools: 4, Tested: true},
		},
		"failed": {
			control.Flow{State: control.FlowFailed, Detail: "cancelled"},
			page.State{Phase: page.Failed, Words: "cancelled"},
		},
	} {
		if c.flow.Wants != nil {
			c.want.Wanted = &page.Wanted{
				Key:      "token",
				SignIn:   true,
				Name:     "TOKEN",
				Where:    "there",
				URL:      "https://a.test/",
				Scopes:   []string{"read"},
				Optional: true,
			}
		}
		if got := pageState(c.flow); !equalStates(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	if _, err := answerOf(page.Enter, []*os.File{os.Stdin, os.Stdin}); err == nil {
		t.Error("two values are one")
	}
	if a, err := answerOf(page.Cancel, nil); err != nil || !a.Cancel || a.Value != nil {
		t.Errorf("%+v, %v", a, err)
	}
}

// TestPagePort: a port to which a declaration could lead is refused where it is said.
func TestPagePort(t *testing.T) {
	for text, want := range map[string]uint16{"0": 0, "19275": 19275, "19338": 19338} {
		var o options
		if err := o.pagePort(text); err != nil || o.page != want {
			t.Errorf("%q: %d, %v", text, o.page, err)
		}
	}
	for _, text := range []string{"", "-1", "65536", "http", "80 ", "80", "19274", "19339"} {
		if err := new(options).pagePort(text); err == nil {
			t.Errorf("%q is a port", text)
		}
	}
}

func (b *browsed) runConsole(context.Context, int, pageTalk) error {
	return errors.New("there is none")
}
