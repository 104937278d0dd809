package systemd

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/pfar/pfar/tests/systemd/bed"
	"github.com/pfar/pfar/units/control"
)

// looksAround is an inspector that says what it sees, which is no verdict: neither network nor files of the machine.
const looksAround = `#!/bin/sh
read q; echo "asked $q"; cat /etc/shadow /run/pfar/control.sock 2>&1; ls /sys/class/net /proc/sys/net/ipv4/conf 2>&1; touch /usr/x 2>&1; cat /proc/net/route | wc -l; id -u; env | grep -c SECRET; echo end
`

// modelAPI is a model behind an API like OpenAI's, which wants a key, flags what is evil, and says what it was asked
// with.
const modelAPI = `
import http.server, json
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        good = self.headers["Authorization"] == "Bearer sesame-0123456789"
        print("asked, good:", good, flush=True)
        verdict = {"verdict": "flagged", "kind": "evil"} if "evil" in body else {"verdict": "clean"}
        answer = json.dumps({"choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": json.dumps(verdict)}}]}).encode()
        self.send_response(200 if good else 401)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("127.0.0.1", 8099), Handler).serve_forever()
`

const inspected = `
inspector "words" { exec = ["/usr/local/lib/pfar/words", "project[ -]?falcon"] }
inspector "look" { exec = ["/usr/local/lib/pfar/look"] }
inspector "llm" {
  url   = "http://127.0.0.1:8099/v1/chat/completions"
  model = "m"
  key   = "vault:llm"
}
profile "strict" { inspectors = [%s] }
`

// keyHunt looks for the key of a model or a notice wherever a unit could leave it. (printf makes the key, so that this
// does not find itself.)
const keyHunt = `k=$(printf 'sesame-%s' 0123456789)
for f in /proc/[0-9]*/cmdline /proc/[0-9]*/environ; do
tr '\0' '\n' < $f 2>/dev/null | grep -aqF -e "$k" && echo "$f"; done
systemctl show 'pfar*' | grep -aqF -e "$k" && echo properties
journalctl --no-pager -o export | grep -aqF -e "$k" && echo journal
grep -raF -l -e "$k" /run/pfar /var/lib/pfar /var/log /tmp 2>/dev/null || true`

// TestInspectorUnit: what is declared as an inspector in policies.d is a unit, which the gateway alone may ask, and
// which sees no more of the machine than it needs; without what is declared nothing of it is left.
func TestInspectorUnit(t *testing.T) {
	t.Parallel()
	m := appliance(t)
	words, err := os.ReadFile(filepath.Join(root, "examples", "inspectors", "words"))
	if err != nil {
		t.Fatal(err)
	}
	m.Put(t, "/usr/local/lib/pfar/words", string(words), 0o755)
	m.Put(t, "/usr/local/lib/pfar/look", looksAround, 0o755)
	m.Put(t, "/root/api.py", modelAPI, 0o644)
	m.Run(t, "systemd-run", "--quiet", "--unit=api", "python3", "/root/api.py")
	m.Put(t, "/etc/pfar/mcp.d/hello.hcl", echo(`
trust {
  public_source    = true
  secret_data      = false
  public_sink      = false
  dangerous_writes = false
}
tool "echo" { semantics = "read" }
`), 0o644)
	m.Run(t, "pfar", "client", "add", "job", "--servers", "hello", "--uid", "1500", "--no-token")
	becomes(t, m, "hello", control.Running)
	says := func(message string, passes bool) {
		t.Helper()
		bed.Eventually(t, soon, func() error {
			r := m.Try("setpriv", "--reuid", "1500", "--regid", "1500", "--clear-groups", "env", "PFAR_RUN_DIR=/run/pfar", "pfar", "call", "hello.echo", "--message", message)
			if got := strings.Contains(r.Stdout, message); got != passes || !got && !strings.Contains(r.String(), "withheld") {
				return fmt.Errorf("%q: %s, want that it passes: %t", message, r, passes)
			}
			return nil
		})
	}
	policy := func(needs string) {
		t.Helper()
		m.Put(t, "/etc/pfar/policies.d/local.hcl", fmt.Sprintf(inspected, needs), 0o644)
	}
	says("about project falcon", true)
	policy(`"words"`)
	says("about project falcon", false)
	says("hello there", true)
	for uid := range strings.FieldsSeq(m.Shell(t, "ps -o uid= -C pfar-sandbox --no-headers -ww")) {
		if n, err := strconv.Atoi(uid); err != nil || n < 60706 {
			t.Errorf("it runs as %s, %v", uid, err)
		}
	}
	asks(t, m)

	policy(`"words", "llm"`)
	says("hello there", false) // there is no key
	if r := m.Try("pfar", "status"); !strings.Contains(r.String(), "pfar vault set llm") {
		t.Errorf("nobody says that there is no key: %s", r)
	}
	if r := m.Feed("sesame-0123456789", "pfar", "vault", "set", "llm"); r.Code != 0 {
		t.Fatal(r)
	}
	says("hello there", true)
	says("this is evil", false)
	if r := m.Try("nft", "list", "set", "inet", "pfar", "to4-_llm.model"); !strings.Contains(r.Stdout, "127.0.0.1 . 8099") {
		t.Errorf("the firewall's word on it: %s", r)
	}
	if log := m.Journal(t, "pfar-model@llm.service"); strings.Contains(log, "does not hold") {
		t.Errorf("it is not held: %s", log)
	}
	if out := m.Shell(t, keyHunt); out != "" {
		t.Errorf("the key is in %s", out)
	}
	if out := m.Shell(t, "pfar audit --json | grep -c '\"inspector\":\"llm\",\"kind\":\"evil\"' || true"); strings.TrimSpace(out) == "0" {
		t.Error("the record does not say what was found")
	}
	m.Run(t, "systemctl", "kill", "--signal=KILL", "pfar-model@llm", "pfar-inspect@words")
	says("hello there", true)
	m.Run(t, "systemctl", "restart", "pfard")
	says("this is evil", false)
	says("hello there", true)
	m.Run(t, "systemctl", "stop", "api")
	says("hello there", false)

	m.Run(t, "systemctl", "stop", "pfar.target")
	bed.Eventually(t, 2*soon, func() error {
		if found := m.Try("bash", "-c", left).Stdout; found != "" {
			return fmt.Errorf("a stop leaves %s", found)
		}
		return nil
	})
	policy(`"words"`)
	m.Run(t, "systemctl", "start", "pfar.target")
	becomes(t, m, "hello", control.Running)
	says("about project falcon", false)
	m.Run(t, "rm", "/etc/pfar/policies.d/local.hcl")
	says("about project falcon", true)
	bed.Eventually(t, soon, func() error {
		left := m.Shell(t, "ls -d /run/pfar/inspect 2>/dev/null || true; systemctl list-units --plain --no-legend --state=active,activating,failed 'pfar-inspect@*' 'pfar-model@*'")
		if left != "" {
			return fmt.Errorf("left: %s", left)
		}
		return nil
	})
}

