package systemd

import (
	"crypto/rand"
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/pfar/pfar/tests/systemd/bed"
	"github.com/pfar/pfar/units/control"
)

const (
	plainKey  = "/var/lib/pfar/vault/key.txt"
	sealedKey = "/etc/credstore.encrypted/pfar-vault-key"
)

// unseal is the vault's key in the clear, as root of that machine can have it.
func unseal(t *testing.T, m *bed.Machine) string {
	t.Helper()
	return m.Run(t, "systemd-creds", "decrypt", "--name=pfar-vault-key", sealedKey, "-")
}

// wantSealed wants the vault's key to be nowhere in the clear but in pfard's credential.
func wantSealed(t *testing.T, m *bed.Machine) {
	t.Helper()
	key := strings.TrimSpace(unseal(t, m))
	if !strings.HasPrefix(key, "AGE-SECRET-KEY-1") || strings.Contains(key, "\n") {
		t.Errorf("the sealed key is %d bytes", len(key))
	}
	m.Put(t, "/root/key", key, 0o600)
	found := m.Shell(t, "set +e; grep -rlsF -f /root/key /etc /run /var/lib/pfar /var/log /dev/shm /tmp; systemctl show pfard pfar-vault-key | grep -F -f /root/key; journalctl | grep -F -f /root/key; cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -F -f /root/key; rm /root/key; true")
	if found != "/run/credentials/pfard.service/pfar-vault-key\n" {
		t.Errorf("the key in the clear is in %q", found)
	}
	if open := m.Shell(t, "find /etc/credstore.encrypted /var/lib/pfar/vault -perm /077 -o ! -user root"); open != "" {
		t.Errorf("others may read %s", open)
	}
}

// wantToken wants a server's processes to have a value in their environment, where alone it is to be seen: in what a
// tool answers it would be redacted.
func wantToken(t *testing.T, m *bed.Machine, server, value string) {
	t.Helper()
	bed.Eventually(t, soon, func() error {
		script := "for p in /proc/[0-9]*; do grep -qs 'pfar-mcp[-@]" + server + "[.]' $p/cgroup && tr '\\0' '\\n' <$p/environ; done | grep ^TOKEN= | sort -u"
		if r := m.Try("sh", "-c", script); r.Stdout != "TOKEN="+value+"\n" {
			return errors.New(r.String())
		}
		return nil
	})
}

// A key pair of this test, for what is exported.
const (
	identity  = "AGE-SECRET-KEY-182SX0TRM7CWTNFUJ2SZ3QDNN3VZP87GMNNXS6T7HP8JX2Z62AALS4TUVA0\n"
	recipient = "age1g73rasdy3w3h5xaxt9h96jmlaftk4r2qwmnl8a7lzunksvs5nfxqakh52h"
)

