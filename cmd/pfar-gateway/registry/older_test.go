package registry_test

import (
	"slices"
	"testing"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry/registrytest"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/jsonrpc"
)

// TestAskedForItsGeneration: what a server is asked first, from start to start, as it changes in place.
func TestAskedForItsGeneration(t *testing.T) {
	r := registrytest.New(t, limits())
	saying := func(version string) string {
		return `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"` + version + `"}}`
	}
	const discover, initialize = "server/discover", "initialize"
	for i, c := range []struct {
		name, program string
		script        registrytest.Script
		want          []string
	}{
		{"s", "p", registrytest.Script{Init: saying("1")}, []string{discover, initialize}},
		{"s", "p", registrytest.Script{Init: saying("1")}, []string{initialize}},
		{"s", "p", registrytest.Script{Init: saying("1")}, []string{initialize}},
		{"s", "other", registrytest.Script{Init: saying("1")}, []string{discover, initialize}},
		{"t", "p", registrytest.Script{Init: saying("1")}, []string{discover, initialize}},
		{"s", "p", registrytest.Script{Init: saying("2")}, []string{initialize}},           // it may speak both
		{"s", "p", registrytest.Script{Init: saying("2")}, []string{discover, initialize}}, // it does not
		{"s", "p", registrytest.Script{Init: saying("2")}, []string{initialize}},
		{"s", "p", registrytest.Script{Modern: true}, []string{initialize, discover}},
		{"s", "p", registrytest.Script{Modern: true}, []string{discover}},
		{"s", "p", registrytest.Script{Init: saying("1")}, []string{discover, initialize}},
	} {
		asked := make(chan string, 8)
		c.script.On = func(_ *registrytest.Server, m jsonrpc.Message) bool {
			if m.Method == discover || m.Method == initialize {
				asked <- m.Method
			}
			return false
		}
		l := r.Launch(t, handover.Server{Name: c.name, Program: c.program}, c.script)
		l.Ready(t)
		var got []string
		for len(asked) > 0 {
			got = append(got, <-asked)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("start %d: asked %q, want %q", i, got, c.want)
		}
		l.Conn.Close()
	}
}

// TestEndsWhenAsked: a server that ends when it is asked is asked once, whatever else goes wrong.
func TestEndsWhenAsked(t *testing.T) {
	r := registrytest.New(t, limits())
	asked, refuse := 0, false
	script := registrytest.Script{On: func(s *registrytest.Server, m jsonrpc.Message) bool {
		switch {
		case m.Method == "server/discover":
			asked++
			s.Exit()
			return true
		case m.Method == "initialize" && refuse:
			s.Say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"not now"}}`, m.ID)
			return true
		}
		return false
	}}
	server := handover.Server{Name: "s", Program: "p"}
	start := func() *registrytest.Launched { return r.Launch(t, server, script) }
	l := start()
	l.Failed(t)
	<-l.Ended
	refuse = true
	l = start()
	l.Failed(t)
	l.Conn.Close()
	<-l.Ended
	refuse = false
	start().Ready(t)
	if asked != 1 {
		t.Errorf("it was asked %d times", asked)
	}
}
