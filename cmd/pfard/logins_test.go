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
)

// fetcher stands in for the process that obtains a set: the test does what it would.
type fetcher struct {
	acts   chan func(oauth.Task, errand) error
	ended  chan string // gets the key of each that has ended
	listen []uint16    // that the firewall was asked for

	found func(oauth.Question) (oauth.Found, error) // what a question finds
	asked []string                                  // of each, what it is about and the hosts that it may reach
}

func (f *fetcher) Allow(attach.Allow) error { return errors.New("no") }
func (f *fetcher) Listen(port uint16) error { f.listen = append(f.listen, port); return nil }

func (f *fetcher) login(ctx context.Context, key string, e errand) error {
	defer func() { f.ended <- key }()
	text, err := e.handOver()
	if err != nil {
		return err
	}
	if q, ok := oauth.DecodeQuestion(text); ok {
		return f.finds(q, e)
	}
	task, err := oauth.DecodeTask(text)
	if err != nil {
		return err
	}
	select {
	case act := <-f.acts:
		return act(task, e)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// bureau is a daemon with a provider in oauth.d, and a stand-in for the process of a login.
func bureau(t *testing.T) (*daemon, *machine, chan struct{}, *fetcher, *loud) {
	t.Helper()
	d, m, changed, h, _, said := clerk(t)
	h.mu.Lock()
	h.at = time.Now()
	h.mu.Unlock()
	f := &fetcher{acts: make(chan func(oauth.Task, errand) error), ended: make(chan string, 100)}
	dir := t.TempDir()
	d.within(t, func() { d.orders.logins.runs, d.tokens.signIns.dir = f, dir })
	const text = `provider "acme" {
  client_id = "CI-acme"
  secret    = "vault:acme_client"
  key       = "drive"
  scopes    = ["read"]
  device {
    url   = "https://login.example/device"
    token = "https://login.example/token"
  }
  code {
    url   = "https://login.example/auth"
    token = "https://login.example/token"
  }
}
`
	if err := os.WriteFile(filepath.Join(dir, "acme.hcl"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	d.put(t, "a.hcl", declaresToken)
	changed <- struct{}{}
	d.state(t)
	return d, m, changed, f, said
}

// logsIn asks for a login, and returns what it tells and how it ends.
func (d *daemon) logsIn(ctx context.Context, name string, way oauth.Way) (<-chan control.SignIn, <-chan error) {
	told, ended := make(chan control.SignIn, 10), make(chan error, 1)
	q := control.Request{
		Verb:      control.LogIn,
		Server:    name,
		SettingUp: control.SettingUp{Login: &control.Login{Way: way}},
	}
	go func() {
		ended <- d.answer(ctx, operator(), q, func(r control.Response) error { told <- *r.SignIn; return nil })
		close(told)
	}()
	return told, ended
}

// gives hands a process's answer over.
func gives(e errand, r attach.Refreshed, a oauth.Answer) error {
	content, err := json.Marshal(a)
	if err != nil {
		return err
	}
	e.take(r, content)
	return nil
}

func granted() oauth.Answer {
	return oauth.Answer{AccessToken: "AT-login-hunter2hunter2", RefreshToken: "RT-login-hunter2hunter2",
		ExpiresIn: 3600, TokenType: "bearer"}
}

// TestLogin: a token goes from the process to the vault, with nothing of the process's choice beside it, and to a
// server that has waited for it.
func TestLogin(t *testing.T) {
	d, m, _, f, said := bureau(t)
	if s := d.state(t); !strings.Contains(s["a"].Detail, "needs login: pfar login acme") ||
		s["a"].Remedy.Command != "pfar login acme" {
		t.Errorf("without a token it says %+v", s["a"])
	}
	_, ended := d.logsIn(t.Context(), "a", "")
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "store it with pfar vault set acme_client") {
		t.Errorf("without the client's secret: %v", err)
	}
	if err := d.vault.Set("acme_client", []byte("CS-login-hunter2")); err != nil {
		t.Fatal(err)
	}
	told, ended := d.logsIn(t.Context(), "a", oauth.ByDevice)
	f.acts <- func(task oauth.Task, e errand) error {
		if task.Endpoint != "https://login.example/device" || task.ClientSecret != "CS-login-hunter2" ||
			task.ClientID != "CI-acme" {
			t.Errorf("the process has %+v", task)
		}
		if err := e.show(attach.Progress{URL: "https://login.example/d", Code: "A-B", Complete: "javascript:x", Port: 99,
			Life: time.Hour}, f); err != nil {
			t.Error(err)
		}
		return gives(e, attach.Refreshed{Asked: time.Now()}, granted())
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	var all []control.SignIn
	for s := range told {
		all = append(all, s)
	}
	last := all[len(all)-1]
	if !last.Done || last.Key != "drive" || len(last.Changes) != 1 || last.Changes[0].Result != "new" ||
		len(last.Changes[0].Uses) != 1 || !slices.Equal(last.Scopes, []string{"read"}) {
		t.Errorf("it ends with %+v", last)
	}
	for _, s := range all {
		if s.Step.URL != "" && (s.Step.Code != "A-B" || s.Step.Complete != "" || s.Step.Port != 0 ||
			s.Step.Until.After(time.Now().Add(oauth.LoginTime))) {
			t.Errorf("a person is shown %+v", s.Step)
		}
	}
	set, _, ok, err := d.vault.Tokens("drive")
	if err != nil || !ok || set.AccessToken != "AT-login-hunter2hunter2" ||
		set.TokenURL != "https://login.example/token" ||
		set.ClientSecret != "CS-login-hunter2" || !slices.Equal(set.Scopes, []string{"read"}) || set.Expiry.IsZero() {
		t.Errorf("the vault has %+v, %v", set, err)
	}
	if m.count("a") == 0 {
		t.Error("the server is not started")
	}
	if strings.Contains(said.String(), "hunter2") ||
		d.redaction.clean("x AT-login-hunter2hunter2 y") == "x AT-login-hunter2hunter2 y" {
		t.Errorf("the token is not kept out of texts: %s", said)
	}
	// When its refresh is refused for good, the way out is another login.
	d.tokens.fail(
		"drive",
		attach.Refreshed{Error: "it answered 400 (invalid_grant)", Code: "invalid_grant", Final: true},
	)
	const refused = `the refresh token of "drive" was refused (invalid_grant): needs login: pfar login acme`
	if words, final := d.tokens.problem("drive"); words != refused || !final {
		t.Errorf("after a refusal: %s", words)
	}
}

// TestLoginDistrustsItsProcess: the process reads what the network sends.
func TestLoginDistrustsItsProcess(t *testing.T) {
	d, _, _, f, _ := bureau(t)
	if err := d.vault.Set("acme_client", []byte("CS-login-hunter2")); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		way   oauth.Way
		shown attach.Progress
		fails bool
	}{
		"a page":           {oauth.ByDevice, attach.Progress{URL: "https://login.example/d", Code: "A"}, false},
		"a plain page":     {oauth.ByDevice, attach.Progress{URL: "http://login.example/d", Code: "A"}, true},
		"a script":         {oauth.ByDevice, attach.Progress{URL: "javascript:x", Code: "A"}, true},
		"no code":          {oauth.ByDevice, attach.Progress{URL: "https://login.example/d"}, true},
		"escapes":          {oauth.ByDevice, attach.Progress{URL: "https://login.example/d", Code: "\x1b[2J"}, true},
		"a link":           {oauth.ByCode, attach.Progress{URL: "https://login.example/auth?state=x", Port: 41234}, false},
		"another host":     {oauth.ByCode, attach.Progress{URL: "https://evil.example/auth?state=x", Port: 41234}, true},
		"another page":     {oauth.ByCode, attach.Progress{URL: "https://login.example/other", Port: 41234}, true},
		"a port of root's": {oauth.ByCode, attach.Progress{URL: "https://login.example/auth?state=x", Port: 22}, true},
		"no port":          {oauth.ByCode, attach.Progress{URL: "https://login.example/auth?state=x"}, true},
		"a code beside that": {oauth.ByCode, attach.Progress{URL: "https://login.example/auth?state=x", Port: 41234,
			Code: "A"}, true},
	} {
		before := len(f.listen)
		_, ended := d.logsIn(t.Context(), "acme", c.way)
		f.acts <- func(_ oauth.Task, e errand) error { return e.show(c.shown, f) }
		err := <-ended
		if shown := strings.Contains(err.Error(), "ended without an answer"); shown == c.fails {
			t.Errorf("%s: %v", name, err)
		}
		if opened := len(f.listen) > before; opened != (c.way == oauth.ByCode && !c.fails) {
			t.Errorf("%s: the firewall is asked: %t", name, opened)
		}
	}
	d.redaction.fill(d.vault, d.log)
	for name, c := range map[string]struct {
		r     attach.Refreshed
		a     oauth.Answer
		words string
		kind  error
	}{
		"words":         {attach.Refreshed{Error: "no \x1b[2J CS-login-hunter2"}, granted(), "no", control.ErrProvider},
		"a code":        {attach.Refreshed{Error: "no", Code: "CS-login-hunter2\x1b"}, granted(), "no", control.ErrProvider},
		"denied":        {attach.Refreshed{Error: "no", Code: oauth.CodeDenied}, granted(), "no", control.ErrSignInDenied},
		"late":          {attach.Refreshed{Error: "no", Code: oauth.CodeExpired}, granted(), "no", control.ErrSignInExpired},
		"no token":      {attach.Refreshed{}, oauth.Answer{}, "of no use", control.ErrProvider},
		"a short token": {attach.Refreshed{}, oauth.Answer{AccessToken: "short"}, "of no use", control.ErrProvider},
		"a header": {attach.Refreshed{}, oauth.Answer{AccessToken: "AT-login-hunter2\r\nX: y"}, "of no use",
			control.ErrProvider},
	} {
		_, ended := d.logsIn(t.Context(), "acme", oauth.ByDevice)
		f.acts <- func(_ oauth.Task, e errand) error { return gives(e, c.r, c.a) }
		err := <-ended
		if !errors.Is(err, c.kind) {
			t.Errorf("%s: %q is not %q", name, err, c.kind)
		}
		if err == nil || !strings.Contains(err.Error(), c.words) || !strings.Contains(err.Error(),
			"nothing was stored") ||
			strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "\x1b") {
			t.Errorf("%s: %q", name, err)
		}
	}
	if _, _, ok, _ := d.vault.Tokens("drive"); ok {
		t.Error("there is a token")
	}
}

// TestLoginsEnd: by the caller, by a second one, and what comes afterwards is dropped.
func TestLoginsEnd(t *testing.T) {
	d, _, _, f, _ := bureau(t)
	if err := d.vault.Set("acme_client", []byte("CS-login-hunter2")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, ended := d.logsIn(ctx, "acme", oauth.ByDevice)
	kept := make(chan errand, 1)
	f.acts <- func(_ oauth.Task, e errand) error { kept <- e; <-ctx.Done(); return context.Cause(ctx) }
	late := <-kept
	cancel()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "nothing was stored") {
		t.Errorf("the caller has gone: %v", err)
	}
	if key := <-f.ended; key != "drive" {
		t.Errorf("the process of %q has ended", key)
	}
	if err := gives(late, attach.Refreshed{}, granted()); err != nil {
		t.Fatal(err)
	}
	if _, _, ok, _ := d.vault.Tokens("drive"); ok {
		t.Error("what came late is stored")
	}
	_, first := d.logsIn(t.Context(), "acme", oauth.ByDevice)
	for !d.orders.logins.under("drive") {
		time.Sleep(time.Millisecond)
	}
	_, second := d.logsIn(t.Context(), "a", oauth.ByDevice)
	if err := <-first; !errors.Is(err, control.ErrSignInReplaced) {
		t.Errorf("the first ends with %v", err)
	}
	f.acts <- func(_ oauth.Task, e errand) error { return gives(e, attach.Refreshed{}, granted()) }
	if err := <-second; err != nil {
		t.Errorf("the second ends with %v", err)
	}
	// A guest of the socket may not ask.
	if slices.Contains(gatewayGuest(1).Verbs, control.LogIn) {
		t.Error("the gateway may have tokens obtained")
	}
}

// under reports whether a login of a key is under way.
func (l *logins) under(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.of[key] != nil
}

// TestSetUpTakesALogin: a set-up says in which ways its secret can be had, and goes on when a login has stored it.
func TestSetUpTakesALogin(t *testing.T) {
	d, m, _, f, _ := bureau(t)
	if err := d.vault.Set("acme_client", []byte("CS-login-hunter2")); err != nil {
		t.Fatal(err)
	}
	follow := d.begins(t, operator(), texted("b", declaresToken))
	asked := follow.until(control.AwaitingCredential)
	if asked.Wants == nil || !slices.Equal(asked.Wants.Ways, []string{"code", "device"}) {
		t.Fatalf("it wants %+v", asked.Wants)
	}
	_, ended := d.logsIn(t.Context(), asked.Wants.Key, oauth.ByDevice)
	f.acts <- func(_ oauth.Task, e errand) error { return gives(e, attach.Refreshed{}, granted()) }
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	d.comesUp(t, m, "b", 1, units.Verification{Result: units.Verified, Tool: "get_me"})
	if done := follow.until(control.FlowComplete); done.Verified != "get_me" {
		t.Errorf("it ends with %+v", done)
	}
}

// TestSignInOfASetUp: a login for a set-up obtains what that waits for, and ends with it: when the set-up ends, when
// another value comes, and when it asks for something else. The set-up's time does not cut it short.
func TestSignInOfASetUp(t *testing.T) {
	d, m, _, f, _ := bureau(t)
	if err := d.vault.Set("acme_client", []byte("CS-login-hunter2")); err != nil {
		t.Fatal(err)
	}
	signs := func(id, key string) <-chan error {
		q := control.Request{Verb: control.LogIn, SettingUp: control.SettingUp{Login: &control.Login{Flow: id, Key: key}}}
		ended := make(chan error, 1)
		go func() { ended <- d.answer(t.Context(), operator(), q, func(control.Response) error { return nil }) }()
		return ended
	}
	begin := func() (*flowing, control.Flow) {
		follow := d.begins(t, operator(), texted("b", declaresToken))
		return follow, follow.until(control.AwaitingCredential)
	}
	if err := <-signs("none", "drive"); !errors.Is(err, control.ErrNoFlow) {
		t.Errorf("no such set-up: %v", err)
	}
	follow, asked := begin()
	err := <-signs(asked.ID, "other")
	if !errors.Is(err, control.ErrInvalid) || !strings.Contains(err.Error(), "now waits for TOKEN") {
		t.Errorf("for another secret: %v", err)
	}
	ended := signs(asked.ID, "drive")
	now := follow.until(control.AwaitingCredential)
	if now.Deadline.Sub(asked.Deadline) < time.Minute || now.Wants == nil {
		t.Errorf("while a person signs in it is %+v", now)
	}
	if _, err := d.supplies(t, asked.ID, "cancel"); err != nil {
		t.Fatal(err)
	}
	const needless = "does not wait for the sign-in any more; nothing was stored"
	if err := <-ended; err == nil || !strings.Contains(err.Error(), needless) {
		t.Errorf("its set-up has ended: %v", err)
	}
	follow.until(control.FlowFailed)

	follow, asked = begin()
	ended = signs(asked.ID, "drive")
	f.acts <- func(_ oauth.Task, e errand) error {
		return gives(e, attach.Refreshed{Error: "the sign-in was refused"}, oauth.Answer{})
	}
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "the sign-in was refused") {
		t.Errorf("denied: %v", err)
	}
	for now = asked; now.Detail != "the sign-in was refused; nothing was stored"; {
		now = follow.until(control.AwaitingCredential)
	}
	if now.Attempts != 0 || now.Wants == nil || now.Deadline.Sub(asked.Deadline) > time.Minute {
		t.Errorf("after that it is %+v", now)
	}
	ended = signs(asked.ID, "")
	for !d.orders.logins.under("drive") {
		time.Sleep(time.Millisecond)
	}
	if _, err := d.supplies(t, asked.ID, "AT-pasted-hunter2"); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "nothing was stored") {
		t.Errorf("somebody has pasted a value: %v", err)
	}
	d.comesUp(t, m, "b", 1, proven())
	follow.until(control.FlowComplete)
}

