package systemd

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/pfar/pfar/tests/systemd/bed"
	"github.com/pfar/pfar/tests/trust"
	"github.com/pfar/pfar/units/control"
)

// TestUnreachable shows servers what lies below a directory that is root's alone, and nothing beside it.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	m := appliance(t)
	m.Shell(t, `mkdir -p "/root/a b:c%d/data" /root/work /root/other
chmod 700 /root; chmod 777 /root/work
echo to be seen >"/root/a b:c%d/data/file"; echo not to be seen >/root/other/file`)
	const file = "/etc/pfar/mcp.d/clients.hcl"
	declare := func(more string) string {
		return fmt.Sprintf("label = \"public\"\nserver {\n  command = %q\n}\nsandbox {\n  read_only = [\"/root/a b:c%%d/data\"]\n  writable = [\"/root/work\"]\n}\n%s", programs+"/clients", more)
	}
	shows := func(when string) {
		t.Helper()
		for command, want := range map[string]string{
			`cat "/root/a b:c%d/data/file"`:                        "to be seen",
			`touch "/root/a b:c%d/data/new" || echo no`:            "Read-only file system",
			`echo written >/root/work/file && cat /root/work/file`: "written",
			`cat /root/other/file || echo no`:                      "No such file",
			`ls /run/pfar || echo no`:                              "No such file",
		} {
			if got := surf(t, m, false, "/bin/sh", "-c", command); !strings.Contains(got, want) {
				t.Errorf("%s, %s: %q, want %q", when, command, got, want)
			}
		}
	}
	cat := func(path, want string) error { // when the server runs as its file says
		r := m.Try("pfar", "call", "clients.run", "--json", fmt.Sprintf(`{"argv":["/bin/cat",%q]}`, path))
		if !strings.Contains(r.Stdout, want) {
			return errors.New(r.String())
		}
		return nil
	}
	m.Put(t, file, declare(""), 0o644)
	becomes(t, m, "clients", control.Running)
	shows("at first")
	m.Shell(t, `cd "/root/a b:c%d/data" && echo to be seen anew >next && mv next file`) // as an editor does
	bed.Eventually(t, soon, func() error { return cat("/root/a b:c%d/data/file", "to be seen anew") })
	m.Run(t, "systemctl", "kill", "--signal=KILL", "pfard")
	m.Run(t, "systemctl", "restart", "pfar-mcp@clients")
	becomes(t, m, "clients", control.Running)
	shows("after pfard was killed")
	m.Run(t, "systemctl", "stop", "pfar-mcp@clients")
	becomes(t, m, "clients", control.Stopped)
	m.Run(t, "systemctl", "start", "pfar-mcp@clients")
	becomes(t, m, "clients", control.Running)
	shows("started by systemctl")
	before := pid(t, m, "pfar-mcp@clients")
	m.Run(t, "systemctl", "restart", "pfard")
	becomes(t, m, "clients", control.Running)
	serving(t, m, "clients", before)

	// One who may write above a source does not choose what is shown.
	m.Shell(t, `mkdir -p /root/mine/data; chown -R user:user /root/mine; echo harmless >/root/mine/data/file`)
	m.Put(t, file, strings.Replace(declare(""), "/root/work", "/root/mine/data", 1), 0o644)
	bed.Eventually(t, soon, func() error {
		return cat("/root/mine/data/file", "harmless")
	})
	m.Run(t, "systemctl", "stop", "pfar-mcp@clients")
	becomes(t, m, "clients", control.Stopped)
	m.Shell(t, "mv /root/mine/data /root/mine/moved; ln -s /root/other /root/mine/data")
	_ = m.Try("timeout", "5", "systemctl", "start", "pfar-mcp@clients")
	if r := m.Try("pfar", "call", "clients.run", "--json", `{"argv":["/bin/cat","/root/mine/data/file"]}`); strings.Contains(r.Stdout, "not to be seen") {
		t.Errorf("a symbolic link was followed: %s", r)
	}
	if journal := m.Journal(t, "pfar-mcp@clients"); !strings.Contains(journal, "symbolic link") {
		t.Errorf("the journal does not say why:\n%s", journal)
	}

	m.Put(t, file, fmt.Sprintf("label = \"public\"\nserver {\n  command = %q\n}\n", programs+"/clients"), 0o644)
	becomes(t, m, "clients", control.Running)
	if r := m.Try("test", "-e", "/run/systemd/system/pfar-mcp@clients.service.d"); r.Code == 0 {
		t.Error("a drop-in is left that nothing needs")
	}
	m.Put(t, file, declare(""), 0o644)
	bed.Eventually(t, soon, func() error {
		return cat("/root/work/file", "written")
	})
	m.Run(t, "rm", file)
	bed.Eventually(t, soon, func() error {
		if r := m.Try("ls", "-A", "/run/systemd/system"); strings.Contains(r.Stdout, "pfar-mcp@") {
			return errors.New(r.String())
		}
		return nil
	})
	attaches(t, m)
}

// notes is a service with one tool at a socket.
const notes = `import http.server, json, socketserver
class Handler(http.server.BaseHTTPRequestHandler):
    def address_string(self): return "unix"
    def answer(self, value, status=200):
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(value).encode())
    def do_GET(self):
        self.answer({"name": "notes", "version": "1"}, 200 if self.path == "/server/info" else 404)
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/tools/list":
            self.answer({"tools": [{"name": "echo", "description": "answers", "inputSchema": {"type": "object"}}]})
        elif self.path == "/tools/call":
            self.answer({"content": [{"type": "text", "text": "Echo: " + asked["params"]["arguments"]["message"]}]})
        else:
            self.answer({}, 404)
class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
Server("/run/notes/mcp.sock", Handler).serve_forever()
`

