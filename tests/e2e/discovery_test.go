package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/pfar/pfar/units/control"
)

const (
	resourceHost = "mcp.vendor.example"
	issuerHost   = "login.vendor.example"
	resourceURL  = "https://" + resourceHost + "/mcp"
	otherHost    = "mcp.other.example"
	otherURL     = "https://" + otherHost + "/mcp" // which the same authorization server has tokens for
	issuerURL    = "https://" + issuerHost + ":8443"
)

// vendorSays is what the role says: of a request to the server, or a line of its authorization server.
type vendorSays struct {
	Host, Path, Authorization string

	Grant, Client, Resource string
	Registered              []string
	Issued                  []string
}

// serveResource is a vendor whose server wants people to sign in: one of MCP's own library, behind its middleware, and
// oidc-provider, which the arguments start: Node.js, the script, how long a token and a code live, and where it is.
// After a request for /revoke it refuses tokens that may not write, after one for /demand it asks for more scopes in
// place of that, and after one for /end its authorization server refuses all that came of the login.
func serveResource(certificate string) error {
	pair, err := tls.LoadX509KeyPair(certificate, certificate)
	if err != nil {
		return err
	}
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		return fmt.Errorf("lo: %w: %s", err, out)
	}
	c := exec.Command(os.Args[1], os.Args[2], certificate, certificate, os.Args[3], os.Args[4], os.Args[5])
	c.Stderr, c.SysProcAttr = os.Stderr, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdout, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	lines := bufio.NewScanner(stdout)
	var first struct{ API string }
	if !lines.Scan() || json.Unmarshal(lines.Bytes(), &first) != nil {
		return fmt.Errorf("the provider does not begin")
	}
	said := make(chan any, 1000)
	go func() {
		for lines.Scan() {
			said <- json.RawMessage(bytes.Clone(lines.Bytes()))
		}
	}()
	l, err := tls.Listen("tcp", ":443", &tls.Config{Certificates: []tls.Certificate{pair}})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	go func() {
		for out := json.NewEncoder(os.Stdout); ; {
			out.Encode(<-said)
		}
	}()
	return http.Serve(l, guardedServer(first.API, said))
}

// guardedServer is the server. It asks the API of the authorization server about each token.
func guardedServer(api string, said chan<- any) http.Handler {
	server := mcp.NewServer(&mcp.Implementation{Name: "vendor", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "whoami", Description: "Say who calls",
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}},
		func(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
			text := &mcp.TextContent{Text: fmt.Sprint(auth.TokenInfoFromContext(ctx).Scopes)}
			return &mcp.CallToolResult{Content: []mcp.Content{text}}, nil, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "rename", Description: "Rename a page"},
		func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "renamed"}}}, nil, nil
		})
	var revoked atomic.Bool
	var last atomic.Value // the token of the last request
	last.Store("")
	provider := func(ctx context.Context, method, token string) (*http.Response, error) {
		q, err := http.NewRequestWithContext(ctx, method, "http://"+api+"/", nil)
		if err != nil {
			return nil, err
		}
		q.Header.Set("Authorization", "Bearer "+token)
		return http.DefaultClient.Do(q)
	}
	verify := func(ctx context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
		last.Store(token)
		r, err := provider(ctx, "GET", token)
		if err != nil {
			return nil, err
		}
		defer r.Body.Close()
		var about struct{ Account, Aud, Scope string }
		if json.NewDecoder(r.Body).Decode(&about) != nil || about.Aud != resourceURL ||
			revoked.Load() && !strings.Contains(about.Scope, "write") {
			return nil, auth.ErrInvalidToken
		}
		return &auth.TokenInfo{Scopes: strings.Fields(about.Scope), Expiration: time.Now().Add(time.Hour)}, nil
	}
	guarded := auth.RequireBearerToken(verify, &auth.RequireBearerTokenOptions{
		ResourceMetadataURL: "https://" + resourceHost + "/.well-known/oauth-protected-resource/mcp",
		Scopes:              []string{"read"},
	})(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
	var demanding atomic.Bool
	mux := http.NewServeMux()
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, q *http.Request) {
		token, found := strings.CutPrefix(q.Header.Get("Authorization"), "Bearer ")
		lacks := func() bool {
			info, err := verify(q.Context(), token, q)
			return err == nil && !slices.Contains(info.Scopes, "write")
		}
		if found && demanding.Load() && lacks() {
			w.Header().Set("WWW-Authenticate", `Bearer error="insufficient_scope", scope="write"`)
			http.Error(w, "who reads here may write", http.StatusForbidden)
			return
		}
		guarded.ServeHTTP(w, q)
	})
	open := func(*http.Request) *mcp.Server { return server }
	mux.Handle("/open/mcp", mcp.NewStreamableHTTPHandler(open, nil))
	mux.Handle("/open/assistant", mcp.NewStreamableHTTPHandler(open, nil))
	mux.Handle("/open/events", mcp.NewSSEHandler(open, nil))
	mux.HandleFunc("/pages/mcp", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "<!doctype html><p>Docs")
	})
	mux.HandleFunc("/demand", func(http.ResponseWriter, *http.Request) { demanding.Store(true) })
	mux.Handle("/.well-known/oauth-protected-resource/mcp", auth.ProtectedResourceMetadataHandler(
		&oauthex.ProtectedResourceMetadata{Resource: resourceURL, AuthorizationServers: []string{issuerURL},
			ScopesSupported: []string{"read", "write"}}))
	mux.HandleFunc("/revoke", func(http.ResponseWriter, *http.Request) { revoked.Store(true) })
	mux.HandleFunc("/end", func(w http.ResponseWriter, q *http.Request) {
		r, err := provider(q.Context(), "DELETE", last.Load().(string))
		if err != nil || r.StatusCode != http.StatusOK {
			http.Error(w, fmt.Sprint(err), http.StatusBadGateway)
		}
	})
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		said <- vendorSays{
			Host: q.Host, Path: q.Method + " " + q.URL.Path, Authorization: q.Header.Get("Authorization"),
		}
		mux.ServeHTTP(w, q)
	})
}

