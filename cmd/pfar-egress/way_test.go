package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/inspector"
)

// wayOf carries requests to a homeserver. It returns who asks there, and what has it end.
func wayOf(t *testing.T, home, key string, lacks error) (client *http.Client, end func() error) {
	t.Helper()
	e, err := inspector.External{
		Name: "home", URL: home, Key: "vault:matrix_token",
		Role: inspector.Role{Account: &inspector.Account{User: "@pfar:home.test", Owner: "@ada:home.test"}},
	}.Declared()
	if err != nil {
		t.Fatal(err)
	}
	m, err := newModel(e, key, newDialer(), nil)
	if err != nil {
		t.Fatal(err)
	}
	m.lacks = lacks
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.way(ctx, l, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() { stop(); ended <- <-ended })
	return &http.Client{
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, func() error { stop(); err := <-ended; ended <- err; return err }
}

// base is where the endpoints are that pfar-chat asks.
const base = inspector.ClientAPI + "v3/"

// TestEndpoints: what pfar-chat asks for passes, as it is, and nothing else does.
func TestEndpoints(t *testing.T) {
	const room, event = base + "rooms/%21r:home.test", "/$e-_1:home.test"
	for _, line := range []string{
		// Others of the account's rights, and methods that pfar-chat does not use.
		"POST " + inspector.ClientAPI + "v1/login/get_token", "POST " + base + "login", "POST " + base + "logout/all",
		"POST " + base + "account/password", "GET " + base + "devices", "POST " + base + "createRoom",
		"POST " + base + "join/%23a:home.test", "PUT " + room + "/state/m.room.power_levels/",
		"PUT " + room + "/send/m.room.encrypted/1", "POST " + room + "/invite", "POST " + base + "sync",
		"GET " + inspector.ClientAPI + "r0/sync", "GET " + inspector.ClientAPI + "versions",
		// Other parts of the homeserver.
		"GET /", "GET /_matrix/federation/v1/version", "GET /_synapse/admin/v1/users", "GET /_matrix/media/v3/download/a/b",
		// Paths that are another one to somebody.
		"GET /_synapse/admin/../../_matrix/client/v3/sync", "GET //_matrix/client/v3/sync", "GET " + base + "./sync",
		"GET " + base + "sync/", "GET " + base + "%73ync", "GET /_matrix%2fclient/v3/sync", "GET " + base + "x/../sync",
		"GET /_matrix/client/%2e%2e/%2e%2e/_synapse/admin/v1/users", "GET " + base + "rooms/../state",
		"GET " + base + "rooms/%2e%2e/state", "GET " + base + "rooms/!/state", "GET " + base + "rooms/%21..%2f../state",
		"GET " + base + "rooms/%21..%5c../state", "GET " + base + "rooms/%21%252e/state", "GET " + base + "rooms/r/state",
		"GET " + room + "/event/..", "GET " + room + "/event/%24%2f..", "GET " + room + "/event/e",
		"GET " + room + "%00/state",
		"PUT " + room + "/send/m.room.message/..", "PUT " + room + "/send/m.room.message/%2e%2E",
		"PUT " + room + "/send/m.room.message/", "GET " + base + "rooms/!" + strings.Repeat("r", maxSegment) + "/state",
	} {
		method, at, _ := strings.Cut(line, " ")
		if u, err := url.ParseRequestURI(at); err == nil && passes(method, u) {
			t.Errorf("%s passes", line)
		}
	}
	for _, line := range []string{
		"GET " + base + "account/whoami", "GET " + base + "sync?since=s1&filter=%7B%7D",
		"PUT " + base + "pushrules/global/override/.m.rule.master/enabled", "POST " + room + "/join",
		"POST " + room + "/leave", "POST " + room + "/forget", "GET " + room + "/messages?dir=b&from=t1",
		"GET " + room + "/event" + event, "GET " + room + "/state", "PUT " + room + "/state/org.matrix.room.preview_urls/",
		"PUT " + room + "/send/m.room.message/mautrix-go_1_2", "PUT " + room + "/redact" + event + "/pfar-0a1b",
	} {
		method, at, _ := strings.Cut(line, " ")
		if u, err := url.ParseRequestURI(at); err != nil || !passes(method, u) {
			t.Errorf("%s does not pass: %v", line, err)
		}
	}
}

// TestWay: a request of pfar-chat reaches the client API of the declared homeserver with the account's token, and
// nothing else.
func TestWay(t *testing.T) {
	asked := make(chan string, 99)
	home := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked <- fmt.Sprintf("%s %s %s %q cookie=%q", r.Method, r.RequestURI, r.Header.Get("Authorization"), body,
			r.Header.Get("Cookie"))
		w.Header().Set("Set-Cookie", "a=b")
		if strings.Contains(r.URL.Path, "away") {
			http.Redirect(w, r, "http://127.0.0.1:1/elsewhere", http.StatusFound)
			return
		}
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprint(w, "answer")
	}))
	defer home.Close()
	client, end := wayOf(t, home.URL, "t0k3n", nil)
	ask := func(method, at, body string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, at, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer stolen")
		r.Header.Set("Cookie", "c=d")
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		if resp.Header.Get("Set-Cookie") != "" {
			t.Error("a cookie comes back")
		}
		return resp.StatusCode, string(text)
	}

	const path = "/_matrix/client/v3/rooms/%21r:home.test/send/m.room.message/1?a=b"
	status, text := ask(http.MethodPut, "http://example.org"+path, "words")
	if status != http.StatusTeapot || text != "answer" {
		t.Errorf("the answer is %d %q", status, text)
	}
	if got, want := <-asked, `PUT `+path+` Bearer t0k3n "words" cookie=""`; got != want {
		t.Errorf("the homeserver is asked\n%s, want\n%s", got, want)
	}
	if status, _ := ask(http.MethodGet, "http://h"+base+"rooms/%21away:home.test/state", ""); status != http.StatusFound {
		t.Errorf("a redirection is followed to %d", status)
	}
	<-asked
	for _, line := range []string{
		"GET /", "POST " + base + "logout", "GET /_synapse/admin/../../_matrix/client/v3/sync",
	} {
		method, at, _ := strings.Cut(line, " ")
		if status, _ := ask(method, "http://h"+at, ""); status != http.StatusForbidden {
			t.Errorf("%s: %d, want 403", line, status)
		}
	}
	if status, _ := ask(http.MethodPut, "http://h"+path, strings.Repeat("x", mostRequest+1)); status == http.StatusTeapot {
		t.Error("a request that is too long is passed on")
	}
	if err := end(); err != nil {
		t.Errorf("it ends with %v", err)
	}

	lacking, _ := wayOf(t, home.URL, "", errors.New("the key is missing"))
	resp, err := lacking.Get("http://h" + base + "account/whoami")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("without a token the answer is %d", resp.StatusCode)
	}
	gone, _ := wayOf(t, "http://127.0.0.1:1", "t0k3n", nil)
	if resp, err = gone.Get("http://h" + base + "account/whoami"); err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusBadGateway {
		t.Errorf("without a homeserver the answer is %d", resp.StatusCode)
	}
	select {
	case got := <-asked:
		if !strings.Contains(got, "send") { // the beginning of the long one may have come
			t.Errorf("the homeserver is asked %s", got)
		}
	default:
	}
}
