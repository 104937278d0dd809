package main

import (
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
)

// TestRemedies: whoever needs a server that does not run is told its state and what makes it run.
func TestRemedies(t *testing.T) {
	tests := []struct {
		name   string
		server control.Server
		state  string
		remedy string
	}{
		{"stopped", control.Server{State: control.Stopped, Detail: "stopped"}, "stopped", "pfar start x"},
		{"no autostart", control.Server{State: control.Stopped, Detail: "autostart = false in its declaration; pfar start x"}, "stopped: autostart = false", "pfar start x"},
		{"disabled", control.Server{
			State: control.Stopped, Detail: "enabled = false in its declaration; not encrypted: \"why\"", File: "/d/x.hcl",
			Owed: control.Owed{Off: control.OffByFile},
		}, "stopped: enabled = false", "set enabled = true in /d/x.hcl"},
		{"disabled by the operator", control.Server{
			State: control.Stopped, Detail: "disabled by you; pfar enable x", Owed: control.Owed{Off: control.OffByOperator},
		}, "stopped: disabled by you", "pfar enable x"},
		{"no secret", control.Server{State: control.Waiting,
			Detail: "for credentials: A: pfar vault set a_token; B: pfar vault set b", Owed: owed(units.StoreSecret, "a_token")},
			"waiting: for credentials", "pfar vault set a_token"},
		{"not given", control.Server{State: control.Waiting,
			Detail: `for credentials: "a" is given to "b", not to this server, which runs echo "pfar vault set c"; ` +
				"to give it: pfar vault give x",
			Owed: owed(units.GiveSecrets, "x")}, "waiting: for credentials", "pfar vault give x"},
		{"a login", control.Server{State: control.NeedsLogin, Detail: "pfar login x: 401", Owed: owed(units.SignIn, "x")},
			"needs-login: pfar login x", "pfar login x"},
		{"another program", control.Server{State: control.Waiting,
			Detail: "for its program, which has changed, to be accepted: pfar pins accept x",
			Owed:   owed(units.AcceptPins, "x")}, "waiting: for its program", "pfar pins accept x"},
		{"no variable", control.Server{State: control.Waiting, Detail: "for credentials: A: set the environment variable X for pfar"}, "waiting: for credentials", "pfar status x says what it waits for; give it to pfar up"},
		{"failed", control.Server{State: control.Failed, Detail: "disabled after 3 crashes in a row"}, "failed: disabled after 3 crashes", "pfar logs x says why, pfar start x tries again"},
		{"stopping", control.Server{State: control.Stopping}, "stopping", "pfar logs x"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			first := searchGateway(t, "")
			tt.server.Name = "x"
			first.pfard(t, control.Report{Servers: []control.Server{tt.server}}, nil)
			for _, args := range [][]string{{"call", "x.tool"}, {"call", "x", "tool"}, {"call", "mcp-x-tool"}, {"tools", "x"}, {"tools", "x.tool"}, {"connect", "x"}} {
				b := first.again("")
				code := b.run(t.Context(), args)
				if code != exitFailed || !strings.Contains(b.err.String(), "it is "+tt.state) || !strings.HasSuffix(b.err.String(), "\nhint: "+tt.remedy+"\n") {
					t.Errorf("%q: exit %d, %s", args, code, b.err)
				}
			}
		})
	}
}

// TestCallOfACrashedServer: its tools are still listed, and the gateway refuses the call.
func TestCallOfACrashedServer(t *testing.T) {
	for state, want := range map[control.State]string{
		control.Failed:   "upstream is gone\nhint: pfar logs notion says why, pfar start notion tries again\n",
		control.Running:  "upstream is gone\n",
		control.Sleeping: "upstream is gone\n", // the call would have started it
	} {
		first := searchGateway(t, "")
		first.pfard(t, control.Report{Servers: []control.Server{{Name: "notion", State: state}}}, nil)
		b := first.again("")
		if code := b.run(t.Context(), []string{"call", "notion.break"}); code != exitFailed || !strings.HasSuffix(b.err.String(), want) {
			t.Errorf("%s: exit %d, %q", state, code, b.err)
		}
	}
}

// TestConnectWaits for a server that is on its way up, and only for that: one that sleeps is there.
func TestConnectWaits(t *testing.T) {
	first := searchGateway(t, "")
	p := first.pfard(t, control.Report{Servers: []control.Server{{Name: "notion", State: control.Starting}}}, nil)
	b := first.again("")
	done := make(chan int, 1)
	go func() { done <- b.run(t.Context(), []string{"connect", "notion"}) }()
	for _, s := range []control.State{control.BackOff, control.Starting} {
		p.set(func(r *control.Report) { r.Servers[0].State = s })
		select {
		case code := <-done:
			t.Fatalf("%s: exit %d, %s", s, code, b.err)
		case <-time.After(20 * time.Millisecond):
		}
	}
	p.set(func(r *control.Report) { r.Servers[0].State = control.Running })
	if code := <-done; code != 0 {
		t.Errorf("exit %d, %s", code, b.err)
	}
	p.set(func(r *control.Report) { r.Servers[0].State = control.Sleeping })
	b = first.again("")
	if code := b.run(t.Context(), []string{"connect", "notion"}); code != 0 {
		t.Errorf("asleep: exit %d, %s", code, b.err)
	}
	b = first.again("")
	if code := b.run(t.Context(), []string{"connect", "notoin"}); code != exitNoSuch || !strings.Contains(b.err.String(), `did you mean "notion"?`) {
		t.Errorf("exit %d, %s", code, b.err)
	}
}

// owed is what a server waits for.
func owed(act units.Act, of string) control.Owed {
	return control.Owed{Wait: units.Wait{Remedy: units.ToDo(act, of)}}
}
