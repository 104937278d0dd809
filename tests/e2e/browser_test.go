package e2e

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	_ "embed"
	"encoding/hex"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pfar/pfar/units/control"
)

// attackPage is the page that attacks: its script tries every way out that a page has, and its text talks to the model.
//
//go:embed browser_attack.html
var attackPage string

// sites are web servers on this host's loopback. Names lead to them where pfar runs, and nowhere else.
type sites struct {
	shop, ads, evil, inner string // host and port
	hosts                  string // file of the names

	mu   sync.Mutex
	came []string // "HOST METHOD URI BODY" of each request
}

// openSites starts them: a shop of which the owner has heard, advertisements in it, a stranger's, and a service that is
// this host's own.
func openSites(t *testing.T) *sites {
	t.Helper()
	s := &sites{hosts: filepath.Join(directory(t, ""), "hosts")}
	names := "127.0.0.1 localhost\n"
	open := func(name, address string) string {
		l, err := net.Listen("tcp", address+":0")
		check(t, err)
		server := &http.Server{Handler: http.HandlerFunc(s.answer)}
		go server.Serve(l)
		t.Cleanup(func() { server.Close() })
		_, port, err := net.SplitHostPort(l.Addr().String())
		check(t, err)
		names += address + " " + name + "\n"
		return net.JoinHostPort(name, port)
	}
	s.shop, s.ads, s.evil, s.inner = open("www.shop.example", "127.0.0.2"), open("ads.shop.example", "127.0.0.3"), open("evil.example", "127.0.0.66"), open("localhost", "127.0.0.1")
	s.openTLS(t)
	s.inner = strings.Replace(s.inner, "localhost", "127.0.0.1", 1)
	put(t, s.hosts, names)
	return s
}

// openTLS has the shop answer on port 443 as well, with a certificate that no browser trusts.
func (s *sites) openTLS(t *testing.T) {
	t.Helper()
	file := filepath.Join(directory(t, ""), "server.pem")
	makeCertificates(t, filepath.Join(filepath.Dir(file), "ca.pem"), file, "www.shop.example")
	pair, err := tls.LoadX509KeyPair(file, file)
	check(t, err)
	l, err := tls.Listen("tcp", "127.0.0.2:443", &tls.Config{Certificates: []tls.Certificate{pair}})
	check(t, err)
	server := &http.Server{Handler: http.HandlerFunc(s.answer), ErrorLog: log.New(io.Discard, "", 0)}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
}

func (s *sites) answer(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<16))
	s.mu.Lock()
	s.came = append(s.came, fmt.Sprintf("%s %s %s %s", r.Host, r.Method, r.RequestURI, body))
	s.mu.Unlock()
	w.Header().Set("Access-Control-Allow-Origin", "*")
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	switch r.URL.Path {
	case "/attack":
		io.WriteString(w, strings.NewReplacer("EVIL", s.evil, "ADS", s.ads, "INNER", s.inner).Replace(attackPage))
	case "/redirect":
		http.Redirect(w, r, r.URL.Query().Get("to"), http.StatusFound)
	case "/visit":
		had := "new here"
		if c, err := r.Cookie("visitor"); err == nil {
			had = "known as " + c.Value
		}
		http.SetCookie(w, &http.Cookie{Name: "visitor", Value: r.URL.Query().Get("name"), MaxAge: 86400})
		fmt.Fprintf(w, "<title>visit</title><p>%s</p>", had)
	default:
		io.WriteString(w, "<title>nothing</title>")
	}
}

// got are the requests that have come to a host since the last time that somebody asked.
func (s *sites) got(host string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []string
	s.came = slices.DeleteFunc(s.came, func(r string) bool {
		if is := strings.HasPrefix(r, host+" "); is {
			found = append(found, r)
			return true
		}
		return false
	})
	return found
}

// exampleBrowser is an example of a browser, with other hosts.
func exampleBrowser(t *testing.T, file, hosts string) string {
	t.Helper()
	text, ok := examples(t)[file]
	if !ok {
		t.Fatalf("no examples/%s", file)
	}
	dir, err := npmServers()
	check(t, err)
	node, err := filepath.EvalSymlinks(npmClient(t, ".bin/node")) // Debian's is too old for the server
	check(t, err)
	// A busy machine may take minutes to open a page.
	text = strings.NewReplacer("${servers}", dir, `command = "node"`, "command = "+quote(node), `"120s"`, `"10m"`,
		`"--headless",`, `"--headless", "--timeout-navigation", "600000", "--timeout-action", "600000",`).Replace(text)
	return regexp.MustCompile(`(?m)^allowed_domains.*$`).ReplaceAllLiteralString(text, hosts)
}

