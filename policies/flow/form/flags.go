package form

import (
	"encoding/json"
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
	all := d.targets()
	if len(flags) > 2*maxFlags {
		d.problem(flow.At{}, "", "there are more than 256 flags", "Write them into the flow.")
		return
	}
	for i := 0; i < len(flags); i++ {
		name, text, whole := strings.Cut(flags[i], "=")
		if !strings.HasPrefix(name, "--") || len(name) == 2 {
			d.problem(flow.At{}, "", quote(flags[i])+" stands where a flag is wanted", "Write --FLAG VALUE.")
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

// maxFlags bounds the flags over a flow.
const maxFlags = 256

// target is what a flag names.
type target struct {
	key   string // --key names it
	step  int    // whose param or input it is; -1: it is a name in the store
	input bool   // of the step
	name  string // in the store, or the node's own
	port  flow.Port
}

func (t target) names(flag string) bool { return alike(t.key, flag) }

// targets are what flags can name: each name in the store, each param, and each of both of one step.
func (d overlay) targets() (all []target) {
	stored := map[string]bool{}
	for i, s := range d.flow.Steps {
		node, err := d.nodes.Find(s.Node)
		if err != nil {
			continue
		}
		read := func(name string, port flow.Port) {
			all = append(all, target{s.ID + "." + port.Name, i, true, port.Name, port})
			if !stored[name] {
				stored[name] = true
				all = append(all, target{name, -1, false, name, port})
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
				all = append(all, target{s.ID + "." + p.Name, i, false, p.Name, p}, target{p.Name, i, false, p.Name, p})
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
func (d overlay) target(all []target, flag string) (target, bool) {
	exact := slices.DeleteFunc(slices.Clone(all), func(t target) bool { return t.key != flag })
	found := exact
	if len(found) == 0 {
		found = slices.DeleteFunc(slices.Clone(all), func(t target) bool { return !t.names(flag) })
	}
	switch len(found) {
	case 1:
		return found[0], true
	case 0:
		var names []string
		for _, t := range all {
			if name := "--" + dashed(t.key); !strings.Contains(t.key, ".") && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		advice := "The flow takes no flags."
		if len(names) > 0 {
			advice = meant("--"+flag, names)
		}
		d.problem(flow.At{}, "", "--"+short(flag)+" is neither an input nor a param of a step", advice)
	default:
		var what, write []string
		for _, t := range found {
			if t.step < 0 {
				what = append(what, "an input")
				if of := slices.IndexFunc(all, func(o target) bool { return o.input && d.reads(o) == t.name }); of >= 0 {
					write = append(write, "--"+short(all[of].key))
				}
			} else {
				id := d.flow.Steps[t.step].ID
				what = append(what, "a param of "+quote(id))
				write = append(write, "--"+short(id+"."+t.name))
			}
		}
		d.problem(flow.At{}, "", "--"+short(flag)+" is "+strings.Join(what, " and "),
			"Write "+strings.Join(write, " or ")+".")
	}
	return target{}, false
}

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
// text. One end of a line at its end is none of it.
func (d overlay) feed(input string) {
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
		b, _ := json.Marshal(strings.TrimSuffix(input, "\n")) // a string
		first.Set = with(first.Set, free[0], b)
	case len(free) > 1:
		for i, name := range free {
			free[i] = "--" + dashed(name)
		}
		d.problem(first.At, first.ID, "standard input could be any of "+strings.Join(free, ", "),
			"Give all of them but one.")
	case len(given) > 0:
		d.problem(first.At, first.ID, "standard input has no place: "+strings.Join(given, ", ")+" is given",
			"Leave the flag out, or close standard input: </dev/null.")
	default:
		d.problem(first.At, first.ID, "standard input has no place: the first step needs no text", "Close it: </dev/null.")
	}
}
