package form

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pfar/pfar/policies/argument"
	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/policies/flow/fit"
	"github.com/pfar/pfar/policies/flow/step"
)

// overlay lays over a flow what a command line says.
type overlay struct {
	*decoder
	nodes flow.Nodes
}

// flags lays flags over a flow. --NAME is an input as it is called in the store, which the store holds then before the
// first step, or a param, which it sets. What names several things is a mistake: --STEP.NAME names one of them.
func (d overlay) flags(flags []string) {
	given := map[string][]json.RawMessage{} // by STEP.NAME, or by name in the store
	targets := map[string]target{}
	if len(flags) > 2*maxFlags {
		d.problem(flow.At{}, "", fmt.Sprintf("the command line has more than %d flags", maxFlags),
			"Write the values into the flow.")
		return
	}
	if len(flags) == 0 {
		return
	}
	all := d.targets()
	if len(all.list) > maxTargets {
		d.problem(flow.At{}, "", fmt.Sprintf("the steps have more than %d inputs and params, too many for flags",
			maxTargets/2),
			"Write the values into the flow.")
		return
	}
	for i := 0; i < len(flags) && !d.full(); i++ {
		name, text, whole := strings.Cut(flags[i], "=")
		if !strings.HasPrefix(name, "--") || len(name) == 2 {
			d.problem(flow.At{}, "", "unexpected "+quote(flags[i])+" in place of a flag", "Write --FLAG VALUE.")
			continue
		}
		t, ok := d.target(all, name[2:])
		next := i+1 < len(flags)
		switch {
		case whole:
		case ok && property(t.port).Kind == argument.Boolean && (!next || flags[i+1] != "true" && flags[i+1] != "false"):
			text = "true"
		case !next:
			d.problem(flow.At{}, "", short(name)+" has no value", "Write "+short(name)+" VALUE.")
			continue
		default:
			i++
			text = flags[i]
		}
		if ok {
			p := property(t.port)
			p.Name = t.key
			d.give(flow.At{}, "", p, text, given)
			targets[t.key] = t
		}
	}
	for key, values := range given {
		d.set(targets[key], values)
	}
}

// Bounds of what flags ask for.
const (
	maxFlags   = 256 // over a flow, and of a step in a line
	maxTargets = 1 << 15
)

// target is what a flag names.
type target struct {
	key   string // --key names it
	step  int    // whose param or input it is; -1: it is a name in the store
	input bool   // of the step
	name  string // in the store, or the node's own
	port  flow.Port
}

// targets are what flags can name, and how they name it.
type targets struct {
	list  []target
	exact map[string][]int // by key: places in list
	alike map[string][]int // the same, - and _ alike
	names []string         // --KEY, of what needs no step before it; nil: not yet made
}

func (t *targets) add(x target) {
	i := len(t.list)
	t.list = append(t.list, x)
	t.exact[x.key] = append(t.exact[x.key], i)
	t.alike[dashed(x.key)] = append(t.alike[dashed(x.key)], i)
}

// find returns the targets of a flag.
func (t *targets) find(flag string) (found []target) {
	places := t.exact[flag]
	if places == nil {
		places = t.alike[dashed(flag)]
	}
	for _, i := range places {
		found = append(found, t.list[i])
	}
	return found
}

// flags are those that can be written.
func (t *targets) flags() []string {
	if t.names == nil {
		for _, x := range t.list {
			if !strings.Contains(x.key, ".") {
				t.names = append(t.names, "--"+dashed(x.key))
			}
		}
		slices.Sort(t.names)
		t.names = slices.Compact(t.names)
	}
	return t.names
}

