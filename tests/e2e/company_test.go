package e2e

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/policies/broker/rootca"
	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/units/control"
)

const (
	companyHost  = "mcp.company.example"  // wants a token
	intranetHost = "wiki.company.example" // wants none
	edgeHost     = "edge.company.example" // where nginx itself answers, cuts streams, and passes HTTP+SSE on
	companyToken = "company-7yT6rE5wQ4aS3dF2"
)

// nginxConfig is of a company's nginx: the token and the three hosts.
const nginxConfig = `daemon off;
master_process off; # so that it ends with the test
user root;
pid nginx.pid;
error_log stderr;
events {}
http {
	log_format asked escape=json '{"Path":"$request_method $uri","Status":"$status"}';
	access_log off;
	client_body_temp_path body; proxy_temp_path proxy;
	fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
	proxy_http_version 1.1; proxy_buffering off;
	proxy_set_header Connection ""; proxy_set_header Host 127.0.0.1:3001;
	ssl_certificate server.pem;
	ssl_certificate_key server.pem;
	server {
		listen 443 ssl http2;
		server_name %[2]s;
		location / {
			if ($http_authorization != "Bearer %[1]s") { return 401; }
			proxy_pass http://127.0.0.1:3001;
		}
	}
	server {
		listen 80;
		listen 443 ssl http2;
		server_name %[4]s;
		location / {
			proxy_pass http://127.0.0.1:3001;
		}
	}
	server {
		listen 443 ssl http2;
		server_name %[3]s;
		location /sse { proxy_read_timeout 1h; proxy_pass http://127.0.0.1:3002; }
		location /message { proxy_pass http://127.0.0.1:3002; }
		location = /brief { proxy_read_timeout 10s; access_log /dev/stdout asked; proxy_pass http://127.0.0.1:3001/mcp; }
		location = /small { client_max_body_size 4k; proxy_pass http://127.0.0.1:3001/mcp; }
		location = /gone { proxy_pass http://127.0.0.1:3004; }
		location = /slow { proxy_read_timeout 1s; proxy_pass http://127.0.0.1:3003; }
		location = /later { add_header Retry-After 1000 always; return 429; }
	}
}
`

// serveCompany is a company's nginx in front of a real server: its folder and the server's program are the arguments.
func serveCompany(string) error {
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		return fmt.Errorf("lo: %w: %s", err, out)
	}
	dir := os.Args[1]
	os.Args = os.Args[1:] // behind starts what stands first
	for port, transport := range map[string]string{"3001": "streamableHttp", "3002": "sse"} {
		if _, err := behind(transport, port); err != nil {
			return err
		}
	}
	silent, err := net.Listen("tcp", "127.0.0.1:3003") // the kernel takes connections, and nobody answers
	if err != nil {
		return err
	}
	defer silent.Close()
	nginx := exec.Command("/usr/sbin/nginx", "-p", dir, "-c", filepath.Join(dir, "nginx.conf"), "-e", "stderr")
	nginx.Stdout, nginx.Stderr = os.Stdout, os.Stderr
	nginx.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := nginx.Start(); err != nil {
		return err
	}
	pid := filepath.Join(dir, "nginx.pid")
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(pid); err == nil { // it listens
			break
		}
		if time.Since(start) > soon {
			return fmt.Errorf("nginx does not begin")
		}
	}
	fmt.Println("ready")
	return nginx.Wait()
}

// companyAsked is what nginx says of a request that has ended, at one address.
type companyAsked struct{ Path, Status string }

// startCompany starts one whose authority no system knows, and returns the file of that.
func startCompany(t *testing.T) (authority string, key broker.Pin, asked <-chan companyAsked, wrap []string) {
	t.Helper()
	dir := directory(t, "")
	authority = filepath.Join(dir, "company-ca.pem")
	makeCertificates(t, authority, filepath.Join(dir, "server.pem"), companyHost, intranetHost, edgeHost)
	put(t, filepath.Join(dir, "nginx.conf"), fmt.Sprintf(nginxConfig, companyToken, companyHost, edgeHost, intranetHost))
	text, err := os.ReadFile(filepath.Join(dir, "server.pem"))
	check(t, err)
	block, _ := pem.Decode(text)
	leaf, err := x509.ParseCertificate(block.Bytes)
	check(t, err)
	everything := npm(t, "@modelcontextprotocol/server-everything/dist/index.js")
	hosts := []string{companyHost, intranetHost, edgeHost}
	asked, wrap = startStandIn[companyAsked](t, "company", hosts, dir, everything)
	return authority, rootca.PinOf(leaf), asked, wrap
}

