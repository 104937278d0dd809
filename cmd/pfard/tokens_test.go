package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/oauth"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/control"
)

// hands is a clock that is set by hand.
type hands struct {
	mu   sync.Mutex
	at   time.Time
	next time.Time
	ring func()
}

func (h *hands) now() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.at
}

func (h *hands) wake(at time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.next = at
	return nil
}

// in returns how long it is until whoever listens is told; 0: nobody is to be.
func (h *hands) in() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.next.IsZero() {
		return 0
	}
	return h.next.Sub(h.at)
}

// advance is time that passes, also while the machine sleeps, or a clock that is set.
func (h *hands) advance(d time.Duration) {
	h.mu.Lock()
	h.at = h.at.Add(d)
	h.mu.Unlock()
	h.ring()
}

// endpoint stands in for the process that asks the endpoint: it answers what the test has put there.
type endpoint struct {
	t       *tokens
	answers chan func(key string, set oauth.Set, base string)
	begun   chan string
}

func (e *endpoint) refreshMended(string) {}

func (e *endpoint) refresh(_ context.Context, key string, text []byte) error {
	set, err := oauth.Decode(text)
	if err != nil {
		return err
	}
	e.begun <- key
	(<-e.answers)(key, set, units.Digest(text))
	return nil
}

var noon = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

const declaresToken = "server {\n  command = \"sh\"\n}\nauth = { TOKEN = \"vault:drive\" }\n"

// clerk is a daemon with a clock set by hand and a stand-in for the refresh. Its log is in the buffer.
func clerk(t *testing.T) (*daemon, *machine, chan struct{}, *hands, *endpoint, *loud) {
	t.Helper()
	d, m, changed := fixture(t)
	h := &hands{at: noon, ring: d.tokens.due}
	e := &endpoint{t: d.tokens, answers: make(chan func(string, oauth.Set, string)), begun: make(chan string)}
	said := &loud{}
	d.within(t, func() {
		d.tokens.wall, d.tokens.jitter, d.tokens.runs = h, func() float64 { return 0 }, e
		d.tokens.log = slog.New(slog.NewTextHandler(said, nil))
	})
	return d, m, changed, h, e, said
}

// within runs f in the loop.
func (d *daemon) within(t *testing.T, f func()) {
	t.Helper()
	if err := d.do(func() error { f(); return nil }); err != nil {
		t.Fatal(err)
	}
}

// loud is a log that a test reads while it is written.
type loud struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *loud) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *loud) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// serves has a fresh token, and the server "a" that declares it.
func (d *daemon) serves(t *testing.T, changed chan<- struct{}) {
	t.Helper()
	d.holdTokens(t, noon, time.Hour)
	d.put(t, "a.hcl", declaresToken)
	changed <- struct{}{}
	d.state(t)
}

// hold puts a set into the vault that ends after a while, and was obtained then.
func (d *daemon) holdTokens(t *testing.T, obtained time.Time, life time.Duration) {
	t.Helper()
	set := oauth.Set{AccessToken: "AT-0-hunter2hunter2", RefreshToken: "RT-0-hunter2hunter2", TokenURL: "https://login.example/token", ClientID: "id", ClientSecret: "CS-hunter2", Obtained: obtained}
	if life != 0 {
		set.Expiry = obtained.Add(life)
	}
	if err := d.vault.PutTokens("drive", set); err != nil {
		t.Fatal(err)
	}
	d.tokens.stored("drive")
}

// succeeds gives back a new set.
func (e *endpoint) succeeds(t *testing.T, n int, life time.Duration) {
	t.Helper()
	e.answer(t, func(key string, _ oauth.Set, base string) {
		content, err := json.Marshal(oauth.Answer{AccessToken: fmt.Sprintf("AT-%d-hunter2hunter2", n), RefreshToken: fmt.Sprintf("RT-%d-hunter2hunter2", n), ExpiresIn: int64(life / time.Second)})
		if err != nil {
			t.Error(err)
		}
		e.t.take(key, attach.Refreshed{Base: base, Asked: e.t.wall.now()}, content)
	})
}

func (e *endpoint) fails(t *testing.T, r attach.Refreshed) {
	t.Helper()
	e.answer(t, func(key string, _ oauth.Set, base string) {
		r.Base = base
		e.t.take(key, r, nil)
	})
}

// answer has the process that is about to begin give an answer, and returns when it has ended.
func (e *endpoint) answer(t *testing.T, give func(string, oauth.Set, string)) {
	t.Helper()
	select {
	case <-e.begun:
	case <-time.After(2 * time.Minute):
		t.Fatal("nothing is refreshed")
	}
	e.answers <- give
	e.t.running.Wait()
}

// rests makes sure that nothing is being refreshed.
func (e *endpoint) rests(t *testing.T) {
	t.Helper()
	select {
	case key := <-e.begun:
		t.Fatalf("%q is refreshed", key)
	case <-time.After(20 * time.Millisecond):
	}
}

func (d *daemon) value(t *testing.T) string {
	t.Helper()
	v, err := d.vault.Deliver("drive")
	if err != nil {
		t.Fatal(err)
	}
	return string(v)
}

