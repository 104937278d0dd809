package installer

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/generator"
	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/hostfs"
	"github.com/pfar/pfar/units/plan"
	"github.com/pfar/pfar/units/sandbox"
)

// outPlace is the path in the sandbox of the file that a listing writes.
const outPlace = "/run/pfar/listing"

const (
	adapterMemory = 128 << 20 // beside the server's own
	largestFile   = 64 << 20  // bytes: the job's file is on the host's disk
)

// Listing is one run of a server that only lists its definitions.
type Listing struct {
	Session string            // handle of its process
	Out     string            // file on the host, the only one that the run may write
	Values  map[string]string // what the server finds in place of each credential's value
}

// List returns the plan of a listing: the server's own sandbox, but without network and secrets. Its home is in memory,
// and the folders that the server may write to are read-only.
func List(s declaration.Server, h generator.Host, l Listing) (plan.Plan, error) {
	s.Allowed, s.Private, s.Sandbox.State = nil, nil, false
	s.Sandbox.ReadOnly, s.Sandbox.Writable = slices.Concat(s.Sandbox.ReadOnly, s.Sandbox.Writable), nil
	s.Credentials = slices.Clone(s.Credentials)
	for i, c := range s.Credentials {
		if c.Deliver == broker.OnWire { // without network there is no bridge
			s.Credentials[i].Deliver, s.Credentials[i].Hosts, s.Credentials[i].Places = broker.InEnvironment, nil, nil
		}
	}
	s.TLSPins, s.CA = nil, ""
	p, diags := generator.Compile(s, h)
	for _, g := range diags {
		if g.Severity == hcl.DiagError {
			return plan.Plan{}, fmt.Errorf("%s: %s", g.Summary, g.Detail)
		}
	}
	p.Name, p.Gateway = Server, handover.Server{Name: Server, Session: l.Session}
	p.Credentials, p.Files, p.Scopes, p.Setting, p.Undo = nil, nil, nil, "", nil
	box := &p.Sandbox
	box.Once = true
	box.Limits.Memory += adapterMemory
	box.Limits.File = largestFile
	box.Args = slices.Concat([]string{
		"list", "--out", outPlace, "--abilities", strings.Join(s.Capabilities, ","), "--", box.Command,
	}, box.Args)
	box.Command = generator.AdapterPath
	for i, e := range box.Env {
		if e.Credential != "" {
			box.Env[i] = sandbox.Env{Name: e.Name, Value: l.Values[e.Credential]}
		}
	}
	for i, m := range box.Mounts {
		if m.Credential != "" {
			box.Mounts[i].Credential, box.Mounts[i].Text = "", l.Values[m.Credential]
		}
	}
	return p, l.own(h, box)
}

// own adds the mounts of the job itself: the adapter, and the file that it writes.
func (l Listing) own(h generator.Host, box *sandbox.Sandbox) error {
	adapter, err := hostfs.Resolve(h.FS, h.Adapter)
	if err != nil {
		return err
	}
	out, err := hostfs.Resolve(h.FS, path.Dir(l.Out))
	if err != nil {
		return err
	}
	at := slices.IndexFunc(box.Mounts, func(m sandbox.Mount) bool { return m.Kind == sandbox.Remount })
	box.Mounts = slices.Insert(box.Mounts, at, sandbox.Mount{
		Kind: sandbox.Bind, Source: path.Join(out.Real, path.Base(l.Out)), Dest: outPlace, State: true,
		Why: "what it offers",
	})
	there := func(m sandbox.Mount) bool { return m.Dest == generator.AdapterPath }
	if !slices.ContainsFunc(box.Mounts, there) { // of a server that speaks on its stdio
		box.Mounts = slices.Insert(box.Mounts, at, sandbox.Mount{
			Kind: sandbox.ROBind, Source: adapter.Real, Dest: generator.AdapterPath, Why: "asks the server what it offers",
		})
	}
	return box.Validate()
}
