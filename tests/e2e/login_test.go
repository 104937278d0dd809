package e2e

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"html"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pfar/pfar/units/control"
)

// certified returns files with a key and a certificate for 127.0.0.1 and some names, which is its own authority.
func certified(t *testing.T, names ...string) (keyFile, certFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "tests"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: names,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	check(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	check(t, err)
	dir := directory(t, "")
	write := func(name, kind string, b []byte) string {
		path := filepath.Join(dir, name)
		check(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o644))
		return path
	}
	return write("key.pem", "PRIVATE KEY", secret), write("cert.pem", "CERTIFICATE", der)
}

// authorizer is oidc-provider (tests/clients/mcp/provider.mjs).
type authorizer struct {
	issuer, api, cert string
	said              *output
}

// newAuthorizer gives out access tokens that live for so many seconds, and codes for devices that do.
func newAuthorizer(t *testing.T, life int, code ...int) *authorizer {
	t.Helper()
	return newAuthorizerIn(t, 0, life, code...)
}

// newAuthorizerIn does so in the network of a process, 0 for this one's.
func newAuthorizerIn(t *testing.T, pid, life int, code ...int) *authorizer {
	t.Helper()
	key, cert := certified(t)
	a := &authorizer{cert: cert, said: &output{}}
	args := []string{key, cert}
	for _, seconds := range append([]int{life}, code...) {
		args = append(args, fmt.Sprint(seconds))
	}
	c := inNetworkOf(clientScript(t, "provider.mjs", args...), pid)
	stdout, err := c.StdoutPipe()
	check(t, err)
	check(t, c.Start())
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
		if t.Failed() {
			t.Logf("the provider says:\n%s", a.said)
		}
	})
	lines := bufio.NewScanner(stdout)
	if !lines.Scan() {
		t.Fatal("the provider does not begin")
	}
	var first struct{ Issuer, API string }
	check(t, json.Unmarshal(lines.Bytes(), &first))
	a.issuer, a.api = first.Issuer, first.API
	go func() {
		for lines.Scan() {
			fmt.Fprintf(a.said, "%s\n", lines.Text())
		}
	}()
	return a
}

// clientScript is a script of tests/clients/mcp, which finds its packages beside it.
func clientScript(t testing.TB, name string, args ...string) *exec.Cmd {
	t.Helper()
	c, err := scriptIn(directory(t, ""), name, args...)
	check(t, err)
	return c
}

// scriptIn is clientScript with a directory for what the script writes.
func scriptIn(dir, name string, args ...string) (*exec.Cmd, error) {
	modules, err := npmClients()
	if err != nil {
		return nil, err
	}
	b, err := os.ReadFile(filepath.Join("..", "clients", "mcp", name))
	if err != nil {
		return nil, err
	}
	node, err := filepath.Glob(filepath.Join(modules, "node_modules", "node-linux-*", "bin", "node"))
	if err != nil || len(node) != 1 {
		return nil, fmt.Errorf("%d programs are Node.js: %v", len(node), err)
	}
	c := exec.Command(node[0], append([]string{filepath.Join(dir, name)}, args...)...)
	c.Env = append(os.Environ(), "TMPDIR="+dir, "HOME="+dir, "NODE_COMPILE_CACHE="+filepath.Join(scratch(), "compiled"))
	return c, errors.Join(
		os.WriteFile(filepath.Join(dir, name), b, 0o644),
		os.Symlink(filepath.Join(modules, "node_modules"), filepath.Join(dir, "node_modules")),
	)
}

// configure writes a provider into oauth.d.
func (p *pfar) configure(name, text string) {
	p.t.Helper()
	dir := filepath.Join(p.home, "oauth.d")
	check(p.t, os.MkdirAll(dir, 0o755))
	check(p.t, os.WriteFile(filepath.Join(dir, name+".hcl"), []byte(fmt.Sprintf("provider %q {\n%s\n}\n", name, text)),
		0o644))
}

// signingIn is a "pfar login", or another pfar that shows a person what to do, which is under way.
type signingIn struct {
	t              *testing.T
	cmd            *exec.Cmd
	stdout, stderr output
	ended          chan struct{}
}

