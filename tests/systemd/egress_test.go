package systemd

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/tests/internet"
	"github.com/pfar/pfar/tests/systemd/bed"
	"github.com/pfar/pfar/units/control"
)

// internetVariable makes this program the internet of a machine, with the certificate of that path, or noTLS.
const (
	internetVariable = "PFAR_TEST_INTERNET"
	noTLS            = "none"
)

// online gives a machine an internet.
func online(t *testing.T, m *bed.Machine) { onlineWith(t, m, noTLS) }

// onlineWith gives a machine an internet that speaks TLS with a certificate of the machine's.
func onlineWith(t *testing.T, m *bed.Machine, certificate string) {
	t.Helper()
	m.PutFile(t, programs+"/internet", "/proc/self/exe", 0o755)
	m.Put(t, "/etc/resolv.conf", "nameserver "+internet.NameServer+"\n", 0o644)
	m.Shell(t, fmt.Sprintf(`ip netns add internet
ip link add pfar0 type veth peer name pfar1 netns internet
ip address add %s/24 dev pfar0
ip address add 10.77.0.1/24 dev pfar0
ip address add 169.254.1.1/16 dev pfar0
ip link set pfar0 up
inside() { ip -netns internet "$@"; }
inside link set lo up
for a in %s/24 %s/24 %s/24 %s/24 %s/16; do inside address add $a dev pfar1; done
inside link set pfar1 up
systemd-run --quiet --unit=internet --setenv=%s=%s ip netns exec internet %s/internet`,
		internet.Ours, internet.Host, internet.Evil, internet.NameServer, internet.Private, internet.Metadata, internetVariable, certificate, programs))
	bed.Eventually(t, soon, func() error {
		if !strings.Contains(m.Journal(t, "internet.service"), "ready\n") {
			return errors.New("the internet is not ready")
		}
		return nil
	})
}

// reached is whether the internet has seen a connection to an address and port.
func reached(t *testing.T, m *bed.Machine, to string) bool {
	t.Helper()
	return strings.Contains(m.Journal(t, "internet.service"), fmt.Sprintf(`{"to":%q}`, to))
}

// clients declares the server that runs programs. None of what is declared but the first name may be reached.
const clients = `label = "public"
allowed_domains = ["api.allowed.example", "api.allowed.example:7777", "lan.example:7777", "meta.example:7777", "rebound.example:7777", "own.example:7777"]
server {
  command = "` + programs + `/clients"
}
`

// surf has a program run in the sandbox of the server named clients, and returns what it writes.
func surf(t *testing.T, m *bed.Machine, proxy bool, argv ...string) string {
	t.Helper()
	arguments, err := json.Marshal(map[string]any{"argv": argv, "proxy": proxy})
	if err != nil {
		t.Fatal(err)
	}
	var said struct {
		Wrote string `json:"wrote"`
	}
	r := m.Try("pfar", "call", "clients.run", "--json", string(arguments))
	if err := json.Unmarshal([]byte(r.Stdout), &said); err != nil {
		t.Fatalf("%q: %v: %s", argv, err, r)
	}
	return said.Wrote
}

// surfing boots a machine with an internet and that server. Its bridge ends after one idle second.
func surfing(t *testing.T) *bed.Machine {
	t.Helper()
	m := machines.Boot(t)
	online(t, m)
	m.Unit(t, "pfar-egress@.service.d/idle.conf", "[Service]\nExecStart=\nExecStart=/usr/lib/pfar/pfar-egress --idle 1s --attach /run/pfar/attach.sock\n")
	m.Run(t, "systemctl", "enable", "--now", "--quiet", "pfar.target")
	m.Put(t, "/etc/pfar/mcp.d/clients.hcl", clients, 0o644)
	becomes(t, m, "clients", control.Running)
	return m
}

const bridgeUnit = "pfar-egress@clients.service"

