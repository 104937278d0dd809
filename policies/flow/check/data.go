package check

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/policies/flow/fit"
	"github.com/pfar/pfar/policies/flow/step"
)

// maxWriters bounds what a check follows through a flow.
const maxWriters = 4096

// writer is a place at which a name of the store gets a value.
type writer struct {
	step   int    // -1: the store has it at the beginning
	output string // the node's own name; "": the flow says the value itself
	name   int    // in dataflow.names
}

// state is what is known of the store at one place of a flow.
type state struct {
	sure bits // names that every path has given
	may  bits // writers whose value may be there
}

func (s *state) clone() *state { return &state{slices.Clone(s.sure), slices.Clone(s.may)} }

// join adds what another path knows, and reports whether that is news.
func (s *state) join(other *state) bool {
	news := false
	for i := range s.sure {
		both := s.sure[i] & other.sure[i]
		news = news || both != s.sure[i]
		s.sure[i] = both
	}
	for i := range s.may {
		either := s.may[i] | other.may[i]
		news = news || either != s.may[i]
		s.may[i] = either
	}
	return news
}

// bits are a set of small numbers.
type bits []uint64

func newBits(n int) bits      { return make(bits, (n+63)/64) }
func (b bits) has(i int) bool { return b[i/64]&(1<<(i%64)) != 0 }
func (b bits) add(i int)      { b[i/64] |= 1 << (i % 64) }
func (b bits) remove(i int)   { b[i/64] &^= 1 << (i % 64) }

// data checks what steps give to each other: that each required input is given on every path, that what is given fits,
// and that nothing overwrites what another step reads.
func (c *checker) data() { c.dataflow().check() }

// dataflow finds who writes what steps read.
func (c *checker) dataflow() *dataflow {
	d := &dataflow{
		checker: c, read: map[string]bool{}, names: map[string]int{}, own: make([][]int, len(c.planned)),
		before: make([]*state, len(c.planned)), told: map[int]bool{}, paths: newPaths(c.ctx, c.planned),
	}
	for _, p := range c.planned {
		for _, in := range p.Node.Inputs {
			d.read[step.Reads(p.Step, in.Name)] = true
		}
		for _, name := range p.Reads {
			d.read[name] = true
		}
	}
	d.find()
	return d
}

// check tells of all that is wrong with what steps give to each other.
func (d *dataflow) check() {
	if len(d.writers) > maxWriters {
		d.problem(flow.At{}, "", fmt.Sprintf("the steps write and read %d names, and may %d", len(d.writers),
			maxWriters),
			"Split the flow.")
		return
	}
	d.paths.read(d.names)
	d.solve()
	for i := range d.planned {
		if d.givenUp() {
			return
		}
		if d.before[i] != nil {
			d.inputs(i)
			d.collisions(i)
		}
	}
}

// dataflow follows values through the edges of a flow.
type dataflow struct {
	*checker
	read    map[string]bool // names in the store that steps read
	names   map[string]int  // those of them that anything writes
	writers []writer
	of      [][]int      // by name: its writers
	own     [][]int      // by step: its writers
	before  []*state     // of each step before it reads; nil: no run comes there
	told    map[int]bool // names of which a collision was told
	paths   *paths
}

// find finds all writers of names that steps read. It notes the outputs that no step reads.
func (d *dataflow) find() {
	for _, name := range slices.Sorted(maps.Keys(d.flow.Store)) {
		d.writer(name, -1, "")
	}
	for i := range d.planned {
		p := &d.planned[i]
		for _, own := range slices.Sorted(maps.Keys(p.Set)) {
			d.writer(step.Reads(p.Step, own), i, "")
		}
		for _, out := range p.Node.Outputs {
			if !d.writer(step.Writes(p.Step, out.Name), i, out.Name) {
				p.Unread = append(p.Unread, out.Name)
			}
		}
	}
}

// writer adds a writer, and reports whether any step reads its name.
func (d *dataflow) writer(name string, step int, output string) bool {
	if !d.read[name] {
		return false
	}
	n, ok := d.names[name]
	if !ok {
		n = len(d.names)
		d.names[name] = n
		d.of = append(d.of, nil)
	}
	d.of[n] = append(d.of[n], len(d.writers))
	if step >= 0 {
		d.own[step] = append(d.own[step], len(d.writers))
	}
	d.writers = append(d.writers, writer{step, output, n})
	return true
}

