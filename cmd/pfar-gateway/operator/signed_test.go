package operator

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
	"github.com/pfar/pfar/policies/passkey"
	"github.com/pfar/pfar/policies/passkey/passkeytest"
)

const console = "https://pfar.example.com:7443"

// window is a bench whose operators sign: alice may approve, bob look and carol change, and dave has no role.
type window struct {
	*bench
	signers *Signers
	keys    map[string]*passkeytest.Authenticator
	now     time.Time
	log     bytes.Buffer
	gate    *signed
}

func newWindow(t *testing.T) *window {
	t.Helper()
	w := &window{bench: newBench(t), signers: new(Signers), now: time.Now()}
	w.keys = map[string]*passkeytest.Authenticator{}
	var all []passkey.Operator
	for name, role := range map[string]passkey.Role{
		"alice": passkey.Approve, "bob": passkey.Look, "carol": passkey.Change, "dave": "",
	} {
		key := passkeytest.New(t, console)
		w.keys[name] = key
		all = append(all, passkey.Operator{Name: name, Role: role, Keys: []passkey.Key{key.Key()}})
	}
	w.signers.Learn(all)
	w.Log = slog.New(slog.NewTextHandler(&w.log, nil))
	w.gate = w.signed(t.Context(), w.signers, func() time.Time { return w.now })
	return w
}

// ask sends a request as a process of this user does, with any number of proofs.
func (w *window) ask(method, target, body string, proofs ...string) (int, string) {
	ctx := context.WithValue(w.t.Context(), peerKey{}, os.Getuid())
	return w.send(httptest.NewRequestWithContext(ctx, method, target, strings.NewReader(body)), proofs...)
}

func (w *window) send(r *http.Request, proofs ...string) (int, string) {
	for _, p := range proofs {
		r.Header.Add(passkey.ProofHeader, p)
	}
	got := httptest.NewRecorder()
	peersOnly(w.gate).ServeHTTP(got, r)
	return got.Code, got.Body.String()
}

func (w *window) nonce() string {
	w.t.Helper()
	var given struct{ Nonce string }
	status, body := w.ask("POST", "/challenge", "")
	if err := json.Unmarshal([]byte(body), &given); err != nil || status != 200 || len(given.Nonce) < 26 {
		w.t.Fatalf("%d %s, %v", status, body, err)
	}
	return given.Nonce
}

// act is an act with a fresh nonce.
func (w *window) act(method, target, body string) passkey.Act {
	w.t.Helper()
	return passkey.Act{Nonce: w.nonce(), Method: method, Target: target, Body: []byte(body)}
}

func encoded(text []byte) string { return base64.RawURLEncoding.EncodeToString(text) }

func header(name, nonce string, response []byte) string {
	text, _ := json.Marshal(passkey.Proof{Operator: name, Nonce: nonce, Response: response})
	return encoded(text)
}

// sign is the proof of an operator for an act.
func (w *window) sign(name string, a passkey.Act) string {
	return header(name, a.Nonce, w.keys[name].Sign(a.Challenge()))
}

// signedBy sends what an operator signs.
func (w *window) signedBy(name, method, target, body string) (int, string) {
	w.t.Helper()
	return w.ask(method, target, body, w.sign(name, w.act(method, target, body)))
}

// forgery makes the proofs that come with an act.
type forgery func(passkey.Act) []string

// signs has a passkey sign in the name of an operator, whether it is theirs or another's.
func signs(name string, key *passkeytest.Authenticator) forgery {
	return func(a passkey.Act) []string { return []string{header(name, a.Nonce, key.Sign(a.Challenge()))} }
}

// over has a passkey of alice sign another act.
func (w *window) over(change func(*passkey.Act)) forgery {
	return func(a passkey.Act) []string {
		nonce := a.Nonce
		change(&a)
		return []string{header("alice", nonce, w.keys["alice"].Sign(a.Challenge()))}
	}
}

// named has a passkey of alice sign the act with another nonce, and names that.
func (w *window) named(nonce string) forgery {
	return func(a passkey.Act) []string {
		a.Nonce = nonce
		return []string{w.sign("alice", a)}
	}
}

