package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/oauth"
	"github.com/pfar/pfar/units/attach"
)

const (
	deviceAnswer = `{"device_code":"DC-hunter2","user_code":"ABCD-EFGH","verification_uri":"https://login.test/d",` +
		`"interval":1,"expires_in":600}`
	loginTokens = `{"access_token":"AT-hunter2hunter2","refresh_token":"RT-hunter2hunter2",` +
		`"expires_in":60,"token_type":"bearer"}`
)

// logIn carries a login out against a forged provider, whose nth answer is of the list; the last one stays. It returns
// the pauses as well, none of which it waits.
func logIn(
	t *testing.T, ctx context.Context, way oauth.Way, show func(attach.Progress), list ...func(int,
		http.ResponseWriter, *http.Request),
) (oauth.Answer, []time.Duration, *provider, error) {
	t.Helper()
	p := newProvider(t, func(n int, w http.ResponseWriter, q *http.Request) { list[min(n, len(list))-1](n, w, q) })
	g, err := newGrantor(oauth.Task{
		Way: way, Endpoint: p.URL + "/begin", TokenURL: p.URL + "/token", ClientID: "id", ClientSecret: secret,
		Scopes:   []string{"read"},
		Resource: "https://api.example.com/",
	}, newDialer(), p.roots)
	if err != nil {
		t.Fatal(err)
	}
	var pauses []time.Duration
	g.wait = func(ctx context.Context, d time.Duration) error {
		pauses = append(pauses, d/time.Second)
		return ctx.Err()
	}
	g.show = func(p attach.Progress) error { show(p); return nil }
	a, _, err := g.obtain(ctx)
	return a, pauses, p, err
}

func TestDeviceLogin(t *testing.T) {
	begun, good := answers(200, deviceAnswer), answers(200, loginTokens)
	refuses := func(code string) func(int, http.ResponseWriter, *http.Request) {
		return answers(400, `{"error":"`+code+`","error_description":"CS-hunter2 \u001b[2J"}`)
	}
	huge := answers(200, `{"access_token":"`+strings.Repeat("x", maxAnswer)+`"}`)
	for name, c := range map[string]struct {
		list   []func(int, http.ResponseWriter, *http.Request)
		pauses []time.Duration
		fails  string
	}{
		"at once": {list(begun, good), []time.Duration{1}, ""},
		"after a while": {list(begun, refuses("authorization_pending"), refuses("authorization_pending"), good),
			[]time.Duration{1, 1, 1}, ""},
		"slower for good": {list(begun, refuses("slow_down"), refuses("authorization_pending"), refuses("slow_down"),
			good), []time.Duration{1, 6, 6, 11}, ""},
		"an outage": {list(begun, answers(503, "<h1>"), good), []time.Duration{1, 2}, ""},
		"a cut":     {list(begun, speaks(""), good), []time.Duration{1, 2}, ""},
		"outages": {list(begun, answers(503, "<h1>")), []time.Duration{1, 2, 4, 8, 16},
			"the provider answered 503"},
		"denied": {list(begun, refuses("access_denied")), []time.Duration{1},
			"the sign-in was refused, by you or by the provider (access_denied)"},
		"expired": {list(begun, refuses("expired_token")), []time.Duration{1},
			"expired before it was entered (expired_token)"},
		"refused at first": {list(refuses("unauthorized_client")), nil,
			"asking for a code: the provider does not let this client"},
		"a redirect": {list(answers(302, "", "Location: https://evil.test/")), nil,
			"a redirect, which pfar does not follow"},
		"a later redirect": {list(begun, answers(307, "", "Location: https://evil.test/")), []time.Duration{1},
			"a redirect, which pfar does not follow"},
		"another type": {list(begun, answers(200, loginTokens, "Content-Type: text/html")), []time.Duration{1},
			"not of the type application/json"},
		"too much at first": {list(huge), nil, "has more than"},
		"too much":          {list(begun, huge), []time.Duration{1}, "has more than"},
		"no HTTP":           {list(speaks("hunter2\r\n\r\n")), nil, "the answer is not HTTP/1.1"},
		"a token in errors": {list(begun, answers(400, `{"error":"AT-hunter2","error_description":"AT-hunter2hunter2"}`)),
			[]time.Duration{1}, "the provider answered 400"},
	} {
		t.Run(name, func(t *testing.T) {
			var shown []attach.Progress
			a, pauses, p, err := logIn(
				t,
				t.Context(),
				oauth.ByDevice,
				func(p attach.Progress) { shown = append(shown, p) },
				c.list...)
			if !slices.Equal(pauses, c.pauses) {
				t.Errorf("it waits %d, want %d", pauses, c.pauses)
			}
			if (err == nil) != (c.fails == "") || err != nil && (!strings.Contains(err.Error(), c.fails) ||
				strings.Contains(err.Error(), "hunter2")) {
				t.Errorf("%v, want %q", err, c.fails)
			}
			if err == nil && (a.AccessToken != "AT-hunter2hunter2" || a.RefreshToken != "RT-hunter2hunter2" ||
				a.ExpiresIn != 60) {
				t.Errorf("%+v", a)
			}
			if len(pauses) > 0 && (len(shown) != 1 || shown[0] != attach.Progress{URL: "https://login.test/d",
				Code: "ABCD-EFGH", Life: 10 * time.Minute}) {
				t.Errorf("it shows %+v", shown)
			}
			for i, q := range p.said() {
				want := "POST /token header id:CS-hunter2 urn:ietf:params:oauth:grant-type:device_code "
				if i == 0 {
					want = "POST /begin header id:CS-hunter2  "
				}
				if q != want {
					t.Errorf("asked %q, want %q", q, want)
				}
			}
		})
	}
}

