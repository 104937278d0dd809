package systemd

import (
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/redact"
	"github.com/pfar/pfar/tests/internet"
	"github.com/pfar/pfar/tests/packaged"
	"github.com/pfar/pfar/tests/systemd/bed"
	"github.com/pfar/pfar/units/control"
)

// hunt looks for texts in all that a machine has, and careless leaves one wherever hunt looks.
var (
	//go:embed testdata/hunt.py
	hunt string
	//go:embed testdata/careless.py
	careless string
)

// intended is where a value has to be: with pfard, with the processes of the servers that get it in their environment
// or in a file, on the way there, and with the bridge that brokers it.
var intended = regexp.MustCompile(`^(memory pfard pfard\.service` +
	`|file /run/credentials/pfar-mcp@(inenv|infile|imported)\.service/secrets` +
	`|memory (pfar-sandbox|bwrap|hostile) pfar-mcp[@-](inenv|infile|imported)\.(service|scope)` +
	`|environ hostile pfar-mcp-(inenv|imported)\.scope` +
	`|file /run/secrets/TOKEN` +
	`|memory pfar-egress pfar-egress@brokered\.service)$`)

// remembered is where a former value may be: memory that Go has not used again.
var remembered = regexp.MustCompile(`^memory (pfard pfard|pfar-egress pfar-egress@brokered)\.service$`)

// TestSecretLeavesNoTrace plants a secret, has the whole product work with it, and looks for it everywhere. Without
// -short it looks again after an upgrade and after a boot.
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
	names := []string{"inenv", "infile", "brokered", "imported"}
	becomes(t, m, "brokered", control.Waiting)
	imports(t, m, planted)
	for i, value := range []string{planted, rotated} {
		for _, key := range []string{"planted", "imported_token"}[:1+i] {
			if r := m.Feed(value+"\n", "pfar", "vault", []string{"set", "rotate"}[i], key); r.Code != 0 {
				t.Fatalf("storing the secret: %s", r)
			}
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
		m.Run(t, "systemctl", "restart", "pfard", "pfar-gateway")
		for _, name := range names {
			becomes(t, m, name, control.Running)
		}
		use(t, m, value)
	}
	checkNoCores(t, m)
	search(t, m, began, rotated, planted)
	trespass(t, m, began, rotated, planted)
	if !testing.Short() {
		upgrade(t, m, names)
		use(t, m, rotated)
		search(t, m, began, rotated, planted)
		m.Reboot(t)
		for _, name := range names {
			becomes(t, m, name, control.Running)
		}
		search(t, m, began, rotated, planted)
	}
	m.Run(t, "systemctl", "stop", "pfar.target")
	search(t, m, began, "", planted, rotated)
}