// browsing is a pfar with browsers, and clients by the names of their profiles.
type browsing struct {
	*pfar
	*sites
	notes   string // what is private
	private string // directory of it
}

func startBrowsing(t *testing.T) *browsing {
	t.Helper()
	s := openSites(t)
	narrow := fmt.Sprintf("allowed_domains = [%q, \"www.shop.example:443\"]\nblocked_domains = [%q]\nallow_private = { \"www.shop.example\" = \"127.0.0.2\", \"*.shop.example\" = [\"127.0.0.2\", \"127.0.0.3\"] }",
		strings.Replace(s.shop, "www.", "*.", 1), "ads.shop.example")
	wide := fmt.Sprintf("allowed_domains = [%q, %q, %q, %q]\nallow_private = { \"www.shop.example\" = \"127.0.0.2\", \"ads.shop.example\" = \"127.0.0.3\", \"evil.example\" = \"127.0.0.66\" }",
		s.shop, s.ads, s.evil, s.inner)
	b := &browsing{sites: s, notes: rand.Text()}
	b.private = directory(t, "")
	put(t, filepath.Join(b.private, "notes.txt"), b.notes)
	b.pfar = prepare(t, map[string]string{
		"browser.hcl": exampleBrowser(t, "browser.hcl", narrow), "browser.research.hcl": exampleBrowser(t, "browser.hcl", narrow), "browser.wide.hcl": exampleBrowser(t, "browser.hcl", wide),
		"browser.tiers.hcl": withCaps(t, exampleBrowser(t, "browser.hcl", narrow)),
		"notes.hcl": declare("node", []string{npm(t, "@modelcontextprotocol/server-filesystem/dist/index.js"), b.private}, fmt.Sprintf(`
label = "sensitive"
sandbox { read_only = [%s] }
trust {
  public_source    = false
  secret_data      = true
  public_sink      = false
  dangerous_writes = false
}`, quote(b.private))),
	})
	dir := filepath.Join(b.home, "clients.d")
	check(t, os.Mkdir(dir, 0o755))
	var named []string
	for _, tier := range browserTiers(t) {
		named = append(named, "browser/"+tier.name)
	}
	folder := filepath.Join(b.home, "policies.d")
	check(t, os.Mkdir(folder, 0o755))
	put(t, filepath.Join(folder, "tiers.hcl"), fmt.Sprintf("profile \"tiers\" {\n  base = \"operator\"\n  tiers = %s\n  relax = \"a test\"\n}\n", quoteAll(named)))
	for _, profile := range []string{"strict", "operator", "tiers"} {
		put(t, filepath.Join(dir, profile+"-agent.hcl"), fmt.Sprintf("token_sha256 = [%q]\nservers = [\"*\"]\nprofile = %q\nrelax = \"a test\"\n", digestOf(tokenOf(profile)), profile))
	}
	b.up("unshare", "--mount", "--propagation", "private", "sh", "-ec", `mount --bind "$0" /etc/hosts; exec "$@"`, s.hosts)
	b.await("the servers", soon, func(r control.Report) bool {
		return !slices.ContainsFunc([]string{"browser", "browser-research", "browser-wide", "browser-tiers", "notes"}, func(name string) bool {
			state := server(r, name).State
			return state != control.Running && state != control.Sleeping
		})
	})
	return b
}

// browserTier is a tier of policies/services/browser.hcl beside core.
type browserTier struct {
	name, caps string // caps: what the server's --caps has to name, with commas
	tools      []*regexp.Regexp
}

// browserTiers reads them, and what the comment above each says of --caps.
func browserTiers(t *testing.T) (all []browserTier) {
	t.Helper()
	source, err := os.ReadFile("../../policies/services/browser.hcl")
	check(t, err)
	one := regexp.MustCompile(`(?s)  # ([^\n]*)\n  tier "(\w+)" \{\s*tools = \[(.*?)\]`)
	caps := regexp.MustCompile(`--caps ([a-z,]+)`)
	for _, m := range one.FindAllStringSubmatch(string(source), -1) {
		tier := browserTier{name: m[2]}
		if said := caps.FindStringSubmatch(m[1]); said != nil {
			tier.caps = said[1]
		} else if !strings.Contains(m[1], "No --caps") {
			t.Errorf("policies/services/browser.hcl says nothing of --caps at the tier %s", m[2])
		}
		for _, pattern := range regexp.MustCompile(`"([^"]+)"`).FindAllStringSubmatch(m[3], -1) {
			tier.tools = append(tier.tools, regexp.MustCompile("^"+strings.ReplaceAll(pattern[1], "*", ".*")+"$"))
		}
		all = append(all, tier)
	}
	if len(all) != 8 {
		t.Fatalf("policies/services/browser.hcl has %d tiers beside core", len(all))
	}
	return all
}

