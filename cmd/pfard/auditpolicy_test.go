package main

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/units/control"
)

// TestPoliciesAndClientsAreRecorded: what calls are decided by, and who may make them, old to new, with all that is
// laxer than it would be without a file, and why.
func TestPoliciesAndClientsAreRecorded(t *testing.T) {
	base := t.TempDir()
	dirs := control.Dirs{Config: filepath.Join(base, "mcp.d"), State: filepath.Join(base, "state"), Run: base}
	d := newDaemon(options{dirs: dirs, declarations: dirs.Config}, slog.New(slog.DiscardHandler), vaultIn(t, dirs), "")
	for _, dir := range []string{dirs.State, dirs.Config, dirs.Policies(), dirs.Clients()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	d.audit.open(false)
	seen := 0
	step := func(what, path, text string, want ...string) {
		t.Helper()
		path = filepath.Join(base, path)
		if text == "" {
			os.Remove(path)
		} else if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		d.reload()
		var got []string
		list := d.audit.recorded(t, ownChain)
		for _, r := range list[seen:] {
			if r.Kind == audit.Policy {
				got = append(got, fmt.Sprintf("%s %s %s %t>%t %s: %s", r.Method, r.Client, strings.TrimPrefix(r.Subject, base+"/"), r.Old != "", len(r.New) == 64, r.Outcome, r.Reason))
			}
		}
		seen = len(list)
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s: recorded\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	const token = "token_sha256 = [\"0000000000000000000000000000000000000000000000000000000000000001\"]\n"
	step("the beginning", "none", "", "policy  policies.d false>true relaxed 0: ")
	step("no change", "none", "")
	step("a mistake", "policies.d/a.hcl", "profile \"strict\" { inspect = \"inspect\" }\n")
	step("a relaxation", "policies.d/a.hcl", "profile \"strict\" {\n  inspect = \"inspect\"\n  relax = \"We look.\"\n}\n",
		`relax  policies.d/a.hcl:2 false>true inspect = "inspect" is less strict than strict.hcl:7:1 has it: We look.`, "policy  policies.d true>true relaxed 1: ")
	step("it is gone", "policies.d/a.hcl", "", "policy  policies.d true>true relaxed 0: ")
	step("a client", "clients.d/desk.hcl", token, "client desk clients.d/desk.hcl false>true profile strict: ")
	step("no change of a client", "none", "")
	step("a client without a reason", "clients.d/desk.hcl", token+"profile = \"operator\"\n")
	step("a client with a reason", "clients.d/desk.hcl", token+"profile = \"operator\"\nrelax = \"A trial.\"\n", "client desk clients.d/desk.hcl true>true relaxed: profile operator, sessions sticky: A trial.")
	step("a disabled client", "clients.d/desk.hcl", token+"enabled = false\n", "client desk clients.d/desk.hcl true>true let in nowhere: ")
	step("a removed client", "clients.d/desk.hcl", "", "client desk  true>false : ")
	step("whoever would be the operator", "clients.d/operator.hcl", token, "client operator clients.d/operator.hcl false>true let in nowhere: ")
	step("a mistake from the beginning", "clients.d/lab.hcl", "servers = [\n", "client lab clients.d/lab.hcl false>true let in nowhere: ")
}
