package systemd

import (
	"strings"
	"testing"
)

// TestFlowUnit runs pfar's own nodes in the gateway's unit: the program of jq is a process of its own there, and a file
// lies in the gateway's directory.
func TestFlowUnit(t *testing.T) {
	t.Parallel()
	m := appliance(t)
	r := m.Try("pfar", "flow", "run", `template --template 'seven words' + pick --jq 'length'`)
	if r.Code != 0 || !strings.Contains(r.Stdout, "11") {
		t.Errorf("pick: %s", r)
	}
	r = m.Try("pfar", "flow", "run", `template --template 'seven words' + write-file --path a/b.txt`)
	if r.Code != 0 {
		t.Errorf("write-file: %s", r)
	}
	r = m.Try("pfar", "flow", "run", `read-file --path a/b.txt`)
	if r.Code != 0 || !strings.Contains(r.Stdout, "seven words") {
		t.Errorf("read-file: %s", r)
	}
}