func TestTokensThatNobodyUses(t *testing.T) {
	d, _, changed, h, e, _ := clerk(t)
	d.holdTokens(t, noon, time.Hour)
	d.put(t, "off.hcl", "enabled = false\n"+declaresToken)
	d.put(t, "plain.hcl", strings.ReplaceAll(declaresToken, "drive", "plain"))
	ask(t, d, control.Request{Verb: control.Store, Key: "plain", Secret: "x"})
	changed <- struct{}{}
	d.state(t)
	if in := h.in(); in != 0 {
		t.Errorf("it wakes in %s, without a token set in use", in)
	}
	h.advance(2 * time.Hour)
	e.rests(t)
	if list := secrets(t, d); len(list) != 2 || !strings.Contains(list[0].Unrefreshed, "no server that may run uses it") || list[1].Unrefreshed != "" {
		t.Errorf("the list says %+v", list)
	}
	d.put(t, "on.hcl", declaresToken)
	changed <- struct{}{}
	e.succeeds(t, 1, time.Hour)
	ask(t, d, control.Request{Verb: control.Disable, Server: "on"})
	if in := h.in(); in != 0 {
		t.Errorf("it wakes in %s after its only user was disabled", in)
	}
	ask(t, d, control.Request{Verb: control.Enable, Server: "on"})
	if in := h.in(); in != 48*time.Minute {
		t.Errorf("it wakes in %s after its only user was enabled", in)
	}
	ask(t, d, control.Request{Verb: control.Remove, Key: "drive"})
	if in := h.in(); in != 0 {
		t.Errorf("it wakes in %s after the set was removed", in)
	}
}

func TestTokensWithoutAnEnd(t *testing.T) {
	d, m, changed, h, e, _ := clerk(t)
	d.holdTokens(t, noon, 0)
	d.put(t, "a.hcl", declaresToken)
	changed <- struct{}{}
	if d.state(t); h.in() != 0 || m.count("a") != 1 {
		t.Errorf("it wakes in %s, %d starts", h.in(), m.count("a"))
	}
	h.advance(10000 * time.Hour)
	e.rests(t)
	const why = "it does not say when its access token ends: store it with expiry or expires_in"
	if list := secrets(t, d); len(list) != 1 || list[0].Unrefreshed != why || list[0].Expiry != nil {
		t.Errorf("the list says %+v", list)
	}
	endless := `{"access_token":"hunter2","refresh_token":"rt","token_url":"https://login.example/t","client_id":"id"}`
	for text, want := range map[string]string{endless: why, strings.Replace(endless, "{", `{"expires_in":3600,`, 1): ""} {
		r, err := askVault(t, d, control.Request{Verb: control.Store, Key: "drive", OAuth: true, Secret: text})
		if err != nil || len(r.Changes) != 1 || r.Changes[0].Unrefreshed != want {
			t.Errorf("who stores %s hears %+v, %v", text, r.Changes, err)
		}
	}
}

// TestTokensWithoutALife: an endpoint need not say how long a token lives (RFC 6749 section 5.1), and is asked again
// all the same.
func TestTokensWithoutALife(t *testing.T) {
	d, _, changed, h, e, _ := clerk(t)
	d.serves(t, changed)
	for n := range 3 {
		h.advance(48 * time.Minute)
		e.succeeds(t, n+1, 0)
		if in := h.in(); in != 48*time.Minute {
			t.Fatalf("after answer %d it wakes in %s", n+1, in)
		}
	}
	if list := secrets(t, d); len(list) != 1 || list[0].Unrefreshed != "" || list[0].Expiry == nil {
		t.Errorf("the list says %+v", list)
	}
}

// TestTokensAreRefreshed: in time, stored before anybody has them, and what holds the earlier value is due for another
// start.
func TestTokensAreRefreshed(t *testing.T) {
	d, m, changed, h, e, said := clerk(t)
	d.serves(t, changed)
	d.fleet.changed(units.Update{Server: "a", State: units.StateRunning, PID: 7})
	if in := h.in(); in != 48*time.Minute || m.secret["a"] != "map[TOKEN:AT-0-hunter2hunter2]" {
		t.Fatalf("it wakes in %s; the server has %s", in, m.secret["a"])
	}
	h.advance(48*time.Minute - time.Second)
	e.rests(t)
	h.advance(time.Second)
	e.succeeds(t, 1, time.Hour)
	if v := d.value(t); v != "AT-1-hunter2hunter2" {
		t.Errorf("the vault has %q", v)
	}
	if set, _, _, err := d.vault.Tokens("drive"); err != nil || set.RefreshToken != "RT-1-hunter2hunter2" || set.ClientSecret != "CS-hunter2" {
		t.Errorf("%+v, %v", set, err)
	}
	if in := h.in(); in != 48*time.Minute {
		t.Errorf("then it wakes in %s", in)
	}
	d.state(t)
	if m.count("a") != 1 {
		t.Error("the server is started again without a word of the gateway's")
	}
	var list []control.OnDemand
	err := d.do(func() error { list = d.orders.onDemand(); return nil })
	if err != nil || len(list) != 1 || !list[0].Renews {
		t.Errorf("the gateway hears %+v, %v", list, err)
	}
	ask(t, d, control.Request{Verb: control.Sleep, Server: "a"}) // it is idle
	d.state(t)
	if m.count("a") != 2 || m.secret["a"] != "map[TOKEN:AT-1-hunter2hunter2]" {
		t.Errorf("%d starts; the server has %s", m.count("a"), m.secret["a"])
	}
	d.fleet.changed(units.Update{Server: "a", State: units.StateRunning, PID: 8})
	err = d.do(func() error { list = d.orders.onDemand(); return nil })
	if err != nil || len(list) != 0 {
		t.Errorf("afterwards the gateway hears %+v, %v", list, err)
	}
	if err := refusal(t, d, control.Request{Verb: control.Sleep, Server: "a"}); !errors.Is(err, control.ErrInvalid) {
		t.Errorf("it can be put to sleep once more: %v", err)
	}
	h.advance(3000 * time.Hour) // the machine has slept
	e.succeeds(t, 2, time.Hour)
	if strings.Contains(said.String(), "hunter2") {
		t.Errorf("the log has a secret: %s", said)
	}
}