// startVendor starts it with access tokens that live for so many seconds.
func startVendor(t *testing.T, life int) (said <-chan vendorSays, wrap []string) {
	t.Helper()
	elsewhere := fmt.Sprintf(`{"port":8443,"host":%q,"resource":%q,"other":%q}`, issuerHost, resourceURL, otherURL)
	script := clientScript(t, "provider.mjs", fmt.Sprint(life), "600", elsewhere)
	return startStandIn[vendorSays](t, "resource", []string{resourceHost, issuerHost, otherHost},
		script.Args...)
}

// inside runs a command where pfar's network and names are.
func (p *pfar) inside(c *exec.Cmd) *exec.Cmd {
	args := append([]string{"--target", fmt.Sprint(p.cmd.Process.Pid), "--net", "--mount"}, c.Args...)
	in := exec.Command("nsenter", args...)
	in.Env, in.Dir = c.Env, c.Dir
	return in
}

// consents signs in with Chromium at the link that a person is shown.
func (p *pfar) consents(t *testing.T, link string) {
	t.Helper()
	browser := p.inside(clientScript(t, "consent.mjs", link, "/usr/bin/chromium", issuerHost+" "+notionAddress))
	var wrong bytes.Buffer
	browser.Stderr = &wrong
	out, err := browser.Output()
	if err != nil || !strings.Contains(string(out), "You can close this page") {
		t.Fatalf("the browser: %v\n%s\n%s", err, out, &wrong)
	}
}

var shownLink = regexp.MustCompile(`sign in:\s+(https://\S+)`)

// link is that which the person is shown for the nth time.
func (s *person) link(n int) string {
	s.t.Helper()
	s.await(n, "Waiting for you")
	found := shownLink.FindAllStringSubmatch(s.text(), -1)
	if len(found) < n {
		s.t.Fatalf("no link in %s", s.text())
	}
	return found[n-1][1]
}

// ended waits for the end, and returns the exit code.
func (s *person) ended() int {
	s.t.Helper()
	over := make(chan struct{})
	go func() { defer close(over); s.cmd.Wait(); <-s.all }()
	select {
	case <-over:
	case <-time.After(soon):
		s.t.Fatalf("it does not end: %s", s.text())
	}
	return s.cmd.ProcessState.ExitCode()
}