// idle waits until the bridge has nothing to carry and has ended.
func idle(t *testing.T, m *bed.Machine) {
	t.Helper()
	bed.Eventually(t, soon, func() error {
		if now := pid(t, m, bridgeUnit); now != "0" {
			return fmt.Errorf("the bridge is process %s", now)
		}
		return nil
	})
}

// TestEgress: what is declared is reached, whether a program knows of the proxy or not; nothing else is.
func TestEgress(t *testing.T) {
	t.Parallel()
	m := surfing(t)
	if now := pid(t, m, bridgeUnit); now != "0" {
		t.Errorf("before the first connection there is a bridge, process %s", now)
	}
	for _, tt := range []struct {
		proxy bool
		argv  string
		want  string
		to    string // which the internet must have seen; or must not have, with "!"
	}{
		{true, "go http http://api.allowed.example/", "200 hello from api.allowed.example", internet.Host + ":80"},
		{false, "go http http://api.allowed.example/", "200 hello from api.allowed.example", ""},
		{false, "go tcp api.allowed.example:7777", "echo of hello", internet.Host + ":7777"},
		{true, "go http http://evil.example/", "403 pfar refuses evil.example:80: name-not-declared", ""},
		{false, "go http http://evil.example/", "no such host", "!" + internet.Evil + ":80"},
		{false, "go tcp api.allowed.example:22", "connection reset", "!" + internet.Host + ":22"},
		{false, "go tcp " + internet.Evil + ":7777", "connection refused", "!" + internet.Evil + ":7777"},
		{false, "go tcp " + internet.Private + ":7777", "connection refused", ""},
		{false, "go tcp lan.example:7777", "connection reset", "!" + internet.Private + ":7777"},
		{false, "go tcp " + internet.Metadata + ":80", "connection refused", "!" + internet.Metadata + ":80"},
		{false, "go tcp meta.example:7777", "connection reset", "!" + internet.Metadata + ":7777"},
		{false, "go tcp rebound.example:7777", "connection reset", ""},
		{false, "go tcp own.example:7777", "connection reset", ""},
	} {
		if got := surf(t, m, tt.proxy, strings.Fields(tt.argv)...); !strings.Contains(got, tt.want) {
			t.Errorf("%s (proxy %t): %q, want %q", tt.argv, tt.proxy, got, tt.want)
		}
		if address, not := strings.CutPrefix(tt.to, "!"); address != "" && reached(t, m, address) == not {
			t.Errorf("%s (proxy %t): the internet has been reached at %s: %t", tt.argv, tt.proxy, address, not)
		}
	}
	surf(t, m, true, "go", "http", "http://evil.example/")
	refused := func() error {
		if s, err := server(m, "clients"); err != nil || !strings.Contains(s.LastRefusal, "evil.example") {
			return fmt.Errorf("pfar status has the refusal %q, %w", s.LastRefusal, err)
		}
		if status := m.Try("systemctl", "status", "pfar-mcp@clients").Stdout; !strings.Contains(status, "refused evil.example:80") {
			return errors.New(status)
		}
		return nil
	}
	bed.Eventually(t, soon, refused)

	// The kernel's own refusals: the bridge that has them outlives pfard, and the next pfard has them again.
	idle(t, m)
	connected(t, m, "clients", "api.allowed.example:7777") // or the bridge is idle and ends, with its refusals
	surf(t, m, false, "go", "tcp", internet.Evil+":7001")
	told := func(port string) func() error {
		return func() error {
			if s, err := server(m, "clients"); err != nil || !strings.Contains(s.LastRefusal, internet.Evil+":"+port) {
				return fmt.Errorf("pfar status has the refusal %q, %w", s.LastRefusal, err)
			}
			return nil
		}
	}
	bed.Eventually(t, soon, told("7001"))
	m.Run(t, "systemctl", "restart", "pfard")
	bed.Eventually(t, soon, told("7001"))
	m.Run(t, "systemctl", "stop", bridgeUnit)
	surf(t, m, false, "go", "tcp", internet.Evil+":7002")
	bed.Eventually(t, soon, told("7002"))
}

