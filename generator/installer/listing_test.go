package installer

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pfar/pfar/generator"
	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units/sandbox"
)

// TestListing: a server that is only listed has its sandbox and its variables. It has no way out, no value, nothing
// on the host that it may write to but one file, and is told nothing by its bridge.
func TestListing(t *testing.T) {
	h := host(map[string]string{
		"/srv/data/kept": "x", "/srv/read/kept": "x", "/usr/lib/pfar/pfar-adapter": "\x7fELF", stage + "/listing": "",
		"/usr/bin/server": "\x7fELF", "/etc/ssl/certs/ca-certificates.crt": "PEM",
	})
	hosts := []egress.Endpoint{{Host: "api.example", Port: 443}}
	s := declaration.Server{
		Name: "notion", File: "notion.hcl", Label: declaration.Public, Transport: declaration.Stdio, Enabled: true,
		Program: declaration.Program{Command: "/usr/bin/node", Args: []string{"-v"}}, Allowed: hosts,
		Private:      []egress.Private{{}},
		Capabilities: []string{"elicitation", "roots"},
		Env:          []declaration.Variable{{Name: "PLAIN", Value: "as it is"}},
		Credentials: []declaration.Credential{
			{Env: "A", Key: "a"}, {Env: "F", Key: "f", Deliver: broker.InFile},
			{Env: "W", Key: "w", Deliver: broker.OnWire, Hosts: hosts, Places: broker.Standard()},
		},
		Sandbox: declaration.Sandbox{
			Memory: 256 << 20, Tasks: 64, ReadOnlyFS: true, AllowTmp: true, State: true,
			ReadOnly: []string{"/srv/read"}, Writable: []string{"/srv/data"},
		},
	}
	real, diags := generator.Compile(s, h)
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	p, err := List(s, h, Listing{
		Session: "abcdefgh", Out: stage + "/listing",
		Values: map[string]string{"A": "like a", "F": "like f", "W": "like w"},
	})
	if err != nil {
		t.Fatal(err)
	}
	box := p.Sandbox
	if p.Name != Server || p.Gateway.Session != "abcdefgh" || p.State || p.PrivateHome() != stage+"/listing" || !box.Once {
		t.Errorf("%+v", p)
	}
	if len(p.Egress.Endpoints)+len(p.Egress.Private)+len(p.Credentials)+len(p.Files)+len(p.TLSPins) > 0 || p.Undo != nil {
		t.Errorf("it has %+v %+v %+v %+v", p.Egress, p.Credentials, p.Files, p.Undo)
	}
	want := "list --out /run/pfar/listing --abilities elicitation,roots -- " + real.Sandbox.Command + " -v"
	if got := strings.Join(box.Args, " "); got != want || box.Command != generator.AdapterPath {
		t.Errorf("it runs %s %s, want %s", box.Command, got, want)
	}
	if box.Limits.File != largestFile || box.Limits.Memory != 256<<20+adapterMemory || box.Limits.Tasks != 64 {
		t.Errorf("limits %+v", box.Limits)
	}
	env := map[string]string{}
	for _, e := range box.Env {
		if env[e.Name] = e.Value; e.Credential != "" {
			t.Errorf("%s has a value", e.Name)
		}
	}
	if got := fmt.Sprint(env["A"], env["W"], env["F"], env["PLAIN"]); got != "like alike w/run/secrets/Fas it is" {
		t.Errorf("variables %s", got)
	}
	shown := map[string]bool{}
	for _, m := range box.Mounts {
		shown[m.Dest] = shown[m.Dest] || m.ReadOnly()
		switch {
		case m.Kind == sandbox.Bind && m.Dest != "/run/pfar/listing", m.Credential != "", m.Authority:
			t.Errorf("mount %+v", m)
		case m.Dest == "/run/secrets/F" && m.Text != "like f":
			t.Errorf("the file has %q", m.Text)
		}
	}
	if !shown["/srv/read"] || !shown["/srv/data"] || !shown[generator.AdapterPath] {
		t.Errorf("it sees %v", shown)
	}
	if s.Credentials[2].Deliver != broker.OnWire {
		t.Error("the declaration has been changed")
	}
}

// TestNoListing: what is missing is said.
func TestNoListing(t *testing.T) {
	s := declaration.Server{
		Name: "x", Label: declaration.Public, Transport: declaration.Stdio, Enabled: true,
		Program: declaration.Program{Command: "/usr/bin/none"},
		Sandbox: declaration.Sandbox{Memory: 1 << 28, Tasks: 9},
	}
	l := Listing{Session: "abcdefgh", Out: stage + "/listing"}
	if _, err := List(s, host(nil), l); err == nil || !strings.Contains(err.Error(), "/usr/bin/none") {
		t.Errorf("no program: %v", err)
	}
	s.Command = "/usr/bin/node"
	if _, err := List(s, host(nil), l); err == nil || !strings.Contains(err.Error(), "pfar-adapter") {
		t.Errorf("no adapter: %v", err)
	}
}