// bent has a passkey of alice say something else of itself.
func (w *window) bent(bend func(*passkeytest.Authenticator)) forgery {
	copied := *w.keys["alice"]
	bend(&copied)
	return signs("alice", &copied)
}

func twice(f forgery) forgery {
	return func(a passkey.Act) []string { return append(f(a), f(a)...) }
}

func unanswered(a passkey.Act) []string { return []string{header("alice", a.Nonce, nil)} }

func sends(proofs ...string) forgery { return func(passkey.Act) []string { return proofs } }

// TestUnsigned: an act is refused unless an operator whose role suffices signed this very request, with a nonce of the
// gateway. Nothing is done then, and nothing recorded. The log names the operator, and has no proof.
func TestUnsigned(t *testing.T) {
	w := newWindow(t)
	shown := w.waiting(`{}`)
	at := "/approvals/" + shown.ID
	target, body := at+"/approve", `{"digest":"`+shown.Digest+`"}`
	const none, old, wrong = "did not sign this request", "used before, or is older", "no passkey of this operator"
	const remedy = ", and this needs the role approve: ask the administrator of pfar to run pfar operator role "
	stranger, alice := passkeytest.New(t, console), w.keys["alice"]
	for name, c := range map[string]struct {
		forge  forgery
		status int
		text   string
	}{
		"no proof":      {sends(), 401, none},
		"an empty one":  {sends(""), 401, old},
		"no base64":     {sends("%"), 401, none},
		"no JSON":       {sends(encoded([]byte("{"))), 401, none},
		"a later proof": {sends(encoded([]byte(`{"later":1}`))), 401, none},
		"two proofs":    {twice(signs("alice", alice)), 401, none},

		"no nonce":                  {w.named(""), 401, old},
		"a nonce of one's own":      {w.named("ABCDEFGHIJKLMNOPQRSTUVWXYZ"), 401, old},
		"signed over another nonce": {w.over(func(a *passkey.Act) { a.Nonce = w.nonce() }), 401, wrong},
		"signed over another body":  {w.over(func(a *passkey.Act) { a.Body = []byte("{}") }), 401, wrong},
		"signed over another path":  {w.over(func(a *passkey.Act) { a.Target = at + "/deny" }), 401, wrong},
		"signed over a query":       {w.over(func(a *passkey.Act) { a.Target += "?x" }), 401, wrong},
		"another method":            {w.over(func(a *passkey.Act) { a.Method = "PUT" }), 401, wrong},
		"signed for pfard": {w.over(func(a *passkey.Act) {
			a.Method, a.Target = passkey.Order, passkey.Pfard
		}), 401, wrong},

		"an unknown operator":        {signs("mallory", stranger), 401, wrong},
		"nobody":                     {signs("", alice), 401, wrong},
		"a stranger's passkey":       {signs("alice", stranger), 401, wrong},
		"another operator's passkey": {signs("alice", w.keys["carol"]), 401, wrong},
		"another operator's name":    {signs("carol", alice), 401, wrong},
		"no response":                {unanswered, 401, wrong},
		"another console": {w.bent(func(k *passkeytest.Authenticator) {
			k.Origin = "https://evil.example.com:7443"
		}), 401, wrong},
		"a person not verified": {w.bent(func(k *passkeytest.Authenticator) { k.Flags = passkeytest.Present }), 401, wrong},

		"who may look":    {signs("bob", w.keys["bob"]), 403, "bob has the role look" + remedy + "bob approve"},
		"who has no role": {signs("dave", w.keys["dave"]), 403, "dave has the role none" + remedy + "dave approve"},
	} {
		proofs := c.forge(w.act("POST", target, body))
		status, got := w.ask("POST", target, body, proofs...)
		if status != c.status || !strings.HasPrefix(got, `{"error":"`) || !strings.Contains(got, c.text) {
			t.Errorf("%s: %d %s, want %d %s", name, status, got, c.status, c.text)
		}
		for _, p := range proofs {
			if len(p) > 8 && strings.Contains(w.log.String(), p) {
				t.Errorf("%s: the log has the proof", name)
			}
		}
	}
	if now, err := w.Approvals.Show(shown.ID); err != nil || now.State != approval.Pending || len(w.acts) != 0 {
		t.Errorf("%+v, %v, %+v", now, err, w.acts)
	}
	for _, want := range []string{"mallory", "bob has the role", target} {
		if !strings.Contains(w.log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, &w.log)
		}
	}
}