// TestBridgeComesAndGoes: there is a bridge while there is something to carry, and whatever happens to it costs no more
// than what it carried.
func TestBridgeComesAndGoes(t *testing.T) {
	t.Parallel()
	m := surfing(t)
	launcher := pid(t, m, "pfar-mcp@clients")
	carried := func(when string) {
		t.Helper()
		if got := surf(t, m, false, "go", "tcp", "api.allowed.example:7777"); !strings.Contains(got, "echo of hello") {
			t.Errorf("%s: %q", when, got)
		}
	}
	carried("first")
	// It may have ended already, a second later.
	began := m.Run(t, "systemctl", "show", "--property=ExecMainPID", "--value", bridgeUnit)
	if strings.TrimSpace(began) == "0" {
		t.Error("what was carried had no bridge")
	}
	idle(t, m)
	carried("after it was idle")
	m.Run(t, "systemctl", "kill", "--signal=KILL", bridgeUnit)
	carried("after it was killed")
	m.Run(t, "systemctl", "restart", bridgeUnit)
	carried("after it was restarted")
	m.Run(t, "systemctl", "stop", bridgeUnit)
	carried("after it was stopped")
	for range 8 { // systemd gives up on what fails often, unless it is told not to
		m.Run(t, "systemctl", "kill", "--signal=KILL", bridgeUnit)
		carried("after it was killed again")
	}
	m.Run(t, "systemctl", "kill", "--signal=KILL", "pfard")
	carried("after pfard was killed")
	m.Run(t, "systemctl", "daemon-reexec")
	carried("after systemd was executed anew")
	idle(t, m)
	m.Run(t, "systemctl", "stop", "pfard")
	m.Run(t, "systemctl", "start", "pfard")
	carried("after pfard was away")

	edit := func(text string) {
		t.Helper()
		m.Put(t, "/etc/pfar/mcp.d/clients.hcl", text, 0o644)
		bed.Eventually(t, soon, func() error {
			s, err := server(m, "clients")
			if is := slices.Contains(s.Domains, "api.allowed.example:7777"); is != strings.Contains(text, "api.allowed.example:7777") {
				return fmt.Errorf("pfar status has the domains %q, %w", s.Domains, err)
			}
			return err
		})
	}
	edit(strings.Replace(clients, `"api.allowed.example:7777", `, "", 1))
	if got := surf(t, m, false, "go", "tcp", "api.allowed.example:7777"); !strings.Contains(got, "connection reset") {
		t.Errorf("after it was taken out of the file: %q", got)
	}
	edit(clients)
	carried("after it was written there again")
	if now := pid(t, m, "pfar-mcp@clients"); now != launcher {
		t.Errorf("the launcher is %s, and was %s", now, launcher)
	}
	if s := becomes(t, m, "clients", control.Running); s.Crashes != 0 {
		t.Errorf("%+v", s)
	}
}

// takenOver has a program run as if it had taken over the bridge: in its cgroup, with the machine's network. It says of
// each destination whether it was reached.
const takenOver = `import socket, sys
for to in sys.argv[1:]:
    kind, address, port = to.split(",")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    s = socket.socket(family, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
    s.settimeout(1)
    try:
        s.connect((address, int(port)))
        s.send(b"hello\\n")
        print(to, "reached")
    except OSError as e:
        print(to, "refused" if not isinstance(e, TimeoutError) else "lost")
`

