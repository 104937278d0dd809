package systemd

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/pfar/pfar/cmd/pfard/control"
	"github.com/pfar/pfar/policies/redact"
	"github.com/pfar/pfar/tests/internet"
	"github.com/pfar/pfar/tests/systemd/bed"
)

// hunt looks for texts, of which its stdin has a list in JSON, in all that a machine has, and prints where they are. What is
// mounted over is seen by every process's own root.
const hunt = `import json, os, re, subprocess, sys
needles = {n.encode() for n in json.load(sys.stdin)}
me = os.getpid()
def holds(b): return any(n in b for n in needles)
def read(path):
    try:
        with open(path, "rb") as f: return f.read()
    except OSError: return b""
looked = [0, 0, 0]
def walk(top):
    seen = set()
    for d, dirs, files in os.walk(top):
        inside = d[len(top.rstrip("/")):] or "/"
        if inside == "/": dirs[:] = [n for n in dirs if n not in ("proc", "sys", "dev")]
        for n in files:
            p = os.path.join(d, n)
            try: st = os.lstat(p)
            except OSError: continue
            if (st.st_mode & 0o170000) != 0o100000 or st.st_ctime < float(sys.argv[1]) or st.st_size > 1 << 28: continue
            looked[0] += 1
            if holds(read(p)): print("file", inside.rstrip("/") + "/" + n)
walk("/")
walk("/dev/shm")
roots = set()
for pid in [p for p in os.listdir("/proc") if p.isdigit() and int(p) != me]:
    name = read("/proc/%s/comm" % pid).decode().strip()
    unit = read("/proc/%s/cgroup" % pid).decode().strip().rsplit("/", 1)[-1]
    if unit == "internet.service": continue # where it went
    for f in ("cmdline", "environ"):
        looked[1] += 1
        if holds(read("/proc/%s/%s" % (pid, f))): print(f, name, unit)
    try: fds = os.listdir("/proc/%s/fd" % pid)
    except OSError: fds = []
    for fd in fds:
        p = "/proc/%s/fd/%s" % (pid, fd)
        try: st = os.stat(p)
        except OSError: continue
        if (st.st_mode & 0o170000) == 0o100000 and st.st_size < 1 << 28 and holds(read(p)): print("descriptor", name, unit)
    try: root = os.stat("/proc/%s/ns/mnt" % pid).st_ino
    except OSError: root = None
    if root and root not in roots:
        roots.add(root)
        walk("/proc/%s/root" % pid)
        walk("/proc/%s/root/dev/shm" % pid)
    try: maps, mem = open("/proc/%s/maps" % pid), open("/proc/%s/mem" % pid, "rb", 0)
    except OSError: continue
    found = False
    for line in maps:
        m = re.match("([0-9a-f]+)-([0-9a-f]+) r", line)
        if not m or "[v" in line: continue
        at, end = int(m[1], 16), int(m[2], 16)
        while at < end and not found:
            try:
                mem.seek(at); b = mem.read(min(1 << 22, end - at))
            except (OSError, ValueError, OverflowError): break
            looked[2] += len(b)
            found = holds(b)
            if len(b) < 1 << 22: break
            at += len(b) - 256
    if found: print("memory", name, unit)
journal = subprocess.run(["journalctl", "--no-pager", "--all", "--output=export"], stdout=subprocess.PIPE).stdout
if holds(journal): print("journal")
for command in (["systemctl", "show", "*"], ["systemctl", "--no-pager", "status", "--all", "--full"], ["pfar", "plan"], ["pfar", "status", "--json"],
    ["pfar", "vault", "list", "--json"], ["pfar", "doctor"], ["pfar", "logs", "inenv"], ["pfar", "logs", "infile"], ["pfar", "logs", "brokered"], ["pfar", "pins"]):
    r = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    if holds(r.stdout): print("output", " ".join(command))
if looked[0] < 50 or looked[1] < 8 or looked[2] < 1 << 24 or len(journal) < 10000: print("looked at too little:", looked, len(journal))
`

// intended is where a value has to be: with pfard, with the processes of the servers that get it in their environment or
// in a file, on the way there, and with the bridge that brokers it.
var intended = regexp.MustCompile(`^(memory pfard pfard\.service` +
	`|file /run/credentials/pfar-mcp@(inenv|infile)\.service/secrets` +
	`|memory (pfar-sandbox|bwrap|hostile) pfar-mcp[@-](inenv|infile)\.(service|scope)` +
	`|environ hostile pfar-mcp-inenv\.scope` +
	`|file /run/secrets/TOKEN` +
	`|memory pfar-egress pfar-egress@brokered\.service)$`)

// remembered is where a former value may be: memory that Go has not used again.
var remembered = regexp.MustCompile(`^memory (pfard pfard|pfar-egress pfar-egress@brokered)\.service$`)

