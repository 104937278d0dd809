package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfar-console/signing"
	"github.com/pfar/pfar/policies/passkey"
	"github.com/pfar/pfar/policies/passkey/passkeytest"
	"github.com/pfar/pfar/policies/passkey/webauthn"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/page"
)

const away = "https://pfar.example.com:7443"

// remote is the remote console, with alice, who approves, and a gateway that checks what she signs.
type remote struct {
	t     *testing.T
	site  *site
	alice *passkeytest.Authenticator
	now   time.Time

	gateway  *gateway
	nonces   map[string]bool
	unproven int // acts that the gateway refused

	cookie *http.Cookie
	home   string
	turn   string

	given   map[string]bool // nonces of pfard's
	ordered []attach.Order  // that pfard has carried out
}

func newRemote(t *testing.T) *remote {
	r := &remote{
		t: t, now: time.Now(), alice: passkeytest.New(t, away), nonces: map[string]bool{}, given: map[string]bool{},
		gateway: &gateway{calls: nil, changed: make(chan struct{})},
	}
	h := httptest.NewServer(http.HandlerFunc(r.signedOnly))
	t.Cleanup(h.Close)
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", h.Listener.Addr().String())
	}
	client := &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	r.site = newRemoteSite(client, func() time.Time { return r.now })
	r.site.orders.sends = func(o attach.Order) error {
		go r.site.orders.answer(o.Number, r.pfard(o))
		return nil
	}
	(&opened{t: t, site: r.site}).views(nil)
	r.knows(passkey.Approve)
	return r
}

// knows has pfard say who alice is.
func (r *remote) knows(role passkey.Role, invited ...attach.Invitation) {
	alice := passkey.Operator{Name: "alice", Role: role, Keys: []passkey.Key{r.alice.Key()}}
	r.site.known.Store(&attach.Known{Operators: []passkey.Operator{alice}, Invitations: invited})
}

// pfard stores passkeys, and carries out what alice signed with a nonce of its own.
func (r *remote) pfard(o attach.Order) attach.Ordered {
	done := attach.Ordered{Question: o.Question}
	if o.Act == attach.OrderChallenge && o.Operator == "alice" {
		done.Nonce = operatorNonce()
		r.given[done.Nonce] = true
		return done
	}
	if o.Act != attach.OrderEnroll {
		done.Error = "not signed"
		if o.Proof == nil || !r.given[o.Proof.Nonce] {
			return done
		}
		delete(r.given, o.Proof.Nonce)
		alice := passkey.Find(r.site.known.Load().Operators, o.Proof.Operator)
		act, err := o.Signed(o.Proof.Nonce)
		if err != nil || webauthn.Check(alice, act.Challenge(), o.Proof.Response) != nil {
			return done
		}
		done.Error = ""
	}
	r.ordered = append(r.ordered, o)
	return done
}

// signedOnly is the gateway's socket for the console, which lets nothing be done without alice's signature.
func (r *remote) signedOnly(w http.ResponseWriter, q *http.Request) {
	if q.Method == http.MethodGet {
		r.gateway.ServeHTTP(w, q)
		return
	}
	if q.URL.Path == "/challenge" {
		nonce := operatorNonce()
		r.nonces[nonce] = true
		_ = json.NewEncoder(w).Encode(map[string]string{"nonce": nonce})
		return
	}
	body, _ := io.ReadAll(q.Body)
	text, _ := base64.RawURLEncoding.DecodeString(q.Header.Get(passkey.ProofHeader))
	var proof passkey.Proof
	_ = json.Unmarshal(text, &proof) // the zero value proves nothing
	act := passkey.Act{Nonce: proof.Nonce, Method: q.Method, Target: q.URL.RequestURI(), Body: body}
	alice := passkey.Find(r.site.known.Load().Operators, proof.Operator)
	if !r.nonces[proof.Nonce] || webauthn.Check(alice, act.Challenge(), proof.Response) != nil {
		r.unproven++
		w.WriteHeader(http.StatusUnauthorized)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": "not signed"})
		return
	}
	delete(r.nonces, proof.Nonce)
	q.Body = io.NopCloser(strings.NewReader(string(body)))
	r.gateway.ServeHTTP(w, q)
}

func raw(text string) []byte {
	b, _ := base64.RawURLEncoding.DecodeString(text) // nil is no challenge
	return b
}

func text64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func operatorNonce() string { return page.NewNonce() }