func list(f ...func(int, http.ResponseWriter, *http.Request)) []func(int, http.ResponseWriter, *http.Request) {
	return f
}

// TestLoginEnds: when nobody waits for it any more, no code is asked for.
func TestLoginEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	_, pauses, p, err := logIn(t, ctx, oauth.ByDevice, func(attach.Progress) { cancel() }, answers(200, deviceAnswer),
		answers(200, loginTokens))
	if !errors.Is(err, context.Canceled) || len(pauses) != 1 || len(p.said()) != 1 {
		t.Errorf("%v after %d pauses, and %q", err, pauses, p.said())
	}
	ctx, cancel = context.WithCancel(t.Context())
	_, _, p, err = logIn(t, ctx, oauth.ByCode, func(attach.Progress) { cancel() }, answers(200, loginTokens))
	if !errors.Is(err, context.Canceled) || len(p.said()) != 0 {
		t.Errorf("%v, and %q", err, p.said())
	}
}

// browse asks for an address as a browser does, and returns the status.
func browse(t *testing.T, method, address string) (status int, body string) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), method, address, nil)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := c.Do(q)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	if csp := r.Header.Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none'") ||
		r.Header.Get("Referrer-Policy") != "no-referrer" {
		t.Errorf("the page has the policy %q", csp)
	}
	return r.StatusCode, string(b)
}

// TestCodeLogin: of all that comes to the port, one request is the answer, and the rest is refused, before it and
// after.
func TestCodeLogin(t *testing.T) {
	var form url.Values
	held := make(chan struct{})
	token := func(n int, w http.ResponseWriter, q *http.Request) {
		form = q.PostForm
		<-held // a second redirect comes meanwhile
		answers(200, loginTokens)(n, w, q)
	}
	var authorization url.Values
	a, _, _, err := logIn(t, t.Context(), oauth.ByCode, func(p attach.Progress) {
		u, err := url.Parse(p.URL)
		if err != nil || p.Port < 1024 || p.Code != "" {
			t.Errorf("%+v, %v", p, err)
		}
		authorization = u.Query()
		redirect, state := authorization.Get("redirect_uri"), authorization.Get("state")
		if redirect != fmt.Sprintf("http://127.0.0.1:%d/callback", p.Port) {
			t.Errorf("the browser comes back to %s", redirect)
		}
		good := redirect + "?code=C-hunter2&state=" + state
		for name, c := range map[string]struct {
			method, address string
			status          int
		}{
			"another state": {"GET", redirect + "?code=evil&state=x" + state, 400},
			"no state":      {"GET", redirect + "?code=evil", 400},
			"a form":        {"POST", good, 405},
			"another path":  {"GET", strings.Replace(good, "/callback", "/callback/x", 1), 404},
			"a name":        {"GET", strings.Replace(good, "127.0.0.1", "localhost", 1), 421},
			"a refusal":     {"GET", redirect + "?error=access_denied&state=x", 400},
		} {
			if status, body := browse(t, c.method, c.address); status != c.status || strings.Contains(body, "hunter2") {
				t.Errorf("%s: %d %s", name, status, body)
			}
		}
		go func() {
			defer close(held)
			if status, body := browse(t, "GET", good); status != 200 || !strings.Contains(body, "close this page") ||
				strings.Contains(body, "hunter2") {
				t.Errorf("the answer: %d %s", status, body)
			}
			if status, _ := browse(t, "GET", strings.Replace(good, "C-hunter2", "evil", 1)); status != 410 {
				t.Errorf("a second one: %d", status)
			}
		}()
	}, token)
	if err != nil || a.AccessToken != "AT-hunter2hunter2" {
		t.Fatalf("%+v, %v", a, err)
	}
	verifier := form.Get("code_verifier")
	if form.Get("code") != "C-hunter2" || form.Get("grant_type") != "authorization_code" ||
		form.Get("redirect_uri") != authorization.Get("redirect_uri") ||
		len(verifier) < 43 || authorization.Get("code_challenge") != oauth.Challenge(verifier) ||
		authorization.Get("code_challenge_method") != "S256" ||
		form.Get("resource") != "https://api.example.com/" ||
		authorization.Get("resource") != "https://api.example.com/" {
		t.Errorf("the browser was sent with %v, and the code with %v", authorization, form)
	}
}