// TestVault goes through a vault's life on an installed system: the key is sealed before pfard runs for the first time,
// what changes reaches what runs, and it is all there after a start of the machine.
func TestVault(t *testing.T) {
	t.Parallel()
	m := appliance(t)
	wantSealed(t, m)
	m.Put(t, "/etc/pfar/mcp.d/keyed.hcl", echo("auth = { TOKEN = \"vault:some_token\" }"), 0o644)
	waitsItself(t, m, "keyed")
	if out := m.Shell(t, "echo -n hunter2-one | pfar vault set some_token"); !strings.HasPrefix(out, "keyed: starts") {
		t.Errorf("set says %q", out)
	}
	wantToken(t, m, "keyed", "hunter2-one")
	becomes(t, m, "keyed", control.Running) // its process is there before its tools are
	var underWay *exec.Cmd
	var answer strings.Builder
	bed.Eventually(t, soon, func() error { // a busy machine may look too late, for one call and the next
		underWay = m.Command(t.Context(), "pfar", "call", "keyed.sleep", "--milliseconds", "3000")
		underWay.Stdout, underWay.Stderr = &answer, &answer
		m.Go(t, underWay)
		r := m.Try("pfar", "top", "--once", "--json")
		if strings.Contains(r.Stdout, `"in_flight": 1`) {
			return nil
		}
		return errors.Join(errors.New(r.String()), underWay.Wait())
	})
	if out := m.Shell(t, "echo -n hunter2-two | pfar vault rotate some_token"); out != "keyed: restarts with the new value\n" {
		t.Errorf("rotate says %q", out)
	}
	if err := underWay.Wait(); err != nil {
		t.Errorf("a call that was under way: %v, %s", err, answer.String())
	}
	wantToken(t, m, "keyed", "hunter2-two")
	if old := m.Shell(t, "grep -al hunter2-one /proc/[0-9]*/environ || true"); old != "" {
		t.Errorf("the old value is in %s", old)
	}
	before := unseal(t, m)
	m.Run(t, "pfar", "vault", "rekey")
	if unseal(t, m) == before {
		t.Error("rekeyed, and the key is the same")
	}
	m.Run(t, "systemctl", "restart", "pfard")
	becomes(t, m, "keyed", control.Running)
	wantSealed(t, m)
	wantToken(t, m, "keyed", "hunter2-two")
	m.Reboot(t)
	becomes(t, m, "keyed", control.Running)
	wantToken(t, m, "keyed", "hunter2-two")
	wantSealed(t, m)

	m.Put(t, "/root/identity", identity, 0o600)
	m.Shell(t, "umask 0; cd /root; pfar vault export secrets.age --recipient "+recipient+"; pfar vault remove some_token")
	waitsItself(t, m, "keyed")
	if mode := m.Shell(t, "stat -c %a /root/secrets.age; grep -c hunter2 /root/secrets.age || true"); mode != "600\n0\n" {
		t.Errorf("the exported file: %s", mode)
	}
	if out := m.Run(t, "pfar", "vault", "import", "/root/secrets.age", "--identity", "/root/identity"); !strings.HasPrefix(out, "some_token: new\nkeyed: starts") {
		t.Errorf("import says %q", out)
	}
	wantToken(t, m, "keyed", "hunter2-two")
	records := m.Shell(t, "journalctl --sync; journalctl -o json PFAR_OPERATION=rotate + PFAR_OPERATION=rekey + PFAR_OPERATION=export | grep -c '\"PFAR_UID\":\"0\"'")
	if all := m.Shell(t, "journalctl"); records != "3\n" || strings.Contains(all, "hunter2") {
		t.Errorf("%s records; the journal has a value: %t", records, strings.Contains(all, "hunter2"))
	}
}

// impostor asks for a unit's credentials from the name that systemd would have.
const impostor = `import socket, sys
s = socket.socket(socket.AF_UNIX)
s.bind("\0" + sys.argv[1] + "/unit/pfar-mcp@keyed.service/secrets")
s.connect("/run/pfar/credentials.sock")
s.settimeout(10)
print("got", len(s.recv(1 << 16)))
`