// withCaps is a browser with the line of the example that is a comment, for the tools of all tiers.
func withCaps(t *testing.T, text string) string {
	t.Helper()
	var caps []string
	for _, tier := range browserTiers(t) {
		if tier.caps != "" {
			caps = append(caps, tier.caps)
		}
	}
	line := regexp.MustCompile(`# "--caps", "[a-z,]+",`)
	if !line.MatchString(text) {
		t.Fatal("examples/browser.hcl does not show --caps")
	}
	return line.ReplaceAllLiteralString(text, fmt.Sprintf(`"--caps", %q,`, strings.Join(caps, ",")))
}

func tokenOf(profile string) string { return digestOf("a token of " + profile) }

func digestOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

func (b *browsing) agent(t *testing.T, profile string) *agent {
	a := &agent{t: t, url: b.last().Endpoint, token: tokenOf(profile), http: http.DefaultClient, client: profile + "-agent", patience: soon}
	a.connect()
	return a
}

// TestBrowser has Debian's Chromium visit pages, of which one attacks.
func TestBrowser(t *testing.T) {
	if os.Getuid() != 0 {
		return // names of its own take root, and the test has run as root
	}
	t.Parallel()
	b := startBrowsing(t)
	t.Run("a page that attacks", b.attacked)
	t.Run("the same without walls", b.unprotected)
	t.Run("addresses", b.addresses)
	t.Run("obedient", b.obedient)
	t.Run("profiles", b.profiles)
	t.Run("tiers", b.tiers)
	t.Run("TLS", b.secure)
}

// read has a browser open the page that attacks, and reads what it says. With a query its script does nothing.
func (b *browsing) read(t *testing.T, a *agent, server, query string) {
	t.Helper()
	if said := a.call(server+"__browser_navigate", map[string]any{"url": "http://" + b.shop + "/attack" + query}); !strings.Contains(said, "Page Title: attack") {
		t.Fatalf("the page did not open: %.2000s", said)
	}
	if said := a.call(server+"__browser_snapshot", map[string]any{}); !strings.Contains(said, "read the private notes") {
		t.Errorf("the stranger's text did not arrive: %.2000s", said)
	}
}

// awaitAttack waits until the page has tried all that it can.
func (b *browsing) awaitAttack(t *testing.T, a *agent, server string) {
	t.Helper()
	b.read(t, a, server, "")
	if said := a.call(server+"__browser_wait_for", map[string]any{"text": "all has been tried"}); strings.Contains(said, `"isError":true`) {
		t.Fatalf("the page did not end: %.2000s", said)
	}
}

// waysOut are what the page tries towards a stranger's host, by the path that it asks for.
func waysOut() []string {
	return []string{
		"fetch", "post", "image", "script", "style", "font", "frame", "form", "beacon", "socket", "redirect", "popup", "download", "ping", "worker", "events", "video", "object", "prefetch", "refresh",
	}
}

// attacked: nothing of it arrives, whoever asks the browser to do what.
func (b *browsing) attacked(t *testing.T) {
	a := b.agent(t, "operator") // whose gate lets everything pass but other addresses
	b.awaitAttack(t, a, "browser")
	for _, link := range []string{"leave", "send"} {
		a.call("browser__browser_click", map[string]any{"element": link, "target": "#" + link})
	}
	if got := b.got(b.shop); len(got) < 4 {
		t.Errorf("only %q came to the shop", got)
	}
	for _, host := range []string{b.evil, b.ads, b.inner} {
		if got := b.got(host); len(got) > 0 {
			t.Errorf("to %s came %q", host, got)
		}
	}
	out, errs, code := b.command("audit", "--server", "browser", "--kind", "refused")
	for _, host := range []string{b.evil + " (name-not-declared)", b.ads + " (blocked)", "169.254.169.254:80 (address-literal)", b.inner + " (address-literal)"} {
		if code != 0 || !strings.Contains(out, "refused "+host) {
			t.Errorf("no record of %s: %d, %s%s", host, code, errs, out)
		}
	}
}

