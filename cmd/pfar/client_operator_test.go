package main

import (
	"strings"
	"testing"
)

// TestNoProgramIsTheOperator: nothing that pfar writes or starts makes a program the client that nobody is asked about.
func TestNoProgramIsTheOperator(t *testing.T) {
	b := newBench(t, "")
	for _, args := range [][]string{
		{"connect", "--client", "operator"}, {"connect", "notion", "--client", "operator"}, {"client", "config", "operator"}, {"client", "config", "operator", "--stdio"},
	} {
		n := b.again("")
		if code := n.run(t.Context(), args); code != exitUsage || n.out.Len() > 0 || !strings.Contains(n.err.String(), "a program cannot connect as the operator") {
			t.Errorf("%q: %d %s%s", args, code, n.out, n.err)
		}
	}
}

func TestEndpoint(t *testing.T) {
	for _, tt := range []struct {
		persona
		server, want string
	}{
		{persona{}, "", "/operator/default"}, {persona{}, "notion", "/operator/default/notion"}, {persona{"desk", ""}, "", "/desk/default"},
		{persona{"desk", "h"}, "notion", "/desk/h/notion"}, {persona{"default", ""}, "", "/default/default"},
		{persona{"", "h"}, "", ""}, {persona{"De/sk", ""}, "", ""}, {persona{"desk", "../h"}, "", ""},
	} {
		if tt.want != "" {
			tt.want = gatewayURL + tt.want
		}
		if got, err := tt.endpoint(tt.server); got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%+v: %q, %v", tt, got, err)
		}
	}
}