// imports has pfar import the server imported from a client's file that has its secret, and removes the file.
func imports(t *testing.T, m *bed.Machine, value string) {
	t.Helper()
	m.Put(t, "/root/.cursor/mcp.json", fmt.Sprintf(
		`{"mcpServers": {"imported": {"command": %q, "env": {"TOKEN": %q}}}}`, programs+"/hostile", value), 0o600)
	if r := m.Try("pfar", "import", "--from", "cursor", "--user", "root", "--yes"); r.Code != 0 ||
		strings.Contains(r.String(), value) {
		t.Fatalf("importing the server: %s", r)
	}
	m.Shell(t, "rm /root/.cursor/mcp.json")
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
	brokered(t, m, "as servers do")
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

// upgrade replaces every file of pfar's as a package does, with programs that are built otherwise, while servers run.
func upgrade(t *testing.T, m *bed.Machine, names []string) {
	t.Helper()
	dir := t.TempDir()
	args := append([]string{"make", "--no-print-directory", "-C", root, "install", "VERSION=0.0.1~other", packaged.NoVCS,
		"BIN=" + dir + "/bin", "DESTDIR=" + dir + "/installed"}, race()...)
	if err := command(t.Context(), nil, "nice", args...); err != nil {
		t.Fatal(err)
	}
	launchers := func() (list []string) {
		for _, name := range names {
			list = append(list, pid(t, m, "pfar-mcp@"+name))
		}
		return list
	}
	program := func(unit string) string { return m.Shell(t, "sha256sum </proc/"+pid(t, m, unit)+"/exe") }
	gateway, daemon, launcher, ran := program("pfar-gateway"), program("pfard"), program("pfar-mcp@inenv"), launchers()
	err := filepath.WalkDir(dir+"/installed", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		st, err := d.Info()
		if err == nil {
			m.PutFile(t, strings.TrimPrefix(path, dir+"/installed"), path, st.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	m.Shell(t, "systemd-sysusers pfar.conf; systemd-tmpfiles --create pfar.conf; systemctl daemon-reload; systemctl try-restart pfard pfar-gateway")
	for _, name := range names {
		becomes(t, m, name, control.Running)
	}
	if is := launchers(); !slices.Equal(is, ran) {
		t.Errorf("the launchers are %q, and were %q", is, ran)
	}
	if program("pfar-gateway") == gateway || program("pfard") == daemon || program("pfar-mcp@inenv") != launcher {
		t.Error("the old programs of pfard and the gateway go on, or a new one of a launcher")
	}
}

// hunted is where somebody finds values in any of their forms: a line each, the name of the value first. The command
// that makes somebody of root comes before.
func hunted(t *testing.T, m *bed.Machine, since string, values map[string][]string, as ...string) []string {
	t.Helper()
	forms := map[string][]string{}
	for name, list := range values {
		for _, value := range list {
			forms[name] = append(forms[name], redact.Forms(value)...)
		}
	}
	texts, err := json.Marshal(forms)
	if err != nil {
		t.Fatal(err)
	}
	m.Put(t, programs+"/hunt.py", hunt, 0o644)
	line := append(as, "python3", programs+"/hunt.py", since)
	r := m.Feed(string(texts), line[0], line[1:]...)
	if r.Code != 0 {
		t.Fatalf("looking for the secret: %s", r)
	}
	return slices.Compact(slices.Sorted(strings.SplitSeq(strings.TrimSpace(r.Stdout), "\n")))
}

// search wants root to find the present value, unless it is "", where it is intended and nowhere else, and former ones
// nowhere but in memory.
func search(t *testing.T, m *bed.Machine, since, present string, former ...string) {
	t.Helper()
	values := map[string][]string{"former": former}
	if present != "" {
		values["present"] = []string{present}
	}
	found := 0
	for _, line := range hunted(t, m, since, values) {
		name, where, _ := strings.Cut(line, " ")
		switch {
		case name == "present" && intended.MatchString(where):
			found++
		case name == "former" && remembered.MatchString(where), line == "":
		default:
			t.Errorf("it is there: %s", line)
		}
	}
	if present != "" && found < 5 {
		t.Errorf("it is found in %d places, not even where it has to be, so nothing was looked at", found)
	}
}

// trespass wants an ordinary user to find none of the values anywhere, and all that one of the user's own units leaves
// about.
func trespass(t *testing.T, m *bed.Machine, since string, values ...string) {
	t.Helper()
	own := rand.Text()
	m.Put(t, programs+"/careless.py", careless, 0o644)
	m.Unit(t, "careless.service", fmt.Sprintf(`[Service]
User=user
RuntimeDirectory=careless
Environment=TOKEN=%[1]s
ExecStart=python3 %[2]s/careless.py %[1]s /run/careless
`, hex.EncodeToString([]byte(own)), programs))
	m.Run(t, "systemctl", "restart", "careless")
	defer m.Shell(t, "systemctl stop careless; rm /etc/systemd/system/careless.service; systemctl daemon-reload")
	m.Journal(t, "careless") // is there when all has been written
	machine := strings.TrimSpace(m.Read(t, "/etc/machine-id"))
	found := hunted(t, m, since, map[string][]string{"own": {own}, "planted": values}, "setpriv", "--reuid=user", "--regid=user", "--clear-groups", "env", "HOME=/home/user")
	want := []string{
		"open /run/careless/sock", "open /run/pfar/attach.sock", "open 127.0.0.1:7417",
		"own cmdline python3 careless.service", "own descriptor python3 careless.service", "own environ python3 careless.service",
		"own file /etc/systemd/system/careless.service", "own file /run/careless/left", "own file /var/log/journal/" + machine + "/user-1000.journal",
		"own journal", "own memory python3 careless.service",
		"own output systemctl --no-pager cat pfar* careless*", "own output systemctl --no-pager status --all --full", "own output systemctl show *",
		"own output systemd-analyze dump", "own socket /run/careless/sock",
	}
	if slices.Sort(want); !slices.Equal(found, want) {
		t.Errorf("a user finds\n%s\nwant\n%s", strings.Join(found, "\n"), strings.Join(want, "\n"))
	}
}
