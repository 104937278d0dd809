package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/oauth"
)

// inquires asks a question of a forged host, which answers each path as the map says; what is not there is not found.
// It returns what was asked, too.
func inquires(
	t *testing.T, q oauth.Question, answer map[string]http.HandlerFunc,
) (oauth.Found, []string, error) {
	t.Helper()
	p := newProvider(t, func(_ int, w http.ResponseWriter, q *http.Request) {
		if a := answer[q.URL.Path]; a != nil {
			a(w, q)
			return
		}
		w.WriteHeader(http.StatusNotFound)
	})
	at := strings.NewReplacer("https://HERE", p.URL)
	for _, s := range []*string{&q.URL, &q.Issuer} {
		*s = at.Replace(*s)
	}
	f, err := findOut(t.Context(), q, newDialer(), p.roots)
	var asked []string
	for _, line := range p.said() {
		fields := strings.Fields(line)
		asked = append(asked, fields[0]+" "+fields[1])
	}
	return f, asked, err
}

// replies answers with a status and JSON, in which HERE is the host. Header fields follow.
func replies(status int, text string, fields ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		here := strings.NewReplacer("HERE", q.Host)
		for _, f := range fields {
			name, value, _ := strings.Cut(f, ": ")
			w.Header().Add(name, here.Replace(value))
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, here.Replace(text))
	}
}

const (
	atServer   = "/.well-known/oauth-protected-resource/mcp"
	atRoot     = "/.well-known/oauth-protected-resource"
	atIssuer   = "/.well-known/oauth-authorization-server"
	atOpenID   = "/.well-known/openid-configuration"
	ofItself   = `{"resource":"https://HERE/mcp","authorization_servers":["https://login.example"]}`
	byItself   = `Www-Authenticate: Bearer resource_metadata="https://HERE/meta", scope="b"`
	ofProvider = `{"issuer":"https://HERE","authorization_endpoint":"https://HERE/auth",` +
		`"token_endpoint":"https://HERE/token","code_challenge_methods_supported":["S256"]}`
)