// TestRemoteSignIn signs in to a real remote server that names its authorization server, with a client that is
// registered on the way and consent that is given in Chromium, and calls a tool. The token is refreshed for the same
// resource. When the server refuses it, pfar says what to type, and one more login asks nothing but consent.
func TestRemoteSignIn(t *testing.T) {
	if os.Getuid() != 0 {
		return // another network takes root, and the test has run as root
	}
	t.Parallel()
	said, wrap := startVendor(t, 24)
	p := prepare(t, map[string]string{"vendor.hcl": "auth = { token = \"vault:vendor_token\" }\nserver {\n" +
		"  transport = \"stream-http\"\n  url = \"" + resourceURL + "\"\n}\ntrust {\n  public_source = false\n}\n" +
		"tool \"rename\" {\n  scopes = [\"write\"]\n}\n"})
	p.up(wrap...)
	p.reads("vendor", "whoami", "rename")
	p.await("the command", soon, func(r control.Report) bool {
		s := server(r, "vendor")
		return s.State == control.NeedsLogin && s.Remedy.Command == "pfar login vendor"
	})
	if out, _, _ := p.command("status"); !strings.Contains(out, "needs-login") ||
		!strings.Contains(out, "pfar login vendor") {
		t.Errorf("pfar status says %s", out)
	}
	for _, args := range [][]string{{"login", "vendor"}, {"login", "vendor", "--yes"}} {
		p.stdin = "y\n"
		if _, stderr, code := p.command(args...); code == 0 || !strings.Contains(stderr, issuerURL) ||
			!strings.Contains(stderr, "nobody has confirmed this yet") {
			t.Errorf("%q, with nobody at a terminal: %d, %s", args, code, stderr)
		}
	}
	drain := func() (all []vendorSays) {
		for len(said) > 0 {
			all = append(all, <-said)
		}
		return all
	}
	for _, s := range drain() {
		if s.Path == "" { // a line of the authorization server's
			t.Errorf("before anybody has confirmed it, it says %+v", s)
		}
	}

	no := p.atTerminal("login", "vendor")
	no.reply(1, "Sign in there? [y/N]", "n")
	if code := no.ended(); code == 0 {
		t.Errorf("after a no it ends with %d", code)
	}
	first := p.atTerminal("login", "vendor")
	first.reply(1, "Sign in there? [y/N]", "y")
	p.consents(t, first.link(1))
	if code := first.ended(); code != 0 ||
		!strings.Contains(first.text(), "stored in the vault as vendor_token, granted read") {
		t.Fatalf("%d, %s", code, first.text())
	}
	p.awaitRunning("vendor")
	c := p.client("/mcp")
	if got := c.must("vendor__whoami", nil); got != "[read]" {
		t.Errorf("the server sees %q", got)
	}
	lacks := func() bool {
		r, err := c.call("vendor__rename", nil)
		said := r.text + fmt.Sprint(err)
		return strings.Contains(said, "was not granted what it needs") &&
			strings.Contains(said, "pfar login vendor --scope write")
	}
	if !lacks() {
		t.Error("a tool is called that needs another scope")
	}
	var told []vendorSays
	eventually(t, func() bool {
		told = append(told, drain()...)
		return slices.ContainsFunc(told, func(s vendorSays) bool { return s.Grant == "refresh_token" })
	})
	for _, s := range told {
		if s.Grant != "" && s.Resource != resourceURL {
			t.Errorf("it was asked for a token for %q", s.Resource)
		}
	}
	if n := len(slices.DeleteFunc(slices.Clone(told), func(s vendorSays) bool { return s.Registered == nil })); n != 1 {
		t.Errorf("it has registered %d clients", n)
	}
	eventually(t, func() bool { r, err := c.call("vendor__whoami", nil); return err == nil && r.text == "[read]" })

	// The server refuses the token in the midst of the session; a call shows it.
	refuses := func(path string) {
		t.Helper()
		curl := p.inside(exec.Command("curl", "-skf", "https://"+resourceHost+path))
		if out, err := curl.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if r, err := c.call("vendor__whoami", nil); err == nil && !strings.Contains(r.text, "sign in") {
			t.Errorf("the call says %q", r.text)
		}
		p.await("it needs a login", soon, func(r control.Report) bool {
			s := server(r, "vendor")
			return s.State == control.NeedsLogin && s.Remedy.Command == "pfar login vendor" && strings.Contains(s.Detail, "401")
		})
		eventually(t, func() bool {
			r, err := c.call("vendor__whoami", nil)
			said := r.text + fmt.Sprint(err)
			return strings.Contains(said, "before its owner has signed in") &&
				strings.Contains(said, "pfar login vendor")
		})
	}
	refuses("/revoke")
	drain()
	again := p.login(t, "vendor", "--yes", "--scope", "write")
	link := again.shows(`sign in:\n\n  (https://\S+)`)
	if !strings.Contains(link, "scope=read+write") {
		t.Errorf("the link is %s", link)
	}
	p.consents(t, link)
	if code := again.ends(); code != 0 {
		t.Errorf("%d, %s%s", code, &again.stdout, &again.stderr)
	}
	p.awaitRunning("vendor")
	eventually(t, func() bool { r, err := c.call("vendor__whoami", nil); return err == nil && r.text == "[read write]" })

	if lacks() {
		t.Error("a tool is not called whose scope was granted")
	}

	// The authorization server takes back all that it has given, and one more login brings it back.
	refuses("/end")
	last := p.login(t, "vendor", "--yes", "--scope", "write")
	p.consents(t, last.shows(`sign in:\n\n  (https://\S+)`))
	if code := last.ends(); code != 0 {
		t.Errorf("%d, %s%s", code, &last.stdout, &last.stderr)
	}
	p.awaitRunning("vendor")
	eventually(t, func() bool { r, err := c.call("vendor__whoami", nil); return err == nil && r.text == "[read write]" })
	for _, s := range drain() {
		if s.Registered != nil {
			t.Errorf("it has registered another client: %+v", s)
		}
		for _, token := range s.Issued {
			if len(token) > 8 {
				assertSecretNowhere(t, p, token)
			}
		}
	}
}

