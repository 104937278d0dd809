package systemd

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestUnitsVerify has systemd find fault with the units as they are installed. It is silent when it finds none.
func TestUnitsVerify(t *testing.T) {
	t.Parallel()
	m := machines.Boot(t)
	r := m.Try("systemd-analyze", append([]string{"verify", "--man=no"}, instances(t)...)...)
	if r.Code != 0 || r.Stdout+r.Stderr != "" {
		t.Error(r)
	}
	m.Shell(t, "cd /usr/lib/systemd/system; sed -i s/ProtectHome=/ProtectHomes=/ pfard.service; sed -i /ListenStream=/d pfar-gateway.socket")
	for _, unit := range []string{"pfard.service", "pfar-gateway.socket"} {
		if r := m.Try("systemd-analyze", "verify", "--man=no", unit); r.Stderr == "" {
			t.Errorf("systemd finds no fault in a broken %s: %s", unit, r)
		}
	}
}

// instances are the installed units, of each template one instance.
func instances(t *testing.T) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(machines.Installed(), "usr/lib/systemd/system/pfar*"))
	if err != nil || len(list) < 10 {
		t.Fatalf("%d units are installed (%v)", len(list), err)
	}
	for i, path := range list {
		list[i] = strings.Replace(filepath.Base(path), "@.", "@notion.", 1)
	}
	slices.Sort(list)
	return list
}