func TestAskingTheServer(t *testing.T) {
	server := oauth.Question{Of: oauth.OfServer, URL: "https://HERE/mcp"}
	stream := server
	stream.Stream = true
	refuses := replies(401, "")
	greets := func(w http.ResponseWriter, q *http.Request) { // without a token it has no more than that
		if b, _ := io.ReadAll(q.Body); strings.Contains(string(b), `"initialize"`) {
			replies(200, "{}")(w, q)
			return
		}
		replies(401, "", byItself)(w, q)
	}
	endless := func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for q.Context().Err() == nil {
			if _, err := io.WriteString(w, strings.Repeat(" ", 4096)); err != nil {
				return
			}
		}
	}
	for name, c := range map[string]struct {
		q      oauth.Question
		answer map[string]http.HandlerFunc
		asked  []string
		issuer string
		fails  string
	}{
		"its word": {server, map[string]http.HandlerFunc{"/mcp": replies(401, "", byItself), "/meta": replies(200, ofItself)},
			[]string{"POST /mcp", "GET /meta"}, "https://login.example", ""},
		"a stream": {stream, map[string]http.HandlerFunc{"/mcp": replies(401, "", byItself), "/meta": replies(200, ofItself)},
			[]string{"GET /mcp", "GET /meta"}, "https://login.example", ""},
		"well known": {server, map[string]http.HandlerFunc{"/mcp": refuses, atServer: replies(200, ofItself)},
			[]string{"POST /mcp", "GET " + atServer}, "https://login.example", ""},
		"at the root": {server, map[string]http.HandlerFunc{"/mcp": refuses, atRoot: replies(200, ofItself)},
			[]string{"POST /mcp", "GET " + atServer, "GET " + atRoot}, "https://login.example", ""},
		"nowhere": {server, map[string]http.HandlerFunc{"/mcp": refuses},
			[]string{"POST /mcp", "GET " + atServer, "GET " + atRoot}, "https://HERE", ""},
		"open": {server, map[string]http.HandlerFunc{"/mcp": replies(200, "{}")},
			[]string{"POST /mcp", "POST /mcp", "GET " + atServer, "GET " + atRoot}, "",
			"wants no sign-in: it answered 200"},
		"open, with a stream": {server, map[string]http.HandlerFunc{"/mcp": endless, atServer: replies(200, ofItself)},
			[]string{"POST /mcp", "POST /mcp", "GET " + atServer}, "https://login.example", ""},
		"open to a hello": {server, map[string]http.HandlerFunc{"/mcp": greets, "/meta": replies(200, ofItself)},
			[]string{"POST /mcp", "POST /mcp", "GET /meta"}, "https://login.example", ""},
		"its word leads nowhere": {server, map[string]http.HandlerFunc{"/mcp": replies(401, "", byItself),
			atServer: replies(200, ofItself)}, []string{"POST /mcp", "GET /meta"}, "", "answered 404"},
		"its word leads elsewhere": {server, map[string]http.HandlerFunc{"/mcp": replies(401, "",
			`Www-Authenticate: Bearer resource_metadata="https://evil.test/meta"`)}, []string{"POST /mcp"}, "",
			"not on its own host; nothing was asked there"},
		"another port": {server, map[string]http.HandlerFunc{"/mcp": replies(401, "",
			`Www-Authenticate: Bearer resource_metadata="https://127.0.0.1:1/meta"`)}, []string{"POST /mcp"}, "",
			"not on its own host; nothing was asked there"},
		"no encryption": {server, map[string]http.HandlerFunc{"/mcp": replies(401, "",
			`Www-Authenticate: Bearer resource_metadata="http://HERE/meta"`)}, []string{"POST /mcp"}, "",
			"not on its own host; nothing was asked there"},
		"a redirect": {server, map[string]http.HandlerFunc{"/mcp": replies(307, "", "Location: https://evil.test/mcp")},
			[]string{"POST /mcp"}, "", "a redirect, which pfar does not follow"},
		"metadata that redirects": {server, map[string]http.HandlerFunc{"/mcp": replies(401, "", byItself),
			"/meta": replies(302, "", "Location: https://evil.test/")}, []string{"POST /mcp", "GET /meta"}, "",
			"a redirect, which pfar does not follow"},
		"without an end": {server, map[string]http.HandlerFunc{"/mcp": refuses, atServer: endless},
			[]string{"POST /mcp", "GET " + atServer}, "", "more than 65536 bytes"},
		"of somebody else": {server, map[string]http.HandlerFunc{"/mcp": refuses, atServer: replies(200,
			`{"resource":"https://bank.example/mcp","authorization_servers":["https://login.example"]}`)},
			[]string{"POST /mcp", "GET " + atServer}, "", "a token would be for somebody else"},
		"loopback": {server, map[string]http.HandlerFunc{"/mcp": refuses, atServer: replies(200,
			`{"resource":"https://HERE/mcp","authorization_servers":["https://127.0.0.1:22"]}`)},
			[]string{"POST /mcp", "GET " + atServer}, "", "no address of a private network"},
		"no HTTP": {server, map[string]http.HandlerFunc{"/mcp": func(w http.ResponseWriter, q *http.Request) {
			speaks("hunter2\r\n\r\n")(1, w, q)
		}}, []string{"POST /mcp"}, "", "the answer is not HTTP/1.1"},
		"a huge head": {server, map[string]http.HandlerFunc{"/mcp": replies(401, "", "X: "+strings.Repeat("x", 2*maxAnswer))},
			[]string{"POST /mcp"}, "", "cannot be asked"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.issuer == "https://HERE" { // on loopback the owner alone may name it
				c.q.Issuer = c.issuer
			}
			f, asked, err := inquires(t, c.q, c.answer)
			if !slices.Equal(asked, c.asked) {
				t.Errorf("it asks %q, want %q", asked, c.asked)
			}
			if (err == nil) != (c.fails == "") || err != nil && (!strings.Contains(err.Error(), c.fails) ||
				strings.Contains(err.Error(), "hunter2")) {
				t.Errorf("%v, want %q", err, c.fails)
			}
			if err == nil && c.issuer != "https://HERE" && !slices.Equal(f.Server.Issuers, []string{c.issuer}) {
				t.Errorf("it names %q", f.Server.Issuers)
			}
			if err == nil && slices.Contains(asked, "GET /meta") && !slices.Equal(f.Server.Wanted, []string{"b"}) {
				t.Errorf("it wants %q", f.Server.Wanted)
			}
		})
	}
}