// TestRemoteWantsScopes signs in to a real remote server that lets nobody begin without a scope, of which it tells only
// who has signed in: pfar says which scope is missing, and what to type, and asks the server nothing more until then.
func TestRemoteWantsScopes(t *testing.T) {
	if os.Getuid() != 0 {
		return // another network takes root, and the test has run as root
	}
	t.Parallel()
	said, wrap := startVendor(t, 3600)
	p := prepare(t, map[string]string{"vendor.hcl": "auth = { token = \"vault:vendor_token\" }\nserver {\n" +
		"  transport = \"stream-http\"\n  url = \"" + resourceURL + "\"\n}\n"})
	p.up(wrap...)
	needs := func(command string) {
		t.Helper()
		p.await("the command", soon, func(r control.Report) bool {
			s := server(r, "vendor")
			return s.State == control.NeedsLogin && s.Remedy.Command == command
		})
	}
	needs("pfar login vendor")
	demand := p.inside(exec.Command("curl", "-skf", "https://"+resourceHost+"/demand"))
	if out, err := demand.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	first := p.atTerminal("login", "vendor")
	first.reply(1, "Sign in there? [y/N]", "y")
	p.consents(t, first.link(1))
	if code := first.ended(); code != 0 {
		t.Fatalf("%d, %s", code, first.text())
	}
	const command = "pfar login vendor --scope write"
	needs(command)
	out, _, _ := p.command("status", "vendor")
	if !strings.Contains(out, command) || !strings.Contains(out, "HTTP 403") || !strings.Contains(out, "needs-login") {
		t.Errorf("pfar status says %s", out)
	}
	for len(said) > 0 {
		<-said
	}
	again := p.login(t, "vendor", "--yes", "--scope", "write")
	link := again.shows(`sign in:\n\n  (https://\S+)`)
	for len(said) > 0 {
		if s := <-said; strings.HasPrefix(s.Authorization, "Bearer") {
			t.Errorf("nobody has signed in, and it is asked %+v", s)
		}
	}
	p.consents(t, link)
	if code := again.ends(); code != 0 {
		t.Errorf("%d, %s%s", code, &again.stdout, &again.stderr)
	}
	p.awaitRunning("vendor")
}

// TestRemoteRefusesAnothersToken: a token that was issued for another resource is of no use. The server refuses it,
// pfar says what it was issued for, and no other host sees it.
func TestRemoteRefusesAnothersToken(t *testing.T) {
	if os.Getuid() != 0 {
		return // another network takes root, and the test has run as root
	}
	t.Parallel()
	said, wrap := startVendor(t, 3600)
	p := prepare(t, map[string]string{"vendor.hcl": "auth = { token = \"vault:vendor_token\" }\nserver {\n" +
		"  transport = \"stream-http\"\n  url = \"" + resourceURL + "\"\n}\n"})
	p.configure("elsewhere", fmt.Sprintf("  client_id = \"owners-client\"\n  key = \"vendor_token\"\n"+
		"  scopes = [\"read\"]\n  resource = %q\n  code {\n    url = %q\n    token = %q\n  }",
		otherURL, issuerURL+"/auth", issuerURL+"/token"))
	p.up(wrap...)
	p.await("it needs a login", soon, inState("vendor", control.NeedsLogin))
	login := p.login(t, "elsewhere")
	p.consents(t, login.shows(`sign in:\n\n  (https://\S+)`))
	if code := login.ends(); code != 0 {
		t.Fatalf("%d, %s%s", code, &login.stdout, &login.stderr)
	}
	p.await("a refused token", soon, func(r control.Report) bool {
		s := server(r, "vendor")
		return s.State == control.NeedsLogin && strings.Contains(s.Detail, "401") &&
			strings.Contains(s.Detail, fmt.Sprintf(`the OAuth token "vendor_token" was issued for %q`, otherURL))
	})
	var issued []string
	seen := false
	for len(said) > 0 {
		s := <-said
		seen = seen || s.Host == resourceHost && strings.HasPrefix(s.Authorization, "Bearer ")
		if s.Path != "" && s.Host != resourceHost {
			t.Errorf("another host is asked: %+v", s)
		}
		issued = append(issued, s.Issued...)
	}
	if !seen || len(issued) == 0 {
		t.Errorf("the server has seen a token: %t; issued are %d", seen, len(issued))
	}
	for _, token := range issued {
		if len(token) > 8 {
			assertSecretNowhere(t, p, token)
		}
	}
}
