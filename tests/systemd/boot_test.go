package systemd

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pfar/pfar/tests/systemd/bed"
	"github.com/pfar/pfar/tests/trust"
	"github.com/pfar/pfar/units/control"
)

// declared is a declaration of the tests' own server.
func declared(more string, args ...string) string {
	list := "[]"
	if len(args) > 0 {
		list = `["` + strings.Join(args, `", "`) + `"]`
	}
	return fmt.Sprintf("%s\nserver {\n  command = %q\n  args = %s\n}\n%s\n", more, programs+"/echo", list, trust.Honest)
}

// isActive wants a unit to become what systemctl is-active says of it.
func isActive(t *testing.T, m *bed.Machine, unit, want string) {
	t.Helper()
	bed.Eventually(t, soon, func() error {
		if r := m.Try("systemctl", "is-active", unit); strings.TrimSpace(r.Stdout) != want {
			return fmt.Errorf("%s is %q, want %q: %s", unit, r.Stdout, want, m.Try("systemctl", "status", "--no-pager", unit).Stdout)
		}
		return nil
	})
}

// TestDependenciesTellTheTruth: also of what was declared, edited and removed since the boot.
func TestDependenciesTellTheTruth(t *testing.T) {
	t.Parallel()
	m := appliance(t)
	lists := func(want bool) {
		t.Helper()
		bed.Eventually(t, soon, func() error {
			if list := m.Run(t, "systemctl", "list-dependencies", "--plain", "pfar.target"); strings.Contains(list, "pfar-mcp@one.service") != want {
				return fmt.Errorf("listed: want %t:\n%s", want, list)
			}
			return nil
		})
	}
	m.Put(t, "/etc/pfar/mcp.d/one.hcl", declared(""), 0o644)
	lists(true)
	m.Put(t, "/etc/pfar/mcp.d/one.hcl", declared("label = \"public\""), 0o644)
	bed.Eventually(t, soon, func() error {
		if status := m.Try("systemctl", "status", "pfar-mcp@one"); !strings.Contains(status.Stdout, "label public") {
			return fmt.Errorf("it runs as it was declared before: %s", status)
		}
		return nil
	})
	becomes(t, m, "one", control.Running)
	if status := m.Run(t, "systemctl", "status", "pfar-mcp@one"); strings.Contains(status, "changed on disk") || !strings.Contains(status, "file:///etc/pfar/mcp.d/one.hcl") {
		t.Errorf("after an edit:\n%s", status)
	}
	m.Run(t, "pfar", "disable", "one")
	lists(false)
	m.Run(t, "pfar", "enable", "one")
	lists(true)
	m.Run(t, "rm", "/etc/pfar/mcp.d/one.hcl")
	lists(false)
}