// TestRemedyOfARefusedToken: where a provider is configured, another token comes from it, whether the service refuses
// the token or the provider its refresh.
func TestRemedyOfARefusedToken(t *testing.T) {
	d, m, changed, _, _ := bureau(t)
	if err := d.vault.Set("drive", []byte("wrong-wrong-wrong")); err != nil {
		t.Fatal(err)
	}
	const text = "service = \"notion\"\n" + "server {\n  command = \"sh\"\n}\nauth = { NOTION_TOKEN = \"vault:drive\" }\n"
	d.put(t, "a.hcl", text)
	d.put(t, "o.hcl", strings.Replace(text, "vault:drive", "vault:other", 1))
	if err := d.vault.Set("other", []byte("wrong-wrong-wrong")); err != nil {
		t.Fatal(err)
	}
	changed <- struct{}{}
	d.state(t)
	for name, want := range map[string]string{"a": "pfar login acme", "o": "pfar vault set other"} {
		d.comesUp(t, m, name, 1, units.Verification{Result: units.Invalid, Tool: "API-get-self", Words: "401"})
		s := d.state(t)[name]
		if s.State != control.CredentialInvalid || s.Verification.Remedy.Command != want ||
			!strings.Contains(s.Detail, want) {
			t.Errorf("%s: %s, %s, remedy %q", name, s.State, s.Detail, s.Verification.Remedy)
		}
	}
	answer := granted()
	task := oauth.Task{TokenURL: "https://login.example/token", ClientID: "CI-acme"}
	set, err := task.Obtained(answer, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := set.Encode()
	if err != nil {
		t.Fatal(err)
	}
	ask(t, d, control.Request{Verb: control.Store, Key: "drive", Secret: string(encoded), OAuth: true})
	d.tokens.fail("drive", attach.Refreshed{Error: "400", Code: "invalid_grant", Final: true})
	if s := d.state(t)["a"]; !strings.Contains(s.Detail, "needs login: pfar login acme") {
		t.Errorf("the status says %+v", s)
	}
	list := ask(t, d, control.Request{Verb: control.Secrets}).Secrets
	at := slices.IndexFunc(list, func(s control.Secret) bool { return s.Key == "drive" })
	if !list[at].Refused || !strings.Contains(list[at].Problem, "needs login: pfar login acme") {
		t.Errorf("the vault says %+v", list[at])
	}
}
