package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/plan"
	"github.com/pfar/pfar/units/sandbox"
)

// TestReadPlan: a bridge gets all of its plan that it uses, and leaves out the rest.
func TestReadPlan(t *testing.T) {
	used := plan.Plan{
		Name: "notion", File: "/etc/pfar/mcp.d/notion.hcl", Gateway: handover.Server{Session: "abcdefgh"},
		Egress:      egress.Policy{Endpoints: []egress.Endpoint{{Host: "api.notion.com", Port: 443}}},
		Credentials: []plan.Credential{{Name: "TOKEN", Key: "token"}},
		Proofs:      plan.Proofs{TLSPins: map[string][]broker.Pin{"api.notion.com": {{}}}},
	}
	whole := used
	whole.Gateway.Name, whole.Gateway.Declared = "notion", json.RawMessage(`{"server":"notion"}`)
	whole.Sandbox.Mounts = []sandbox.Mount{{Source: "/usr", Dest: "/usr"}}
	text, err := json.Marshal(whole)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	t.Setenv("CREDENTIALS_DIRECTORY", dir)
	if err := os.WriteFile(filepath.Join(dir, "plan"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	got, digest, err := readPlan()
	if err != nil || !reflect.DeepEqual(got, used) || digest != units.Digest(text) {
		t.Errorf("read %+v, %q, %v; want %+v, %q", got, digest, err, used, units.Digest(text))
	}
}