// targets are what flags can name: each name in the store, each param, and each of both of one step. Of more than
// maxTargets it returns some more than that.
func (d overlay) targets() *targets {
	all := &targets{exact: map[string][]int{}, alike: map[string][]int{}}
	stored := map[string]bool{}
	for i, s := range d.flow.Steps {
		node, err := d.nodes.Find(s.Node)
		if err != nil || len(all.list) > maxTargets {
			continue
		}
		read := func(name string, port flow.Port) {
			all.add(target{s.ID + "." + port.Name, i, true, port.Name, port})
			if !stored[name] {
				stored[name] = true
				all.add(target{name, -1, false, name, port})
			}
		}
		for _, in := range node.Inputs {
			if !in.Own {
				read(step.Reads(s, in.Name), in)
			}
		}
		for _, p := range node.Params {
			if name, ok := s.Reads[p.Name]; ok {
				read(name, p)
			} else {
				all.add(target{s.ID + "." + p.Name, i, false, p.Name, p})
				all.add(target{p.Name, i, false, p.Name, p})
			}
		}
		if node.Open {
			for _, own := range slices.Concat(slices.Collect(maps.Keys(s.Reads)), step.Named(s.Params)) {
				read(step.Reads(s, own), flow.Port{Name: own})
			}
		}
	}
	return all
}

// target finds the one thing that a flag names.
func (d overlay) target(all *targets, flag string) (target, bool) {
	found := all.find(flag)
	switch len(found) {
	case 1:
		return found[0], true
	case 0:
		advice := "The known steps have no inputs or params."
		if names := all.flags(); len(names) > 0 {
			advice = meant("--"+flag, names)
		}
		d.problem(flow.At{}, "", "unknown flag --"+short(flag)+": no step has such an input or param", advice)
	default:
		var what, write []string
		for _, t := range found[:min(len(found), maxNamed)] {
			if t.step < 0 {
				what = append(what, "an input")
				if of := slices.IndexFunc(all.list, func(o target) bool { return o.input && d.reads(o) == t.name }); of >= 0 {
					write = append(write, "--"+short(all.list[of].key))
				}
			} else {
				id := d.flow.Steps[t.step].ID
				what = append(what, "a param of "+quote(id))
				write = append(write, "--"+short(id+"."+t.name))
			}
		}
		d.problem(flow.At{}, "", "ambiguous flag --"+short(flag)+": matches "+strings.Join(what, " and "),
			"Write "+strings.Join(write, " or ")+".")
	}
	return target{}, false
}

// maxNamed is how many of the things that one flag may mean are named.
const maxNamed = 8

// reads is the name in the store of a step's input.
func (d overlay) reads(t target) string { return step.Reads(d.flow.Steps[t.step], t.name) }

// set puts the value of a flag where it belongs, over what the flow says.
func (d overlay) set(t target, values []json.RawMessage) {
	value := together(t.port, values)
	if t.step >= 0 {
		s := &d.flow.Steps[t.step]
		if t.input {
			s.Set = with(s.Set, t.name, value)
		} else {
			s.Params = with(s.Params, t.name, value)
		}
		return
	}
	d.flow.Store = with(d.flow.Store, t.name, value)
	for i := range d.flow.Steps { // what a step sets itself would go over it
		for own := range d.flow.Steps[i].Set {
			if step.Reads(d.flow.Steps[i], own) == t.name {
				delete(d.flow.Steps[i].Set, own)
			}
		}
	}
}

// feed gives standard input to the first step: to its only input that it needs, that nothing gives, and that may be a
// text. No problem tells of the text.
func (d overlay) feed(text json.RawMessage) {
	first := &d.flow.Steps[0]
	node, err := d.nodes.Find(first.Node)
	if err != nil {
		return
	}
	var free, given []string
	for _, in := range node.Inputs {
		_, set := first.Set[in.Name]
		_, stored := d.flow.Store[step.Reads(*first, in.Name)]
		switch {
		case !in.Required && !in.Piped || !fit.Text(in.Schema):
		case set || stored:
			given = append(given, "--"+dashed(in.Name))
		default:
			free = append(free, in.Name)
		}
	}
	switch {
	case len(free) == 1:
		first.Set = with(first.Set, free[0], text)
	case len(free) > 1:
		for i, name := range free {
			free[i] = "--" + dashed(name)
		}
		d.problem(first.At, first.ID, "standard input fits more than one input: "+strings.Join(free, ", "),
			"Set all of them except one.")
	case len(given) > 0:
		d.problem(first.At, first.ID, "standard input fits no input: a flag or the flow sets "+strings.Join(given, ", "),
			"Remove that value, or close standard input: </dev/null.")
	default:
		d.problem(first.At, first.ID, "standard input fits no input: the first step needs no text",
			"Close standard input: </dev/null.")
	}
}
