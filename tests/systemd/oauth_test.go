package systemd

import (
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/tests/systemd/bed"
	"github.com/pfar/pfar/units/control"
)

// identityVariable makes this program a token endpoint of a machine, whose certificate goes to the path that it names.
const identityVariable = "PFAR_TEST_IDENTITY"

const identityAddress = "127.0.0.1:4443"

// endpoint takes each refresh token once, beginning with RT-0, and answers once the test lets it.
func endpoint(roots string) error {
	n := 0
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/mcp" { // a remote server that wants people to sign in
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if q.URL.Path != "/token" || q.FormValue("grant_type") != "refresh_token" {
			grantLogin(w, q)
			return
		}
		_, secret, _ := q.BasicAuth()
		good := q.FormValue("refresh_token") == fmt.Sprintf("RT-%d-hunter2hunter2", n) && secret == "CS-hunter2"
		fmt.Printf("request, good: %t\n", good)
		w.Header().Set("Content-Type", "application/json")
		if !good {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"error":"invalid_grant"}`)
			return
		}
		n++
		for { // the test looks, and nobody tells
			if _, err := os.Stat(mayAnswer(n)); err == nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		fmt.Fprintf(w, `{"access_token":"%016d","refresh_token":"RT-%d-hunter2hunter2","expires_in":3600,"scope":"files:read"}`, n, n)
	}))
	l, err := net.Listen("tcp", identityAddress)
	if err != nil {
		return err
	}
	s.Listener.Close()
	s.Listener = l
	s.StartTLS()
	if err := os.MkdirAll(filepath.Dir(roots), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o644); err != nil {
		return err
	}
	fmt.Println("ready")
	select {}
}

// mayAnswer is there once the endpoint may answer the request of that number.
func mayAnswer(n int) string { return fmt.Sprintf("/run/pfar-test-answer-%d", n) }

// answer lets the endpoint answer a request.
func answer(t *testing.T, m *bed.Machine, n int) {
	t.Helper()
	m.Put(t, mayAnswer(n), "", 0o644)
}

// identify runs an endpoint in a machine, which trusts it.
func identify(t *testing.T, m *bed.Machine) {
	t.Helper()
	m.PutFile(t, programs+"/identity", "/proc/self/exe", 0o755)
	m.Run(t, "systemd-run", "--quiet", "--unit=identity", "--setenv="+identityVariable+"=/etc/ssl/certs/pfar-test.pem", programs+"/identity")
	bed.Eventually(t, soon, func() error {
		if !strings.Contains(m.Journal(t, "identity.service"), "ready\n") {
			return errors.New("the endpoint is not ready")
		}
		return nil
	})
}

// issue stores a set that has ended.
func issue(t *testing.T, m *bed.Machine, refresh string) {
	t.Helper()
	m.Put(t, "/root/tokens.json", fmt.Sprintf(`{"access_token":"AT-old","refresh_token":%q,"expiry":"2020-01-01T00:00:00Z","token_url":"https://%s/token","client_id":"id","client_secret":"CS-hunter2"}`, refresh, identityAddress), 0o600)
	m.Run(t, "pfar", "vault", "set", "drive", "--oauth", "--file", "/root/tokens.json")
	m.Run(t, "rm", "/root/tokens.json")
}

// asked waits until the endpoint has had so many requests.
func asked(t *testing.T, m *bed.Machine, n int) {
	t.Helper()
	bed.Eventually(t, soon, func() error {
		if got := strings.Count(m.Journal(t, "identity.service"), "request, "); got != n {
			return fmt.Errorf("the endpoint has had %d requests, want %d", got, n)
		}
		return nil
	})
}

// keeps takes down what there is while a token is refreshed: a refresh ends after 80 s, and a busy machine is slow to
// search. hidden then looks in it for what only refreshes a token.
const keeps = `mkdir -p /root/kept && cd $(mktemp -d /root/kept/XXXXXX)
cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ >processes 2>/dev/null || true # some have ended
systemctl show 'pfar*' >properties
tar -C / -cf files run var/lib/pfar tmp 2>/dev/null || true
`

// hidden prints where that is, then or now, wherever a unit could leave it. (The names of what is looked for are made
// by printf, so that this does not find itself.)
const hidden = `a=$(printf 'RT-%s' 0-hunter2) b=$(printf 'RT-%s' 1-hunter2) c=$(printf 'CS-%s' hunter2)
journalctl --no-pager -o export | grep -aqF -e "$a" -e "$b" -e "$c" && echo journal
pfar plan | grep -aqF -e "$a" -e "$b" -e "$c" && echo plan
grep -raF -l -e "$a" -e "$b" -e "$c" /root/kept /run /var/lib/pfar /var/log /tmp 2>/dev/null || true
`

// TestOAuth has the unit refresh a token, under the host's firewall, over the death of pfard and the order to end, and
// be refused; a server that requires a scope which the token lacks waits.
func TestOAuth(t *testing.T) {
	t.Parallel()
	m := machines.Boot(t)
	identify(t, m)
	m.Run(t, "systemctl", "enable", "--now", "--quiet", "pfar.target")
	m.Put(t, "/etc/pfar/on-failure", "#!/bin/sh\necho \"$PFAR_SERVER:$PFAR_KEY:$PFAR_REASON\" > /var/lib/told\n", 0o755)
	m.Put(t, "/etc/pfar/mcp.d/drive.hcl", echo("auth = { TOKEN = \"vault:drive\" }\n"), 0o644)
	becomes(t, m, "drive", control.Waiting)

	issue(t, m, "RT-0-hunter2hunter2")
	asked(t, m, 1)
	// It ends after 80 s, so the test asks little meanwhile.
	refresher := m.Shell(t, "ps -o uid= -p $(systemctl show -P MainPID pfar-refresh@drive)")
	if uid, err := strconv.Atoi(strings.TrimSpace(refresher)); err != nil || uid < 61184 {
		t.Errorf("it runs as user %d (%v)", uid, err)
	}
	if s, err := server(m, "drive"); err != nil || s.State != control.Waiting || !strings.Contains(s.Detail, "is being refreshed") {
		t.Errorf("while the token is refreshed: %+v, %v", s, err)
	}
	if r := m.Try("nft", "list", "set", "inet", "pfar", "to4-_drive"); !strings.Contains(r.Stdout, "127.0.0.1 . 4443") {
		t.Errorf("the firewall's word on it: %s", r)
	}
	answer(t, m, 1)
	holds := func(want string) {
		t.Helper()
		becomes(t, m, "drive", control.Running)
		bed.Eventually(t, soon, func() error {
			if r := m.Try("pfar", "call", "drive.environment"); !strings.Contains(r.Stdout, "TOKEN="+want) {
				return errors.New(r.String())
			}
			return nil
		})
	}
	holds("0000000000000001")
	if r := m.Try("nft", "list", "chain", "inet", "pfar", "bridge-_drive"); r.Code == 0 {
		t.Errorf("the firewall still has %s", r)
	}

	issue(t, m, "RT-1-hunter2hunter2")
	asked(t, m, 2)
	m.Shell(t, keeps)
	m.Run(t, "systemctl", "kill", "-s", "KILL", "pfard")
	answer(t, m, 2)
	holds("0000000000000002")
	asked(t, m, 2)

	issue(t, m, "RT-2-hunter2hunter2")
	asked(t, m, 3)
	m.Run(t, "systemctl", "stop", "--no-block", "pfar-refresh@drive") // the endpoint has taken the token, and its answer is to come
	answer(t, m, 3)
	holds("0000000000000003")
	asked(t, m, 3)

	requires := func(scopes string) {
		t.Helper()
		m.Put(t, "/etc/pfar/mcp.d/drive.hcl", echo("auth = { TOKEN = \"vault:drive\", scopes = ["+scopes+"] }\n"), 0o644)
	}
	requires(`"files:read", "files:write"`)
	becomes(t, m, "drive", control.Waiting)
	const lacks = `the OAuth token "drive" was not granted "files:write": obtain one that was`
	bed.Eventually(t, soon, func() error {
		for _, command := range []string{"pfar status", "systemctl status --full pfar-mcp@drive"} {
			if r := m.Try("sh", "-c", command); !strings.Contains(r.Stdout, lacks) {
				return fmt.Errorf("%s says %s", command, r)
			}
		}
		return nil
	})
	requires(`"files:read"`)
	holds("0000000000000003")

	issue(t, m, "RT-0-hunter2hunter2")
	const refused = `the refresh token of "drive" was refused (invalid_grant): obtain a new one and store it with pfar vault set drive --oauth`
	bed.Eventually(t, soon, func() error {
		for _, command := range []string{"pfar status", "pfar vault list", "systemctl status --full pfar-mcp@drive", "cat /var/lib/told", "journalctl -p crit PFAR_KEY=drive"} {
			if r := m.Try("sh", "-c", command); !strings.Contains(r.Stdout, "(invalid_grant): obtain a new one") {
				return fmt.Errorf("%s says %s", command, r)
			}
		}
		return nil
	})
	if told := m.Read(t, "/var/lib/told"); told != ":drive:"+refused+"\n" {
		t.Errorf("the owner is told %q", told)
	}
	if r := m.Try("systemctl", "is-failed", "pfar-refresh@drive"); r.Stdout != "failed\n" {
		t.Errorf("the unit is %s", r)
	}
	if out := m.Shell(t, keeps+hidden); out != "" {
		t.Errorf("afterwards there are secrets in %s", out)
	}
	wantsLogin(t, m)
}

// wantsLogin declares a remote server that answers 401. It has not crashed: it waits, and systemd shows the command
// that its owner has to type.
func wantsLogin(t *testing.T, m *bed.Machine) {
	t.Helper()
	m.Put(t, "/etc/hosts", m.Read(t, "/etc/hosts")+"127.0.0.1 example.com\n", 0o644) // which the certificate names
	m.Put(t, "/etc/pfar/mcp.d/remote.hcl", `allow_private = { "example.com" = ["127.0.0.1"] }
server {
  transport = "stream-http"
  url       = "https://example.com:4443/mcp"
  ca        = "/etc/ssl/certs/pfar-test.pem"
}
auth = { token = "vault:remote_token" }
`, 0o644)
	// Until the vault has a token the server is not asked. Then it refuses that, and the login is to be made anew.
	m.Put(t, "/root/remote-token", "tok-4d0b7a63c1f85e29", 0o600)
	m.Run(t, "pfar", "vault", "set", "remote_token", "--file", "/root/remote-token")
	s := becomes(t, m, "remote", control.NeedsLogin)
	if s.Remedy.Command != "pfar login remote" {
		t.Errorf("the owner is to type %q", s.Remedy)
	}
	bed.Eventually(t, soon, func() error {
		r := m.Try("systemctl", "status", "--full", "--no-pager", "pfar-mcp@remote")
		if !strings.Contains(r.Stdout, "active (running)") ||
			!strings.Contains(r.Stdout, `Status: "needs-login: pfar login remote: `) || !strings.Contains(r.Stdout, "401") {
			return errors.New(r.String())
		}
		return nil
	})
	if s, err := server(m, "remote"); err != nil || s.State != control.NeedsLogin || s.Crashes != 0 {
		t.Errorf("it counts as crashed: %+v, %v", s, err)
	}
}