// TestDeclaredServersStartAtBoot: what pfar.target wants is what is declared, and the operator's word outlives the
// machine.
func TestDeclaredServersStartAtBoot(t *testing.T) {
	t.Parallel()
	m := machines.Boot(t)
	m.Put(t, "/etc/pfar/mcp.d/one.hcl", declared(`description = "100% of %i\\"`), 0o644)
	m.Put(t, "/etc/pfar/mcp.d/two.hcl", declared(""), 0o644)
	m.Put(t, "/etc/pfar/mcp.d/later.hcl", declared("autostart = false"), 0o644)
	m.Put(t, "/etc/pfar/mcp.d/broken.hcl", "server {\n  comand = \"x\"\n}\n", 0o644)
	m.Run(t, "systemctl", "enable", "--quiet", "pfar.target")
	wanted := func(want ...string) {
		t.Helper()
		var list []string
		for line := range strings.Lines(m.Run(t, "systemctl", "list-dependencies", "--plain", "pfar.target")) {
			if unit := strings.TrimSpace(line); strings.HasPrefix(unit, "pfar-mcp@") {
				list = append(list, unit)
			}
		}
		if strings.Join(list, " ") != strings.Join(want, " ") {
			t.Errorf("pfar.target wants %q, and is to want %q", list, want)
		}
	}
	m.Reboot(t)
	wanted("pfar-mcp@one.service", "pfar-mcp@two.service")
	if got, want := m.Run(t, "systemctl", "show", "-pDescription", "-pDocumentation", "pfar-mcp@one.service"), "Documentation=\"man:pfard(8)\" \"man:pfar(1)\" \"man:pfar-declaration(5)\" file:///etc/pfar/mcp.d/one.hcl\nDescription=MCP server one: 100% of %i\n"; got != want {
		t.Errorf("systemd reads %q, want %q", got, want)
	}
	isActive(t, m, "pfar-mcp@one.service", "active")
	isActive(t, m, "pfar-mcp@two.service", "active")
	isActive(t, m, "pfar-mcp@later.service", "inactive")
	// One that never answers would hold the boot back.
	if waits := m.Run(t, "systemctl", "show", "-P", "After", "pfar.target"); strings.Contains(waits, "pfar-mcp@") {
		t.Errorf("pfar.target waits for servers: %s", waits)
	}
	if after := m.Run(t, "systemctl", "show", "-P", "After", "pfar-mcp@one.service"); !strings.Contains(after, "pfar.target") {
		t.Errorf("a server starts before pfar.target, which then waits for it: %s", after)
	}
	if again := m.Run(t, "systemctl", "show", "-pNRestarts", "pfar-mcp@one.service"); again != "NRestarts=0\n" {
		t.Errorf("it did not come up at once: %s%s", again, m.Journal(t, "pfar-mcp@one.service"))
	}

	mistakes(t, m)

	m.Run(t, "pfar", "disable", "two")
	isActive(t, m, "pfar-mcp@two.service", "inactive")
	if r := m.Try("systemctl", "start", "pfar-mcp@two.service"); r.Code == 0 {
		t.Errorf("systemctl starts a server that is disabled: %s", r)
	}
	m.PowerCut(t)
	if err := m.On(); err != nil {
		t.Fatal(err)
	}
	isActive(t, m, "pfar-mcp@one.service", "active") // by the last good version of its file
	wanted("pfar-mcp@one.service")
	if out := m.Run(t, "pfar", "status", "two"); !strings.Contains(out, "disabled by you; pfar enable two") {
		t.Errorf("pfar status: %s", out)
	}
	isActive(t, m, "pfar-mcp@two.service", "inactive")
	m.Run(t, "pfar", "enable", "two")
	isActive(t, m, "pfar-mcp@two.service", "active")
}

// mistakes wants a mistake to be where an administrator looks for what is wrong, and breaks the file of a server that
// runs.
func mistakes(t *testing.T, m *bed.Machine) {
	t.Helper()
	const place = "/etc/pfar/mcp.d/broken.hcl:2:3: Unknown key"
	isActive(t, m, "pfar-mcp@broken.service", "failed")
	bed.Eventually(t, soon, func() error {
		if status := m.Try("systemctl", "status", "pfar-mcp@broken").Stdout; !strings.Contains(status, `Status: "failed: `+place) {
			return fmt.Errorf("its unit says %s", status)
		}
		if status := m.Run(t, "systemctl", "status", "pfard"); !strings.Contains(status, `Status: "`+place+" (pfar status)") {
			return fmt.Errorf("pfard says %s", status)
		}
		return nil
	})
	told := entries(t, m, "-b", "-u", "pfard", "PFAR_SERVER=broken", "PFAR_PROBLEM=Unknown key")
	if len(told) != 1 || told[0]["PFAR_FILE"] != "/etc/pfar/mcp.d/broken.hcl" || told[0]["PFAR_LINE"] != "2" || told[0]["PFAR_REMEDY"] == nil {
		t.Errorf("the journal has %v", told)
	}
	m.Put(t, "/etc/pfar/mcp.d/one.hcl", "server {\n", 0o644)
	bed.Eventually(t, soon, func() error {
		if status := m.Run(t, "systemctl", "status", "pfar-mcp@one"); !strings.Contains(status, "runs by the last good version of its file: /etc/pfar/mcp.d/one.hcl:") {
			return fmt.Errorf("the unit of a server that runs on says %s", status)
		}
		return nil
	})
}

