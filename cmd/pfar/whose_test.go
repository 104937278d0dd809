package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/units/clientfile"
	"github.com/pfar/pfar/units/control"
)

// TestWhose: one rule says which pfar a verb is about.
func TestWhose(t *testing.T) {
	own, machine := control.Dirs{Run: "/run/user/1000/pfar"}, control.Dirs{Run: "/run/pfar"}
	for _, tt := range []struct {
		name  string
		named bool
		there []string
		want  string
	}{
		{"nothing runs", false, nil, own.Run},
		{"the machine's alone", false, []string{machine.Control()}, machine.Run},
		{"one's own", false, []string{own.Control()}, own.Run},
		{"both", false, []string{own.Control(), machine.Control()}, own.Run},
		{"the environment says so", true, []string{machine.Control()}, own.Run},
		{"a machine's that is stopped", false, []string{machine.Run}, own.Run},
	} {
		got := whose(own, machine, tt.named, func(path string) bool { return slices.Contains(tt.there, path) })
		if got.Run != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got.Run, tt.want)
		}
	}
}

// TestHintsNameWhatHelps: whoever is not let in, or finds nothing running, is told what this user can do on this
// machine.
func TestHintsNameWhatHelps(t *testing.T) {
	denied := fmt.Errorf("%w: connecting to %q", control.ErrDenied, "/run/pfar/look.sock")
	file := &fs.PathError{Op: "open", Path: "/etc/pfar/clients.d/a.hcl", Err: fs.ErrPermission}
	stopped := fmt.Errorf("%w: nothing answers", control.ErrNotRunning)
	for _, tt := range []struct {
		name      string
		err       error
		uid       int
		machine   bool // the verb is about the machine's
		installed bool
		want      string
	}{
		{"not of the group", denied, 1000, true, true, "this machine's pfar runs: sudo pfar status; members of the group pfar-admin"},
		{"a file of root's", file, 1000, true, true, "this machine's pfar runs: sudo pfar status;"},
		{"somebody else's", denied, 1000, false, true, "run pfar as the user that started it"},
		{"root, stopped", stopped, 0, true, true, `start it with "systemctl start pfar.target"`},
		{"root, not installed", stopped, 0, true, false, `start it with "pfar up"`},
		{"a user, stopped", stopped, 1000, false, true, `start this machine's with "sudo systemctl start pfar.target", or one of your own with "pfar up"`},
		{"a user, not installed", stopped, 1000, false, false, `start it with "pfar up"`},
		{"an error that knows", fail(exitDenied, "asking: %w", denied).withHint("as it says"), 1000, true, true, "as it says"},
	} {
		c := newPfar(nil, nil, nil, func(string) string { return "" }, tt.uid)
		c.exists = func(string) bool { return tt.installed }
		c.dirs = c.own
		if tt.machine {
			c.dirs = c.machine
		}
		if got := c.hintFor(tt.err, "pfar status"); !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestClientConfigFindsThisPfar and no other one: a command finds it by its directory, and a token goes to its port
// alone.
func TestClientConfigFindsThisPfar(t *testing.T) {
	config := func(report control.Report, args ...string) (*bench, int) {
		first := searchGateway(t, "")
		first.pfard(t, report, nil)
		b := first.again("")
		return b, b.run(t.Context(), append([]string{"client", "config", "default"}, args...))
	}
	b, code := config(control.Report{}, "--stdio")
	var got struct{ MCPServers map[string]clientfile.Entry }
	if err := json.Unmarshal(b.out.Bytes(), &got); code != 0 || err != nil || got.MCPServers["pfar"].Env["PFAR_RUN_DIR"] != b.dirs.Run {
		t.Errorf("exit %d, %v: %s%s", code, err, b.out, b.err)
	}
	if b, code := config(control.Report{Endpoint: "http://127.0.0.1:7418/mcp"}); code != 0 || !strings.Contains(b.out.String(), `"http://127.0.0.1:7418/mcp/default"`) {
		t.Errorf("exit %d: %s%s", code, b.out, b.err)
	}
	for hint, report := range map[string]control.Report{
		"hint: systemctl --user enable pfar-gateway-http.socket": {Journal: true},
		"hint: use --stdio": {},
	} {
		if b, code := config(report); code != exitFailed || b.out.Len() > 0 || !strings.Contains(b.err.String(), hint) {
			t.Errorf("without a port: exit %d, %s%s", code, b.out, b.err)
		}
	}
	first := searchGateway(t, "")
	if b := first.again(""); b.run(t.Context(), []string{"client", "config", "default"}) != exitNotRunning || b.out.Len() > 0 {
		t.Errorf("of one that does not run: %s%s", b.out, b.err)
	}
}