// TestCompany has pfar connect to real nginx, whose certificate the owner's own authority vouches for, with a token and
// without: what has another key, or an authority that nobody has named, is not connected to.
func TestCompany(t *testing.T) {
	if os.Getuid() != 0 {
		return // another network takes root, and the test has run as root
	}
	t.Parallel()
	authority, key, asked, wrap := startCompany(t)
	own := fmt.Sprintf("  ca        = %q\n", authority)
	remote := func(host, more, top string) string {
		const text = "%sserver {\n  transport = \"stream-http\"\n  url       = \"https://%s/mcp\"\n%s}\n"
		return fmt.Sprintf(text, top, host, more)
	}
	edge := func(transport, path string) string {
		text := strings.Replace(remote(edgeHost, own, readsEcho), "stream-http", transport, 1)
		return strings.Replace(text, "/mcp\"", "/"+path+"\"", 1)
	}
	pin := func(p broker.Pin) string { return fmt.Sprintf("tls_pins = { %q = [%q] }\n", intranetHost, p) }
	p := prepare(t, map[string]string{
		"company.hcl":  remote(companyHost, own, "auth = { token = \"vault:company_token\" }\n"),
		"wiki.hcl":     remote(intranetHost, own, pin(key)),
		"other.hcl":    remote(intranetHost, own, pin(broker.Pin{1})),
		"unknown.hcl":  remote(intranetHost, "", ""),
		"unsigned.hcl": remote(companyHost, own, ""),
		"events.hcl":   edge("sse", "sse"),
		"brief.hcl":    edge("stream-http", "brief"),
		"small.hcl":    edge("stream-http", "small"),
		"gone.hcl":     edge("stream-http", "gone"),
		"slow.hcl":     edge("stream-http", "slow"),
		"later.hcl":    edge("stream-http", "later"),
		"plain.hcl": strings.ReplaceAll(remote(intranetHost, "  insecure = \"no certificate yet\"\n", ""), "https://",
			"http://"),
	})
	clients := filepath.Join(p.home, "clients.d")
	check(t, os.Mkdir(clients, 0o755))
	const client = "token_sha256 = [%q]\nservers = [\"*\"]\nprofile = \"operator\"\nrelax = \"a test\"\n"
	put(t, filepath.Join(clients, "agent.hcl"), fmt.Sprintf(client, digestOf("agent")))
	p.up(wrap...)
	p.keep("set", "company_token", companyToken)
	p.awaitRunning("company", "wiki", "plain")
	const reason = `not encrypted: "no certificate yet"`
	if out, _, _ := p.command("status"); strings.Count(out, reason) != 1 {
		t.Errorf("pfar status says %s", out)
	}
	for _, kind := range []string{"declaration", "lifecycle"} {
		if out, stderr, code := p.command("audit", "--kind", kind, "--server", "plain"); !strings.Contains(out, reason) {
			t.Errorf("the records of kind %s: %d %s%s", kind, code, out, stderr)
		}
	}
	for _, name := range []string{"company", "wiki", "plain"} {
		out, stderr, code := p.command("call", "--client", "agent", name+".echo", "--message", "hello")
		if code != 0 || !strings.Contains(out, "Echo: hello") {
			t.Errorf("%s: %d %s %s", name, code, out, stderr)
		}
	}
	for name, words := range map[string]string{"other": "tls-pin", "unknown": "certificate"} {
		p.await(name+" not being connected to", soon, func(r control.Report) bool {
			s := server(r, name)
			return s.State == control.Offline && strings.Contains(s.Detail, "tls") && strings.Contains(s.Detail, words)
		})
		if out, stderr, code := p.offlineCall(name+".echo", "--message", "x"); code != tlsExit {
			t.Errorf("a call of %s: %d %s%s", name, code, out, stderr)
		}
	}
	p.pagesOfNginx(asked)
	if got := whoHolds(t, p, companyToken); len(got) == 0 ||
		slices.ContainsFunc(got, func(name string) bool { return name != "pfar-egress" && name != "pfard" }) {
		t.Errorf("these hold the token in memory: %q", got)
	}

	// Another authority in the file: nothing goes to whom it does not know, and the token waits for its owner's word.
	before, err := os.ReadFile(authority)
	check(t, err)
	makeCertificates(t, authority, filepath.Join(filepath.Dir(authority), "unused.pem"), companyHost)
	p.await("the token waiting", soon, func(r control.Report) bool {
		return strings.Contains(server(r, "company").Detail, "pfar vault give company")
	})
	eventually(t, func() bool {
		out, stderr, code := p.command("call", "--client", "agent", "wiki.echo", "--message", "hello")
		return code != 0 && strings.Contains(out+stderr, "wiki does not prove who it is")
	})
	put(t, authority, string(before))
	p.awaitRunning("company", "wiki")
}