// TestTokensAreNotAskedForWithoutEnd: an endpoint may say that a token lives for a second.
func TestTokensAreNotAskedForWithoutEnd(t *testing.T) {
	d, _, changed, h, e, _ := clerk(t)
	d.holdTokens(t, noon, time.Second)
	d.put(t, "a.hcl", declaresToken)
	h.advance(time.Second)
	changed <- struct{}{}
	e.succeeds(t, 1, time.Second)
	if in := h.in(); in != firstRetry {
		t.Errorf("again in %s", in)
	}
	e.rests(t)
}

func TestTokensAreTriedAgain(t *testing.T) {
	d, _, changed, h, e, said := clerk(t)
	d.serves(t, changed)
	h.advance(48 * time.Minute)
	for i, want := range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 16 * time.Minute, 30 * time.Minute, 30 * time.Minute} {
		e.fails(t, attach.Refreshed{Error: "it answered 503"})
		if in := h.in(); in != want {
			t.Errorf("after failure %d again in %s, want %s", i+1, in, want)
		}
		if s := d.state(t)["a"]; !strings.Contains(s.Detail, `refreshing the OAuth token "drive" failed: it answered 503; again at 2026-11-01`) {
			t.Errorf("the status says %q", s.Detail)
		}
		h.advance(h.in())
	}
	e.fails(t, attach.Refreshed{Error: "it answered 429", After: 2 * time.Hour})
	if in := h.in(); in != 2*time.Hour {
		t.Errorf("the endpoint wants two hours, and again in %s", in)
	}
	h.advance(-24 * time.Hour) // somebody sets the clock back
	if in := h.in(); in != 2*time.Hour {
		t.Errorf("with the clock set back again in %s", in)
	}
	h.advance(2 * time.Hour)
	e.fails(t, attach.Refreshed{Error: "it answered 429", After: math.MaxInt64})
	if in := h.in(); in != 24*time.Hour {
		t.Errorf("the endpoint wants 292 years, and again in %s", in)
	}
	h.advance(24 * time.Hour)
	e.succeeds(t, 1, time.Hour)
	if s := d.state(t)["a"]; strings.Contains(s.Detail, "drive") || h.in() != 48*time.Minute {
		t.Errorf("the status says %q, next in %s", s.Detail, h.in())
	}
	if strings.Contains(said.String(), "hunter2") {
		t.Errorf("the log has a secret: %s", said)
	}
}

// TestSilentRefresh: a process that dies is tried again like an endpoint that does not answer.
func TestSilentRefresh(t *testing.T) {
	d, _, changed, h, e, _ := clerk(t)
	d.serves(t, changed)
	h.advance(time.Hour)
	e.answer(t, func(string, oauth.Set, string) {})
	if s := d.state(t)["a"]; h.in() != firstRetry || !strings.Contains(s.Detail, "without an answer") {
		t.Errorf("again in %s, %q", h.in(), s.Detail)
	}
	h.advance(firstRetry)
	e.answer(t, func(key string, _ oauth.Set, base string) { e.t.take(key, attach.Refreshed{Base: base}, []byte("{")) })
	if h.in() != 2*firstRetry {
		t.Errorf("after garbage again in %s", h.in())
	}
	h.advance(h.in())
	e.answer(t, func(key string, _ oauth.Set, base string) {
		e.t.take(key, attach.Refreshed{Base: base}, []byte(`{"access_token":"0123456789abc\ndef"}`))
	})
	if s := d.state(t)["a"]; h.in() != 4*firstRetry || d.value(t) != "AT-0-hunter2hunter2" || !strings.Contains(s.Detail, "of no use") {
		t.Errorf("after a token that is none again in %s, %q", h.in(), s.Detail)
	}
}