// TestUserOAuth is the same for a user, whose units no firewall holds.
func TestUserOAuth(t *testing.T) {
	t.Parallel()
	m := machines.Boot(t)
	identify(t, m)
	answer(t, m, 1)
	o := settle(t, m, "user", 1000)
	o.Run(t, "systemctl", "--user", "enable", "--now", "--quiet", "pfar.target")
	m.Put(t, "/root/drive.hcl", echo("auth = { TOKEN = \"vault:drive\" }\n"), 0o644)
	m.Put(t, "/root/tokens.json", fmt.Sprintf(`{"access_token":"AT-old","refresh_token":"RT-0-hunter2hunter2","expiry":"2020-01-01T00:00:00Z","token_url":"https://%s/token","client_id":"id","client_secret":"CS-hunter2"}`, identityAddress), 0o600)
	m.Shell(t, "install -D -o user -g user /root/drive.hcl "+o.home()+"/.config/pfar/mcp.d/drive.hcl; install -m 600 -o user -g user /root/tokens.json "+o.home()+"/tokens.json; rm /root/tokens.json")
	becomes(t, o, "drive", control.Waiting)
	o.Run(t, "pfar", "vault", "set", "drive", "--oauth", "--file", o.home()+"/tokens.json")
	becomes(t, o, "drive", control.Running)
	if r := o.Try("pfar", "call", "drive.environment"); !strings.Contains(r.Stdout, "TOKEN=0000000000000001") {
		t.Errorf("the server has %s", r)
	}
	if r := o.Try("systemctl", "--user", "show", "-P", "Result", "pfar-refresh@drive"); r.Stdout != "success\n" {
		t.Errorf("the unit's result is %s", r)
	}
}

