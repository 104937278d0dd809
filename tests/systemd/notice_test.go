package systemd

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pfar/pfar/tests/systemd/bed"
	"github.com/pfar/pfar/units/control"
)

// noticeHost stands for ntfy. It answers once there is a file, and says what it got.
const noticeHost = `
import http.server, os, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        good = self.headers["Authorization"] == "Bearer sesame-0123456789"
        print("told, good:", good, self.path, self.headers["Title"], "|", body, flush=True)
        while not os.path.exists("/run/pfar-test-answer"): time.sleep(0.01)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("127.0.0.1", 8098), Handler).serve_forever()
`

// askedPolicy has calls of the server that declareAsked declares wait for a person.
const askedPolicy = `
ask "echo" {
  reason = "A person looks."
  tools  = ["echo"]
}
`

const noticePolicy = askedPolicy + `
notice "phone" {
  url     = "http://127.0.0.1:8098/topic"
  format  = "ntfy"
  key     = "vault:phone"
  timeout = "5m"
}
`

// besideNotice connects from the cgroup of what sends a notice, as that would if it had been taken over.
const besideNotice = `echo $$ > /sys/fs/cgroup/pfar.slice/pfar-egress.slice/pfar-model@phone.service/cgroup.procs; ` +
	`exec 3<>/dev/tcp/127.0.0.1/%d`

// declareAsked declares a server and a client whose calls wait, by askedPolicy.
func declareAsked(t *testing.T, m *bed.Machine) {
	t.Helper()
	m.Put(t, "/etc/pfar/mcp.d/hello.hcl", echo(`
trust {
  public_source    = true
  secret_data      = false
  public_sink      = false
  dangerous_writes = false
}
`), 0o644)
	m.Run(t, "pfar", "client", "add", "job", "--servers", "hello", "--uid", "1500", "--no-token")
}

// callAsked makes a call of that client, and does not wait for it.
func callAsked(t *testing.T, m *bed.Machine, message string) {
	t.Helper()
	m.Run(t, "systemd-run", "--quiet", "--unit=call", "setpriv", "--reuid", "1500", "--regid", "1500", "--clear-groups",
		"env", "PFAR_RUN_DIR=/run/pfar", "pfar", "call", "hello.echo", "--message", message)
}

// TestNoticeUnit: a unit with a user of its own sends a notice and ends. The firewall lets it reach the host of the
// declaration and no other. Nothing else has its key.
func TestNoticeUnit(t *testing.T) {
	t.Parallel()
	m := appliance(t)
	m.Put(t, "/root/host.py", noticeHost, 0o644)
	m.Run(t, "systemd-run", "--quiet", "--unit=host", "python3", "/root/host.py")
	m.Put(t, "/etc/pfar/policies.d/local.hcl", noticePolicy, 0o644)
	declareAsked(t, m)
	if r := m.Feed("sesame-0123456789", "pfar", "vault", "set", "phone"); r.Code != 0 {
		t.Fatal(r)
	}
	becomes(t, m, "hello", control.Running)
	bed.Eventually(t, soon, func() error {
		if r := m.Try("systemctl", "is-active", "pfar-model@phone.socket"); r.Stdout != "active\n" {
			return fmt.Errorf("the socket is %s", r)
		}
		return nil
	})
	callAsked(t, m, "hunter2")
	bed.Eventually(t, soon, func() error {
		const want = "told, good: True /topic pfar: a call waits for approval | job calls hello.echo ("
		if log := m.Journal(t, "host.service"); !strings.Contains(log, want) || strings.Contains(log, "hunter2") {
			said := m.Shell(t, "journalctl --no-pager -u 'pfar-*' -u pfard | tail -50")
			return fmt.Errorf("the host has heard %s\n%s", log, said)
		}
		return nil
	})
	uid := strings.TrimSpace(m.Shell(t, "ps -o uid= -p $(systemctl show -P MainPID pfar-model@phone)"))
	if uid == "0" || uid == strings.TrimSpace(m.Run(t, "id", "-u", "pfar")) {
		t.Errorf("it runs as user %s", uid)
	}
	set := m.Try("nft", "list", "set", "inet", "pfar", "to4-_phone.model")
	if !strings.Contains(set.Stdout, "127.0.0.1 . 8098") {
		t.Errorf("the firewall's word on it: %s", set)
	}
	if r := m.Try("bash", "-c", fmt.Sprintf(besideNotice, 8098)); r.Code != 0 {
		t.Errorf("its host cannot be reached from there: %s", r)
	}
	if r := m.Try("bash", "-c", fmt.Sprintf(besideNotice, 7417)); r.Code == 0 || !strings.Contains(r.Stderr, "refused") {
		t.Errorf("another one can be reached from there: %s", r)
	}
	m.Run(t, "touch", "/run/pfar-test-answer")
	bed.Eventually(t, soon, func() error {
		if r := m.Try("systemctl", "is-active", "pfar-model@phone.service"); r.Stdout != "inactive\n" {
			return fmt.Errorf("the unit is %s", r)
		}
		return nil
	})
	if r := m.Try("pfar", "status"); strings.Contains(r.String(), "has not reached") {
		t.Errorf("the status says %s", r)
	}
	if out := m.Shell(t, keyHunt); out != "" {
		t.Errorf("the key is in %s", out)
	}
	m.Run(t, "rm", "/etc/pfar/policies.d/local.hcl")
	bed.Eventually(t, soon, func() error {
		if r := m.Try("systemctl", "is-active", "pfar-model@phone.socket"); r.Stdout != "inactive\n" {
			return fmt.Errorf("the socket is %s", r)
		}
		return nil
	})
}
