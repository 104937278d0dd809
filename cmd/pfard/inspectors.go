package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/generator"
	"github.com/pfar/pfar/policies/inspector"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/plan"
)

// declared are the inspectors, notices and models of the policy in force and the chats, and where they stand in the
// folders as they are now.
func (p *policy) declared() ([]inspector.External, map[string]hcl.Range) {
	p.mu.Lock()
	defer p.mu.Unlock()
	places := map[string]hcl.Range{}
	maps.Copy(places, p.lists.chats.places)
	maps.Copy(places, p.lists.models.places)
	maps.Copy(places, p.places)
	if p.current == nil {
		return nil, places
	}
	list := slices.Concat(p.current.Inspectors, p.current.Notices)
	for _, m := range p.current.Models {
		list = append(list, m.External)
	}
	return append(list, p.lists.chats.list()...), places
}

// inspector is one of the policy in force, or a notice or a model.
func (p *policy) inspector(name string) (inspector.External, error) {
	list, _ := p.declared()
	for _, e := range list {
		if e.Name == name {
			return e, nil
		}
	}
	return inspector.External{}, fmt.Errorf("the policy has no inspector %q", name)
}

// inspectorRunner runs the processes of inspectors.
type inspectorRunner interface {
	Inspect(plans []plan.Inspection) // these, and no others
	Reinspect(name string)           // has the process that asks a model be another one
}

// chatProcesses are those that hold conversations, of a pfard whose processes systemd runs (chatUnits).
type chatProcesses interface {
	want(list []inspector.External)            // these chats, and no others
	faults(list []inspector.External) []string // why nobody can talk at which of them, in words
}

// inspectors has the inspectors of the policy in force run, what asks its models, and what sends its notices. It
// belongs to the loop.
type inspectors struct {
	policy   *policy
	delivery *delivery
	dir      string // of the policies
	host     func() generator.Host
	runner   inspectorRunner // nil: nothing runs
	// reachable reports whether every user gets to a path, as inspectors have to. nil: they run as who runs this, or are
	// given it.
	reachable func(path string) bool
	keyless   []string      // notes on those without their key
	chats     chatProcesses // nil: nothing is known of them
}

// inspect has the inspectors of the policy in force run, and returns what is wrong with those that cannot: they are
// missing, and what they would have looked at does not pass.
func (i *inspectors) inspect() (diags hcl.Diagnostics) {
	list, places := i.policy.declared()
	if i.policy.inForce() == nil {
		return nil // the gateway may go on by an earlier pfard's policy, and need what that one has started
	}
	var plans []plan.Inspection
	var chats []string
	for _, e := range list {
		if e.Account != nil {
			chats = append(chats, e.Name)
		}
	}
	for _, e := range list {
		at, ok := places[e.Name]
		if !ok { // of the last good version
			at = hcl.Range{Filename: i.dir, Start: hcl.InitialPos, End: hcl.InitialPos}
		}
		if e.Notice != nil && e.Notice.Chat != "" { // the process of the chat sends it
			diags = append(diags, generator.UnknownChat(e, at, chats)...)
			continue
		}
		p, found := generator.Inspector(e, at, i.host())
		found = append(found, i.unreached(p, at)...)
		found = append(found, i.unheld(e, at)...)
		if diags = append(diags, found...); found.HasErrors() {
			continue
		}
		plans = append(plans, p)
	}
	if i.runner != nil {
		i.runner.Inspect(plans)
	}
	if i.chats != nil {
		i.chats.want(i.talking())
	}
	i.keyless = i.lacking()
	return diags
}

// talking are the declared chats that are held.
func (i *inspectors) talking() []inspector.External {
	list, _ := i.policy.declared()
	return slices.DeleteFunc(list, func(e inspector.External) bool {
		return e.Account == nil || i.unheld(e, hcl.Range{}).HasErrors()
	})
}

// silent are notes on the chats at which nobody can talk, among them those without their key.
func (i *inspectors) silent() (notes []string) {
	list := slices.DeleteFunc(i.talking(), func(e inspector.External) bool {
		note := i.lack(e)
		if note != "" {
			notes = append(notes, note)
		}
		return note != ""
	})
	if i.chats != nil {
		notes = append(notes, i.chats.faults(list)...)
	}
	return notes
}

