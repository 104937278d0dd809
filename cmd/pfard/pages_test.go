package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	ours, _ := attach.FromFile(os.NewFile(uintptr(pair[0]), "a"))
	theirs, _ := attach.FromFile(os.NewFile(uintptr(pair[1]), "b"))
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
	var files []*os.File
	if value != "" {
		f, err := units.Sealed("value", []byte(value))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files = append(files, f)
	}
	acted := attach.Message{PageTalk: attach.PageTalk{Acted: &attach.Acted{Act: act}}}
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
			control.Flow{State: control.AwaitingCredential, Detail: "the disk is full", Wants: wants},
			page.State{Phase: page.Waiting, Words: "the disk is full"},
		},
		"refused": {
			control.Flow{State: control.CredentialRefused, Detail: "401", Attempts: 2, Wants: wants},
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