// unprotected: all of it arrives where the hosts are declared, so that the other test can fail.
func (b *browsing) unprotected(t *testing.T) {
	a := b.agent(t, "operator")
	b.awaitAttack(t, a, "browser-wide")
	a.call("browser-wide__browser_click", map[string]any{"element": "leave", "target": "#leave"})
	all := strings.Join(b.got(b.evil), "\n")
	for _, way := range append(waysOut(), "leave") {
		if !strings.Contains(all, " /"+way+"?loot") {
			t.Errorf("nothing came by %s", way)
		}
	}
	if len(b.got(b.ads)) == 0 || len(b.got(b.inner)) == 0 {
		t.Error("nothing came to the advertisements, or to this host's own service")
	}
}

// addresses: the gate has no browser open what is not declared, for no client, and none that hides where it leads.
func (b *browsing) addresses(t *testing.T) {
	a := b.agent(t, "operator")
	_, port, _ := net.SplitHostPort(b.shop)
	for _, url := range []string{
		"http://" + b.evil + "/", "http://" + b.ads + "/", "http://" + b.inner + "/", "http://www.shop.example/", "https://" + b.shop + ".evil.example/", "http://" + b.shop + "@" + b.evil + "/", `http://` + b.evil + `\@` + b.shop + "/",
		"file:///etc/passwd", "data:text/html,<img src=http://" + b.evil + ">", "javascript:fetch('http://" + b.evil + "')", "view-source:http://" + b.shop + "/", "chrome://version", "about:blank",
		"http://2130706433:" + port + "/", "http://[::1]:" + port + "/", "http://169.254.169.254/latest/meta-data/", "http://localhost:9876/", b.evil, "//" + b.evil + "/", " http://" + b.evil + "/", "http:/" + b.evil + "/",
	} {
		for _, call := range []struct {
			tool      string
			arguments map[string]any
		}{{"browser__browser_navigate", map[string]any{"url": url}}, {"browser__browser_tabs", map[string]any{"action": "new", "url": url}}} {
			if said := a.call(call.tool, call.arguments); !strings.Contains(said, "has not run: the argument url") {
				t.Errorf("%s %q: %.500s", call.tool, url, said)
			}
		}
	}
	// Where a page of a declared host redirects to is for the bridge.
	a.call("browser__browser_navigate", map[string]any{"url": "http://" + b.shop + "/redirect?to=http://" + b.evil + "/redirected"})
	for _, host := range []string{b.evil, b.ads, b.inner} {
		if got := b.got(host); len(got) > 0 {
			t.Errorf("to %s came %q", host, got)
		}
	}
	if said := a.call("browser__browser_navigate", map[string]any{"url": "http://" + b.shop + "/"}); !strings.Contains(said, "Page Title: nothing") {
		t.Errorf("a declared host: %.500s", said)
	}
}

// obedient: what the page wants is done, by a client that the gate holds and by one that it does not.
func (b *browsing) obedient(t *testing.T) {
	for _, profile := range []string{"strict", "operator"} {
		a := b.agent(t, profile)
		b.got(b.shop)
		b.read(t, a, "browser", "?calm")
		read := a.call("notes__read_text_file", map[string]any{"path": filepath.Join(b.private, "notes.txt")})
		if !strings.Contains(read, b.notes) {
			t.Fatalf("%s: the notes were not read: %.1000s", profile, read)
		}
		for _, call := range []struct {
			tool      string
			arguments map[string]any
		}{
			{"browser__browser_navigate", map[string]any{"url": "http://" + b.shop + "/?q=" + b.notes}},
			{"browser__browser_type", map[string]any{"element": "the field", "target": "#field", "text": b.notes, "submit": true}},
			{"browser__browser_evaluate", map[string]any{"function": "() => fetch('/?e=" + b.notes + "')"}},
		} {
			if a.patience = soon; profile == "strict" && call.tool != "browser__browser_evaluate" {
				a.patience = 2 * time.Second // nobody answers what a human is asked
			}
			said := a.call(call.tool, call.arguments)
			if profile == "strict" && call.tool == "browser__browser_evaluate" && !strings.Contains(said, "does not have the tier browser/devtools") {
				t.Errorf("%s: %.500s", call.tool, said)
			}
		}
		left := strings.Contains(strings.Join(b.got(b.shop), "\n"), b.notes)
		if left != (profile == "operator") {
			t.Errorf("under %s the notes have left: %v", profile, left)
		}
	}
}