// TestCodeLoginIsRefused: what ends a login, with nothing sent to the token endpoint where the code may be of
// another one.
func TestCodeLoginIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		query, fails string
		token        func(int, http.ResponseWriter, *http.Request)
		asked        int
	}{
		"by the person": {"&error=access_denied", "(access_denied)", nil, 0},
		"a mix-up":      {"&code=C-hunter2&iss=https://evil.test", "at another host; nothing was sent anywhere", nil, 0},
		"no code":       {"", "without a code", nil, 0},
		"by the provider": {"&code=C-hunter2", "does not take the code any more (invalid_grant)", answers(400,
			`{"error":"invalid_grant","error_description":"C-hunter2"}`), 1},
		"a redirect": {"&code=C-hunter2", "a redirect, which pfar does not follow", answers(302, "",
			"Location: https://evil.test/"), 1},
	} {
		t.Run(name, func(t *testing.T) {
			var browser sync.WaitGroup
			_, _, p, err := logIn(t, t.Context(), oauth.ByCode, func(p attach.Progress) {
				u, _ := url.Parse(p.URL)
				address := u.Query().Get("redirect_uri") + "?state=" + u.Query().Get("state") + c.query
				browser.Go(func() { browse(t, "GET", address) })
			}, c.token)
			browser.Wait() // it sees the page, whatever becomes of the login
			if err == nil || !strings.Contains(err.Error(), c.fails) || strings.Contains(err.Error(), "hunter2") ||
				len(p.said()) != c.asked {
				t.Errorf("%v after %q", err, p.said())
			}
		})
	}
}

// TestLoginGoesNowhereElse: each client of a login reaches the host of its own endpoint, whatever it is asked for.
func TestLoginGoesNowhereElse(t *testing.T) {
	p := newProvider(t, answers(200, loginTokens))
	other := newProvider(t, answers(200, loginTokens))
	g, err := newGrantor(oauth.Task{
		Way: oauth.ByDevice, Endpoint: other.URL + "/begin", TokenURL: p.URL + "/token", ClientID: "id",
	}, newDialer(), p.roots)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.post(t.Context(), g.token, other.URL+"/token", nil); err != nil {
		t.Error(err) // it goes to p: the address of a connection is not the request's
	}
	if len(other.said()) != 0 || len(p.said()) != 1 {
		t.Errorf("the other has had %q", other.said())
	}
	private := oauth.Task{Way: oauth.ByDevice, Endpoint: "https://login.test/begin",
		TokenURL: "https://login.test/token", ClientID: "id"}
	if g, err = newGrantor(private, dialerOf(t, "login.test", netip.MustParseAddr("127.0.0.1")), p.roots); err != nil {
		t.Fatal(err)
	}
	if _, err := g.post(t.Context(), g.token, private.TokenURL, nil); err == nil || !strings.Contains(err.Error(),
		"allow_private of the provider") {
		t.Errorf("a name that leads to this machine: %v", err)
	}
}