// TestCredentialsForSystemdAlone: whatever name it asks from, what is not in the unit gets nothing, root or not; and
// each hand-over of a secret is on record, and each that was refused.
func TestCredentialsForSystemdAlone(t *testing.T) {
	t.Parallel()
	m := appliance(t)
	m.Put(t, "/etc/default/pfar", "OF_PFAR=hunter2-of-pfar\n", 0o600)
	m.Run(t, "systemctl", "restart", "pfard")
	m.Put(t, "/etc/pfar/mcp.d/keyed.hcl", echo("auth = { TOKEN = \"vault:some_token\", FROM = \"$OF_PFAR\" }"), 0o644)
	becomes(t, m, "keyed", control.Waiting)
	bed.Eventually(t, soon, func() error { // a launcher that is still being started would be given the value, and then once more
		if r := m.Try("systemctl", "is-active", "pfar-mcp@keyed"); r.Stdout != "active\n" {
			return errors.New(r.String())
		}
		return nil
	})
	m.Shell(t, "echo -n hunter2-one | pfar vault set some_token")
	becomes(t, m, "keyed", control.Running)
	wantToken(t, m, "keyed", "hunter2-one")
	m.Put(t, "/usr/local/bin/impostor", impostor, 0o644)
	const moved = `set -e; g=$(find /sys/fs/cgroup -type d -name "$0.scope" | head -n1)/pfar-mcp@keyed.service; mkdir "$g"; echo $$ > "$g/cgroup.procs"; python3 /usr/local/bin/impostor d`
	for name, command := range map[string][]string{
		"root":                            {"python3", "/usr/local/bin/impostor", "a"},
		"a service of root's":             {"systemd-run", "--quiet", "--pipe", "--wait", "python3", "/usr/local/bin/impostor", "b"},
		"a group that is called the same": {"systemd-run", "--quiet", "--scope", "--unit=evil", "--property=Delegate=yes", "sh", "-c", moved, "evil"},
	} {
		if r := m.Try(command[0], command[1:]...); r.Code != 0 || r.Stdout != "got 0\n" {
			t.Errorf("%s: %s", name, r)
		}
	}
	records := func(want string, match ...string) {
		t.Helper()
		out := m.Shell(t, "journalctl --sync; journalctl --quiet --output=cat SYSLOG_IDENTIFIER=pfard PFAR_OPERATION=deliver "+strings.Join(match, " ")+" | grep -c keyed || true")
		if strings.TrimSpace(out) != want {
			t.Errorf("%s records with %q, want %s", strings.TrimSpace(out), match, want)
		}
	}
	records("3", "PFAR_OUTCOME=refused", "PRIORITY=4", "| grep -e 'asks as' -e 'in no unit'")
	records("1", "PFAR_OUTCOME=done", "PFAR_KEY=some_token", "PFAR_SERVER=keyed", "PFAR_TO=launcher", "PFAR_DELIVER=env")
	records("1", "PFAR_OUTCOME=done", "'PFAR_KEY=$OF_PFAR'", "PFAR_SERVER=keyed", "PFAR_TO=launcher", "PFAR_DELIVER=env")

	// A pfard of the same environment leaves the server alone, and another value of it reaches the server once it is idle.
	was := pid(t, m, "pfar-mcp@keyed")
	m.Run(t, "systemctl", "restart", "pfard")
	m.Run(t, "pfar", "call", "keyed.environment")
	if is := pid(t, m, "pfar-mcp@keyed"); is != was {
		t.Errorf("the launcher was process %v and is %v", was, is)
	}
	m.Put(t, "/etc/default/pfar", "OF_PFAR=hunter2-of-another\n", 0o600)
	m.Run(t, "systemctl", "restart", "pfard")
	bed.Eventually(t, soon, func() error {
		r := m.Try("sh", "-c", "for p in /proc/[0-9]*; do grep -qs 'pfar-mcp[-@]keyed[.]' $p/cgroup && tr '\\0' '\\n' <$p/environ; done | grep ^FROM= | sort -u")
		if r.Stdout != "FROM=hunter2-of-another\n" {
			return errors.New(r.String())
		}
		return nil
	})
	if all := m.Shell(t, "journalctl --sync; journalctl"); strings.Contains(all, "hunter2") {
		t.Error("the journal has a value")
	}
}

// TestNoCoreDump: pfard's memory, which secrets pass through, is neither dumped nor swapped, whatever an administrator
// has limits be.
func TestNoCoreDump(t *testing.T) {
	t.Parallel()
	m := machines.Boot(t)
	m.Unit(t, "pfard.service.d/core.conf", "[Service]\nLimitCORE=infinity\nEnvironment=GOTRACEBACK=crash\nWorkingDirectory=/var/lib/pfar\n")
	m.Unit(t, "dumped.service", "[Service]\nLimitCORE=infinity\nWorkingDirectory=/var/lib/pfar\nExecStart=sleep infinity\n")
	m.Run(t, "systemctl", "enable", "--now", "--quiet", "pfar.target")
	m.Run(t, "systemctl", "start", "dumped")
	cores := func(unit string) string {
		was := pid(t, m, unit)
		m.Run(t, "systemctl", "kill", "--signal=ABRT", unit)
		bed.Eventually(t, soon, func() error {
			if is := pid(t, m, unit); is == was {
				return errors.New("it has not ended")
			}
			return nil
		})
		return m.Shell(t, "find /var/lib/pfar -maxdepth 1 -name 'core*' -delete -print")
	}
	if cores("dumped") == "" {
		t.Fatal("this machine dumps no cores where a test finds them: sysctl kernel.core_pattern=core")
	}
	if found := cores("pfard"); found != "" {
		t.Errorf("a dump of pfard's memory: %s", found)
	}
	m.Shell(t, "rm -r /etc/systemd/system/pfard.service.d; systemctl daemon-reload")
	if out := m.Shell(t, "systemctl show -P MemorySwapMax -P LimitCORE pfard"); out != "0\n1\n" {
		t.Errorf("pfard's limits: %s", out)
	}
}