func (p *pfar) login(t *testing.T, args ...string) *signingIn {
	t.Helper()
	return p.begins(t, append([]string{"login"}, args...)...)
}

func (p *pfar) begins(t *testing.T, args ...string) *signingIn {
	t.Helper()
	s := &signingIn{t: t, cmd: exec.Command(program(t, "pfar"), args...), ended: make(chan struct{})}
	s.cmd.Env, s.cmd.Stdout, s.cmd.Stderr = p.env, &s.stdout, &s.stderr
	check(t, s.cmd.Start())
	go func() {
		defer close(s.ended)
		s.cmd.Wait()
	}()
	t.Cleanup(func() {
		s.cmd.Process.Kill()
		<-s.ended
		if t.Failed() {
			t.Logf("pfar %s wrote:\n%s\n%s", args, &s.stdout, &s.stderr)
		}
	})
	return s
}

// shows waits for something that fits among what a person is told, and returns the first group.
func (s *signingIn) shows(expression string) string {
	s.t.Helper()
	e := regexp.MustCompile(expression)
	var found []string
	eventually(s.t, func() bool {
		if found = e.FindStringSubmatch(s.stderr.String()); found != nil {
			return true
		}
		select {
		case <-s.ended:
			s.t.Fatalf("it has ended with %s", &s.stderr)
		default:
		}
		return false
	})
	return found[1]
}

// ends waits for the end, and returns the exit code.
func (s *signingIn) ends() int {
	s.t.Helper()
	select {
	case <-s.ended:
	case <-time.After(soon):
		s.t.Fatal("it does not end")
	}
	return s.cmd.ProcessState.ExitCode()
}

var (
	formAction = regexp.MustCompile(`(?s)<form[^>]*action="([^"]*)"`)
	formInput  = regexp.MustCompile(`<input[^>]*>`)
	attribute  = regexp.MustCompile(`(name|value)="([^"]*)"`)
)

