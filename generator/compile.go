// Package generator compiles a declaration and facts about the host into the plan of everything that pfar will create
// for it.
package generator

import (
	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/units/plan"
	"github.com/pfar/pfar/units/sandbox"
)

// Compile says what pfar has to create for a server, or what is wrong with its declaration on this host. It looks at
// the host and changes nothing. With an error among the diagnostics the plan is empty.
//
// Each step adds to what the server sees of the host: the base, its programs, and the paths that it declares. The
// plan's parts are made of that.
func Compile(s declaration.Server, h Host) (plan.Plan, hcl.Diagnostics) {
	f := &findings{place: s.Place}
	adapter := f.adapt(&s, h)
	f.install(&s, h)
	if f.diags.HasErrors() {
		return plan.Plan{}, f.diags
	}
	given, limits, seen := facts{s, h}, newBounds(h), new(view)
	box := sandbox.Sandbox{
		Args: s.Args, Dir: serverHome, Hostname: s.Name,
		Limits: sandbox.Limits{Memory: s.Sandbox.Memory, Tasks: s.Sandbox.Tasks, CPU: s.Sandbox.CPU},
	}
	ground := &base{facts: given, view: seen}
	mounts := ground.mounts()
	adapter.inside(f, s, mounts)
	mounts = append(mounts, adapter.mounts...)
	run := &software{facts: given, findings: f, bounds: limits, view: seen}
	switch {
	case s.Remote():
		box.Remote = s.URL
	case s.Attached():
		box.Attached = s.Path
	case !run.contained():
		box.Command = run.command()
		run.program(box.Command)
	}
	shared := shares{given, f, limits, seen}
	shared.declared()
	shared.separate()
	known, shown := given.gateway(seen.binds, f), f.proofs(&s, h)
	if f.diags.HasErrors() {
		return plan.Plan{}, f.diags
	}
	box.Mounts = ground.assemble(mounts)
	box.Env = given.environment(run.path, f)
	shared.checkArgs(box.Args)
	adapter.wrap(&box)
	if err := box.Validate(); err != nil { // what the launcher would refuse
		f.fail("command", "Sandbox not possible", "The sandbox for this server cannot be built: %v.", err)
	}
	if f.diags.HasErrors() {
		return plan.Plan{}, f.diags
	}
	p := plan.Plan{
		Name: s.Name, File: s.File, Enabled: s.Enabled, Autostart: s.Autostart, State: s.Sandbox.State,
		Gateway: known, Sandbox: box, Egress: reach(s), Proofs: shown,
		Files: given.files(limits), Scopes: s.Scopes, Setting: setting(s), Undo: undo(given, seen.binds),
	}
	for _, k := range s.Credentials {
		p.Credentials = append(p.Credentials, plan.Credential{Name: k.Env, Key: k.Key, From: k.From, Deliver: k.Deliver,
			Hosts: k.Hosts, Places: k.Places})
	}
	return p, f.diags
}