func TestBridgeIsHeld(t *testing.T) {
	t.Parallel()
	m := machines.Boot(t)
	m.Put(t, "/root/foreign.nft", "table inet foreign { set s { type ipv4_addr; elements = { 192.0.2.1 } }\nchain c { type filter hook output priority 5; policy accept; ip daddr @s counter drop\n}\n}\n", 0o644)
	m.Shell(t, "nft -f /root/foreign.nft; nft list table inet foreign >/root/foreign.before")
	online(t, m)
	m.Run(t, "systemctl", "enable", "--now", "--quiet", "pfar.target")
	m.Put(t, "/etc/pfar/mcp.d/clients.hcl", clients, 0o644)
	becomes(t, m, "clients", control.Running)
	surf(t, m, false, "go", "tcp", "api.allowed.example:7777")
	m.Put(t, "/root/taken-over.py", takenOver, 0o644)
	want := map[string]string{
		"tcp," + internet.Host + ",7777":     "reached", // it has just been allowed
		"udp," + internet.NameServer + ",53": "reached",
		"tcp," + internet.Host + ",80":       "refused",
		"udp," + internet.Host + ",7777":     "refused",
		"tcp," + internet.Evil + ",7777":     "refused",
		"tcp," + internet.Private + ",7777":  "refused",
		"tcp," + internet.Metadata + ",80":   "refused",
		"tcp,127.0.0.1,7417":                 "refused",
		"tcp,::1,7417":                       "refused",
		"tcp," + internet.Ours + ",7417":     "refused",
		"udp,255.255.255.255,9":              "refused",
	}
	attack := func(when string) {
		t.Helper()
		script := `for d in /sys/fs/cgroup/unified /sys/fs/cgroup; do if test -e $d$1/cgroup.procs; then echo $$ >$d$1/cgroup.procs; fi; done; shift; exec python3 /root/taken-over.py "$@"`
		var said string
		bed.Eventually(t, soon, func() error {
			group := strings.TrimSpace(m.Run(t, "systemctl", "show", "-P", "ControlGroup", bridgeUnit))
			args := []string{"-euc", script, "sh", group}
			for to := range want {
				args = append(args, to)
			}
			if group != "" {
				r := m.Try("sh", args...)
				if said = r.Stdout; r.Code == 0 {
					return nil
				}
			}
			// A bridge ends when it is idle, with all in its cgroup, and a busy machine is slow.
			surf(t, m, false, "go", "tcp", "api.allowed.example:7777")
			return errors.New("the bridge has ended")
		})
		for to, what := range want {
			if !strings.Contains(said, to+" "+what+"\n") {
				t.Errorf("%s, from the bridge's cgroup, %s is to be %s:\n%s", when, to, what, said)
			}
		}
	}
	attack("at first")
	m.Run(t, "systemctl", "kill", "--signal=KILL", "pfard")
	attack("with pfard killed")
	becomes(t, m, "clients", control.Running)
	m.Run(t, "nft", "delete", "table", "inet", "pfar")
	table := func(there bool) func() error {
		return func() error {
			if r := m.Try("nft", "list", "table", "inet", "pfar"); (r.Code == 0) != there {
				return fmt.Errorf("the table: %s", r)
			}
			return nil
		}
	}
	bed.Eventually(t, soon, table(true))
	attack("after somebody deleted the table")
	m.Run(t, "nft", "flush", "ruleset")
	m.Shell(t, "nft -f /root/foreign.nft")
	bed.Eventually(t, soon, table(true))
	attack("after somebody flushed everything")
	if listed := m.Run(t, "nft", "list", "table", "inet", "pfar"); !strings.Contains(listed, internet.Host) || strings.Contains(listed, internet.Evil) {
		t.Errorf("the table:\n%s", listed)
	}
	m.Run(t, "rm", "/etc/pfar/mcp.d/clients.hcl")
	bed.Eventually(t, soon, table(false))
	m.Shell(t, "nft list table inet foreign | diff - /root/foreign.before")
	m.Put(t, "/etc/pfar/mcp.d/clients.hcl", clients, 0o644)
	becomes(t, m, "clients", control.Running)
	surf(t, m, false, "go", "tcp", "api.allowed.example:7777")
	attack("with a table made anew")
	m.Run(t, "systemctl", "stop", "pfard")
	m.Run(t, "rm", "/etc/pfar/mcp.d/clients.hcl")
	m.Run(t, "systemctl", "start", "pfard")
	bed.Eventually(t, soon, table(false))
}