// approve goes through the provider's pages over HTTP, as a person does, from the page that was shown.
func (a *authorizer) approve(t *testing.T, page, code string) {
	t.Helper()
	jar, err := cookiejar.New(nil)
	check(t, err)
	pool, b := x509.NewCertPool(), mustRead(t, a.cert)
	pool.AppendCertsFromPEM(b)
	c := &http.Client{Jar: jar, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	defer c.CloseIdleConnections()
	r, err := c.Get(page)
	check(t, err)
	for range 10 {
		b, err := io.ReadAll(r.Body)
		r.Body.Close()
		check(t, err)
		text, at := string(b), r.Request.URL
		action := formAction.FindStringSubmatch(text)
		if strings.Contains(text, "Sign-in Success") {
			return
		}
		if action == nil {
			t.Fatalf("%s has no form: %s", at, text)
		}
		values := url.Values{}
		for _, input := range formInput.FindAllString(text, -1) {
			of := map[string]string{}
			for _, m := range attribute.FindAllStringSubmatch(input, -1) {
				of[m[1]] = html.UnescapeString(m[2])
			}
			switch name := of["name"]; name {
			case "":
			case "user_code":
				values.Set(name, code)
			case "login", "password":
				values.Set(name, "alice")
			default:
				values.Set(name, of["value"])
			}
		}
		if strings.Contains(text, `value="yes"`) {
			values.Set("confirm", "yes")
		}
		to, err := at.Parse(html.UnescapeString(action[1]))
		check(t, err)
		r, err = c.PostForm(to.String(), values)
		check(t, err)
	}
	t.Fatal("the provider's pages have no end")
}

func mustRead(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	check(t, err)
	return b
}

// signsIn signs in to what a server waits for, at the console: a button there leads to a one-time page with a code, and
// the server runs. No page has the token.
func (s *stage) signsIn(server string, a *authorizer) {
	s.t.Helper()
	b, now := s.visit(`await page.click("text=Wants"); await page.waitForSelector("button[value=enter]");`)
	for _, want := range []string{"Sign in on a one-time page", "pfar login " + server} {
		if !strings.Contains(now.Text, want) {
			s.t.Errorf("the page has no %q: %s", want, now.Text)
		}
	}
	var link string
	b.does(&link, `
await page.click("button[value=enter]");
await page.waitForSelector("text=Open the one-time page");
return await page.getAttribute("text=Open the one-time page", "href");`, nil)
	seen := b.opens(link).All
	code, address := b.signsIn()
	b.answers(address, code, true)
	seen += b.sees("That did not work").All
	code, address = b.signsIn()
	b.answers(address, code, false)
	seen += b.sees("Connected").All
	s.awaitRunning(server)
	now = b.looks(`await page.goto(args.link); await page.click("text=Wants"); await page.waitForSelector("h1");`,
		map[string]any{"link": s.console()})
	if strings.Contains(now.Text, "pfar login "+server) || strings.Contains(now.Text, "Sign in on") {
		s.t.Errorf("it wants a sign-in still: %s", now.Text)
	}
	tokens := a.issued()
	for _, token := range tokens {
		if strings.Contains(seen+now.All, token) {
			s.t.Error("a page has a token")
		}
	}
	if len(tokens) == 0 {
		s.t.Error("the provider has given no token")
	}
}

// TestLogin obtains tokens from a real authorization server: by a code on another device, and with Chromium. A server
// uses them at an API, and they are refreshed.
func TestLogin(t *testing.T) {
	t.Parallel()
	a := newAuthorizer(t, 24)
	p := prepare(t, map[string]string{"acme.hcl": fmt.Sprintf("allowed_domains = [%q]\n", a.api) + declare(program(t,
		"hostile"), nil,
		`auth = { TOKEN = "vault:acme_token" }`)})
	p.up()
	p.await("acme waiting", soon, inState("acme", control.Waiting))
	if _, stderr, code := p.command("login", "acme"); code == 0 || !strings.Contains(stderr,
		`there is no OAuth client for "acme"`) || !strings.Contains(stderr, "oauth.d/acme.hcl") {
		t.Errorf("without a client: %d, %s", code, stderr)
	}
	endpoints := fmt.Sprintf(
		"key = \"acme_token\"\nscopes = [\"read\", \"offline_access\"]\nissuer = %q\nresource = \"%s/api\"\nca = %q\n"+
			"device {\n url = \"%s/device/auth\"\n token = \"%s/token\"\n}\n"+
			"code {\n url = \"%s/auth\"\n token = \"%s/token\"\n}\n",
		a.issuer,
		a.issuer,
		a.cert,
		a.issuer,
		a.issuer,
		a.issuer,
		a.issuer,
	)
	p.configure("acme", "client_id = \"owners-client\"\n"+endpoints)
	p.await("the command", soon, func(r control.Report) bool {
		s := server(r, "acme")
		return strings.Contains(s.Detail, "needs login: pfar login acme") && s.Remedy.Command == "pfar login acme"
	})
	if out, _, _ := p.command("status"); !strings.Contains(out, "pfar login acme") {
		t.Errorf("pfar status says %s", out)
	}

	if os.Getuid() != 0 { // root has no console: TestAsOrdinaryUser
		(&stage{pfar: p}).signsIn("acme", a)
	}
	first := p.login(t, "acme", "--device")
	page, code := first.shows(`Open this page, on any device:\n\n  (https://\S+)`),
		first.shows(`Enter this code there:\n\n  (\S+)`)
	a.approve(t, page, code)
	if exit := first.ends(); exit != 0 || !strings.HasPrefix(first.stdout.String(),
		"stored in the vault as acme_token, granted ") {
		t.Fatalf("%d, %s", exit, &first.stdout)
	}
	p.awaitRunning("acme")
	c := p.client("/mcp")
	seen := func() string {
		r, err := c.call("acme__fetch", map[string]any{"method": "GET", "url": "http://" + a.api,
			"headers": map[string]any{"Authorization": "Bearer $TOKEN"}})
		check(t, err)
		return r.text
	}
	if got := seen(); !strings.Contains(got, `alice`) || !strings.Contains(got, "/api") {
		t.Errorf("the API says %s", got)
	}
	eventually(t, func() bool { return strings.Contains(a.said.String(), `{"grant":"refresh_token"`) })
	eventually(t, func() bool { return strings.Contains(seen(), "alice") })

	p.configure("acme", "client_id = \"confidential\"\nsecret = \"vault:acme_client\"\n"+endpoints)
	p.stdin = "CS-hunter2-of-the-client"
	if _, stderr, code := p.command("vault", "set", "acme_client"); code != 0 {
		t.Fatal(stderr)
	}
	eventually(t, func() bool { // the file may not have been read yet
		second := p.login(t, "acme")
		link := second.shows(`Open this (?:link in your browser, and sign in|page, on any device):\n\n  (https://\S+)`)
		if !strings.Contains(link, "client_id=confidential") {
			second.cmd.Process.Signal(os.Interrupt)
			second.ends()
			return false
		}
		browser := clientScript(t, "consent.mjs", link, "/usr/bin/chromium")
		var wrong bytes.Buffer
		browser.Stderr = &wrong
		out, err := browser.Output()
		if err != nil {
			t.Fatalf("the browser: %v\n%s", err, &wrong)
		}
		if !strings.Contains(string(out), "/callback") || !strings.Contains(string(out), "You can close this page") {
			t.Errorf("the browser ends at %s", out)
		}
		if exit := second.ends(); exit != 0 || !strings.Contains(second.stdout.String(),
			"acme: restarts with the new value") {
			t.Errorf("%d, %s", exit, &second.stdout)
		}
		return true
	})
	if got := seen(); !strings.Contains(got, "alice") {
		t.Errorf("the API says %s", got)
	}
	if said := a.said.String(); !strings.Contains(said,
		`{"grant":"authorization_code","client":"confidential","resource":"`+a.issuer+`/api"}`) ||
		!strings.Contains(
			said,
			`{"grant":"urn:ietf:params:oauth:grant-type:device_code","client":"owners-client","resource":"`+a.issuer+`/api"}`,
		) {
		t.Errorf("the provider has granted %s", said)
	}
	p.search(t, "CS-hunter2-of-the-client")
}

// forged is a provider that answers as a test has it.
type forged struct {
	*httptest.Server
	ca string

	mu     sync.Mutex
	asked  []string // paths
	answer func(path string, w http.ResponseWriter, q *http.Request)
}

func newForged(t *testing.T) *forged {
	t.Helper()
	key, cert := certified(t)
	pair, err := tls.LoadX509KeyPair(cert, key)
	check(t, err)
	f := &forged{ca: cert}
	f.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		check(t, q.ParseForm())
		f.mu.Lock()
		f.asked = append(f.asked, q.URL.Path+" "+q.PostForm.Get("grant_type"))
		answer := f.answer
		f.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		answer(q.URL.Path, w, q)
	}))
	f.Config.ErrorLog = log.New(io.Discard, "", 0)
	f.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	f.StartTLS()
	t.Cleanup(f.Close)
	return f
}