// deviceGranted is the number of mayAnswer by which the person has entered the code.
const deviceGranted = 1000

// grantLogin answers a login.
func grantLogin(w http.ResponseWriter, q *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch q.URL.Path {
	case "/.well-known/oauth-authorization-server":
		fmt.Fprint(w, strings.ReplaceAll(`{"issuer":"HERE","token_endpoint":"HERE/token",`+
			`"device_authorization_endpoint":"HERE/begin","registration_endpoint":"HERE/register"}`, "HERE",
			"https://"+identityAddress))
		return
	case "/register":
		fmt.Println("registered")
		fmt.Fprint(w, `{"client_id":"registered","client_secret":"CS-hunter2",`+
			`"token_endpoint_auth_method":"client_secret_post"}`)
		return
	}
	if q.URL.Path == "/begin" {
		fmt.Fprint(w, `{"device_code":"DC-hunter2","user_code":"ABCD-EFGH",`+
			`"verification_uri":"https://login.example/d","interval":1}`)
		return
	}
	if _, err := os.Stat(mayAnswer(deviceGranted)); err != nil && q.FormValue("code") != "C-hunter2" {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"error":"authorization_pending"}`)
		return
	}
	fmt.Fprint(w, `{"access_token":"0000000000000007","refresh_token":"RT-login-hunter2","expires_in":3600}`)
}

// TestLogin obtains a token by a unit that the firewall holds: with a code on another device, and by a browser, which
// gets to the unit's one port on loopback. When the command ends, so does the unit.
func TestLogin(t *testing.T) {
	t.Parallel()
	m := machines.Boot(t)
	identify(t, m)
	m.Run(t, "systemctl", "enable", "--now", "--quiet", "pfar.target")
	m.Put(t, "/etc/pfar/oauth.d/drive.hcl", fmt.Sprintf("provider \"acme\" {\n  client_id = \"id\"\n  key = \"drive\"\n"+
		"  device {\n    url = \"https://%[1]s/begin\"\n    token = \"https://%[1]s/token\"\n  }\n"+
		"  code {\n    url = \"https://%[1]s/authorize\"\n    token = \"https://%[1]s/token\"\n  }\n}\n",
		identityAddress), 0o644)
	m.Put(t, "/etc/pfar/mcp.d/drive.hcl", echo("auth = { TOKEN = \"vault:drive\" }\n"), 0o644)
	becomes(t, m, "drive", control.NeedsLogin)
	bed.Eventually(t, soon, func() error {
		if s, err := server(m, "drive"); err != nil || !strings.Contains(s.Detail, "needs login: pfar login acme") {
			return fmt.Errorf("%+v, %v", s, err)
		}
		return nil
	})
	begun := func(name string, args ...string) string {
		t.Helper()
		m.Run(t, "systemd-run", append([]string{"--quiet", "--unit=" + name, "pfar", "login", "acme"}, args...)...)
		var out string
		bed.Eventually(t, soon, func() error {
			if out = m.Journal(t, name+".service"); !strings.Contains(out, "Waiting for you") {
				return errors.New(out)
			}
			return nil
		})
		return out
	}
	ended := func(name, words string) {
		t.Helper()
		bed.Eventually(t, soon, func() error {
			if out := m.Journal(t, name+".service"); !strings.Contains(out, words) {
				return errors.New(out)
			}
			if r := m.Try("systemctl", "is-active", "pfar-login@drive"); r.Stdout != "inactive\n" {
				return fmt.Errorf("the unit is %s", r)
			}
			return nil
		})
	}
	if out := begun("first", "--device"); !strings.Contains(out, "ABCD-EFGH") {
		t.Errorf("it says %s", out)
	}
	if r := m.Try("nft", "list", "chain", "inet", "pfar", "bridge-_drive.login"); r.Code != 0 {
		t.Errorf("the firewall does not hold it: %s", r)
	}
	if uid, err := strconv.Atoi(strings.TrimSpace(m.Shell(t,
		"ps -o uid= -p $(systemctl show -P MainPID pfar-login@drive)"))); err != nil || uid < 61184 {
		t.Errorf("it runs as user %d (%v)", uid, err)
	}
	m.Run(t, "systemctl", "kill", "-s", "INT", "first")
	ended("first", "interrupted")
	if r := m.Try("pfar", "vault", "has", "drive"); r.Code == 0 {
		t.Error("a token is stored")
	}

	begun("second", "--device")
	answer(t, m, deviceGranted)
	ended("second", "stored in the vault as drive")
	becomes(t, m, "drive", control.Running)

	out := begun("third", "--browser")
	link := regexp.MustCompile(`redirect_uri=(\S+?)&\S*state=([\w-]+)`).FindStringSubmatch(out)
	if link == nil {
		t.Fatalf("there is no link in %s", out)
	}
	back, err := url.QueryUnescape(link[1])
	if err != nil {
		t.Fatal(err)
	}
	get := func(query string) string {
		const visit = "import http.client, sys, urllib.parse\n" +
			"u = urllib.parse.urlsplit(sys.argv[1])\n" +
			"c = http.client.HTTPConnection(u.netloc, timeout=10)\n" +
			"c.request('GET', u.path + '?' + u.query)\n" +
			"print(c.getresponse().status)"
		r := m.Try("python3", "-c", visit, back+query)
		return strings.TrimSpace(r.Stdout + r.Stderr)
	}
	if got := get("?code=evil&state=x"); got != "400" {
		t.Errorf("another state is answered %s", got)
	}
	if got := get("?code=C-hunter2&state=" + link[2]); got != "200" {
		t.Errorf("the browser is answered %s", got)
	}
	ended("third", "stored in the vault as drive")

	// Endpoints and client are found by the same unit, one after the other.
	m.Put(t, "/etc/pfar/oauth.d/found.hcl", fmt.Sprintf(
		"provider \"found\" {\n  key = \"found\"\n  issuer = \"https://%s\"\n}\n", identityAddress), 0o644)
	bed.Eventually(t, soon, func() error { // the file may not have been read yet
		if r := m.Try("pfar", "login", "found"); r.Code != 0 || !strings.Contains(r.Stdout, "stored in the vault as found") {
			return fmt.Errorf("%s", r)
		}
		return nil
	})
	if n := strings.Count(m.Journal(t, "identity.service"), "registered\n"); n != 1 {
		t.Errorf("%d clients were registered", n)
	}
	const secrets = "DC-hunter2|C-hunter2|CS-hunter2|RT-login"
	if out := m.Shell(t, "journalctl --no-pager -o export | grep -aE '"+secrets+"' || true"); out != "" {
		t.Errorf("the journal has %s", out)
	}
}
