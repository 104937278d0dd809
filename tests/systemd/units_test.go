package systemd

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/tests/image"
	"github.com/pfar/pfar/tests/systemd/bed"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestUnitsVerify has systemd find fault with the units as they are installed. It is silent when it finds none.
func TestUnitsVerify(t *testing.T) {
	t.Parallel()
	m := machines.Boot(t)
	r := m.Try("systemd-analyze", append([]string{"verify", "--man=no"}, instances(t, "system")...)...)
	if r.Code != 0 || r.Stdout+r.Stderr != "" {
		t.Error(r)
	}
	if r := m.Try("journalctl", "--boot", "--quiet", "--no-pager", "--grep=ordering cycle"); r.Stdout != "" {
		t.Error(r)
	}
	m.Shell(t, "cd /usr/lib/systemd/system; sed -i s/ProtectHome=/ProtectHomes=/ pfard.service; sed -i /ListenStream=/d pfar-gateway.socket")
	for _, unit := range []string{"pfard.service", "pfar-gateway.socket"} {
		if r := m.Try("systemd-analyze", "verify", "--man=no", unit); r.Stderr == "" {
			t.Errorf("systemd finds no fault in a broken %s: %s", unit, r)
		}
	}
}

// unitFiles are the paths of the installed units: those of the machine ("system") or those of a user ("user").
func unitFiles(t *testing.T, scope string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(machines.Installed(), "usr/lib/systemd", scope, "pfar*"))
	if err != nil || len(list) < 10 {
		t.Fatalf("%d units are installed (%v)", len(list), err)
	}
	return list
}

// instances are the installed units, of each template one instance.
func instances(t *testing.T, scope string) []string {
	t.Helper()
	list := unitFiles(t, scope)
	for i, path := range list {
		list[i] = strings.Replace(filepath.Base(path), "@.", "@notion.", 1)
	}
	slices.Sort(list)
	return list
}

// TestUnitsName has every unit name a manual page that is installed.
func TestUnitsName(t *testing.T) {
	t.Parallel()
	for _, unit := range slices.Concat(unitFiles(t, "system"), unitFiles(t, "user")) {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		_, pages, ok := strings.Cut(string(text), "\nDocumentation=")
		if !ok {
			t.Errorf("%s has no Documentation=", filepath.Base(unit))
		}
		pages, _, _ = strings.Cut(pages, "\n")
		for page := range strings.FieldsSeq(pages) {
			name, section, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(page, "man:"), ")"), "(")
			if _, err := os.Stat(filepath.Join(machines.Installed(), "usr/share/man/man"+section, name+"."+section+".gz")); err != nil {
				t.Errorf("%s names %s: %v", filepath.Base(unit), page, err)
			}
		}
	}
}

// TestUnitsSecurity holds what systemd-analyze security says of the services: their exposure, from 0 (safe) to 10, and
// what each leaves open.
func TestUnitsSecurity(t *testing.T) {
	t.Parallel()
	m := machines.Boot(t)
	var got strings.Builder
	for _, unit := range instances(t, "system") {
		if strings.HasSuffix(unit, ".service") {
			describe(t, &got, m, unit)
		}
	}
	release, err := image.Suite() // systemd of another release looks at other things
	if err != nil {
		t.Fatal(err)
	}
	golden := "testdata/security-" + release + ".txt"
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("%s is not what systemd says (run with -update, and read the difference):\n%s", golden, got.String())
	}
}

func describe(t *testing.T, w *strings.Builder, m *bed.Machine, unit string) {
	t.Helper()
	table := m.Run(t, "systemd-analyze", "security", "--no-pager", unit)
	_, exposure, ok := strings.Cut(table, "Overall exposure level for "+unit+": ")
	if !ok {
		t.Fatalf("no exposure in %q", table)
	}
	exposure, _, _ = strings.Cut(exposure, " ")
	fmt.Fprintf(w, "%s %s\n", unit, exposure)
	var checks []struct {
		Name, Exposure string
		Set            bool
	}
	if err := json.Unmarshal([]byte(m.Run(t, "systemd-analyze", "security", "--json=short", unit)), &checks); err != nil {
		t.Fatal(err)
	}
	var open []string
	for _, c := range checks {
		if !c.Set && c.Exposure != "" {
			open = append(open, c.Name+" "+c.Exposure)
		}
	}
	slices.Sort(open)
	for _, line := range open {
		fmt.Fprintf(w, "\t%s\n", line)
	}
}