// TestRefusedTokens: what nobody mends by waiting is said to whoever can.
func TestRefusedTokens(t *testing.T) {
	const want = `the refresh token of "drive" was refused (invalid_grant): obtain a new one and store it with pfar vault set drive --oauth`
	d, m, changed, h, e, _ := clerk(t)
	told := make(chan failure, 10)
	noticed := make(chan string, 10)
	d.within(t, func() {
		d.fleet.owner = ownerFunc(func(f failure) { told <- f })
		d.fleet.units = unitsFunc(func(server, words string) { noticed <- server + ": " + words })
	})
	d.holdTokens(t, noon, time.Hour)
	d.put(t, "a.hcl", declaresToken)
	d.put(t, "b.hcl", fmt.Sprintf(good, "without"))
	changed <- struct{}{}
	d.state(t)
	d.fleet.changed(units.Update{Server: "a", State: units.StateRunning, Detail: "3 tools", PID: 7})
	h.advance(50 * time.Minute)
	e.fails(t, attach.Refreshed{Error: "it answered 400 (invalid_grant)", Code: "invalid_grant", Final: true})
	s := d.state(t)
	if s["a"].Detail != "3 tools; "+want || s["a"].State != control.Running || strings.Contains(s["b"].Detail, "drive") {
		t.Errorf("%+v", s)
	}
	if f := <-told; f != (failure{secret: "drive", reason: want}) {
		t.Errorf("the owner is told %+v", f)
	}
	if n := <-noticed; n != "a: "+want {
		t.Errorf("the unit says %q", n)
	}
	if in := h.in(); in != 0 {
		t.Errorf("it tries again in %s", in)
	}
	if list := secrets(t, d); len(list) != 1 || list[0].Problem != want || !list[0].Refused || list[0].Expiry == nil || !list[0].Expiry.Equal(noon.Add(time.Hour)) {
		t.Errorf("the list says %+v", list)
	}
	h.advance(time.Hour)
	e.rests(t)
	ask(t, d, control.Request{Verb: control.Restart, Server: "a"})
	if s := d.state(t)["a"]; s.State != control.Waiting || s.Detail != "for credentials: TOKEN: "+want || m.count("a") != 1 {
		t.Errorf("with an expired token it is %+v", s)
	} else if !strings.HasSuffix(want, s.Remedy.Command) || !strings.HasPrefix(s.Remedy.Command, "pfar vault set ") {
		t.Errorf("the remedy is %q, want the end of %q", s.Remedy, want)
	}
	d.holdTokens(t, h.now(), time.Hour)
	d.tokens.users.tokenChanged("drive")
	if s := d.state(t)["a"]; s.State != control.Starting || strings.Contains(s.Detail, "drive") || m.count("a") != 2 || h.in() != 48*time.Minute {
		t.Errorf("with a new one it is %+v, next in %s", s, h.in())
	}
}

// TestRefusedWhileItStarts: a unit that says for what it waits, but has not been up yet, is started again to say that
// the token is refused.
func TestRefusedWhileItStarts(t *testing.T) {
	d, m, changed, _, e, _ := clerk(t)
	d.within(t, func() { d.fleet.waits = true })
	d.holdTokens(t, noon.Add(-2*time.Hour), time.Hour)
	d.put(t, "a.hcl", declaresToken)
	changed <- struct{}{}
	d.state(t)
	d.fleet.changed(units.Update{Server: "a", State: units.StateStarting})
	if n := m.count("a"); n != 1 {
		t.Fatalf("%d starts", n)
	}
	e.fails(t, attach.Refreshed{Error: "it answered 400 (invalid_grant)", Code: "invalid_grant", Final: true})
	eventually(t, "it is started again", func() bool { d.state(t); return m.count("a") == 2 })
}