// tlsExit is the status of pfar call if a service does not prove who it is.
const tlsExit = 16

// calls returns the error of a call of a server's tool.
func (h *rawHTTP) calls(t testing.TB, server string) []byte {
	t.Helper()
	a, err := h.ask("tools/call", fmt.Sprintf(`{"name":"%s__echo","arguments":{"message":"x"}}`, server), `"y"`, "", "")
	check(t, err)
	return a.value
}

// pagesOfNginx wants the class and the words of what nginx says in place of a server. HTTP+SSE gets through nginx, and
// a server whose event stream nginx cuts each second goes on.
func (p *pfar) pagesOfNginx(asked <-chan companyAsked) {
	p.t.Helper()
	before := server(p.awaitRunning("events", "brief", "small"), "brief").Crashes
	c := p.agent("agent")
	c.echoes(p.t, "events", "hello")
	if got := server(p.last(), "events").Transport; got != "sse" {
		p.t.Errorf("pfar speaks with the server of HTTP+SSE by %q", got)
	}
	for cut := 0; cut < 2; {
		select {
		case a := <-asked:
			if strings.HasPrefix(a.Path, "GET ") {
				cut++
			}
		case <-time.After(soon):
			p.t.Fatalf("nginx has cut %d streams", cut)
		}
	}
	c.echoes(p.t, "brief", "hello")
	if s := server(p.last(), "brief"); s.State != control.Running || s.Crashes > before {
		p.t.Errorf("a server whose stream is cut is %s, %s", s.State, s.Detail)
	}
	for name, words := range map[string]string{
		"gone": `server_error: "HTTP 502 Bad Gateway"`, "slow": `timeout: "HTTP 504 Gateway Timeout"`,
	} {
		p.await(name+" being offline", soon, offline(name, words))
		class, _, _ := strings.Cut(words, ":")
		if told := toldOf(p.t, c.calls(p.t, name)); string(told.Class) != class {
			p.t.Errorf("a call of %s, which is offline: %+v, want %s", name, told, class)
		}
	}
	p.await("later being offline", soon, offline("later", "after failure 1: initializing: rate_limited"))
	told := toldOf(p.t, c.calls(p.t, "later"))
	if told.Class != failure.RateLimited || told.After < 300 || told.After > 1000 {
		p.t.Errorf("a call of a server that wants to be asked later: %+v", told)
	}
	if s := server(p.last(), "later"); !strings.Contains(s.Detail, "after failure 1: ") {
		p.t.Errorf("it was asked again: %s", s.Detail)
	}
	p.await("nginx wanting a token", soon, func(r control.Report) bool {
		s := server(r, "unsigned")
		return s.State == control.NeedsLogin && strings.HasSuffix(s.Detail, `unauthorized: "HTTP 401 Unauthorized"`)
	})
	params := fmt.Sprintf(`{"name":"small__echo","arguments":{"message":%q}}`, strings.Repeat("x", 8<<10))
	a, err := c.ask("tools/call", params, `"x"`, "", "")
	check(p.t, err)
	// nginx hangs up behind its answer, and what the bridge still sends can be refused before the answer is read.
	for n := 0; toldOf(p.t, a.value).Class == failure.NetworkError && n < 9; n++ {
		p.awaitRunning("small")
		a, err = c.ask("tools/call", params, `"x"`, "", "")
		check(p.t, err)
	}
	const large = "server: schema: HTTP 413 Request Entity Too Large"
	if told = toldOf(p.t, a.value); told.Class != failure.Schema || told.Status != 413 || evilSaid(p.t, a) != large {
		p.t.Errorf("a body over nginx's limit: %+v, %s", told, evilSaid(p.t, a))
	}
	c.echoes(p.t, "small", "hello")
}