// TestUnsignedMethods: only a GET needs no signature, and that of a stranger to the kernel gets nothing either.
func TestUnsignedMethods(t *testing.T) {
	w := newWindow(t)
	for _, method := range []string{
		"POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "CONNECT", "get", passkey.Order,
	} {
		for _, target := range []string{"/approvals", "/sessions", "/stats", "/nothing", "//challenge", "/challenge/"} {
			if status, got := w.ask(method, target, ""); status != http.StatusUnauthorized {
				t.Errorf("%s %s: %d %s", method, target, status, got)
			}
		}
	}
	for target, want := range map[string]int{
		"/approvals": 200, "/sessions": 200, "/grants": 200, "/pins": 200, "/challenge": 404,
		"/undo/files": 403,
	} {
		if status, got := w.ask("GET", target, ""); status != want {
			t.Errorf("GET %s: %d %s", target, status, got)
		}
	}
	for _, c := range [][2]string{{"GET", "/approvals"}, {"POST", "/challenge"}, {"POST", "/sessions"}} {
		if status, got := w.send(httptest.NewRequest(c[0], c[1], nil)); status != http.StatusForbidden {
			t.Errorf("a stranger, %s %s: %d %s", c[0], c[1], status, got)
		}
	}
	if w.signers = new(Signers); w.signers.find("alice").Role != "" {
		t.Error("nobody is told, and there is an operator")
	}
}

// TestSignedBodies: a body that is too large, or does not arrive, is refused, although it was signed.
func TestSignedBodies(t *testing.T) {
	w := newWindow(t)
	large := strings.Repeat("x", maxNames+1)
	status, got := w.signedBy("carol", "POST", "/pins/s/accept", large)
	if status != 413 || !strings.Contains(got, "more than 4194304 bytes") {
		t.Errorf("%d %.200s", status, got)
	}
	a := w.act("POST", "/sessions", `{"client":"laptop"}`)
	ctx := context.WithValue(t.Context(), peerKey{}, os.Getuid())
	r := httptest.NewRequestWithContext(ctx, a.Method, a.Target, broken{})
	if status, got := w.send(r, w.sign("alice", a)); status != 400 || !strings.Contains(got, "did not arrive whole") {
		t.Errorf("%d %s", status, got)
	}
	if len(w.acts) != 0 || len(w.gate.checks) != 0 {
		t.Errorf("%+v, %d checks are under way", w.acts, len(w.gate.checks))
	}
	large = `{"names":["` + large[:maxNames-len(`{"names":[""]}`)] + `"]}`
	if status, got := w.signedBy("carol", "POST", "/pins/s/accept", large); status != 404 {
		t.Errorf("the largest: %d %.200s", status, got)
	}
}

// broken is a body that ends too early.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, net.ErrClosed }

// TestSigned: an operator's signature approves a call in the operator's name, once.
func TestSigned(t *testing.T) {
	w := newWindow(t)
	shown := w.waiting(`{}`)
	target, body := "/approvals/"+shown.ID+"/approve", `{"digest":"`+shown.Digest+`"}`
	proof := w.sign("alice", w.act("POST", target, body))
	if status, got := w.ask("POST", target, body, proof); status != 200 || !strings.Contains(got, "approved") {
		t.Fatalf("%d %s\n%s", status, got, &w.log)
	}
	want := approval.Approver{UID: os.Getuid(), Name: "alice", Channel: "passkey"}
	if len(w.acts) != 1 || w.acts[0].By != want || w.acts[0].Verb != "approve" || w.acts[0].Failed != "" {
		t.Errorf("%+v is recorded, want %+v", w.acts, want)
	}
	now, err := w.Approvals.Show(shown.ID)
	if err != nil || now.State != approval.Approved || now.By == nil || *now.By != want {
		t.Errorf("%+v, %v", now, err)
	}
	if status, got := w.ask("POST", target, body, proof); status != 401 || !strings.Contains(got, "used before") {
		t.Errorf("again: %d %s", status, got)
	}
	if len(w.acts) != 1 {
		t.Errorf("%+v", w.acts)
	}
	w.signers.Learn(nil)
	if status, got := w.signedBy("alice", "POST", "/sessions", `{"client":"laptop"}`); status != 401 {
		t.Errorf("who is no operator any more: %d %s", status, got)
	}
}

