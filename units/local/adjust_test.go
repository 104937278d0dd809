package local

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/plan"
)

// TestAdjust: the gateway is told before the bridge is another one, and what is started afterwards is by the new plan.
// Where the gateway does not take it, or the process would have to be another one, that is an error.
func TestAdjust(t *testing.T) {
	f := newRunner(t, nil)
	const script = "#!/bin/sh\ncp \"$CREDENTIALS_DIRECTORY/plan\" \"$RUNTIME_DIRECTORY/plan.$$\"\nexec sleep 1000\n"
	if err := putProgram(filepath.Join(f.cfg.Bin, "pfar-egress"), []byte(script)); err != nil {
		t.Fatal(err)
	}
	plan := func(label, host string) plan.Plan {
		p := testPlan("run", "")
		p.Gateway.Label, p.Egress.Endpoints = label, []egress.Endpoint{{Host: host}}
		return p
	}
	if err := f.Adjust(plan("secret", "a.example")); err == nil {
		t.Error("what does not run is adjusted")
	}
	s, err := f.newServer("e", plan("public", "a.example"), units.Secrets{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.monitor.Close()
	f.servers["e"] = s // not started: its namespace's socket is ours
	defer delete(f.servers, "e")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := w.WriteString("a connection"); err != nil {
		t.Fatal(err)
	}
	s.listen([]*os.File{r})
	defer s.closeBridge()
	begun := func(host string) (n int) {
		files, _ := filepath.Glob(filepath.Join(f.dirs.runtime(bridgeName("e")), "plan.*"))
		for _, file := range files {
			if b, _ := os.ReadFile(file); strings.Contains(string(b), `"endpoints":[{"host":"`+host) {
				n++
			}
		}
		return n
	}
	eventually(t, "the bridge runs", func() bool { return begun("a.example") == 1 })

	answers := func(answer handover.Message) {
		l, err := f.cfg.Gateway.Servers.AcceptUnix()
		if err != nil {
			t.Error(err)
			return
		}
		c := handover.Accepted(l)
		defer c.Close()
		if m, _, err := c.Receive(); err != nil || m.Change == nil || m.Change.Label != "secret" || begun("b.example") > 0 {
			t.Errorf("the gateway is told %+v, %v", m, err)
		}
		_ = c.Send(answer)
	}
	go answers(handover.Message{Failed: "not that"})
	if err := f.Adjust(plan("secret", "a.example")); err == nil || !strings.Contains(err.Error(), "not that") {
		t.Errorf("the gateway does not take it: %v", err)
	}
	if err := s.startBy(plan("public", "a.example"), plan("public", "a.example")); err != nil { // as it is started again
		t.Fatal(err)
	}
	go answers(handover.Message{Ready: new(handover.Ready)})
	if err := f.Adjust(plan("secret", "b.example")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "another bridge runs", func() bool { return begun("b.example") == 1 })
	if o := s.order.Load(); o.plan.Gateway.Label != "secret" || o.plan.Egress.Names[0] != "a.example" {
		t.Errorf("its launcher would start by %+v", o.plan)
	}
	other := plan("secret", "b.example")
	other.Sandbox.Limits.Memory++
	if err := f.Adjust(other); err == nil {
		t.Error("other limits are an adjustment")
	}
}