// entries are what the journal has for a match, fields by name.
func entries(t *testing.T, m *bed.Machine, match ...string) (all []map[string]any) {
	t.Helper()
	m.Run(t, "journalctl", "--sync")
	for line := range strings.Lines(m.Run(t, "journalctl", append([]string{"--output=json", "--quiet", "--no-pager"}, match...)...)) {
		var e map[string]any
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, e)
	}
	return all
}

// TestRefusalIsInTheJournal, and can be asked for by server, host and verdict.
func TestRefusalIsInTheJournal(t *testing.T) {
	t.Parallel()
	m := machines.Boot(t)
	const ask = `exec 3<>/dev/tcp/127.0.0.1/9876; printf 'CONNECT evil.test:443 HTTP/1.1\\r\\nHost: evil.test:443\\r\\n\\r\\n' >&3; cat <&3 >&2; exec ` + programs + `/echo`
	m.Put(t, "/etc/pfar/mcp.d/curious.hcl", "allowed_domains = [\"api.notion.com\"]\nserver {\n  command = \"bash\"\n  args = [\"-c\", \""+ask+"\"]\n}\n", 0o644)
	m.Run(t, "systemctl", "start", "pfar.target")
	isActive(t, m, "pfar-mcp@curious.service", "active")
	refused := entries(t, m, "PFAR_SERVER=curious", "PFAR_HOST=evil.test:443", "PFAR_VERDICT=deny")
	if len(refused) != 1 || refused[0]["_SYSTEMD_UNIT"] != "pfar-egress@curious.service" || refused[0]["PRIORITY"] != "4" {
		t.Errorf("refusals: %v", refused)
	}
	if out := m.Run(t, "pfar", "logs", "curious"); !strings.Contains(out, "verdict=deny") || !strings.Contains(out, "pfar refuses evil.test:443") {
		t.Errorf("pfar logs: %s", out)
	}
}

// TestLastWords: what a launcher says before it ends is its unit's in the journal, also if journald is late to read it.
func TestLastWords(t *testing.T) {
	t.Parallel()
	m := machines.Boot(t)
	m.Run(t, "systemctl", "start", "pfar.target")
	for i := range 20 {
		name := fmt.Sprint("killed", i)
		m.Put(t, "/etc/pfar/mcp.d/"+name+".hcl", declared(""), 0o644)
		isActive(t, m, "pfar-mcp@"+name+".service", "active")
		late, err := strconv.Atoi(strings.TrimSpace(m.Run(t, "sh", "-c", `set -e
			# Not by systemctl kill, which takes a second on a busy machine.
			journald=$(systemctl show -P MainPID systemd-journald.service)
			group=/sys/fs/cgroup$(systemctl show -P ControlGroup "pfar-mcp-$1.scope")
			kill -STOP $journald
			trap 'kill -CONT $journald' EXIT
			begin=$(date +%s%N)
			kill -KILL $(cat "$group/cgroup.procs") || : # some end with the first of them
			sleep 0.3 # longer than a launcher takes to end, if it does not wait
			kill -CONT $journald
			echo $((($(date +%s%N) - begin) / 1000000))`, "sh", name)))
		if err != nil {
			t.Fatal(err)
		}
		if late > 900 { // a launcher waits for a second, which a busy machine may take for this
			continue
		}
		bed.Eventually(t, soon, func() error {
			all := entries(t, m, "PFAR_SERVER="+name, "SYSLOG_IDENTIFIER=pfar-sandbox", "PRIORITY=4")
			if len(all) != 1 || all[0]["_SYSTEMD_UNIT"] != "pfar-mcp@"+name+".service" {
				return fmt.Errorf("the launcher's words: %v", all)
			}
			return nil
		})
		return
	}
	t.Error("journald was never late by less than a launcher waits")
}