// TestSecretLeavesNoTrace plants a secret, has the whole product work with it, and looks for it everywhere.
func TestSecretLeavesNoTrace(t *testing.T) {
	t.Parallel()
	m := appliance(t)
	began := strings.TrimSpace(m.Shell(t, "date +%s"))
	planted, rotated := "ghp_"+rand.Text(), "ghp_"+rand.Text() // no constants: this program is in the machine as well
	secure(t, m)
	declare := func(name, more string) {
		m.Put(t, "/etc/pfar/mcp.d/"+name+".hcl", fmt.Sprintf("label = \"internal\"\nserver {\n  command = %q\n}\n%s", programs+"/hostile", more), 0o644)
	}
	declare("inenv", `auth = { TOKEN = "vault:planted" }`)
	declare("infile", `auth = { TOKEN = { secret = "vault:planted", deliver = "file" } }`)
	declare("brokered", `allowed_domains = ["api.allowed.example"]
auth = { TOKEN = { secret = "vault:planted", deliver = "broker" } }`)
	names := []string{"inenv", "infile", "brokered"}
	becomes(t, m, "brokered", control.Waiting)
	for i, value := range []string{planted, rotated} {
		if r := m.Feed(value+"\n", "pfar", "vault", []string{"set", "rotate"}[i], "planted"); r.Code != 0 {
			t.Fatalf("storing the secret: %s", r)
		}
		for _, name := range names {
			becomes(t, m, name, control.Running)
		}
		use(t, m, value)
		for _, name := range names { // by a signal that dumps core
			m.Shell(t, fmt.Sprintf("kill -SEGV $(pgrep -x hostile --cgroup $(systemctl show -P ControlGroup pfar-mcp-%s.scope)); sleep 0.2", name))
			becomes(t, m, name, control.Running)
		}
		use(t, m, value)
		m.Run(t, "systemctl", "restart", "pfard", "pfar-gateway") // as an upgrade does
		for _, name := range names {
			becomes(t, m, name, control.Running)
		}
		use(t, m, value)
	}
	checkNoCores(t, m)
	search(t, m, began, rotated, true)
	search(t, m, began, planted, false)
	m.Reboot(t)
	for _, name := range names {
		becomes(t, m, name, control.Running)
	}
	search(t, m, began, rotated, true)
	m.Run(t, "systemctl", "stop", "pfar.target")
	search(t, m, began, rotated, false)
}

// secure gives a machine an internet whose certificates it trusts.
func secure(t *testing.T, m *bed.Machine) {
	t.Helper()
	authority, certificate, err := internet.Certificates("api.allowed.example")
	if err != nil {
		t.Fatal(err)
	}
	m.Put(t, "/root/certificate.pem", string(certificate), 0o600)
	m.Put(t, "/etc/ssl/certs/ca-certificates.crt", string(authority), 0o644)
	onlineWith(t, m, "/root/certificate.pem")
}

// use has each server do with its secret what servers do, and what they should not.
func use(t *testing.T, m *bed.Machine, value string) {
	t.Helper()
	fetched, err := json.Marshal(map[string]any{"method": "GET", "url": "https://api.allowed.example/", "headers": map[string]string{"Authorization": "Bearer $TOKEN"}})
	if err != nil {
		t.Fatal(err)
	}
	if r := m.Feed(string(fetched), "pfar", "call", "brokered.fetch", "--json", "-"); !strings.Contains(r.Stdout, "hello from api.allowed.example") {
		t.Errorf("a brokered call: %s", r)
	}
	for _, name := range []string{"inenv", "infile"} {
		r := m.Try("pfar", "call", name+".attack", "--name", "environment", "--target", "PATH")
		if r.Code != 0 || strings.Contains(r.String(), value) {
			t.Errorf("%s: what it finds in its environment: %s", name, r)
		}
	}
}

// checkNoCores wants no process of pfar's to be dumped.
func checkNoCores(t *testing.T, m *bed.Machine) {
	t.Helper()
	out := m.Shell(t, `for p in $(pgrep 'pfar|hostile|bwrap'); do printf '%s %s\n' "$(cat /proc/$p/comm)" "$(grep 'Max core' /proc/$p/limits)"; done`)
	seen := 0
	for line := range strings.Lines(out) {
		seen++
		if f := strings.Fields(line); len(f) < 7 || f[5] != f[6] || f[5] != "0" && f[5] != "1" { // 1 keeps a pipe's reader away as well
			t.Errorf("it may be dumped: %s", line)
		}
	}
	if seen < 8 {
		t.Errorf("only %d processes: %s", seen, out)
	}
}

// search looks for a value in all its forms, which has to be nowhere but where it is intended, if anywhere.
func search(t *testing.T, m *bed.Machine, since, value string, there bool) {
	t.Helper()
	forms, err := json.Marshal(redact.Forms(value))
	if err != nil {
		t.Fatal(err)
	}
	m.Put(t, "/root/hunt.py", hunt, 0o644)
	r := m.Feed(string(forms), "python3", "/root/hunt.py", since)
	if r.Code != 0 {
		t.Fatalf("looking for the secret: %s", r)
	}
	intends := 0
	for line := range strings.Lines(r.Stdout) {
		line = strings.TrimSpace(line)
		switch {
		case there && intended.MatchString(line):
			intends++
			continue
		case !there && remembered.MatchString(line):
			continue
		}
		t.Errorf("it is there: %s", line)
	}
	if there && intends < 5 {
		t.Errorf("it is not even where it has to be, so nothing was looked at: %s", r)
	}
}
