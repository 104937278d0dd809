package e2e

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/tests/internet"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
)

// roleVariable makes this test binary play another program.
const roleVariable = "PFAR_TEST_ROLE"

func playRole(role string) int {
	serve := map[string]func(certificate string) error{
		"notion": serveNotion, "apis": serveAPIs, "workspace": serveWorkspace, "internet": internet.Serve,
		"bench": serveBench, "company": serveCompany, "remote": serveRemote, "resource": serveResource,
		"socket": serveSocket, "way": serveWay, "writes": serveWrites, "liar": serveLiar,
	}[role]
	if serve == nil {
		fmt.Fprintf(os.Stderr, "no role %q\n", role)
		return 2
	}
	if err := serve(os.Getenv("PFAR_TEST_CERTIFICATE")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// The addresses look public, for the bridge refuses all others; they exist in namespaces of the test only.
const (
	notionHost    = "api.notion.com"
	notionAddress = "93.184.215.14"
	ourAddress    = internet.Ours
	notionToken   = "ntn_12345678901abcdefghijklmnopqrstuvwxyzABCDEFGHI"

	wrongNotionToken = "ntn_98765432109abcdefghijklmnopqrstuvwxyzABCDEFGHI"
)

// seen is what the stand-in says of a request, a line each.
type seen struct {
	Path, Host, SNI, Authorization, Query, From string
}

// notionSelf is what pfar asks Notion to find out whether a token is right. Stand-ins do not tell the test of it.
const notionSelf = "/v1/users/me"

// answerSelf answers as Notion does.
func answerSelf(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.Header.Get("Authorization") != "Bearer "+notionToken {
		w.WriteHeader(http.StatusUnauthorized)
		io.WriteString(w, `{"object":"error","status":401,"code":"unauthorized","message":"API token is invalid."}`)
		return
	}
	io.WriteString(w, `{"object":"user","id":"1","type":"bot","name":"pfar"}`)
}

// serveNotion answers the one question that the test asks of api.notion.com.
func serveNotion(certificate string) error {
	pair, err := tls.LoadX509KeyPair(certificate, certificate)
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	l, err := tls.Listen("tcp", ":443", &tls.Config{Certificates: []tls.Certificate{pair}})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	return http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == notionSelf {
			answerSelf(w, r)
			return
		}
		var body struct {
			Query string `json:"query"`
		}
		json.NewDecoder(r.Body).Decode(&body)
		out.Encode(seen{r.URL.Path, r.Host, r.TLS.ServerName, r.Header.Get("Authorization"), body.Query, r.RemoteAddr})
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"object":"list","results":[{"object":"page","id":"1","properties":{"title":"the pfar roadmap"}}],"has_more":false}`)
	}))
}

// TestNotion runs the Notion server from npm, which knows nothing of pfar, against a stand-in for api.notion.com. Only
// the bridge can reach that: it is at the far end of a veth pair, known by a private /etc/hosts.
func TestNotion(t *testing.T) {
	if os.Getuid() != 0 {
		return // another network takes root, and the test has run as root
	}
	t.Parallel()
	dir := directory(t, "")
	authority, certificate := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "server.pem")
	makeCertificates(t, authority, certificate, notionHost)
	pid, requests := startRole[seen](t, "notion", certificate)
	hosts := filepath.Join(dir, "hosts")
	put(t, hosts, "127.0.0.1 localhost\n"+notionAddress+" "+notionHost+"\n")

	p := prepare(t, map[string]string{"notion.hcl": fmt.Sprintf("allowed_domains = [%q]\n", notionHost) +
		declare("node", []string{npm(t, "@notionhq/notion-mcp-server/bin/cli.mjs")}, fmt.Sprintf(`
auth    = { NOTION_TOKEN = "vault:notion_token" }
env     = { NODE_EXTRA_CA_CERTS = %[1]q }
sandbox { read_only = [%[1]q] }`, authority))})
	script := fmt.Sprintf(`set -e
ip link set lo up
ip link add pfar0 type veth peer name pfar1 netns %[1]d
ip addr add %[2]s/24 dev pfar0
ip link set pfar0 up
nsenter --net=/proc/%[1]d/ns/net ip addr add %[3]s/24 dev pfar1
nsenter --net=/proc/%[1]d/ns/net ip link set pfar1 up
mount --bind %[4]s /etc/hosts
exec "$@"`, pid, ourAddress, notionAddress, hosts)
	p.up("unshare", "--net", "--mount", "--propagation", "private", "sh", "-c", script, "sh")
	p.await("notion waiting for its token", soon, func(r control.Report) bool {
		s := server(r, "notion")
		return s.State == control.Waiting && strings.Contains(s.Detail, "notion_token")
	})
	p.keep("set", "notion_token", wrongNotionToken)
	p.await("notion with a wrong token", soon, func(r control.Report) bool {
		s := server(r, "notion")
		return s.State == control.CredentialInvalid && s.Tools == 0
	})
	p.keep("set", "notion_token", notionToken)
	r := p.awaitRunning("notion")
	if v := server(r, "notion").Verification; v.Result != units.Verified || v.Tool != "API-get-self" {
		t.Errorf("with the right token it is %+v", v)
	}
	if got := server(r, "notion").Tools; got < 15 {
		t.Errorf("%d tools", got)
	}
	if got := p.client("/mcp").must("notion__API-post-search", map[string]any{"query": "roadmap"}); !strings.Contains(got, "the pfar roadmap") {
		t.Errorf("the search found %s", got)
	}
	select {
	case got := <-requests:
		want := seen{"/v1/search", notionHost, notionHost, "Bearer " + notionToken, "roadmap", got.From}
		if got != want || !strings.HasPrefix(got.From, ourAddress+":") {
			t.Errorf("the stand-in saw %+v, want %+v from %s", got, want, ourAddress)
		}
	case <-time.After(soon):
		t.Error("the stand-in saw no request")
	}
	assertSecretNowhere(t, p, notionToken)
}

// assertSecretNowhere looks where a secret would be found by others: arguments, the files that pfar made, what it
// wrote; and has another user look.
func assertSecretNowhere(t *testing.T, p *pfar, secret string) {
	t.Helper()
	if found := find(secret); len(found) > 0 {
		t.Errorf("the secret is among the arguments of %v", found)
	}
	if strings.Contains(p.stderr.String(), secret) {
		t.Error("pfar wrote the secret")
	}
	for _, dir := range []string{p.home, p.run} {
		// Not as an argument: other tests look for the secret in those of all processes.
		grep := exec.Command("grep", "-rlF", "--devices=skip", "--file=-", dir)
		grep.Stdin = strings.NewReader(secret + "\n")
		out, err := grep.Output()
		if len(out) > 0 {
			for path := range strings.Lines(string(out)) {
				if !strings.Contains(path, "/cred") {
					t.Errorf("the secret is in %s", path)
				}
			}
		} else if _, ok := err.(*exec.ExitError); !ok {
			t.Errorf("grep: %v", err)
		}
	}
	strangersFind(t, p, secret)
}

// startRole has this binary play a role in a network namespace of its own, with arguments; what it says comes over the
// channel.
func startRole[message any](t testing.TB, role, certificate string, args ...string) (pid int, said <-chan message) {
	t.Helper()
	self, err := os.Executable()
	check(t, err)
	c := exec.Command(self, args...)
	c.Env = append(os.Environ(), roleVariable+"="+role, "PFAR_TEST_CERTIFICATE="+certificate)
	c.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNET}
	stdout, err := c.StdoutPipe()
	check(t, err)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	check(t, c.Start())
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
		if t.Failed() {
			t.Logf("the stand-in for the "+role+" wrote: %s", stderr.String())
		}
	})
	lines := bufio.NewReader(stdout)
	if line, err := lines.ReadString('\n'); line != "ready\n" {
		t.Fatalf("the stand-in says %q, %v", line, err)
	}
	ch := make(chan message, 4096)
	go func() {
		for d := json.NewDecoder(lines); ; {
			var m message
			if d.Decode(&m) != nil {
				return
			}
			ch <- m
		}
	}()
	return c.Process.Pid, ch
}

// makeCertificates writes an authority's certificate, and a certificate by it for names with its key.
func makeCertificates(t testing.TB, authority, certificate string, names ...string) {
	t.Helper()
	ca, leaf, err := internet.Certificates(names...)
	check(t, err)
	put(t, authority, string(ca))
	put(t, certificate, string(leaf))
}
