package systemd

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/tests/systemd/bed"
	"github.com/pfar/pfar/tests/trust"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/flows"
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

// TestFlowKilled kills pfard between the writes of a flow of ten steps. Its servers and the gateway go on under
// systemd, and so does the run: each write is made once. Then it kills the gateway in the course of a write, which is
// made once; the run waits for its owner.
func TestFlowKilled(t *testing.T) {
	t.Parallel()
	m := appliance(t)
	const acts = "/srv/desk/acts"
	m.Shell(t, "mkdir -m 0777 /srv/desk; cd /srv/desk; touch acts acts.write acts.calls acts.written; chmod 0666 acts*")
	m.Put(t, "/etc/pfar/clients.d/default.hcl", "servers = [\"*\"]\nprofile = \"operator\"\nrelax = \"a test\"\n", 0o644)
	m.Put(t, "/etc/pfar/mcp.d/desk.hcl", fmt.Sprintf("label = \"public\"\npins = \"trust-first\"\n"+
		"server {\n  command = %q\n  args = [\"-acts\", %q]\n}\n"+
		"tool \"look\" {\n  semantics = \"read\"\n}\ntool \"write\" {\n  semantics = \"write\"\n}\n"+
		"sandbox {\n  writable = [\"/srv/desk\"]\n}\n%s", programs+"/standin", acts, trust.Honest), 0o644)
	becomes(t, m, "desk", control.Running)
	begin := func(line string) {
		t.Helper()
		m.Run(t, "systemd-run", "--quiet", "--collect", "pfar", "flow", "run", line)
	}
	written := func(want ...string) {
		t.Helper()
		bed.Eventually(t, soon, func() error {
			if got := strings.Fields(m.Read(t, acts+".written")); !slices.Equal(got, want) {
				return fmt.Errorf("written %q, want %q", got, want)
			}
			return nil
		})
	}
	becomesRun := func(state flows.State) (last flows.Status) {
		t.Helper()
		bed.Eventually(t, soon, func() error {
			var all []flows.Status
			r := m.Try("pfar", "flow", "list", "--json")
			if err := json.Unmarshal([]byte(r.Stdout), &all); err != nil || len(all) == 0 {
				return fmt.Errorf("no run: %v, %s", err, r)
			}
			if last = all[0]; last.State != state {
				return fmt.Errorf("the run is %s, want %s: %s", last.State, state, last.Reason)
			}
			return nil
		})
		return last
	}
	var line, all []string
	for i := range 5 {
		all = append(all, fmt.Sprintf("w%d", i))
		line = append(line, "desk.write --text "+all[i], "backoff --seconds 1")
	}
	begin(strings.Join(line, " + "))
	for i := range all {
		bed.Eventually(t, soon, func() error { // it may be further, if this machine is slower than the flow
			got := strings.Fields(m.Read(t, acts+".written"))
			if len(got) <= i || len(got) > len(all) || !slices.Equal(got, all[:len(got)]) {
				return fmt.Errorf("written %q, want %d or more of %q", got, i+1, all)
			}
			return nil
		})
		before := pid(t, m, "pfard")
		m.Run(t, "systemctl", "kill", "-s", "KILL", "pfard")
		bed.Eventually(t, soon, func() error {
			if now := pid(t, m, "pfard"); now == before || now == "0" {
				return fmt.Errorf("pfard is %s, and was %s", now, before)
			}
			return nil
		})
	}
	becomesRun(flows.Done)
	written(all...)

	m.Shell(t, "echo hang >"+acts+".write")
	begin("desk.write --text last + desk.look")
	written(append(all, "last")...)
	m.Run(t, "systemctl", "kill", "-s", "KILL", "pfar-gateway")
	run := becomesRun(flows.Unknown)
	if r := m.Try("pfar", "flow", "show", run.ID); !strings.Contains(r.Stdout, "not known") {
		t.Errorf("its owner is told: %s", r)
	}
	m.Run(t, "pfar", "flow", "resume", run.ID, "--done")
	becomesRun(flows.Done)
	written(append(all, "last")...)
}
