package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/cmd/pfar-gateway/pins"
	"github.com/pfar/pfar/generator/catalog"
	"github.com/pfar/pfar/policies/oauth"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/setup"
)

// fakeSetUp is the set-ups of a pfard: each event of the one that is under way goes to all who follow it.
type fakeSetUp struct {
	mu      sync.Mutex
	events  []control.Flow
	more    chan struct{}
	wants   []control.Wanted // one after the other
	good    string           // the value that the service takes; "": any
	begun   []*control.SetUp
	given   []string
	skipped int
	page    string          // URL of its page; "": it has none
	denies  []string        // why sign-ins fail, one after the other; "": one does not
	logins  []control.Login // that were asked for
	signed  chan struct{}   // gets one when the person has answered the provider
	done    func()          // when it is complete
	slow    chan struct{}   // a stored value is tried when this closes; nil: at once
}

func newSetUp(wants ...control.Wanted) *fakeSetUp {
	return &fakeSetUp{more: make(chan struct{}), wants: wants, signed: make(chan struct{}, 9)}
}

// notionToken is what a set-up of Notion waits for.
func notionToken(t *testing.T) control.Wanted {
	t.Helper()
	s, ok := catalog.Load(nil, "").Find("notion")
	if !ok {
		t.Fatal("the catalogue has no notion")
	}
	k := s.Secrets[0]
	return control.Wanted{
		Key: k.Key, Variable: k.Env, Prefixes: k.Prefixes, Pattern: k.Pattern, Where: k.Where, URL: k.URL,
	}
}

// put makes an event of the set-up as it is. Called with s.mu held.
func (s *fakeSetUp) put(change func(*control.Flow)) {
	var now control.Flow
	if n := len(s.events); n > 0 {
		now = s.events[n-1]
	}
	now.Wants, now.Detail = nil, ""
	change(&now)
	s.events = append(s.events, now)
	close(s.more)
	s.more = make(chan struct{})
}

// asks waits for the first secret, or goes on. Called with s.mu held.
func (s *fakeSetUp) asks(state control.FlowState, detail string) {
	if len(s.wants) == 0 {
		s.goOn()
		return
	}
	s.put(func(f *control.Flow) {
		f.State, f.Wants, f.Detail, f.Deadline = state, &s.wants[0], detail, time.Now().Add(10*time.Minute)
		f.Formed = setup.Formed(s.wants[0])
	})
	if s.page != "" { // it takes a while to open
		s.put(func(f *control.Flow) { f.Wants, f.Detail, f.Page = &s.wants[0], detail, s.page })
	}
}

