package systemd

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/handover"
)

// TestUndo restores what calls have written to a folder and to the private home of a unit's server, also after a
// restart of the machine. The server, whose user owns nothing else, does not see the store.
func TestUndo(t *testing.T) {
	t.Parallel()
	m := appliance(t)
	m.Shell(t, `mkdir -p /srv/notes; chmod 777 /srv/notes
cd /srv/notes; echo first >a; echo first >b; chmod 666 a b`)
	m.Put(t, "/etc/pfar/mcp.d/keeps.hcl", fmt.Sprintf(
		"label = \"public\"\nserver {\n  command = %q\n}\nsandbox {\n  state = true\n  writable = [\"/srv/notes\"]\n}\n",
		programs+"/clients"), 0o644)
	runs := func(command, want string) {
		t.Helper()
		becomes(t, m, "keeps", control.Running)
		arguments := fmt.Sprintf(`{"argv":["/bin/sh","-c",%q]}`, command)
		if r := m.Try("pfar", "call", "keeps.run", "--json", arguments); !strings.Contains(r.Stdout, want) {
			t.Errorf("%s: %s", command, r)
		}
	}
	undo := func(args ...string) (h handover.History) {
		t.Helper()
		out := m.Run(t, "pfar", append([]string{"undo", "keeps", "--json"}, args...)...)
		if err := json.Unmarshal([]byte(out), &h); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return h
	}
	runs("echo kept >/home/mcp/file; echo done", "done")
	runs("echo second >/srv/notes/a; rm /srv/notes/b; echo other >/home/mcp/file; echo done", "done")
	runs("ls /var/lib/pfar/undo || echo no", "No such file")
	m.Reboot(t)
	runs("echo third >/srv/notes/a; echo new >/srv/notes/c; echo done", "done")
	steps := undo().Steps
	since := ""
	for _, s := range steps {
		for _, c := range s.Changes {
			if c.Path == "/srv/notes/b" && c.What == "deleted" && len(s.Calls) > 0 {
				since = s.Calls[0].ID
			}
		}
	}
	if since == "" {
		t.Fatalf("no call has deleted a file: %+v", steps)
	}
	for _, c := range undo("--since", since, "--yes").Restores {
		if c.Error != "" {
			t.Errorf("%+v", c)
		}
	}
	if got := m.Run(t, "sh", "-c", "cd /srv/notes && cat a b && ls"); got != "first\nfirst\na\nb\n" {
		t.Errorf("restored: %q", got)
	}
	runs("cat /home/mcp/file", "kept")
	if got := m.Run(t, "stat", "-c", "%a", "/var/lib/pfar/undo/keeps"); got != "700\n" {
		t.Errorf("the store has the mode %s", got)
	}
	if r := m.Try("pfar", "audit", "--json"); !strings.Contains(r.Stdout, "undo-writes") {
		t.Errorf("no record says who restored it: %.2000s", r.Stdout)
	}
}