// unreached finds what an inspector's program is to see and its unit's own user does not get to. Launchers of servers
// are shown such things by systemd, and pfard looks whether it was the right thing; inspectors do not report to pfard.
func (i *inspectors) unreached(p plan.Inspection, at hcl.Range) (diags hcl.Diagnostics) {
	if i.reachable == nil {
		return nil
	}
	for _, m := range p.Sandbox.Mounts {
		if m.ReadOnly() && !i.reachable(m.Source) {
			diags = append(diags, &hcl.Diagnostic{
				Severity: hcl.DiagError, Summary: "Inspector not possible", Subject: &at,
				Detail: fmt.Sprintf("%s lies below a directory that not everybody may enter, and an inspector's unit has a user "+
					"of its own. Move it, to /usr/local/lib or /srv for example, or let others pass (chmod o+x).", m.Source),
			})
		}
	}
	return diags
}

// lacking says which of them have no key.
func (i *inspectors) lacking() (notes []string) {
	list, _ := i.policy.declared()
	for _, e := range list {
		if note := i.lack(e); note != "" {
			notes = append(notes, note)
		}
	}
	return notes
}

// lack says that one of them has no key; "": it has, or needs none.
func (i *inspectors) lack(e inspector.External) string {
	s := i.modelSecrets(e)
	if len(s.Missing) == 0 {
		return ""
	}
	without := "what it is to look at does not pass"
	switch {
	case e.Notice != nil:
		without = "it is not sent"
	case e.Chat != nil:
		without = "it cannot be asked"
	case e.Account != nil:
		without = "nobody can talk there"
	}
	const words = "the %s %q has no key, and %s: %s"
	return fmt.Sprintf(words, e.Kind(), e.Name, without, strings.Join(s.Missing, "; "))
}

// rekey has those that use a key of the vault begin anew with what is under it now.
func (i *inspectors) rekey(key string) {
	list, _ := i.policy.declared()
	for _, e := range list {
		if e.Secret() == key && key != "" {
			i.keyless = i.lacking()
			if i.runner != nil {
				i.runner.Reinspect(e.Name)
			}
		}
	}
}

// askersWith are the inspectors, notices and models that use a key of the vault, in words.
func (i *inspectors) askersWith(key string) (names []string) {
	list, _ := i.policy.declared()
	for _, e := range list {
		if e.Secret() == key {
			names = append(names, e.String())
		}
	}
	return names
}

// modelSecrets is what the process gets that asks a model or sends a notice: its key.
func (i *inspectors) modelSecrets(e inspector.External) units.Secrets {
	key := e.Secret()
	if key == "" {
		return units.Secrets{}
	}
	value, err := i.delivery.value(plan.Credential{Name: key, Key: key})
	if err != nil { // in words, if it is missing
		return units.Secrets{Missing: []string{err.Error()}}
	}
	return units.Secrets{Values: map[string][]byte{key: value}}
}

// giveModel is modelSecrets for a process that is about to start, with a record of it.
func (i *inspectors) giveModel(e inspector.External) units.Secrets {
	s := i.modelSecrets(e)
	key := e.Secret()
	if key == "" {
		return s
	}
	var why error
	if len(s.Missing) > 0 {
		why = missing{words: strings.Join(s.Missing, "; ")}
	}
	if err := i.delivery.over(toModel, key, "", e.String(), why); err != nil {
		return units.Secrets{Missing: []string{err.Error()}}
	}
	return s
}

// modelOf is giveModel for an inspector by its name.
func (i *inspectors) modelOf(name string) (units.Secrets, error) {
	e, err := i.policy.inspector(name)
	if err != nil {
		return units.Secrets{}, err
	}
	return i.giveModel(e), nil
}

// models are those of the policy in force, for people.
func (i *inspectors) models() (list []control.Model) {
	p := i.policy.inForce()
	if p == nil {
		return nil
	}
	for _, m := range p.Models {
		one := control.Model{
			Name: m.Name, Model: m.External.Model, Uses: m.Uses(), Audience: m.Audience.String(), Local: m.Local,
			Key: m.Secret(), Missing: strings.Join(i.modelSecrets(m.External).Missing, "; "),
		}
		one.Host, _, _, _ = m.Egress() // it is declared, so there is one
		list = append(list, one)
	}
	return list
}