// profiles: what a page stores is there again in the same browser, also when it was restarted, and in no other.
func (b *browsing) profiles(t *testing.T) {
	a := b.agent(t, "operator")
	visit := func(server, name, want string) {
		t.Helper()
		a.call(server+"__browser_navigate", map[string]any{"url": "http://" + b.shop + "/visit?name=" + name})
		if said := a.call(server+"__browser_snapshot", map[string]any{}); !strings.Contains(said, want) {
			t.Errorf("%s: not %q: %.1000s", server, want, said)
		}
	}
	visit("browser", "first", "new here")
	visit("browser-research", "second", "new here")
	for _, name := range []string{"browser", "browser-research"} {
		a.call(name+"__browser_close", map[string]any{}) // at the end of its input the server kills Chromium, which writes each 30 s otherwise
		if out, errs, code := b.command("restart", name); code != 0 {
			t.Fatalf("pfar restart %s: %d %s%s", name, code, out, errs)
		}
	}
	b.awaitRunning("browser", "browser-research")
	visit("browser", "third", "known as first")
	visit("browser-research", "fourth", "known as second")
}

// tiers: a profile that names further ones has their tools where the server has --caps for them, as
// policies/services/browser.hcl says, and nobody else has. And what the example says of how to use it is told to
// models.
func (b *browsing) tiers(t *testing.T) {
	a, other := b.agent(t, "tiers"), b.agent(t, "operator")
	if said := a.said(); !strings.Contains(said, `Server browser, as its owner describes it:\n\u003e Browser: pages of a few hosts.\n\u003e browser_snapshot shows`) {
		t.Errorf("nothing says how to use it: %.3000s", said)
	}
	listed := map[string][]string{}
	list := a.ask("tools/list", nil)
	for _, m := range regexp.MustCompile(`"name":"(browser|browser-tiers)__(\w+)"`).FindAllStringSubmatch(list, -1) {
		listed[m[1]] = append(listed[m[1]], m[2])
	}
	for _, tier := range browserTiers(t) {
		needed := tier.caps == ""
		for _, pattern := range tier.tools {
			if !slices.ContainsFunc(listed["browser-tiers"], pattern.MatchString) {
				t.Errorf("with --caps %q the server has nothing like %s, of the tier %s", tier.caps, pattern, tier.name)
			}
			needed = needed || !slices.ContainsFunc(listed["browser"], pattern.MatchString)
			if tier.caps == "" && !slices.ContainsFunc(listed["browser"], pattern.MatchString) {
				t.Errorf("without --caps the server has nothing like %s, of the tier %s", pattern, tier.name)
			}
		}
		if !needed {
			t.Errorf("the tier %s needs no --caps %s", tier.name, tier.caps)
		}
	}
	for _, agent := range []*agent{a, other} {
		agent.call("browser-tiers__browser_navigate", map[string]any{"url": "http://" + b.shop + "/"})
	}
	for _, call := range []struct {
		tool, tier, says string
		arguments        map[string]any
	}{
		{"browser_pdf_save", "pdf", ".pdf", map[string]any{}},
		{"browser_mouse_move_xy", "vision", "mouse.move(1, 2)", map[string]any{"x": 1, "y": 2}},
		{"browser_evaluate", "devtools", "1764", map[string]any{"function": "() => 42 * 42"}},
	} {
		said := a.call("browser-tiers__"+call.tool, call.arguments)
		if !strings.Contains(said, call.says) || strings.Contains(said, `"isError":true`) {
			t.Errorf("%s, of a profile that names its tier: %.1000s", call.tool, said)
		}
		if said := other.call("browser-tiers__"+call.tool, call.arguments); !strings.Contains(said, "does not have the tier browser/"+call.tier) {
			t.Errorf("%s, of a profile that does not name its tier: %.1000s", call.tool, said)
		}
	}
	if said := a.call("browser__browser_pdf_save", map[string]any{}); !strings.Contains(said, "browser__browser_pdf_save") || strings.Contains(said, ".pdf\"") || !strings.Contains(said, `"error"`) {
		t.Errorf("a tool that the server has not without --caps: %.1000s", said)
	}
}

// secure: the bridge reads the name in the handshake. What the browser then thinks of the certificate is its own.
func (b *browsing) secure(t *testing.T) {
	a := b.agent(t, "operator")
	if said := a.call("browser__browser_navigate", map[string]any{"url": "https://www.shop.example/"}); !strings.Contains(said, "ERR_CERT_AUTHORITY_INVALID") {
		t.Errorf("TLS to a declared host: %.500s", said)
	}
}