// TestSignedRace: of two operators who answer one call together, one answers it. The other is told so, and so is the
// audit.
func TestSignedRace(t *testing.T) {
	w := newWindow(t)
	for i := range 5 { // as many calls as may wait
		w.acts = nil
		shown := w.waiting(fmt.Sprintf(`{"n":%d}`, i))
		target, body := "/approvals/"+shown.ID+"/", `{"digest":"`+shown.Digest+`"}`
		bodies := map[string]string{"approve": body, "deny": "{}"}
		proofs := map[string]string{
			"approve": w.sign("alice", w.act("POST", target+"approve", bodies["approve"])),
			"deny":    w.sign("carol", w.act("POST", target+"deny", bodies["deny"])),
		}
		var yes, no string
		var all sync.WaitGroup
		for verb, answer := range map[string]*string{"approve": &yes, "deny": &no} {
			all.Go(func() {
				status, text := w.ask("POST", target+verb, bodies[verb], proofs[verb])
				*answer = fmt.Sprint(status, " ", text)
			})
		}
		all.Wait()
		first, second, by, late := yes, no, "alice", "carol"
		if strings.HasPrefix(no, "200 ") {
			first, second, by, late = no, yes, "carol", "alice"
		}
		told := strings.Contains(second, " already, by "+by) || strings.Contains(second, "no call of this id waits")
		if !strings.HasPrefix(first, "200 ") || strings.HasPrefix(second, "200 ") || !told {
			t.Fatalf("alice's yes: %s, carol's no: %s", yes, no)
		}
		var failed []string
		for _, a := range w.acts {
			if a.Failed != "" {
				failed = append(failed, a.By.Name)
			}
		}
		if len(w.acts) != 3 || !slices.Equal(failed, []string{late}) {
			t.Errorf("the audit has %+v", w.acts)
		}
	}
}

// TestSignedRoles: who may approve may do nothing that changes more, however the path is written.
func TestSignedRoles(t *testing.T) {
	w := newWindow(t)
	approves := [][2]string{
		{"POST", "/approvals/x/approve"}, {"POST", "/approvals/x/deny"}, {"POST", "/grants/x/revoke"},
		{"POST", "/grants/revoke"}, {"POST", "/sessions"}, {"POST", "/sessions?x"},
	}
	changes := [][2]string{
		{"POST", "/sessions/laptop/default/reset"}, {"POST", "/sessions/laptop/default/thaw"},
		{"POST", "/sessions/laptop/x/end"}, {"POST", "/stains/mail/clear"}, {"POST", "/pins/mail/accept"},
	}
	nobodys := [][2]string{
		{"POST", "/undo/files"}, {"POST", "/pins/mail/forget"}, {"POST", "/servers/mail/verify"},
		{"POST", "/nothing"}, {"POST", "/stats"}, {"POST", "/approvals"}, {"DELETE", "/approvals/x"},
		{"POST", "/approvals/../pins/mail/forget"}, {"POST", "/approvals/%2e%2e/pins/mail/forget"},
		{"POST", "/approvals/..%2fpins/mail/forget"}, {"POST", "//pins/mail/forget"}, {"POST", "/sessions/"},
		{"HEAD", "/approvals"}, {"PUT", "/sessions"},
	}
	for _, c := range nobodys {
		for _, name := range []string{"alice", "bob", "carol"} {
			if status, got := w.signedBy(name, c[0], c[1], `{}`); status != 403 {
				t.Errorf("%s, %q: %d %s", name, c, status, got)
			}
		}
	}
	if status, got := w.signedBy("carol", "POST", "/pins/mail/accept", `{"all":true}`); status != 400 {
		t.Errorf("accepting what was not shown: %d %s", status, got)
	}
	for _, c := range approves {
		for name, may := range map[string]bool{"alice": true, "bob": false, "carol": true, "dave": false} {
			status, got := w.signedBy(name, c[0], c[1], `{}`)
			if status == 401 || (status != 403) != may || !may && !strings.Contains(got, "role approve") {
				t.Errorf("%s, %q: %d %s", name, c, status, got)
			}
		}
	}
	for _, c := range changes {
		for name, may := range map[string]bool{"alice": false, "bob": false, "carol": true} {
			status, got := w.signedBy(name, c[0], c[1], `{}`)
			if status == 401 || (status != 403) != may || !may && !strings.Contains(got, "role change") {
				t.Errorf("%s, %q: %d %s", name, c, status, got)
			}
		}
	}
	if t.Failed() {
		t.Log(w.log.String())
	}
}