// signIn obtains a token, or not, and has the set-up go on.
func (s *fakeSetUp) signIn(r control.Request, send func(control.Response) error) error {
	tell := func(in control.SignIn) error {
		return send(control.Response{Declarations: control.Declarations{SignIn: &in}})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logins = append(s.logins, *r.Login)
	in := control.SignIn{Name: "notion", Key: r.Login.Key, Way: r.Login.Way}
	in.Step = control.Step{URL: "https://login.example/device\x1b[2J", Code: "ABCD-EFGH",
		Complete: "https://login.example/device?code=ABCD-EFGH", Until: time.Now().Add(10 * time.Minute)}
	if r.Login.Way == oauth.ByCode {
		in.Step = control.Step{URL: "https://login.example/auth", Port: 41234, Until: in.Step.Until}
	}
	if err := tell(in); err != nil {
		return err
	}
	s.mu.Unlock()
	<-s.signed
	s.mu.Lock()
	if len(s.denies) > 0 {
		why := s.denies[0]
		if s.denies = s.denies[1:]; why != "" {
			return errors.New(why)
		}
	}
	s.given = append(s.given, "a token")
	s.goOn()
	in.Step, in.Done, in.Scopes = control.Step{}, true, []string{"read"}
	return tell(in)
}

// later carries out the rest of the set-up once it may. Called with s.mu held.
func (s *fakeSetUp) later(rest func()) {
	if s.slow == nil {
		rest()
		return
	}
	go func() {
		<-s.slow
		s.mu.Lock()
		defer s.mu.Unlock()
		rest()
	}()
}

// goOn ends well or, with the wrong value, asks again. Called with s.mu held.
func (s *fakeSetUp) goOn() {
	steps := []string{"installing npm:@example/mcp@1.2.3", "writing the declaration", "starting the server"}
	for _, detail := range steps {
		s.put(func(f *control.Flow) { f.State, f.Detail = control.FlowSpawning, detail })
	}
	s.put(func(f *control.Flow) { f.State, f.Detail = control.FlowVerifying, "calling a tool that only reads" })
	const words, thrice = "API token is invalid.\x1b[2J", "no value worked in 3 attempts; the service refused the last: "
	if s.good != "" && s.given[len(s.given)-1] != s.good {
		at := s.events[len(s.events)-1].Attempts + 1
		if at == 3 {
			s.put(func(f *control.Flow) {
				f.State, f.Detail = control.FlowFailed, thrice+words
			})
			return
		}
		s.put(func(f *control.Flow) { f.Attempts = at })
		s.asks(control.CredentialRefused, words)
		return
	}
	if s.done != nil {
		s.done()
	}
	s.put(func(f *control.Flow) { f.State, f.Tools, f.Verified = control.FlowComplete, 3, "API-get-self" })
}

func (s *fakeSetUp) serve(ctx context.Context, r control.Request, send func(control.Response) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	tell := func(f control.Flow) error {
		return send(control.Response{Declarations: control.Declarations{Flow: &f}})
	}
	if r.Verb == control.Supply {
		now := s.events[len(s.events)-1]
		switch {
		case now.Wants != nil && !r.Answer.Cancel && r.Answer.Key != now.Wants.Key:
			return fmt.Errorf("the answer is for %q", r.Answer.Key)
		case r.Answer.ID != now.ID || now.Wants == nil:
			return errors.New("it does not wait")
		case r.Answer.Cancel || r.Secret == "cancel":
			s.put(func(f *control.Flow) {
				f.State, f.Reason, f.Detail = control.FlowFailed, control.FlowCancelled, "cancelled"
			})
		case r.Answer.Skip:
			s.skipped++
			s.wants = s.wants[1:]
			s.asks(control.AwaitingCredential, "")
		case r.Secret == "unstorable":
			return errors.New("storing it: the disk is full")
		default:
			s.given = append(s.given, r.Secret)
			s.put(func(f *control.Flow) { f.State, f.Detail = control.FlowSpawning, "storing "+now.Wants.Key })
			if len(s.wants) > 1 {
				s.wants = s.wants[1:]
				s.asks(control.AwaitingCredential, "")
			} else {
				s.later(s.goOn)
			}
		}
		return tell(s.events[len(s.events)-1])
	}
	at := max(0, len(s.events)-1) // a follower gets the present state first
	if r.SetUp != nil && r.SetUp.Server != "" {
		s.begun = append(s.begun, r.SetUp)
		s.put(func(f *control.Flow) {
			*f = control.Flow{ID: "f1", Server: r.SetUp.Server, Service: r.SetUp.Service, State: control.FlowStart}
		})
		at = len(s.events) - 1
		s.asks(control.AwaitingCredential, "")
	} else if len(s.events) == 0 || s.events[at].Wants == nil {
		return fmt.Errorf("%w of uid 0", control.ErrNoFlow)
	}
	for {
		for ; at < len(s.events); at++ {
			f := s.events[at]
			if err := tell(f); err != nil || f.State == control.FlowComplete || f.State == control.FlowFailed {
				return err
			}
		}
		more := s.more
		s.mu.Unlock()
		select {
		case <-more:
		case <-ctx.Done():
		}
		s.mu.Lock()
		if ctx.Err() != nil {
			return nil
		}
	}
}

// addBench is a bench with set-ups, the real store of definitions, and a gateway with tools.
type addBench struct {
	*bench
	setUps *fakeSetUp
	pfard  *fakePfard
	store  *pins.Store
}

func newAdd(t *testing.T, s *fakeSetUp) *addBench {
	t.Helper()
	b := &addBench{bench: newBench(t, ""), setUps: s}
	store, err := pins.Open(filepath.Join(b.dirs.Run, "pins"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	b.store = store
	mux := http.NewServeMux()
	desk := deskOf(store)
	mux.Handle("/", desk.Handler)
	mux.HandleFunc("GET /facts", func(w http.ResponseWriter, _ *http.Request) {
		const read = `"effect":"none"`
		for i, tool := range []string{"API-get-self", "API-post-search"} {
			io.WriteString(w, string("[,"[i])+`{"server":"notion","tool":"`+tool+`","facts":{`+read+`}}`)
		}
		io.WriteString(w, "]")
	})
	desk.Handler = mux
	b.serveAt(t, b.dirs.Operator(), desk)
	const schema = `{"type":"object"}`
	b.serveHTTP(t, gatewayOf(tooled("notion", "API-get-self", "Say who the token is of.", schema, echo),
		tooled("notion", "API-post-search", "Search pages by title.\x1b[2J", schema, echo),
		tooled("notion", "API-post-page", "Create a page", schema, echo),
		tooled("other", "x", "Another server's.", schema, echo)))
	b.pfard = b.bench.pfard(t, control.Report{Directory: "/etc/pfar/mcp.d"}, nil)
	b.pfard.setUps = s
	s.done = func() {
		b.pfard.set(func(r *control.Report) {
			r.Servers = []control.Server{
				{Name: "notion", State: control.Running, Tools: 3, File: "/etc/pfar/mcp.d/notion.hcl"},
			}
		})
	}
	return b
}

// offer has the store see definitions that nobody has read.
func (b *addBench) offer() {
	b.store.Review(pins.Offer{Server: "notion", Version: "notion 1", TrustFirst: true, Definitions: []pins.Definition{
		pinnedTool("API-get-self", "Say who the token is of."), pinnedTool("API-post-search", "Search\x1b[2J pages."),
	}})
}

var dateTime = regexp.MustCompile(`[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2} [A-Z+0-9]{3,5}`)

// addSession is pfar add at a terminal.
type addSession struct {
	*addBench
	screen  *screenOf
	program *os.File
	ended   chan int
	stop    context.CancelFunc
}

func (b *addBench) session(t *testing.T, columns int, args ...string) *addSession {
	t.Helper()
	screen, program := newScreen(t, columns, 110)
	n := *b
	n.bench = b.again("")
	n.getenv = variables(b.getenv, map[string]string{"NO_COLOR": "1"})
	n.stdin, n.stdout, n.stderr = program, program, program
	ctx, stop := context.WithCancel(t.Context())
	s := &addSession{&n, screen, program, make(chan int, 1), stop}
	go func() { s.ended <- n.run(ctx, append([]string{"add"}, args...)) }()
	return s
}

// reply waits for the nth time that a text is there, and types a line.
func (s *addSession) reply(t *testing.T, n int, text, line string) {
	t.Helper()
	s.screen.until(t, text, func() bool { return strings.Count(s.screen.String(), text) == n })
	s.screen.press(t, line+"\n")
}

// text waits for the end, and returns what is on the screen.
func (s *addSession) text(t *testing.T, code int) string {
	t.Helper()
	if got := <-s.ended; got != code {
		t.Errorf("exit %d, want %d\n%s", got, code, s.screen)
	}
	fmt.Fprint(s.program, "THE END")
	s.screen.await(t, "THE END")
	if _, drawn, _ := s.screen.state(); strings.Contains(drawn, "hunter2") {
		t.Errorf("the terminal shows a token: %q", drawn)
	}
	text, _, _ := strings.Cut(s.screen.String(), "THE END")
	return dateTime.ReplaceAllString(text, "2026-01-02 03:04 UTC")
}

// TestAddSession is what is on the screen when a person sets Notion up: a wrong token first, then the right one.
func TestAddSession(t *testing.T) {
	for _, columns := range []int{80, 120} {
		s := newSetUp(notionToken(t))
		s.good = "ntn_right-hunter2"
		b := newAdd(t, s)
		b.offer()
		n := b.session(t, columns, "notion")
		n.reply(t, 1, `Set up "notion"? [y/N]`, "y")
		n.reply(t, 1, "(not shown):", "ntn_wrong-hunter2")
		n.reply(t, 2, "(not shown):", s.good)
		n.reply(t, 1, "Accept 2 definitions", "y")
		golden(t, "add.txtar", fmt.Sprintf("notion, %d columns", columns), n.text(t, exitOK))
		if list, err := b.store.Show("notion"); err != nil || list.Unreviewed != 0 {
			t.Errorf("%d definitions are unreviewed still, %v", list.Unreviewed, err)
		}
		if want := []string{"ntn_wrong-hunter2", s.good}; !slices.Equal(s.given, want) {
			t.Errorf("gave %q", s.given)
		}
		if len(s.begun) != 1 || s.begun[0].Server != "notion" || s.begun[0].Service != "notion" ||
			s.begun[0].Text != nil {
			t.Errorf("began %+v", s.begun)
		}
	}
}

// signed is a wanted secret that a sign-in can get.
func signed(t *testing.T, ways ...string) control.Wanted {
	w := notionToken(t)
	w.Ways = ways
	return w
}

// answers has the person answer the provider, who shows the nth sign-in.
func (s *addSession) answers(t *testing.T, n int) {
	t.Helper()
	const text = "Ctrl-C gives up."
	s.screen.until(t, text, func() bool { return strings.Count(s.screen.String(), text) == n })
	s.setUps.signed <- struct{}{}
}

// TestAddSignsIn is what is on the screen when a person signs in: first in vain, then with success.
func TestAddSignsIn(t *testing.T) {
	for _, columns := range []int{80, 120} {
		s := newSetUp(signed(t, "code", "device"))
		s.denies = []string{"the sign-in was refused\x1b[2J; nothing was stored", ""}
		b := newAdd(t, s)
		b.offer()
		n := b.session(t, columns, "notion", "--yes")
		n.reply(t, 1, "(not shown):", "")
		n.answers(t, 1)
		n.reply(t, 2, "(not shown):", "device")
		n.answers(t, 2)
		golden(t, "add.txtar", fmt.Sprintf("sign in, %d columns", columns), afterPage(n.text(t, exitOK)))
		want := control.Login{Way: oauth.ByDevice, Flow: "f1", Key: "notion_token"}
		if !reflect.DeepEqual(s.logins, []control.Login{want, want}) {
			t.Errorf("asked for %+v", s.logins)
		}
		echoes(t, n.program)
	}
}

// TestAddChooses: what a person may do where a sign-in is offered.
func TestAddChooses(t *testing.T) {
	for name, c := range map[string]struct {
		ways   []string
		types  []string
		logins []oauth.Way
		given  []string
		says   string
	}{
		"a browser": {[]string{"code"}, []string{""}, []oauth.Way{oauth.ByCode}, nil, "in your browser"},
		"by the name of oauth.d": {[]string{"code", "device"}, []string{"code"}, []oauth.Way{oauth.ByCode}, nil,
			"Open this link"},
		"by its name": {[]string{"code", "device"}, []string{"browser"}, []oauth.Way{oauth.ByCode}, nil,
			"Open this link"},
		"what there is not": {[]string{"device"}, []string{"code", ""}, []oauth.Way{oauth.ByDevice}, nil,
			"no sign-in with"},
		"a value": {[]string{"device"}, []string{"hunter2-right"}, nil, []string{"hunter2-right"},
			"or Enter to sign in"},
		"paste": {[]string{"device"}, []string{"paste", "", "hunter2-right"}, nil, []string{"hunter2-right"},
			"the secret is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSetUp(signed(t, c.ways...))
			b := newAdd(t, s)
			n := b.session(t, 80, "notion", "--yes")
			for i, line := range c.types {
				n.reply(t, i+1, "(not shown):", line)
			}
			for i := range c.logins {
				n.answers(t, i+1)
			}
			text := n.text(t, exitOK)
			if c.given == nil {
				c.given = []string{"a token"}
			}
			var ways []oauth.Way
			for _, l := range s.logins {
				ways = append(ways, l.Way)
			}
			if !slices.Equal(ways, c.logins) || !slices.Equal(s.given, c.given) || !strings.Contains(text, c.says) {
				t.Errorf("signed in %v, gave %q:\n%s", ways, s.given, text)
			}
		})
	}
}

// TestAddGoesOn: a value that comes from elsewhere closes the prompt, and the person can answer what comes next. What
// was typed by then is no answer to it.
func TestAddGoesOn(t *testing.T) {
	s := newSetUp(notionToken(t))
	b := newAdd(t, s)
	b.offer()
	n := b.session(t, 80, "notion", "--yes")
	n.screen.await(t, "(not shown):")
	n.screen.press(t, "ntn_half-hunter2")
	s.mu.Lock()
	s.goOn()
	s.mu.Unlock()
	text := n.text(t, exitOK)
	if !strings.Contains(text, "notion: verified with") || strings.Contains(text, "this command") {
		t.Errorf("%s", text)
	}
	echoes(t, n.program)

	s = newSetUp(notionToken(t))
	b = newAdd(t, s)
	b.offer()
	n = b.session(t, 80, "notion")
	n.reply(t, 1, `Set up "notion"? [y/N]`, "y")
	n.screen.await(t, "(not shown):")
	n.screen.press(t, "ntn_half-hunter2")
	s.mu.Lock()
	s.goOn()
	s.mu.Unlock()
	n.reply(t, 1, "Accept 2 definitions", "y")
	if text := n.text(t, exitOK); !strings.Contains(text, "accepted: ") {
		t.Errorf("%s", text)
	}
}

// TestAddPage is what is on the screen when a page takes the secret.
func TestAddPage(t *testing.T) {
	const page = "http://127.0.0.1:41234/ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	for _, columns := range []int{80, 120} {
		s := newSetUp(signed(t, "device"))
		s.page = page
		b := newAdd(t, s)
		b.offer()
		n := b.session(t, columns, "notion", "--yes", "--page")
		n.screen.await(t, "Waiting for you")
		s.mu.Lock()
		s.given = append(s.given, "by the page")
		s.goOn()
		s.mu.Unlock()
		golden(t, "add.txtar", fmt.Sprintf("by a page, %d columns", columns), afterPage(n.text(t, exitOK)))
		if len(s.begun) != 1 || !s.begun[0].Page {
			t.Errorf("began %+v", s.begun)
		}
	}

	s := newSetUp(notionToken(t)) // one waits at a terminal: it is begun anew
	b := newAdd(t, s)
	first := b.session(t, 80, "notion", "--yes")
	first.screen.await(t, "(not shown):")
	s.mu.Lock()
	s.page = page
	s.mu.Unlock()
	n := b.session(t, 80, "notion", "--yes", "--page")
	n.screen.await(t, s.page)
	n.stop()
	if text := n.text(t, exitInterrupted); strings.Contains(text, "(not shown)") || len(s.begun) != 2 {
		t.Errorf("%d begun: %s", len(s.begun), text)
	}
	first.stop()
	first.text(t, exitInterrupted)
}

// TestAddEnds is how a set-up ends that does not come to its end: by three wrong values, by the person's word, and by
// Ctrl-C, after which it waits. The terminal has its echo back each time.
func TestAddEnds(t *testing.T) {
	for _, columns := range []int{80, 120} {
		s := newSetUp(notionToken(t))
		s.good = "x"
		b := newAdd(t, s)
		n := b.session(t, columns, "notion", "--yes")
		for i := range 3 {
			n.reply(t, i+1, "(not shown):", "hunter2-wrong")
		}
		golden(t, "add.txtar", fmt.Sprintf("three wrong values, %d columns", columns), afterPage(n.text(t, exitFailed)))

		n = b.session(t, columns, "notion", "--yes")
		n.screen.await(t, "(not shown):")
		n.stop() // as Ctrl-C does
		golden(t, "add.txtar", fmt.Sprintf("Ctrl-C, %d columns", columns), afterPage(n.text(t, exitInterrupted)))
		echoes(t, n.program)

		n = b.session(t, columns, "notion", "--yes")
		n.reply(t, 1, "(not shown):", "cancel")
		golden(t, "add.txtar", fmt.Sprintf("joined and cancelled, %d columns", columns), n.text(t, exitFailed))
		echoes(t, n.program)
		if len(s.begun) != 2 {
			t.Errorf("%d set-ups were begun: the third run was to join", len(s.begun))
		}
	}
}

// afterPage is a session without the page of the service.
func afterPage(text string) string {
	_, rest, _ := strings.Cut(text, "which only reads\n\n")
	return rest
}

func echoes(t *testing.T, program *os.File) {
	t.Helper()
	state, err := unix.IoctlGetTermios(int(program.Fd()), unix.TCGETS)
	if err != nil || state.Lflag&unix.ECHO == 0 {
		t.Errorf("the terminal does not echo: %v", err)
	}
}

// TestAddAnother asks before it ends another set-up of the same user, and begins nothing without a yes.
func TestAddAnother(t *testing.T) {
	s := newSetUp(notionToken(t))
	b := newAdd(t, s)
	first := b.session(t, 80, "notion", "--yes")
	first.screen.await(t, "(not shown):")
	n := b.session(t, 80, "memory")
	n.reply(t, 1, `A set-up of "notion" is under way. End it and set up "memory"? [y/N]`, "n")
	if text := n.text(t, exitFailed); len(s.begun) != 1 {
		t.Errorf("%d begun\n%s", len(s.begun), text)
	}
	quiet := b.again("")
	if code := quiet.run(t.Context(), []string{"add", "--cancel"}); code != exitOK {
		t.Errorf("exit %d: %s", code, quiet.err)
	}
	// Somebody else has ended it: the prompt closes.
	if text := first.text(t, exitFailed); !strings.Contains(text, "notion is not set up: cancelled") {
		t.Errorf("%s", text)
	}
	echoes(t, first.program)
}

// TestAddAgain says what to do with a server that is declared already.
func TestAddAgain(t *testing.T) {
	b := newAdd(t, newSetUp(notionToken(t)))
	b.setUps.done()
	for _, columns := range []int{80, 120} {
		text := b.session(t, columns, "notion", "--yes").text(t, exitOK)
		golden(t, "add.txtar", fmt.Sprintf("declared and healthy, %d columns", columns), text)
	}
	b.pfard.secrets = []control.Secret{{Key: "notion_token", Kind: "oauth"}}
	n := b.again("")
	n.run(t.Context(), []string{"add", "notion", "--yes"})
	if !strings.Contains(n.out.String(), "pfar login notion_token") ||
		strings.Contains(n.out.String(), "rotate") {
		t.Errorf("with a token that a sign-in has got: %s", n.out)
	}
	if len(b.setUps.begun) != 0 {
		t.Error("a set-up was begun")
	}
	b.pfard.set(func(r *control.Report) {
		r.Servers[0].State, r.Servers[0].Detail = control.Waiting, "waiting for credentials: notion_token"
	})
	n = b.again("ntn_x")
	if code := n.run(t.Context(), []string{"add", "notion", "--yes"}); code != exitOK || len(b.setUps.begun) != 1 {
		t.Fatalf("exit %d: %s", code, n.err)
	}
	if s := b.setUps.begun[0]; s.Server != "notion" || s.Text != nil {
		t.Errorf("began %+v", s)
	}
}

// TestAddScripts sets up without a person.
func TestAddScripts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("ntn_hunter2-right\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	optional := control.Wanted{Key: "more", Variable: "MORE", Optional: true}
	for name, test := range map[string]struct {
		args, stdin string
		wants       []control.Wanted
		good        string
		code        int
		out, err    string
		given       []string
		skipped     int
	}{
		"a file": {args: "notion --yes --secret-file notion_token=" + file, given: []string{"ntn_hunter2-right"},
			out: "notion: verified with API-get-self\nIt is declared in /etc/pfar/mcp.d/notion.hcl\n"},
		"standard input": {args: "notion --yes", stdin: "ntn_hunter2-right\n", given: []string{"ntn_hunter2-right"},
			out: "2 only read, 1 may change something"},
		"a dash": {args: "notion --yes --secret-file notion_token=-", stdin: "ntn_hunter2-right",
			given: []string{"ntn_hunter2-right"}, out: "pfar call notion.API-get-self"},
		"JSON": {args: "notion --yes --json", stdin: "ntn_hunter2-right", given: []string{"ntn_hunter2-right"},
			out: `"verified": "API-get-self"`},
		"nothing given": {args: "notion --yes", code: exitFailed,
			err: "the secret is empty\nhint: the set-up waits: pfar add notion"},
		"no question without a terminal": {args: "notion", code: exitUsage,
			err: "with --yes --page a browser takes the secrets"},
		"nobody to sign in": {args: "notion --yes", code: exitFailed, wants: []control.Wanted{signed(t, "device")},
			err: "without a terminal nobody can sign in\nhint: the set-up waits: pfar add notion, or in a browser " +
				"pfar add notion --page, or sign in: pfar login notion_token"},
		"refused": {args: "notion --yes", stdin: "ntn_hunter2-wrong", good: "x", code: exitFailed,
			given: []string{"ntn_hunter2-wrong"},
			err:   `the service refuses the value: API token is invalid.\x1b[2J` + "\nhint: the set-up waits: pfar add notion"},
		"not stored": {args: "notion --yes", stdin: "unstorable", code: exitFailed, err: "the disk is full"},
		"an optional one": {args: "notion --yes --secret-file notion_token=" + file, skipped: 1,
			wants: []control.Wanted{optional, notionToken(t)}, given: []string{"ntn_hunter2-right"}, out: "notion: verified"},
		"an unknown secret": {args: "notion --yes --secret-file x=" + file, code: exitUsage,
			err: "hint: write notion_token=FILE"},
		"an unknown answer": {args: "notion --yes --set x=y", code: exitUsage, err: `Notion asks for nothing; leave "x" out`},
		"a missing answer":  {args: "slack --yes", code: exitUsage, err: "hint: give it with --set team=VALUE"},
		"a bad name":        {args: "notion --yes --name No", code: exitUsage, err: "cannot be the name of a server"},
		"a list":            {args: "--list notion", out: "Notion (notion): Pages"},
		"words":             {args: "web search", out: "brave-search"},
		"nothing":           {args: "", code: exitUsage, err: "name what to add"},
		"nothing to end":    {args: "--cancel", code: exitFailed, err: "no set-up is under way"},
	} {
		t.Run(name, func(t *testing.T) {
			if test.wants == nil {
				test.wants = []control.Wanted{notionToken(t)}
			}
			s := newSetUp(test.wants...)
			s.good = test.good
			b := newAdd(t, s).again(test.stdin)
			code := b.run(t.Context(), append([]string{"add"}, strings.Fields(test.args)...))
			out, err := b.out.String(), b.err.String()
			if code != test.code || !strings.Contains(out, test.out) || !strings.Contains(err, test.err) {
				t.Errorf("exit %d, want %d %q %q\n%s\n%s", code, test.code, test.out, test.err, b.out, b.err)
			}
			if all := b.out.String() + b.err.String(); strings.Contains(all, "hunter2") ||
				strings.Contains(all, "\x1b") {
				t.Errorf("printed %q", all)
			}
			if !slices.Equal(s.given, test.given) || s.skipped != test.skipped {
				t.Errorf("gave %q, skipped %d", s.given, s.skipped)
			}
			if strings.Contains(test.args, "json") && !json.Valid(b.out.Bytes()) {
				t.Errorf("no JSON: %s", b.out)
			}
		})
	}
}