// visits sends a request as a browser at the console does. A form is sent by the page itself.
func (r *remote) visits(
	method, path string, form url.Values, change ...func(*http.Request),
) *httptest.ResponseRecorder {
	r.t.Helper()
	q := httptest.NewRequest(method, away+path, strings.NewReader(form.Encode()))
	q.TLS = &tls.ConnectionState{}
	q.Host = strings.TrimPrefix(away, "https://")
	q.Header.Set("Sec-Fetch-Dest", "document")
	q.Header.Set("Sec-Fetch-Mode", "navigate")
	if method == http.MethodPost {
		q.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		q.Header.Set("Origin", away)
		q.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	if r.cookie != nil {
		q.AddCookie(r.cookie)
	}
	for _, each := range change {
		each(q)
	}
	w := httptest.NewRecorder()
	r.site.ServeHTTP(w, q)
	return w
}

var (
	challengeField = regexp.MustCompile(`name="challenge" value="([^"]+)"`)
	turnField      = regexp.MustCompile(`name="turn" value="([^"]+)"`)
	digestField    = regexp.MustCompile(`name="digest" value="([^"]+)"`)
)

func fieldOf(t *testing.T, w *httptest.ResponseRecorder, of *regexp.Regexp) string {
	t.Helper()
	m := of.FindStringSubmatch(w.Body.String())
	if m == nil {
		t.Fatalf("the page has no %s: %d %s", of, w.Code, w.Body)
	}
	return m[1]
}

// challenge is the one of the page at a path, as its form sends it and as bytes.
func (r *remote) challenge(path string) (string, []byte) {
	r.t.Helper()
	text := fieldOf(r.t, r.visits(http.MethodGet, path, nil), challengeField)
	return text, raw(text)
}

func (r *remote) signIn() {
	r.t.Helper()
	text, challenge := r.challenge("/")
	w := r.visits(http.MethodPost, "/sign-in", url.Values{
		"challenge": {text}, "proof": {string(r.alice.Sign(challenge))}, "act": {"go"},
	})
	cookies := w.Result().Cookies()
	if w.Code != http.StatusSeeOther || len(cookies) != 1 {
		r.t.Fatalf("signing in: %d %s", w.Code, w.Body)
	}
	r.cookie, r.home = cookies[0], w.Header().Get("Location")
	if !r.cookie.Secure || !r.cookie.HttpOnly || r.cookie.SameSite != http.SameSiteStrictMode || r.cookie.Path != r.home {
		r.t.Errorf("the cookie is %+v", r.cookie)
	}
}

// signs does what the page's script does: it has the passkey sign what a form leads to.
func (r *remote) signs(rest string, form url.Values, by *passkeytest.Authenticator) url.Values {
	r.t.Helper()
	w := r.visits(http.MethodPost, r.home+"sign/"+rest, form, func(q *http.Request) {
		q.Header.Set("Sec-Fetch-Dest", "empty")
		q.Header.Set("Sec-Fetch-Mode", "cors")
	})
	var to signing.Asked
	if err := json.Unmarshal(w.Body.Bytes(), &to); err != nil || w.Code != http.StatusOK || to.Options == nil {
		r.t.Fatalf("asking what to sign: %d %s", w.Code, w.Body)
	}
	if to.Options.RelyingPartyID != "pfar.example.com" || len(to.Options.AllowedCredentials) != 1 {
		r.t.Errorf("the browser is asked %+v", to.Options)
	}
	form.Set("nonce", to.Nonce)
	form.Set("proof", string(by.Sign(to.Options.Challenge)))
	return form
}

func TestSignsIn(t *testing.T) {
	r := newRemote(t)
	good, bytesOf := r.challenge("/")
	used := url.Values{"challenge": {good}, "proof": {string(r.alice.Sign(bytesOf))}, "act": {"go"}}
	stranger := passkeytest.New(t, away)
	bent := func(bend func(*passkeytest.Authenticator)) string {
		copied := *r.alice
		bend(&copied)
		return string(copied.Sign(bytesOf))
	}
	elsewhere := bent(func(a *passkeytest.Authenticator) { a.Origin = "https://evil.example" })
	none := make([]byte, 56)
	for name, form := range map[string]url.Values{
		"nothing":               {},
		"no proof":              {"challenge": {good}},
		"no challenge":          {"proof": used["proof"]},
		"a stranger's passkey":  {"challenge": {good}, "proof": {string(stranger.Sign(bytesOf))}},
		"another challenge":     {"challenge": {text64(none)}, "proof": {string(r.alice.Sign(none))}},
		"another site":          {"challenge": {good}, "proof": {elsewhere}},
		"a person not verified": {"challenge": {good}, "proof": {bent(func(a *passkeytest.Authenticator) { a.Flags = 1 })}},
		"a creation":            {"challenge": {good}, "proof": {string(r.alice.Make(bytesOf))}},
	} {
		w := r.visits(http.MethodPost, "/sign-in", form)
		if len(w.Result().Cookies()) != 0 || w.Code == http.StatusSeeOther {
			t.Errorf("%s signs in: %d", name, w.Code)
		}
	}
	for name, change := range map[string]func(*http.Request){
		"another page's form": func(q *http.Request) { q.Header.Set("Origin", "https://evil.example") },
		"another site's":      func(q *http.Request) { q.Header.Set("Sec-Fetch-Site", "cross-site") },
		"a script":            func(q *http.Request) { q.Header.Set("Sec-Fetch-Dest", "empty") },
		"another name":        func(q *http.Request) { q.Host = "evil.example:7443" },
		"no TLS":              func(q *http.Request) { q.TLS = nil },
		"a query":             func(q *http.Request) { q.URL.RawQuery = "x" },
	} {
		w := r.visits(http.MethodPost, "/sign-in", used, change)
		if len(w.Result().Cookies()) != 0 || w.Code < 400 {
			t.Errorf("%s signs in: %d", name, w.Code)
		}
	}
	r.now = r.now.Add(5 * time.Minute)
	if w := r.visits(http.MethodPost, "/sign-in", used); len(w.Result().Cookies()) != 0 {
		t.Error("a challenge of five minutes ago signs in")
	}
	r.now = r.now.Add(-5 * time.Minute)
	r.signIn()
	r.cookie = nil
	if w := r.visits(http.MethodPost, "/sign-in", used); len(w.Result().Cookies()) != 1 {
		t.Errorf("the answer that was refused for other reasons is not good any more: %d %s", w.Code, w.Body)
	}
	if w := r.visits(http.MethodPost, "/sign-in", used); len(w.Result().Cookies()) != 0 {
		t.Error("an answer signs in twice")
	}
	r.knows("")
	if w := r.visits(http.MethodGet, "/", nil); w.Code != http.StatusOK {
		t.Errorf("the page to sign in: %d", w.Code)
	}
	text, challenge := r.challenge("/")
	w := r.visits(http.MethodPost, "/sign-in", url.Values{
		"challenge": {text}, "proof": {string(r.alice.Sign(challenge))},
	})
	if len(w.Result().Cookies()) != 0 {
		t.Error("an operator without a role signs in")
	}
}

// TestSignedActs: what an operator does is carried out with her signature over exactly that, and in no other way.
func TestSignedActs(t *testing.T) {
	r := newRemote(t)
	call := tempting()
	r.gateway.calls = append(r.gateway.calls, call)
	r.signIn()
	w := r.visits(http.MethodGet, r.home+"call/"+call.ID, nil)
	digest := fieldOf(t, w, digestField)
	r.turn = fieldOf(t, w, turnField)
	if text := w.Body.String(); !strings.Contains(text, `data-home="`+r.home+`"`) ||
		!strings.Contains(text, "Sign out alice") {
		t.Errorf("the page is %s", w.Body)
	}
	form := func(act string) url.Values {
		return url.Values{"turn": {r.turn}, "act": {act}, "digest": {digest}, "reason": {""}}
	}
	at := "call/" + call.ID
	sends := func(f url.Values) *httptest.ResponseRecorder { return r.visits(http.MethodPost, r.home+at, f) }
	denial := r.signs(at, form("deny"), r.alice)
	denial.Set("act", "approve")
	grant := r.signs(at, form("grant"), r.alice)
	grant.Set("act", "approve")
	for name, f := range map[string]url.Values{
		"no signature":         form("approve"),
		"a stranger's":         r.signs(at, form("approve"), passkeytest.New(t, away)),
		"one for a denial":     denial,
		"one for another form": grant,
	} {
		if w := sends(f); w.Code != http.StatusSeeOther {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
		if page := r.visits(http.MethodGet, r.home, nil).Body.String(); !strings.Contains(page, "Nothing was done") {
			t.Errorf("%s: the next page is %s", name, page)
		}
	}
	if got := r.gateway.got(); len(got) != 0 {
		t.Fatalf("without her signature was done: %q", got)
	}
	if w := r.visits(http.MethodPost, r.home+"sign/"+at, form("approve"), func(q *http.Request) {
		q.Header.Set("Origin", "https://evil.example")
	}); w.Code != http.StatusForbidden {
		t.Errorf("another page asks what to sign: %d %s", w.Code, w.Body)
	}
	good := r.signs(at, form("approve"), r.alice)
	sends(good)
	sends(good) // its nonce is used up
	if got := r.gateway.got(); len(got) != 1 || !strings.HasPrefix(got[0], "approve ") {
		t.Errorf("with her signature was done: %q", got)
	}
	if w := r.visits(http.MethodPost, r.home+"sign/leave", url.Values{"turn": {r.turn}, "act": {"leave"}}); w.Code != 200 {
		t.Errorf("asking what to sign for signing out: %d", w.Code)
	}
	if w := r.visits(http.MethodGet, r.home, nil); w.Code != http.StatusOK {
		t.Errorf("asking signs out: %d", w.Code)
	}
	if w := r.visits(http.MethodGet, r.home+"add", nil); strings.Contains(w.Body.String(), `href="`+r.home+`add"`) {
		t.Error("the pages lead to the catalogue, whose one-time pages are on another machine")
	}
	again := passkey.Operator{Name: "alice", Role: passkey.Change, Keys: []passkey.Key{passkeytest.New(t, away).Key()}}
	r.site.known.Store(&attach.Known{Operators: []passkey.Operator{again}})
	if w := r.visits(http.MethodGet, r.home, nil); w.Code != http.StatusSeeOther {
		t.Errorf("the browser of a passkey that was removed is signed in by another one: %d", w.Code)
	}
	r.knows(passkey.Approve)
	r.cookie = nil
	r.signIn()
	r.site.known.Store(&attach.Known{Operators: []passkey.Operator{{Name: "bob", Role: passkey.Look, Keys: []passkey.Key{
		passkeytest.New(t, away).Key(),
	}}}})
	if w := r.visits(http.MethodGet, r.home, nil); w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/" {
		t.Errorf("an operator who was removed has the page %d %s", w.Code, w.Body)
	}
}

// TestEnrolls: whoever has the link of an invitation adds a passkey, once.
func TestEnrolls(t *testing.T) {
	r := newRemote(t)
	nonce := page.NewNonce()
	sum := sha256.Sum256([]byte(nonce))
	invited := attach.Invitation{
		Digest: sum[:], Operator: "bob", Role: passkey.Look, Origin: away, Until: r.now.Add(time.Hour),
	}
	r.knows(passkey.Approve, invited)
	at := "/enroll/" + nonce
	for name, w := range map[string]*httptest.ResponseRecorder{
		"no nonce":      r.visits(http.MethodGet, "/enroll/", nil),
		"another nonce": r.visits(http.MethodGet, "/enroll/"+page.NewNonce(), nil),
		"its digest":    r.visits(http.MethodGet, "/enroll/"+text64(sum[:]), nil),
		"a prefetch": r.visits(http.MethodGet, at, nil, func(q *http.Request) {
			q.Header.Set("Sec-Fetch-Dest", "image")
		}),
	} {
		if w.Code < 400 {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
	bob := passkeytest.New(t, away)
	text, challenge := r.challenge(at)
	signInText, signInChallenge := r.challenge("/")
	bent := *bob
	bent.Origin = "https://evil.example"
	for name, form := range map[string]url.Values{
		"nothing":                  {},
		"another site's":           {"challenge": {text}, "proof": {string(bent.Make(challenge))}},
		"a challenge to sign in":   {"challenge": {signInText}, "proof": {string(bob.Make(signInChallenge))}},
		"a signature":              {"challenge": {text}, "proof": {string(bob.Sign(challenge))}},
		"a passkey of another one": {"challenge": {text}, "proof": {string(bob.Make([]byte("other")))}},
	} {
		if w := r.visits(http.MethodPost, at, form); !strings.Contains(w.Body.String(), "Not done") {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
	if len(r.ordered) != 0 {
		t.Fatalf("pfard was asked to store %+v", r.ordered)
	}
	w := r.visits(http.MethodPost, at, url.Values{"challenge": {text}, "proof": {string(bob.Make(challenge))}})
	if !strings.Contains(w.Body.String(), "Passkey added") || len(r.ordered) != 1 {
		t.Fatalf("adding a passkey: %d %s", w.Code, w.Body)
	}
	if o := r.ordered[0]; o.Act != attach.OrderEnroll || o.Nonce != nonce || o.Key == nil || webauthn.Fault(*o.Key) != "" {
		t.Errorf("pfard is asked %+v", o)
	}
	r.now = r.now.Add(time.Hour)
	if w := r.visits(http.MethodGet, at, nil); w.Code != http.StatusNotFound {
		t.Errorf("after an hour: %d", w.Code)
	}
	if _, err := r.site.orders.order(context.Background(), attach.Order{Act: attach.OrderStop, Server: "x"}); err == nil {
		t.Error("a remote console has pfard stop a server")
	}
}

// TestInstallable: what a browser wants of an application is there.
func TestInstallable(t *testing.T) {
	r := newRemote(t)
	for path, kind := range map[string]string{
		"/manifest.webmanifest": "application/manifest+json", "/icon.svg": "image/svg+xml",
	} {
		w := r.visits(http.MethodGet, path, nil)
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != kind {
			t.Errorf("%s: %d %s", path, w.Code, w.Header().Get("Content-Type"))
		}
	}
	if w := r.visits(http.MethodGet, "/manifest.webmanifest", nil); !json.Valid(w.Body.Bytes()) {
		t.Errorf("the manifest is %s", w.Body)
	}
	policy := r.visits(http.MethodGet, "/", nil).Header().Get("Content-Security-Policy")
	if !strings.Contains(policy, "manifest-src 'self'") {
		t.Error("the page may not load its manifest")
	}
}