// attaches has pfar connect to a service of the machine, whose socket lies in a folder that only its own user enters.
func attaches(t *testing.T, m *bed.Machine) {
	const unit = "/etc/systemd/system/notes.service"
	service := func(umask string) string {
		return "[Service]\nUser=user\nRuntimeDirectory=notes\nRuntimeDirectoryMode=0700\nUMask=" + umask +
			"\nExecStart=/usr/bin/python3 /usr/local/lib/notes.py\n"
	}
	m.Put(t, "/usr/local/lib/notes.py", notes, 0o644)
	m.Put(t, unit, service("0000"), 0o644)
	m.Shell(t, "systemctl daemon-reload && systemctl start notes")
	const declared = "transport = \"uds\"\npath = \"/run/notes/mcp.sock\"\n"
	m.Put(t, "/etc/pfar/mcp.d/notes.hcl", declared+trust.Honest, 0o644)
	if s := becomes(t, m, "notes", control.Offline); !strings.Contains(s.Detail, "belongs to user") {
		t.Errorf("without an owner, the service's user may be anybody: %s", s.Detail)
	}
	m.Put(t, "/etc/pfar/mcp.d/notes.hcl", declared+"owner = \"user\"\n"+trust.Honest, 0o644)
	answers := func(when string) {
		t.Helper()
		becomes(t, m, "notes", control.Running)
		r := m.Try("pfar", "call", "notes.echo", "--json", `{"message":"hello"}`)
		if !strings.Contains(r.Stdout, "Echo: hello") {
			t.Errorf("%s: %s\n%s", when, r, m.Journal(t, "pfar-mcp@notes"))
		}
	}
	answers("at first")
	m.Run(t, "systemctl", "stop", "notes")
	becomes(t, m, "notes", control.Offline)
	m.Run(t, "systemctl", "start", "notes")
	answers("after its restart")

	// Its mode lets nobody in: pfar says whom it has to.
	m.Put(t, unit, service("0077"), 0o644)
	m.Shell(t, "systemctl daemon-reload && systemctl restart notes")
	bed.Eventually(t, soon, func() error {
		if r := m.Try("pfar", "status"); !strings.Contains(strings.Join(strings.Fields(r.Stdout), " "), "does not let user") {
			return fmt.Errorf("pfar status: %s", r)
		}
		return nil
	})
	m.Shell(t, "systemctl stop notes; rm "+unit+" /etc/pfar/mcp.d/notes.hcl")
}

// TestState: a private home is the server's own from one start, and one user, to the next.
func TestState(t *testing.T) {
	t.Parallel()
	m := appliance(t)
	const file = "/etc/pfar/mcp.d/keeps.hcl"
	m.Shell(t, "mkdir -p /srv/shared; chmod 777 /srv/shared")
	m.Put(t, file, fmt.Sprintf("label = \"public\"\nserver {\n  command = %q\n}\nsandbox {\n  state = true\n  writable = [\"/srv/shared\"]\n}\n", programs+"/clients"), 0o644)
	runs := func(command, want string) {
		t.Helper()
		becomes(t, m, "keeps", control.Running)
		if r := m.Try("pfar", "call", "keeps.run", "--json", fmt.Sprintf(`{"argv":["/bin/sh","-c",%q]}`, command)); !strings.Contains(r.Stdout, want) {
			t.Errorf("%s: %s", command, r)
		}
	}
	runs("echo first >/home/mcp/file; cat /home/mcp/file", "first")
	runs("echo shared >/srv/shared/file; cat /srv/shared/file", "shared")
	runs("touch /var/lib/pfar/home/keeps/x || echo no", "no")
	m.Run(t, "systemctl", "restart", "pfar-mcp@keeps")
	runs("cat /home/mcp/file && echo second >/home/mcp/file && cat /home/mcp/file", "second")
	m.Run(t, "chown", "-R", "61999:61999", "/var/lib/pfar/home/keeps") // as if systemd had given it another user
	m.Run(t, "systemctl", "restart", "pfar-mcp@keeps")
	runs("cat /home/mcp/file && echo third >/home/mcp/file && cat /home/mcp/file", "third")
	m.Reboot(t)
	runs("cat /home/mcp/file", "third")
	if again := m.Run(t, "systemctl", "show", "-pNRestarts", "pfar-mcp@keeps"); again != "NRestarts=0\n" {
		t.Errorf("it did not come up at once: %s%s", again, m.Journal(t, "pfar-mcp@keeps"))
	}

	runs("mkdir -p /home/mcp/a/b && ln -s /srv/shared /home/mcp/a/b/link && chmod 0 /home/mcp/a/b /home/mcp/a; echo made", "made")
	if r := m.Try("pfar", "clean", "keeps", "--yes"); r.Code != 1 || !strings.Contains(r.Stderr, "still declared") {
		t.Errorf("what is declared is deleted: %s", r)
	}
	m.Run(t, "rm", file)
	bed.Eventually(t, soon, func() error {
		if r := m.Try("pfar", "status"); !strings.Contains(r.Stdout, "left something behind: keeps;") {
			return fmt.Errorf("pfar status: %s", r)
		}
		return nil
	})
	m.Run(t, "pfar", "clean", "keeps", "--yes")
	if left := m.Run(t, "sh", "-c", "find /var/lib/pfar /run/pfar -name '*keeps*'; find /var/lib/pfar/users -lname '*keeps*'; cat /srv/shared/file"); left != "shared\n" {
		t.Errorf("left: %s", left)
	}
}

// serving wants a launcher to be the one of before.
func serving(t *testing.T, m *bed.Machine, name, launcher string) {
	t.Helper()
	if now := pid(t, m, "pfar-mcp@"+name); now != launcher {
		t.Errorf("the launcher of %s is %s, and was %s", name, now, launcher)
	}
}