func secrets(t *testing.T, d *daemon) (list []control.Secret) {
	t.Helper()
	err := d.answer(t.Context(), control.Peer{}, control.Request{Verb: control.Secrets}, func(r control.Response) error { list = r.Secrets; return nil })
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestStartWithAnExpiredToken: a server waits, and says for what, until the token is fresh or that takes too long.
func TestStartWithAnExpiredToken(t *testing.T) {
	d, m, changed, h, e, _ := clerk(t)
	d.holdTokens(t, noon.Add(-2*time.Hour), time.Hour)
	d.put(t, "a.hcl", declaresToken)
	changed <- struct{}{}
	if s := d.state(t)["a"]; s.State != control.Waiting || !strings.Contains(s.Detail, `TOKEN: the OAuth token "drive" has expired and is being refreshed`) || m.count("a") != 0 {
		t.Errorf("%+v, %d starts", s, m.count("a"))
	}
	e.fails(t, attach.Refreshed{Error: "it answered 503"})
	if s := d.state(t)["a"]; s.State != control.Waiting || !strings.Contains(s.Detail, "503") || m.count("a") != 0 {
		t.Errorf("%+v, %d starts", s, m.count("a"))
	}
	h.advance(firstRetry)
	e.succeeds(t, 1, time.Hour)
	if s := d.state(t)["a"]; s.State != control.Starting || m.count("a") != 1 || m.secret["a"] != "map[TOKEN:AT-1-hunter2hunter2]" {
		t.Errorf("%+v, %d starts with %s", s, m.count("a"), m.secret["a"])
	}
	// And if it does not become fresh: patience ends.
	d.holdTokens(t, h.now().Add(-2*time.Hour), time.Hour)
	e.fails(t, attach.Refreshed{Error: "it answered 503"})
	ask(t, d, control.Request{Verb: control.Restart, Server: "a"})
	if s := d.state(t)["a"]; s.State != control.Waiting {
		t.Errorf("%+v", s)
	}
	h.advance(firstRetry)
	e.fails(t, attach.Refreshed{Error: "it answered 503"})
	h.mu.Lock()
	h.at = h.at.Add(patience)
	h.mu.Unlock()
	d.tokens.users.tokensTurned() // by the timer
	if s := d.state(t)["a"]; s.State != control.Starting || m.count("a") != 2 || m.secret["a"] != "map[TOKEN:AT-0-hunter2hunter2]" || !strings.Contains(s.Detail, "503") {
		t.Errorf("after the patience %+v, %d starts with %s", s, m.count("a"), m.secret["a"])
	}
}

// TestTokenThatAServerRefuses: another one is obtained before a person is asked to sign in, and not again at once if
// the server refuses that one, too. A person is told as soon as that does not work.
func TestTokenThatAServerRefuses(t *testing.T) {
	d, m, changed, h, e, _ := clerk(t)
	d.holdTokens(t, noon, 10*time.Hour)
	d.put(t, "a.hcl", "allowed_domains = [\"a.example\"]\nserver {\n  command = \"sh\"\n}\n"+
		"auth = { TOKEN = { secret = \"vault:drive\", deliver = \"broker\" } }\n")
	changed <- struct{}{}
	d.state(t)
	refuses := func(scopes string) {
		wait := units.Wait{For: units.WaitLogin, Remedy: units.ToDo(units.SignIn, "a", scopes)}
		d.fleet.changed(units.Update{
			Server: "a", State: units.StateWaiting, Detail: wait.Remedy.Command + ": refused", Wait: wait,
		})
	}
	during := func(what string, state control.State, detail string, starts int) {
		t.Helper()
		s := d.state(t)["a"]
		if s.State != state || !strings.Contains(s.Detail, detail) || m.count("a") != starts {
			t.Errorf("%s: it is %s: %s, %d starts", what, s.State, s.Detail, m.count("a"))
		}
		if state == control.NeedsLogin && !strings.HasPrefix(s.Remedy.Command, "pfar login a") {
			t.Errorf("%s: the remedy is %q", what, s.Remedy)
		}
	}
	h.advance(youngest - time.Second)
	refuses("")
	during("a young one is refused", control.NeedsLogin, "refused", 1)
	e.rests(t)
	h.advance(time.Hour)
	refuses("x")
	during("more scopes are wanted", control.NeedsLogin, "refused", 1)
	e.rests(t)
	refuses("")
	during("refused", control.Waiting, "which is being refreshed", 1)
	refuses("") // it says so again
	during("refused", control.Waiting, "which is being refreshed", 1)
	e.succeeds(t, 1, 10*time.Hour)
	during("refreshed", control.Starting, "starting", 2)
	for range 3 {
		refuses("")
		during("refused again", control.NeedsLogin, "refused", 2)
		e.rests(t)
	}

	h.advance(time.Hour)
	refuses("")
	e.fails(t, attach.Refreshed{Error: "it answered 503"})
	during("not refreshed yet", control.NeedsLogin, "503", 2)
	refuses("")
	during("not refreshed yet", control.NeedsLogin, "refused", 2)
	h.advance(firstRetry)
	e.succeeds(t, 2, 10*time.Hour)
	during("refreshed after all", control.Starting, "starting", 3)

	h.advance(time.Hour)
	refuses("")
	e.fails(t, attach.Refreshed{Error: "it answered 400 (invalid_grant)", Code: "invalid_grant", Final: true})
	during("with its refresh token", control.NeedsLogin, "invalid_grant", 3)
	d.within(t, d.uses.wakeWaiting)
	refuses("")
	during("with its refresh token", control.NeedsLogin, "refused", 3)
	e.rests(t)
}

// TestTokensThatWereReplaced: what the owner stores while a set is refreshed stays.
func TestTokensThatWereReplaced(t *testing.T) {
	d, _, changed, h, e, _ := clerk(t)
	d.serves(t, changed)
	for _, r := range []attach.Refreshed{{}, {Error: "it answered 400 (invalid_grant)", Code: "invalid_grant", Final: true}} {
		h.advance(48 * time.Minute)
		e.answer(t, func(key string, set oauth.Set, base string) {
			text := fmt.Sprintf(`{"access_token":"mine","refresh_token":"rt","token_url":"https://login.example/t","client_id":"id","expiry":%q}`, h.now().Add(time.Hour).Format(time.RFC3339))
			now, err := oauth.Parse([]byte(text), h.now())
			if err == nil {
				err = d.vault.PutTokens(key, now)
			}
			if err != nil {
				t.Error(err)
			}
			d.tokens.stored(key)
			r.Base = base
			d.tokens.take(key, r, []byte(`{"access_token":"theirs-is-too-late"}`))
		})
		if v := d.value(t); v != "mine" || h.in() != 48*time.Minute || len(secrets(t, d)) != 1 || secrets(t, d)[0].Problem != "" {
			t.Errorf("after %+v the vault has %q, next in %s", r, v, h.in())
		}
	}
	// A process that an earlier pfard has begun brings back what came of the set that is there.
	_, text, _, err := d.vault.Tokens("drive")
	if err != nil {
		t.Fatal(err)
	}
	d.tokens.take("drive", attach.Refreshed{Base: units.Digest(text), Asked: h.now()}, []byte(`{"access_token":"late-but-in-time","expires_in":3600}`))
	if v := d.value(t); v != "late-but-in-time" {
		t.Errorf("the vault has %q", v)
	}
}

// TestRotatedInVain: a refresh token that came with a failure is stored, and the next try is made with it.
func TestRotatedInVain(t *testing.T) {
	const rotated = `{"access_token":"","refresh_token":"RT-1-hunter2hunter2"}`
	for name, c := range map[string]struct {
		r       attach.Refreshed
		content string
		want    string
		final   bool
	}{
		"by the process's word":  {attach.Refreshed{Error: "its answer holds no token"}, rotated, "RT-1-hunter2hunter2", false},
		"by ours":                {attach.Refreshed{}, rotated, "RT-1-hunter2hunter2", false},
		"an access token beside": {attach.Refreshed{Error: "it answered 200 (x)", Code: "x", Final: true}, `{"access_token":"AT-1-hunter2hunter2","refresh_token":"RT-1-hunter2hunter2"}`, "RT-1-hunter2hunter2", true},
		"no refresh token":       {attach.Refreshed{}, `{"access_token":"","refresh_token":"x"}`, "RT-0-hunter2hunter2", false},
		"of another set":         {attach.Refreshed{Base: "another", Error: "its answer holds no token"}, rotated, "RT-0-hunter2hunter2", false},
	} {
		d, _, changed, h, e, said := clerk(t)
		d.holdTokens(t, noon, time.Hour)
		d.put(t, "a.hcl", declaresToken)
		changed <- struct{}{}
		d.state(t)
		h.advance(48 * time.Minute)
		e.answer(t, func(key string, _ oauth.Set, base string) {
			c.r.Base = cmp.Or(c.r.Base, base)
			d.tokens.take(key, c.r, []byte(c.content))
		})
		set, _, _, err := d.vault.Tokens("drive")
		if err != nil || set.RefreshToken != c.want || set.AccessToken != "AT-0-hunter2hunter2" || !set.Expiry.Equal(noon.Add(time.Hour)) {
			t.Errorf("%s: %+v, %v", name, set, err)
		}
		if list := secrets(t, d); list[0].Problem == "" || list[0].Refused != c.final || (h.in() == 0) != c.final {
			t.Errorf("%s: %+v, again in %s", name, list, h.in())
		}
		if strings.Contains(said.String(), "hunter2") || d.redaction.clean("RT-1-hunter2hunter2") == "RT-1-hunter2hunter2" && c.want == "RT-1-hunter2hunter2" {
			t.Errorf("%s: %s", name, said)
		}
	}
}

// TestConverse is the conversation itself, over a pair of sockets.
func TestConverse(t *testing.T) {
	d, _, _, h, _, said := clerk(t)
	d.holdTokens(t, noon, time.Hour)
	_, text, _, err := d.vault.Tokens("drive")
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := pairOf(t)
	over := make(chan error, 1)
	go func() {
		over <- serveErrand(ours, refreshing{d.tokens, "drive", text}, "words", echoes{})
	}()
	m, files, err := theirs.Receive()
	if err != nil || m.Welcome == nil || m.Welcome.Held != "words" {
		t.Fatalf("%+v, %v", m, err)
	}
	got, err := passed(files)
	if err != nil || !bytes.Equal(got, text) {
		t.Fatalf("%q, %v", got, err)
	}
	send := func(m attach.Message, content string) attach.Message {
		t.Helper()
		f, err := units.Sealed("x", []byte(content))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := theirs.Send(m, f); err != nil {
			t.Fatal(err)
		}
		m, _, err = theirs.Receive()
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	if m := send(attach.Message{Allow: &attach.Allow{ID: 3, Name: "evil.example"}}, ""); m.Allowed == nil || m.Allowed.ID != 3 || m.Allowed.Error != "evil.example" {
		t.Errorf("%+v", m)
	}
	if m := send(reported(attach.Refreshed{Base: "another", Asked: h.now()}),
		`{"access_token":"of-another-set-x"}`); !m.Taken || d.value(t) != "AT-0-hunter2hunter2" {
		t.Errorf("%+v; the vault has %q", m, d.value(t))
	}
	if m := send(reported(attach.Refreshed{Base: units.Digest(text), Error: "it answered 200"}),
		`{"access_token":"","refresh_token":"rotated-in-vain-hunter2"}`); !m.Taken || d.value(t) != "AT-0-hunter2hunter2" {
		t.Errorf("%+v; the vault has %q", m, d.value(t))
	}
	if set, rotated, _, err := d.vault.Tokens("drive"); err != nil || set.RefreshToken != "rotated-in-vain-hunter2" {
		t.Errorf("%+v, %v", set, err)
	} else {
		text = rotated
	}
	if m := send(reported(attach.Refreshed{Base: units.Digest(text), Asked: h.now().Add(time.Hour)}),
		`{"access_token":"a-new-access-token","expires_in":60,`+
			`"token_url":"https://evil.example/","client_id":"evil"}`); !m.Taken || d.value(t) != "a-new-access-token" {
		t.Errorf("%+v; the vault has %q", m, d.value(t))
	}
	if set, _, _, err := d.vault.Tokens("drive"); err != nil || set.TokenURL != "https://login.example/token" || set.ClientID != "id" || !set.Expiry.Equal(noon.Add(time.Minute)) {
		t.Errorf("the process has changed %+v, %v", set, err)
	}
	theirs.Close()
	if err := <-over; err != nil {
		t.Error(err)
	}
	if given := words(d.audit.recorded(t, ownChain), audit.Vault); !strings.HasPrefix(given, "deliver  drive  done") || strings.Count(given, "deliver") != 1 {
		t.Errorf("that the process was given the set: %s", given)
	}
	for _, record := range []string{`operation=refresh key=drive outcome="a new refresh token, and no access token"`, "operation=refresh key=drive outcome=done"} {
		if strings.Count(said.String(), record) != 1 {
			t.Errorf("not one record %q: %s", record, said)
		}
	}
}

// TestSetThatWasRefreshed: a process of an earlier pfard has brought another set back since this one has read the
// vault. The old refresh token is good no more: nobody gets it.
func TestSetThatWasRefreshed(t *testing.T) {
	d, _, _, _, _, _ := clerk(t)
	d.holdTokens(t, noon, time.Hour)
	_, text, _, err := d.vault.Tokens("drive")
	if err != nil {
		t.Fatal(err)
	}
	d.tokens.take("drive", attach.Refreshed{Base: units.Digest(text), Asked: noon},
		[]byte(`{"access_token":"of-the-earlier-one","refresh_token":"RT-1-hunter2hunter2","expires_in":3600}`))
	ours, theirs := pairOf(t)
	over := make(chan error, 1)
	go func() { over <- serveErrand(ours, refreshing{d.tokens, "drive", text}, "", echoes{}) }()
	m, files, err := theirs.Receive()
	if err != nil || m.Welcome == nil || len(files) > 0 {
		t.Errorf("it was told %+v, %d files, %v", m, len(files), err)
	}
	theirs.Close()
	if err := <-over; err != nil {
		t.Error(err)
	}
	if given := words(d.audit.recorded(t, ownChain), audit.Vault); strings.Contains(given, "deliver") {
		t.Errorf("that the process was given the set: %s", given)
	}
}

func reported(r attach.Refreshed) attach.Message {
	return attach.Message{Errand: attach.Errand{Refreshed: &r}}
}

// echoes is a firewall that lets nothing through, and says what was asked.
type echoes struct{}

func (echoes) Allow(a attach.Allow) error { return errors.New(a.Name) }
func (echoes) Listen(port uint16) error   { return fmt.Errorf("port %d", port) }

func pairOf(t *testing.T) (ours, theirs *attach.Conn) {
	t.Helper()
	ours, theirs, err := ends()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	return ours, theirs
}

// ends are both of a conversation.
func ends() (ours, theirs *attach.Conn, err error) {
	ours, file, err := attach.Pair("theirs")
	if err == nil {
		theirs, err = attach.FromFile(file)
	}
	return ours, theirs, err
}

func TestStoreTokens(t *testing.T) {
	d, m, changed, h, _, _ := clerk(t)
	d.within(t, func() { h.at = time.Now() }) // by which the answer reads what ends after so many seconds
	d.put(t, "a.hcl", declaresToken)
	changed <- struct{}{}
	if s := d.state(t)["a"]; s.State != control.Waiting {
		t.Fatalf("%+v", s)
	}
	err := refusal(t, d, control.Request{Verb: control.Store, Key: "drive", OAuth: true, Secret: `{"access_token":"hunter2","refresh_token":"rt"}`})
	if !errors.Is(err, control.ErrInvalid) || !strings.Contains(err.Error(), "token_url is missing") || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("half a set: %v", err)
	}
	ask(t, d, control.Request{Verb: control.Store, Key: "drive", OAuth: true, Secret: `{"access_token":"hunter2","refresh_token":"rt","token_url":"https://login.example/t","client_id":"id","expires_in":3600}`})
	if s := d.state(t)["a"]; s.State != control.Starting || m.secret["a"] != "map[TOKEN:hunter2]" || h.in().Round(time.Minute) != 48*time.Minute {
		t.Errorf("%+v with %s, next in %s", s, m.secret["a"], h.in())
	}
	if values, err := d.vault.Values("drive"); err != nil || fmt.Sprintf("%s", values) != "[hunter2 rt]" {
		t.Errorf("%s, %v", values, err)
	}
	if !slices.ContainsFunc(secrets(t, d), func(s control.Secret) bool { return s.Key == "drive" && s.Problem == "" }) {
		t.Errorf("%+v", secrets(t, d))
	}
}

// TestAlarm is the real clock: it rings when its time has come, at once if that is over, and not when it was taken
// back.
func TestAlarm(t *testing.T) {
	rang := make(chan struct{}, 10)
	a := &alarm{ring: func() { rang <- struct{}{} }}
	if err := a.wake(time.Time{}); err != nil || a.f != nil {
		t.Errorf("nobody is to be woken, and there is a timer (%v)", err)
	}
	for _, at := range []time.Time{a.now().Add(30 * time.Millisecond), a.now().Add(-time.Hour), time.Unix(-5, 0)} {
		if err := a.wake(at); err != nil {
			t.Fatal(err)
		}
		select {
		case <-rang:
		case <-time.After(2 * time.Minute):
			t.Fatalf("it does not ring at %s", at)
		}
		if early := at.Sub(a.now()); early > 0 {
			t.Errorf("it rings %s early", early)
		}
	}
	for over := true; over; { // it may ring before it is taken back
		at := a.now().Add(20 * time.Millisecond)
		if err := a.wake(at); err != nil {
			t.Fatal(err)
		}
		if err := a.wake(time.Time{}); err != nil {
			t.Fatal(err)
		}
		over = !a.now().Before(at)
		select {
		case <-rang:
			if !over {
				t.Error("it rings though it was taken back")
			}
		case <-time.After(60 * time.Millisecond):
		}
	}
	a.close()
}

// TestBrokeredTokens: the bridge has a refreshed token at once. The server runs on, unless its placeholder would be
// another.
func TestBrokeredTokens(t *testing.T) {
	d, m, changed, h, e, _ := clerk(t)
	told := make(chan string, 10)
	d.within(t, func() { d.uses.bridges = bridgesFunc(func(server string) { told <- server }) })
	d.holdTokens(t, noon, time.Hour)
	d.put(t, "a.hcl", "allowed_domains = [\"api.example.com\"]\nserver {\n  command = \"sh\"\n}\nauth = { TOKEN = { secret = \"vault:drive\", deliver = \"broker\" } }\n")
	changed <- struct{}{}
	d.state(t)
	if m.count("a") != 1 || strings.Contains(m.secret["a"], "hunter2") {
		t.Fatalf("%d starts with %s; %v", m.count("a"), m.secret["a"], d.reportNow(t).Diagnostics)
	}
	d.fleet.changed(units.Update{Server: "a", State: units.StateRunning, PID: 7})
	for n, renews := range []bool{1: false, 10: true} { // the last one is longer
		if n != 1 && n != 10 {
			continue
		}
		h.advance(time.Hour)
		e.succeeds(t, n, time.Hour)
		if server := <-told; server != "a" {
			t.Errorf("the bridge of %q has token %d", server, n)
		}
		var list []control.OnDemand
		err := d.do(func() error { list = d.orders.onDemand(); return nil })
		if err != nil || (len(list) == 1 && list[0].Renews) != renews {
			t.Errorf("after token %d the gateway hears %+v, %v", n, list, err)
		}
	}
}

// TestTheNextPfardRenews: that a server runs with an earlier token is known to the next pfard.
func TestTheNextPfardRenews(t *testing.T) {
	d, m, changed, h, e, _ := clerk(t)
	dir := d.remembers(t)
	d.serves(t, changed)
	d.fleet.changed(units.Update{Server: "a", State: units.StateRunning, PID: 7})
	h.advance(50 * time.Minute)
	e.succeeds(t, 1, time.Hour)
	d.state(t)
	next, other, _ := again(t, d, m, dir, "a")
	var list []control.OnDemand
	next.within(t, func() { list = next.orders.onDemand() })
	if len(list) != 1 || !list[0].Renews || other.count("a") != 0 {
		t.Errorf("the gateway hears %+v, %d starts", list, other.count("a"))
	}
}

// TestTheNextPfardHasAnotherEnvironment: what runs with a former value of a variable is started again, once it is idle.
func TestTheNextPfardHasAnotherEnvironment(t *testing.T) {
	t.Setenv("OF_PFAR", "one-of-the-environment")
	d, m, changed := fixture(t)
	dir := d.remembers(t)
	d.put(t, "a.hcl", "server {\n  command = \"sh\"\n}\nauth = { TOKEN = \"$OF_PFAR\" }\n")
	d.put(t, "seed.toml", "name = \"seed\"\ncommand = \"sh\"\n[auth]\ntoken_env = \"OF_PFAR\"\n")
	d.put(t, "b.hcl", fmt.Sprintf(good, "x"))
	changed <- struct{}{}
	d.state(t)
	if m.secret["a"] != "map[TOKEN:one-of-the-environment]" || m.secret["seed"] != "map[OF_PFAR:one-of-the-environment]" {
		t.Fatalf("the servers have %q; %+v", m.secret, d.reportNow(t).Diagnostics)
	}
	for _, tt := range []struct{ value, renews string }{{"one-of-the-environment", ""}, {"", ""}, {"two-of-the-environment", "a seed "}} {
		t.Setenv("OF_PFAR", tt.value)
		next, other, _ := again(t, d, m, dir, "a", "b", "seed")
		for _, server := range []string{"a", "b", "seed"} {
			next.within(t, func() {
				next.fleet.servers[server].take(units.Update{Server: server, State: units.StateRunning, PID: 7})
			})
		}
		var list []control.OnDemand
		next.within(t, func() { list = next.orders.onDemand() })
		var renews string
		for _, o := range list {
			if o.Renews {
				renews += o.Server.Name + " "
			}
		}
		if renews != tt.renews || len(other.starts) != 0 {
			t.Errorf("with %q: %q are due, %v starts; want %q", tt.value, renews, other.starts, tt.renews)
		}
		if tt.renews == "" {
			continue
		}
		ask(t, next, control.Request{Verb: control.Sleep, Server: "a"})
		if next.state(t); other.count("a") != 1 || other.secret["a"] != "map[TOKEN:two-of-the-environment]" {
			t.Errorf("idle, it has %q after %d starts", other.secret["a"], other.count("a"))
		}
	}
}