func (f *forged) answers(answer func(path string, w http.ResponseWriter, q *http.Request)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked, f.answer = nil, answer
}

func (f *forged) said() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string{}, f.asked...)
}

// config has no certificates in SSL_CERT_FILE: the login and the refresh have those of ca.
func (f *forged) config() string {
	return fmt.Sprintf(
		"client_id = \"id\"\nsecret = \"vault:forged_client\"\nkey = \"forged_token\"\nscopes = [\"read\"]\nca = %q\n"+
			"device {\n url = \"%s/begin\"\n token = \"%s/token\"\n}\ncode {\n url = \"%s/auth\"\n token = \"%s/token\"\n}\n",
		f.ca,
		f.URL,
		f.URL,
		f.URL,
		f.URL,
	)
}

// TestForgedProvider: whatever a provider answers, nothing is stored, a person hears why, no secret is anywhere, and no
// other host is asked.
func TestForgedProvider(t *testing.T) {
	t.Parallel()
	f, other := newForged(t), newForged(t)
	other.answers(func(string, http.ResponseWriter, *http.Request) {})
	p := prepare(t, map[string]string{"drive.hcl": echo(t) + "auth = { TOKEN = \"vault:forged_token\" }\n"})
	p.configure("forged", f.config())
	p.up()
	p.await("drive waiting", soon, inState("drive", control.NeedsLogin))
	if _, stderr, code := p.command("login", "forged", "--device"); code == 0 || !strings.Contains(stderr,
		"store it with pfar vault set forged_client") {
		t.Errorf("without the client's secret: %d, %s", code, stderr)
	}
	p.stdin = "CS-hunter2-hunter2"
	if _, stderr, code := p.command("vault", "set", "forged_client"); code != 0 {
		t.Fatal(stderr)
	}
	begin := func(w http.ResponseWriter) {
		fmt.Fprint(
			w,
			`{"device_code":"DC-hunter2-hunter2","user_code":"ABCD-EFGH",`+
				`"verification_uri":"https://login.example/d","interval":1,"expires_in":300}`,
		)
	}
	refuse := func(code, description string) func(w http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusBadRequest)
			json.NewEncoder(w).Encode(map[string]string{"error": code, "error_description": description})
		}
	}
	to := func(status int) func(w http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.Header().Set("Location", other.URL+"/token")
			w.WriteHeader(status)
		}
	}
	for name, c := range map[string]struct {
		begin, token func(w http.ResponseWriter)
		words        string
	}{
		"denied":            {begin, refuse("access_denied", "CS-hunter2-hunter2 \x1b[2J"), "the sign-in was refused"},
		"expired":           {begin, refuse("expired_token", "DC-hunter2-hunter2"), "has expired before it was entered"},
		"a token in errors": {begin, refuse("AT-hunter2-hunter2", "AT-hunter2-hunter2"), "the provider answered 400"},
		"a redirect":        {begin, to(307), "a redirect, which pfar does not follow"},
		"one at first":      {to(302), nil, "a redirect, which pfar does not follow"},
		"another type": {begin, func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, `{"access_token":"AT-hunter2-hunter2"}`)
		}, "not of the type application/json"},
		"a huge answer": {begin, func(w http.ResponseWriter) {
			fmt.Fprintf(w, `{"access_token":"AT-hunter2-hunter2%s"}`, strings.Repeat("x", 1<<20))
		}, "has more than"},
		"a page for terminals": {func(w http.ResponseWriter) {
			fmt.Fprint(w, `{"device_code":"DC-hunter2-hunter2","user_code":"\u001b]0;x\u0007",`+
				`"verification_uri":"https://login.example/d"}`)
		}, nil, "no user_code that can be shown"},
		"a header": {begin, func(w http.ResponseWriter) {
			fmt.Fprint(w, `{"access_token":"AT-hunter2-hunter2\r\nX: y"}`)
		}, "is of no use"},
	} {
		f.answers(func(path string, w http.ResponseWriter, _ *http.Request) {
			if path == "/begin" {
				c.begin(w)
			} else {
				c.token(w)
			}
		})
		stdout, stderr, code := p.command("login", "forged", "--device")
		if code == 0 || stdout != "" || !strings.Contains(stderr, c.words) || strings.Contains(stderr, "hunter2") ||
			strings.Contains(stderr, "\x1b") {
			t.Errorf("%s: %d, %s%s", name, code, stdout, stderr)
		}
	}
	if asked := other.said(); len(asked) != 0 {
		t.Errorf("another host was asked %q", asked)
	}
	if out, _, _ := p.command("vault", "list"); strings.Contains(out, "forged_token") {
		t.Errorf("there is a token: %s", out)
	}
	p.search(t, "hunter2")
	for _, log := range []string{"pfar-login.service"} {
		if b := mustRead(t, filepath.Join(p.state(), "log", log+".log")); bytes.Contains(b, []byte("hunter2")) {
			t.Errorf("the log has %s", b)
		}
	}

	// In the end it answers well, and what it gave is refreshed by the same certificates.
	f.answers(func(path string, w http.ResponseWriter, q *http.Request) {
		switch {
		case path == "/begin":
			begin(w)
		case q.PostForm.Get("grant_type") == "refresh_token":
			fmt.Fprint(w, `{"access_token":"0000000000000002","expires_in":3600}`)
		default:
			fmt.Fprint(
				w,
				`{"access_token":"0000000000000001","refresh_token":"RT-hunter2-hunter2","expires_in":10,"token_type":"bearer"}`,
			)
		}
	})
	if stdout, stderr, code := p.command("login", "drive", "--device"); code != 0 || !strings.Contains(stdout,
		"stored in the vault as forged_token, granted read\ndrive: starts") {
		t.Fatalf("%d, %s%s", code, stdout, stderr)
	}
	eventually(t, func() bool { return strings.Contains(fmt.Sprint(f.said()), "/token refresh_token") })
	p.search(t, "hunter2")
}