// TestFailure: a server that crashes three times in a row is disabled, and the owner is told once, with the reason.
func TestFailure(t *testing.T) {
	t.Parallel()
	m := machines.Boot(t)
	m.Put(t, "/etc/pfar/on-failure", "#!/bin/sh\necho \"$PFAR_SERVER: $PFAR_REASON\" >>/var/told\necho noted\n", 0o755)
	m.Put(t, "/etc/pfar/mcp.d/broken.hcl", declared("", "-crash"), 0o644)
	m.Run(t, "systemctl", "start", "pfar.target")
	isActive(t, m, "pfar-mcp@broken.service", "failed")
	const reason = "disabled after 3 crashes in a row: exit status 3: echo: crashing as told; pfar starts it again 10 min after that"
	told := func(times int) {
		t.Helper()
		bed.Eventually(t, soon, func() error {
			if got := m.Try("cat", "/var/told").Stdout; got != strings.Repeat("broken: "+reason+"\n", times) {
				return fmt.Errorf("told %q", got)
			}
			return nil
		})
	}
	told(1)
	critical := entries(t, m, "PFAR_SERVER=broken", "PRIORITY=2")
	if len(critical) != 1 || critical[0]["PFAR_REASON"] != reason || critical[0]["_SYSTEMD_UNIT"] != "pfar-failed@broken.service" || critical[0]["SYSLOG_IDENTIFIER"] != "pfard" {
		t.Errorf("critical entries: %v", critical)
	}
	bed.Eventually(t, soon, func() error { // it is logged once the program has ended
		if noted := entries(t, m, "PFAR_SERVER=broken", "PFAR_OUTPUT=noted"); len(noted) != 1 {
			return fmt.Errorf("what the owner's program writes: %v", noted)
		}
		return nil
	})
	lines := entries(t, m, "--unit=pfar-mcp@broken.service", "PFAR_SERVER=broken", "SYSLOG_IDENTIFIER=pfar-mcp@broken")
	if len(lines) != 3 || lines[0]["MESSAGE"] != "echo: crashing as told" || lines[0]["PRIORITY"] != "6" {
		t.Errorf("the server's own words: %v", lines)
	}
	if own := entries(t, m, "--unit=pfar-mcp@broken.service", "PFAR_SERVER=broken", "SYSLOG_IDENTIFIER=pfar-sandbox", "PRIORITY=4"); len(own) != 3 {
		t.Errorf("the launcher's: %v", own)
	}
	if out := m.Run(t, "pfar", "logs", "broken"); strings.Count(out, "Z | echo: crashing as told\n") != 3 {
		t.Errorf("pfar logs: %s", out)
	}
	gone := entries(t, m, "--unit=pfar-gateway.service", "PFAR_SERVER=broken")
	closed := func(e map[string]any) bool { // the gateway may be at its first words, or reading
		why := fmt.Sprint(e["PFAR_REASON"])
		return strings.HasSuffix(why, "the server closed its stdout") ||
			strings.HasSuffix(why, "the server's stdin is closed")
	}
	if !slices.ContainsFunc(gone, closed) {
		t.Errorf("the gateway's: %v", gone)
	}
	m.Run(t, "systemctl", "stop", "pfard.service")
	if out := m.Run(t, "pfar", "logs", "broken"); strings.Count(out, "Z | echo: crashing as told\n") != 3 {
		t.Errorf("pfar logs without pfard: %s", out)
	}
	m.Run(t, "systemctl", "start", "pfard.service")
	m.Try("pfar", "enable", "broken") // without having mended it
	isActive(t, m, "pfar-mcp@broken.service", "failed")
	told(2)
	m.Put(t, "/etc/pfar/mcp.d/broken.hcl", declared(""), 0o644)
	isActive(t, m, "pfar-mcp@broken.service", "active")
}