// TestVaultOfBefore: what was installed when keys lay in the clear, and on a machine that cannot seal.
func TestVaultOfBefore(t *testing.T) {
	t.Parallel()
	m := machines.Boot(t)
	m.Shell(t, "mv /usr/bin/systemd-creds /root/")
	m.Run(t, "systemctl", "enable", "--now", "--quiet", "pfar.target")
	m.Shell(t, "echo -n hunter2-one | pfar vault set some_token")
	m.Put(t, "/etc/pfar/mcp.d/keyed.hcl", echo("auth = { TOKEN = \"vault:some_token\" }"), 0o644)
	becomes(t, m, "keyed", control.Running)
	if out := m.Shell(t, "stat -c %a "+plainKey+"; test ! -e "+sealedKey); out != "600\n" {
		t.Errorf("the key in the clear: %s", out)
	}
	if r := m.Try("pfar", "status"); !strings.Contains(r.Stdout, "the vault's key lies in a file in the clear") {
		t.Errorf("status: %s", r)
	}
	if r := m.Try("pfar", "doctor"); !strings.Contains(r.Stdout, plainKey+" in the clear") {
		t.Errorf("doctor: %s", r)
	}
	if state := m.Try("systemctl", "is-system-running").Stdout; state != "running\n" {
		t.Errorf("the machine is %s", state)
	}
	m.Run(t, "pfar", "vault", "rekey")
	key := m.Read(t, plainKey)
	m.Shell(t, "mv /root/systemd-creds /usr/bin/; systemctl restart pfard")
	becomes(t, m, "keyed", control.Running)
	if sealed := unseal(t, m); sealed != key {
		t.Error("another key was sealed")
	}
	wantSealed(t, m)
	wantToken(t, m, "keyed", "hunter2-one")
	if r := m.Try("pfar", "doctor"); !strings.Contains(r.Stdout, "sealed to this machine") {
		t.Errorf("doctor: %s", r)
	}
	m.Shell(t, "mv /usr/bin/systemd-creds /root/")
	if r := m.Try("pfar", "vault", "rekey"); r.Code == 0 || !strings.Contains(r.Stderr, "journalctl -u pfar-vault-key.service") {
		t.Errorf("rekeyed without a seal: %s", r)
	}
	if out := m.Shell(t, "ls /run/pfar/vault-key "+plainKey+" 2>/dev/null || true"); out != "" {
		t.Errorf("a key is left in %s", out)
	}
	m.Shell(t, "mv /root/systemd-creds /usr/bin/; systemctl restart pfard")
	wantToken(t, m, "keyed", "hunter2-one")
}

// TestRotateIsConfirmed: whoever rotates what a bridge brokers is told that it is on the wire when it is, also right
// after pfard was started again, and that it is not known when the bridge says nothing.
func TestRotateIsConfirmed(t *testing.T) {
	t.Parallel()
	m := appliance(t)
	const server, bridge = "a-name-of-23-characters", "pfar-egress@a-name-of-23-characters"
	token := func() string { return "ghp_" + rand.Text() + rand.Text()[:10] }
	m.Put(t, "/etc/pfar/mcp.d/"+server+".hcl", echo("allowed_domains = [\"api.github.com\"]\nauth = { TOKEN = { secret = \"vault:held\", deliver = \"broker\" } }\n"), 0o644)
	becomes(t, m, server, control.Waiting)
	if r := m.Feed(token(), "pfar", "vault", "set", "held"); r.Code != 0 {
		t.Fatalf("storing the secret: %s", r)
	}
	becomes(t, m, server, control.Running)
	const has, unknown = "runs on: its bridge uses the new value", "its bridge has not confirmed"
	for _, step := range []struct{ before, want string }{
		{"true", has}, // the bridge does not run
		{"systemctl start " + bridge, has}, {"systemctl restart pfard", has}, {"systemctl kill --signal=STOP " + bridge, unknown},
		{"systemctl restart pfard", unknown}, {"systemctl kill --signal=CONT " + bridge, has},
	} {
		m.Shell(t, step.before)
		if r := m.Feed(token(), "pfar", "vault", "rotate", "held"); r.Code != 0 || !strings.Contains(r.Stdout, step.want) {
			t.Errorf("after %s: %s, want %q\n%s", step.before, r, step.want, m.Run(t, "journalctl", "--no-pager", "-u", "pfard", "-u", bridge))
		}
	}
}