// TestLoginIsCutShort: Ctrl-C, a second login, and the death of any process leave nothing behind: no token, no process,
// no question.
func TestLoginIsCutShort(t *testing.T) {
	t.Parallel()
	f := newForged(t)
	p := prepare(t, map[string]string{"drive.hcl": echo(t) + "auth = { TOKEN = \"vault:forged_token\" }\n"})
	p.configure("forged", strings.Replace(f.config(), "secret = \"vault:forged_client\"\n", "", 1))
	p.up()
	p.await("drive waiting", soon, inState("drive", control.NeedsLogin))
	waits := make(chan struct{}, 100)
	f.answers(func(path string, w http.ResponseWriter, _ *http.Request) {
		if path == "/begin" {
			fmt.Fprint(
				w,
				`{"device_code":"DC-hunter2-hunter2","user_code":"ABCD-EFGH",`+
					`"verification_uri":"https://login.example/d","interval":1}`,
			)
			return
		}
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"error":"authorization_pending"}`)
		waits <- struct{}{}
	})
	polled := func() {
		t.Helper()
		for len(waits) > 0 {
			<-waits
		}
		select {
		case <-waits:
		case <-time.After(soon):
			t.Fatal("nobody asks for the token")
		}
	}
	nothing := func(what string) {
		t.Helper()
		eventually(t, func() bool { return p.errand() == 0 })
		if out, _, _ := p.command("vault", "list"); strings.Contains(out, "forged_token") {
			t.Errorf("%s: there is a token: %s", what, out)
		}
	}

	interrupted := p.login(t, "forged", "--device")
	polled()
	interrupted.cmd.Process.Signal(os.Interrupt)
	if code := interrupted.ends(); code != 130 {
		t.Errorf("after Ctrl-C it ends with %d", code)
	}
	nothing("after Ctrl-C")

	first := p.login(t, "forged", "--device")
	polled()
	second := p.login(t, "forged", "--device")
	if code := first.ends(); code == 0 || !strings.Contains(first.stderr.String(),
		"another login of the same token has begun; nothing was stored") {
		t.Errorf("the first ends with %d, %s", code, &first.stderr)
	}
	second.shows(`(ABCD-EFGH)`)
	polled()
	syscall.Kill(p.errand(), syscall.SIGKILL)
	if code := second.ends(); code == 0 || !strings.Contains(second.stderr.String(), "nothing was stored") {
		t.Errorf("after the death of its process it ends with %d, %s", code, &second.stderr)
	}
	nothing("after the death of its process")

	third := p.login(t, "forged", "--device")
	polled()
	process := p.errand()
	syscall.Kill(p.daemon(), syscall.SIGKILL)
	if code := third.ends(); code == 0 || !strings.Contains(third.stderr.String(), "pfard ended during the sign-in") {
		t.Errorf("after the death of pfard it ends with %d, %s", code, &third.stderr)
	}
	eventually(t, func() bool { return syscall.Kill(process, 0) != nil })
	<-p.ended
	p.again()
	p.await("drive waiting", soon, inState("drive", control.NeedsLogin))
	nothing("after the death of pfard")
}

// errand is the process of a login, 0 if there is none.
func (p *pfar) errand() int { return p.child("--login") }

// daemon is pfard.
func (p *pfar) daemon() int { return p.child("--local") }

// child is the process with an argument.
func (p *pfar) child(argument string) int {
	for _, process := range descendants(p.cmd.Process.Pid) {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", process.pid))
		if bytes.Contains(b, []byte(argument+"\x00")) {
			return process.pid
		}
	}
	return 0
}