// TestSignedOnce: a nonce is good for the first request that names it, within five minutes.
func TestSignedOnce(t *testing.T) {
	w := newWindow(t)
	const target, body = "/sessions", `{"client":"laptop"}`
	for after, want := range map[time.Duration]int{passkey.NonceTime - 1: 200, passkey.NonceTime: 401, time.Hour: 401} {
		a := w.act("POST", target, body)
		w.now = w.now.Add(after)
		if status, got := w.ask("POST", target, body, w.sign("alice", a)); status != want {
			t.Errorf("after %s: %d %s, want %d", after, status, got, want)
		}
	}
	a := w.act("POST", target, body)
	if status, got := w.ask("POST", target, "{}", w.sign("alice", a)); status != 401 {
		t.Errorf("with another body: %d %s", status, got)
	}
	status, got := w.ask("POST", target, body, w.sign("alice", a))
	if status != 401 || !strings.Contains(got, "used before") {
		t.Errorf("a nonce that a refused request named: %d %s", status, got)
	}
	kept := w.nonce()
	for range 300 { // one operator's
		if status, got := w.ask("POST", "/challenge?operator=bob", ""); status != 200 {
			t.Fatal(status, got)
		}
	}
	a = passkey.Act{Nonce: kept, Method: "POST", Target: target, Body: []byte(body)}
	if status, got := w.ask("POST", target, body, w.sign("alice", a)); status != 200 {
		t.Errorf("after another operator asked for many: %d %s", status, got)
	}
}

// TestSignedWatch: on a real socket the stream tells at once what a signature does, and ends with the server.
func TestSignedWatch(t *testing.T) {
	w := newWindow(t)
	dir, err := os.MkdirTemp("", "pfar")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "passkey.sock"))
	if err != nil {
		t.Fatal(err)
	}
	server := w.Signed(w.signers, time.Now)
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", l.Addr().String())
	}
	w.client = &http.Client{Transport: &http.Transport{DialContext: dial}}
	t.Cleanup(w.client.CloseIdleConnections)
	shown := w.waiting(`{"password":"hunter2"}`)
	resp, err := w.client.Get("http://localhost/approvals/watch")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	next := func(kind string) {
		t.Helper()
		lines.Scan()
		if line := lines.Text(); !strings.Contains(line, `"kind":"`+kind+`"`) || strings.Contains(line, "hunter2") {
			t.Fatalf("%s, want %s", line, kind)
		}
	}
	next("pending")
	var given struct{ Nonce string }
	if _, got := w.do("POST", "/challenge", ""); json.Unmarshal([]byte(got), &given) != nil {
		t.Fatal(got)
	}
	target := "/approvals/" + shown.ID + "/deny"
	a := passkey.Act{Nonce: given.Nonce, Method: "POST", Target: target, Body: []byte(`{"reason":"no"}`)}
	r, err := http.NewRequestWithContext(t.Context(), a.Method, "http://localhost"+target, bytes.NewReader(a.Body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(passkey.ProofHeader, w.sign("alice", a))
	denied, err := w.client.Do(r)
	if err != nil || denied.StatusCode != 200 {
		t.Fatalf("%+v, %v\n%s", denied, err, &w.log)
	}
	denied.Body.Close()
	next("denied")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if lines.Scan() {
		t.Errorf("after the end: %s", lines.Text())
	}
}