// TestInspectorOfUser: the same for one user's pfar, whose units have no users of their own.
func TestInspectorOfUser(t *testing.T) {
	t.Parallel()
	o := owned(t)
	o.m.Put(t, "/usr/local/lib/pfar/look", looksAround, 0o755)
	o.m.Put(t, "/root/api.py", modelAPI, 0o644)
	o.m.Run(t, "systemd-run", "--quiet", "--unit=api", "python3", "/root/api.py")
	policy := func(text string) {
		t.Helper()
		o.Run(t, "sh", "-euc", `mkdir -p ~/.config/pfar/policies.d; printf %s "$1" >~/.config/pfar/policies.d/local.hcl`, "sh", text)
	}
	policy(strings.Replace(fmt.Sprintf(inspected, `"look", "llm"`), "inspector \"words\"", "# ", 1))
	o.isActive(t, "pfar-inspect@look.socket", "active")
	o.isActive(t, "pfar-model@llm.socket", "active")
	o.Run(t, "sh", "-c", "printf sesame-0123456789 | pfar vault set llm")
	const ask = `perl -MIO::Socket::UNIX -e '$s = IO::Socket::UNIX->new("$ENV{XDG_RUNTIME_DIR}/pfar/inspect/$ARGV[0].sock") or die "refused: $!\n"; print $s $ARGV[1]; $s->shutdown(1); print <$s>' "$@"`
	r := o.Try("sh", "-c", ask, "sh", "look", "the question\n")
	for _, want := range []string{"asked the question\n", "/etc/shadow: No such file", "Read-only file system", "end\n"} {
		if !strings.Contains(r.Stdout, want) {
			t.Errorf("no %q in %s\n%s", want, r, o.Try("journalctl", "--user", "--no-pager", "-u", "pfar-inspect@look"))
		}
	}
	if strings.Contains(r.Stdout, "host0") {
		t.Errorf("it sees a network: %s", r)
	}
	bed.Eventually(t, soon, func() error {
		if r := o.Try("sh", "-c", ask, "sh", "llm", `{"version":1,"text":"this is evil"}`); !strings.Contains(r.Stdout, `"flagged"`) {
			return fmt.Errorf("the model: %s\n%s", r, o.Try("journalctl", "--user", "--no-pager", "-u", "pfar-model@llm"))
		}
		return nil
	})
	policy("")
	for _, unit := range []string{"pfar-inspect@look.socket", "pfar-inspect@look.service", "pfar-model@llm.socket", "pfar-model@llm.service"} {
		o.isActive(t, unit, "inactive")
	}
}

// asks has others than the gateway ask, and an inspector say what it sees.
func asks(t *testing.T, m *bed.Machine) {
	t.Helper()
	const ask = `perl -MIO::Socket::UNIX -e '$s = IO::Socket::UNIX->new("/run/pfar/inspect/look.sock") or die "refused: $!\n"; print $s "the question\n"; $s->shutdown(1); print <$s>'`
	if r := m.Try("runuser", "-u", "nobody", "--", "sh", "-c", ask); r.Code == 0 || !strings.Contains(r.String(), "refused") {
		t.Errorf("nobody may ask: %s", r)
	}
	for range 2 {
		r := m.Try("runuser", "-u", "pfar", "--", "sh", "-c", ask)
		for _, want := range []string{"asked the question\n", "/etc/shadow: No such file", "control.sock: No such file", "Read-only file system", "end\n"} {
			if !strings.Contains(r.Stdout, want) {
				t.Errorf("no %q in %s\n%s", want, r, m.Shell(t, "journalctl --no-pager -u pfar-inspect@look.service"))
			}
		}
		if strings.Contains(r.Stdout, "eth") || strings.Contains(r.Stdout, "host0") {
			t.Errorf("it sees a network: %s", r)
		}
	}
}