func TestAskingTheIssuer(t *testing.T) {
	issuer := oauth.Question{Of: oauth.OfIssuer, URL: "https://HERE", Issuer: "https://HERE"}
	another := strings.Replace(ofProvider, `"issuer":"https://HERE"`, `"issuer":"https://evil.test"`, 1)
	plain := strings.Replace(ofProvider, "https://HERE/token", "http://HERE/token", 1)
	for name, c := range map[string]struct {
		answer map[string]http.HandlerFunc
		asked  []string
		fails  string
	}{
		"OAuth": {map[string]http.HandlerFunc{atIssuer: replies(200, ofProvider)}, []string{"GET " + atIssuer}, ""},
		"OpenID": {map[string]http.HandlerFunc{atOpenID: replies(200, ofProvider)},
			[]string{"GET " + atIssuer, "GET " + atOpenID}, ""},
		"nothing": {nil, []string{"GET " + atIssuer, "GET " + atOpenID}, "answered 404"},
		// It is not asked at the next place: one that lies at one place lies at the other.
		"another issuer": {map[string]http.HandlerFunc{atIssuer: replies(200, another), atOpenID: replies(200, ofProvider)},
			[]string{"GET " + atIssuer}, "another server answers in its place"},
		"no encryption": {map[string]http.HandlerFunc{atIssuer: replies(200, plain)}, []string{"GET " + atIssuer},
			"want https://HOST/PATH"},
		"a page": {map[string]http.HandlerFunc{atIssuer: replies(200, "<html>")}, []string{"GET " + atIssuer},
			"not a JSON object"},
	} {
		t.Run(name, func(t *testing.T) {
			f, asked, err := inquires(t, issuer, c.answer)
			if !slices.Equal(asked, c.asked) {
				t.Errorf("it asks %q, want %q", asked, c.asked)
			}
			if (err == nil) != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) {
				t.Errorf("%v, want %q", err, c.fails)
			}
			if err == nil && !strings.HasSuffix(f.Issuer.Token, "/token") {
				t.Errorf("%+v", f.Issuer)
			}
		})
	}
}

func TestRegistering(t *testing.T) {
	q := oauth.Question{Of: oauth.OfClient, URL: "https://HERE/reg", Client: &oauth.Client{Port: 50000, Method: "none"}}
	var sent string
	f, asked, err := inquires(t, q, map[string]http.HandlerFunc{"/reg": func(w http.ResponseWriter, q *http.Request) {
		b, _ := io.ReadAll(q.Body)
		sent = q.Header.Get("Content-Type") + " " + string(b)
		replies(201, string(b[:len(b)-1])+`,"client_id":"c1"}`)(w, q)
	}})
	want := &oauth.Registered{ID: "c1", Method: "none"}
	if err != nil || !reflect.DeepEqual(f.Client, want) || !slices.Equal(asked, []string{"POST /reg"}) {
		t.Errorf("%+v, %q, %v", f.Client, asked, err)
	}
	if !strings.HasPrefix(sent,
		`application/json {"client_name":"pfar","redirect_uris":["http://127.0.0.1:50000/callback"]`) {
		t.Errorf("sent %s", sent)
	}
	_, _, err = inquires(t, q, map[string]http.HandlerFunc{"/reg": replies(400,
		`{"error":"invalid_redirect_uri","error_description":"hunter2"}`)})
	if err == nil || !strings.Contains(err.Error(),
		"registering a client: the provider answered 400 (invalid_redirect_uri)") {
		t.Errorf("%v", err)
	}
	_, _, err = inquires(t, q, map[string]http.HandlerFunc{"/reg": replies(307, "", "Location: https://evil.test/")})
	if err == nil || !strings.Contains(err.Error(), "a redirect") {
		t.Errorf("%v", err)
	}
}

// TestAskingAName: a name that leads to this machine, or to a private network, is asked only if the owner allows it.
func TestAskingAName(t *testing.T) {
	p := newProvider(t, func(_ int, w http.ResponseWriter, q *http.Request) {
		replies(200, fmt.Sprintf(`{"issuer":"https://login.test:%s","token_endpoint":"https://login.test/t",`+
			`"device_authorization_endpoint":"https://login.test/d"}`, q.URL.Port()))(w, q)
	})
	_, port, _ := strings.Cut(strings.TrimPrefix(p.URL, "https://"), ":")
	out := newDialer()
	out.lookup = func(context.Context, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	}
	q := oauth.Question{Of: oauth.OfIssuer, URL: "https://login.test:" + port}
	_, err := findOut(t.Context(), q, out, p.roots)
	if err == nil || !strings.Contains(err.Error(), "not a public address (loopback)") || len(p.said()) != 0 {
		t.Errorf("%v, asked %q", err, p.said())
	}
	q.Private = []string{"127.0.0.1"}
	asked := 0
	if _, err = findOut(t.Context(), q, out, p.roots); len(p.said()) == asked {
		t.Errorf("allowed: %v", err)
	}
	asked = len(p.said())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err = findOut(ctx, q, out, p.roots); err == nil || len(p.said()) != asked {
		t.Error("nobody waits, and it asks")
	}
}