// write gives a name the value of one writer.
func (d *dataflow) write(s *state, w int) {
	name := d.writers[w].name
	for _, other := range d.of[name] {
		s.may.remove(other)
	}
	s.may.add(w)
	s.sure.add(name)
}

// solve finds the state before each step: of all paths that lead there, until nothing is new. There are finitely many
// names and writers, and a state only ever loses the first and gains the second.
func (d *dataflow) solve() {
	start := &state{newBits(len(d.names)), newBits(len(d.writers))}
	for w, writer := range d.writers {
		if writer.step < 0 {
			d.write(start, w)
		}
	}
	d.before[0] = start
	waiting := make([]bool, len(d.planned))
	for todo := []int{0}; len(todo) > 0 && !d.givenUp(); {
		i := todo[0]
		todo, waiting[i] = todo[1:], false
		d.paths.solved++
		for _, action := range slices.Sorted(maps.Keys(d.planned[i].Next)) {
			next, after := d.planned[i].Next[action], d.after(i, action)
			switch {
			case d.before[next] == nil:
				d.before[next] = after
			case !d.before[next].join(after):
				continue
			}
			if !waiting[next] {
				todo, waiting[next] = append(todo, next), true
			}
		}
	}
}

// set is the state in which a step reads: with what it sets itself.
func (d *dataflow) set(i int) *state {
	s := d.before[i].clone()
	for _, w := range d.own[i] {
		if d.writers[w].output == "" {
			d.write(s, w)
		}
	}
	return s
}

// after is the state after a step that ends with an action: only one that succeeds has outputs.
func (d *dataflow) after(i int, action string) *state {
	s := d.set(i)
	for _, w := range d.own[i] {
		if d.writers[w].output != "" && action == flow.Default {
			d.write(s, w)
		}
	}
	return s
}

// given are the writers whose value a name may have, in the order of steps, and whether every path gives it.
func (d *dataflow) given(s *state, name string) (writers []writer, sure bool) {
	n, ok := d.names[name]
	if !ok {
		return nil, false
	}
	for _, w := range d.of[n] {
		if s.may.has(w) {
			writers = append(writers, d.writers[w])
		}
	}
	return writers, s.sure.has(n)
}

// inputs checks what a step reads.
func (d *dataflow) inputs(i int) {
	p, s := &d.planned[i], d.set(i)
	for _, in := range p.Node.Inputs {
		d.input(i, in, step.Reads(p.Step, in.Name), s, in.Required && in.Default == nil)
	}
	for _, own := range slices.Sorted(maps.Keys(p.Reads)) {
		if find(p.Node.Inputs, own) != nil {
			continue
		}
		port, needed := flow.Port{Name: own}, p.Node.Open
		if param := find(p.Node.Params, own); param != nil {
			_, said := p.Params[own]
			port, needed = *param, param.Required && param.Default == nil && !said
		}
		d.input(i, port, p.Reads[own], s, needed)
	}
}

// input checks one input, which is read under a name of the store.
func (d *dataflow) input(i int, in flow.Port, name string, s *state, needed bool) {
	if d.full() {
		return
	}
	p := &d.planned[i]
	writers, sure := d.given(s, name)
	switch {
	case !needed || sure:
	case len(writers) == 0:
		d.problem(p.At, p.ID, "nothing gives "+whose(in, name), d.propose(i, in, name))
		return
	default:
		d.problem(p.At, p.ID, whose(in, name)+" is not given on every path to the step",
			"A step that fails has no outputs: lead the edge elsewhere, or set the input.")
		return
	}
	for _, w := range writers {
		if w.step == i && w.output == "" { // checked with the step's ports
			continue
		}
		if wrong := d.misfit(i, w, in, name); wrong != "" {
			d.problem(p.At, p.ID, wrong, d.propose(i, in, name))
		}
	}
}

// whose names an input, and its name in the store where that is another one.
func whose(in flow.Port, name string) string {
	if name == in.Name {
		return "the input " + quote(name)
	}
	return fmt.Sprintf("the input %s (in the store %s)", quote(in.Name), quote(name))
}

