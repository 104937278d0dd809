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
	"path/filepath"
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/inspector"
)

// wayOf carries requests to a homeserver. It returns who asks there, and what has it end.
func wayOf(t *testing.T, url, key string, lacks error) (client *http.Client, end func() error) {
	t.Helper()
	e, err := inspector.External{
		Name: "home", URL: url, Key: "vault:matrix_token",
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
	ask := func(method, url, body string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
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
	if status, _ := ask(http.MethodGet, "http://h/_matrix/client/away", ""); status != http.StatusFound {
		t.Errorf("a redirection is followed to %d", status)
	}
	<-asked
	for _, url := range []string{
		"http://h/", "http://h/_matrix/federation/v1/version", "http://h/_synapse/admin/v1/users",
		"http://h/_matrix/client/../federation", "http://h/_matrix/client/%2e%2e/%2e%2e/_synapse/admin",
		"http://h/_matrix/media/v3/download/a/b",
	} {
		if status, _ := ask(http.MethodGet, url, ""); status != http.StatusForbidden {
			t.Errorf("%s: %d, want 403", url, status)
		}
	}
	if status, _ := ask(http.MethodPut, "http://h"+path, strings.Repeat("x", mostRequest+1)); status == http.StatusTeapot {
		t.Error("a request that is too long is passed on")
	}
	if err := end(); err != nil {
		t.Errorf("it ends with %v", err)
	}

	lacking, _ := wayOf(t, home.URL, "", errors.New("the key is missing"))
	resp, err := lacking.Get("http://h/_matrix/client/versions")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("without a token the answer is %d", resp.StatusCode)
	}
	gone, _ := wayOf(t, "http://127.0.0.1:1", "t0k3n", nil)
	if resp, err = gone.Get("http://h/_matrix/client/versions"); err != nil {
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
