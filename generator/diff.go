package generator

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/pfar/pfar/units/handover"
)

// Digest changes when anything of a plan does.
func Digest(p Plan) string { return digestOf(p) }

func digestOf(plan any) string {
	b, err := json.Marshal(plan)
	if err != nil {
		// A plan is plain data. One that cannot be written is equal to none, not even to itself.
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func (p Plan) unlimited() Plan {
	p.Sandbox.Limits.Memory, p.Sandbox.Limits.CPU = 0, 0
	p.Sandbox.Mounts = slices.Clone(p.Sandbox.Mounts)
	for i := range p.Sandbox.Mounts {
		p.Sandbox.Mounts[i].Size = 0
	}
	return p
}

// ChangeKind is what is to be done to a server.
type ChangeKind string

const (
	Start   ChangeKind = "start"
	Adjust  ChangeKind = "adjust" // what is around its process, which goes on
	Restart ChangeKind = "restart"
	Stop    ChangeKind = "stop"
)

// Change is one difference between what runs and what should.
type Change struct {
	Name string     `json:"name"`
	Kind ChangeKind `json:"kind"`
	Why  string     `json:"why"`
}

// Diff says how to get from the plans that run to those that should, by name.
func Diff(have, want map[string]Plan) []Change {
	names := slices.Collect(maps.Keys(have))
	for name := range want {
		if _, ok := have[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var changes []Change
	for _, name := range names {
		h, runs := have[name]
		w, declared := want[name]
		switch {
		case runs && !declared:
			changes = append(changes, Change{name, Stop, "its declaration is gone"})
		case runs && !w.Enabled:
			changes = append(changes, Change{name, Stop, "enabled = false in its declaration"})
		case runs && Digest(h) != Digest(w):
			kind := Restart
			if _, live := Adjusted(h, w); live {
				kind = Adjust
			}
			changes = append(changes, Change{name, kind, "changed: " + strings.Join(changed(h, w), ", ")})
		case !runs && w.Enabled && w.Autostart:
			changes = append(changes, Change{name, Start, "declared and not running"})
		}
	}
	return changes
}

// commandAndArgs is what is run: as it was declared, and as it was found.
func (p Plan) commandAndArgs() []string {
	return append([]string{p.Gateway.Program, p.Sandbox.Command}, p.Sandbox.Args...)
}

// knownBesides is what the gateway knows besides what is run, and when.
func (p Plan) knownBesides() handover.Server {
	p.Gateway.Program, p.Gateway.OnDemand, p.Gateway.IdleTimeout = "", false, 0
	return p.Gateway
}

// changed names the parts in which two plans differ.
func changed(a, b Plan) []string {
	var parts []string
	for _, p := range []struct {
		name string
		a, b any
	}{
		{"file", a.File, b.File},
		{"command", a.commandAndArgs(), b.commandAndArgs()},
		{"mounts", a.Sandbox.Mounts, b.Sandbox.Mounts},
		{"environment", a.Sandbox.Env, b.Sandbox.Env},
		{"limits", a.Sandbox.Limits, b.Sandbox.Limits},
		{"egress", a.Egress, b.Egress},
		{"credentials", a.Credentials, b.Credentials},
		{"tls_pins", a.TLSPins, b.TLSPins},
		{"scopes", a.Scopes, b.Scopes},
		{"state", a.State, b.State},
		{"idle_timeout", a.Gateway.IdleTimeout, b.Gateway.IdleTimeout},
		{"what the gateway knows", a.knownBesides(), b.knownBesides()},
	} {
		if !reflect.DeepEqual(p.a, p.b) {
			parts = append(parts, p.name)
		}
	}
	if len(parts) == 0 {
		parts = append(parts, "when it starts")
	}
	return parts
}