// misfit says what is wrong with a writer for an input of a step, "" for nothing.
func (d *dataflow) misfit(i int, w writer, in flow.Port, name string) string {
	to := d.planned[i].Node
	if w.output == "" {
		value, from := d.flow.Store[name], "the store at the beginning"
		if w.step >= 0 {
			from = "step " + quote(d.planned[w.step].ID)
			value = d.valueOf(w.step, name)
		}
		wrong := d.paths.once(pair{step: w.step, name: name, to: to, in: in.Name}, func() string {
			return fit.Value(in.Schema, value)
		})
		if wrong != "" {
			return fmt.Sprintf("%s of %s does not fit the input %s: %s", quote(name), from, quote(in.Name), wrong)
		}
		return ""
	}
	from := &d.planned[w.step]
	wrong := d.paths.once(pair{from: from.Node, name: w.output, to: to, in: in.Name}, func() string {
		out := find(from.Node.Outputs, w.output)
		if fit.Output(out.Schema, in.Schema) {
			return ""
		}
		return fmt.Sprintf("does not fit the input %s: its type is %s, and the input takes %s", quote(in.Name),
			fit.Words(out.Schema), fit.Words(in.Schema))
	})
	if wrong != "" {
		return fmt.Sprintf("the output %s of step %s %s", quote(w.output), quote(from.ID), wrong)
	}
	return ""
}

// valueOf is the value that a step sets under a name of the store.
func (d *dataflow) valueOf(i int, name string) json.RawMessage {
	for own, value := range d.planned[i].Set {
		if step.Reads(d.planned[i].Step, own) == name {
			return value
		}
	}
	return nil
}

// maxOffered bounds the outputs among which a mapping is looked for.
const maxOffered = 1024

// propose says how an input can be given. Where the type of exactly one output fits that every path has written, it is
// a mapping to paste.
func (d *dataflow) propose(i int, in flow.Port, name string) string {
	p := &d.planned[i]
	offered, more := d.paths.available(i)
	var all, fits []string
	for _, o := range offered {
		all = append(all, step.Writes(d.planned[o.step].Step, o.output))
	}
	if more == 0 {
		fits = d.fitting(offered, in)
	}
	if len(fits) == 1 {
		return fmt.Sprintf("Map it: reads = { %s = %s }, or \"mappings\": {%s: {\"input_mappings\": {%s: %[2]s}}}.",
			key(in.Name), quote(fits[0]), quote(p.ID), quote(in.Name))
	}
	set := fmt.Sprintf("Set it: --%s VALUE, or inputs = { %s = ... }", strings.ReplaceAll(name, "_", "-"), key(in.Name))
	if len(all) == 0 {
		return set + "."
	}
	return set + ", or map one of " + listed(all, len(all)+more) + "."
}

// fitting are the names of the outputs whose type fits an input: members of results, or else the nearest whole result.
func (d *dataflow) fitting(offered []writer, in flow.Port) (fits []string) {
	for _, whole := range []bool{false, true} {
		for _, o := range slices.Backward(offered) {
			from := &d.planned[o.step]
			out := find(from.Node.Outputs, o.output)
			isWhole := o.output == lastOutput(from.Node)
			if isWhole != whole || !whole && out.Schema == nil || !fit.Output(out.Schema, in.Schema) {
				continue
			}
			if fits = append(fits, step.Writes(from.Step, o.output)); whole {
				break
			}
		}
		if len(fits) > 0 {
			break
		}
	}
	return fits
}

// key is a name as HCL has it on the left of =.
func key(name string) string {
	for _, r := range name {
		if r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') {
			return quote(name)
		}
	}
	return name
}

func lastOutput(n *flow.Node) string { return n.Outputs[len(n.Outputs)-1].Name }

// collisions reports outputs of a step that overwrite what another step has written, or what the flow has set, under a
// name that a later step reads.
func (d *dataflow) collisions(i int) {
	p, s := &d.planned[i], d.set(i)
	for _, out := range p.Node.Outputs {
		name := step.Writes(p.Step, out.Name)
		n, ok := d.names[name]
		if !ok || d.told[n] {
			continue
		}
		writers, _ := d.given(s, name)
		for _, w := range writers {
			if w.step == i && w.output == out.Name || !d.paths.readAfter(i, name) {
				continue
			}
			what := "what the flow sets"
			if w.output != "" {
				what = "the output of step " + quote(d.planned[w.step].ID)
			}
			d.problem(p.At, p.ID, fmt.Sprintf("the output %s overwrites %s in the store, which is %s", quote(out.Name),
				quote(name), what), mapOutput(p.ID, out.Name))
			d.told[n] = true
			break
		}
	}
}

// mapOutput says how an output gets another name in the store.
func mapOutput(id, output string) string {
	name := quote(output + "_" + strings.ReplaceAll(id, "-", "_"))
	return fmt.Sprintf("Map it: writes = { %s = %s }, or \"mappings\": {%s: {\"output_mappings\": {%s: %[2]s}}}.",
		key(output), name, quote(id), quote(output))
}
