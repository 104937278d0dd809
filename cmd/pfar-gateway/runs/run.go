package runs

import (
	"encoding/json"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/flows"
)

// run is one that is not over, as it stands on the disk.
type run struct {
	id, client, session string
	proof               string // of whoever began it
	plan                *flow.Plan
	store               map[string]json.RawMessage
	label               gate.Label // of the store
	planned             int        // bytes of the plan in JSON
	saved               int        // bytes of the plan and the store that the disk has
	unsaved             unsaved    // all else of the run the disk has
	traced              int        // steps of the trace, those that are kept no more too
	waited              string     // the approval that it waited for before the call
	standing
	position
}

// standing is how a run stands.
type standing struct {
	state    flows.State
	reason   string
	approval string // that it waits for
}

// position is where a run stands.
type position struct {
	step     int   // place in the plan of the step that it calls now, or next
	turn     int   // how many calls it has made before
	sent     bool  // the call writes, and may be on its way
	asks     int   // how often the call has been answered for, and waited again
	restarts int   // of the gateway, while it ran at this call
	since    int64 // when the call began to wait, in nanoseconds since 1970; 0: it does not
}

// outcome is what a call has made of a run.
type outcome struct {
	standing
	position
	trace  *flows.Step                // nil: nothing was called
	label  gate.Label                 // of the run after it
	values map[string]json.RawMessage // that the store has now, and had not before; nil: it has none of the name now
	result json.RawMessage            // of the run, if it is done

	inDoubt bool // the call may have changed something, although it has failed
}

// over reports whether a state is one that no run leaves.
func over(s flows.State) bool { return s == flows.Done || s == flows.Failed || s == flows.Cancelled }

// size is how many bytes a store takes on the disk.
func size(store map[string]json.RawMessage) int {
	n := 0
	for name, value := range store {
		n += len(name) + len(value)
	}
	return n
}

// changed are the values of a store that another does not have, and nil for those that it has alone.
func changed(store, before map[string]json.RawMessage) map[string]json.RawMessage {
	values := make(map[string]json.RawMessage)
	for name, value := range store {
		if was, ok := before[name]; !ok || !slices.Equal(was, value) {
			values[name] = value
		}
	}
	for name := range before {
		if _, ok := store[name]; !ok {
			values[name] = nil
		}
	}
	return values
}

// take puts an outcome into the run that it is of.
func (r *run) take(o outcome) {
	r.standing, r.position, r.label = o.standing, o.position, o.label
	maps.Copy(r.store, o.values)
	maps.DeleteFunc(r.store, func(_ string, value json.RawMessage) bool { return value == nil })
	if o.trace != nil {
		r.traced++
	}
}

// reaches reports whether a run that goes on at a step of a plan can come to another one, or is there.
func reaches(p *flow.Plan, from, to int) bool {
	seen, open := map[int]bool{from: true}, []int{from}
	for len(open) > 0 {
		at := open[len(open)-1]
		open = open[:len(open)-1]
		if at == to {
			return true
		}
		for _, next := range p.Steps[at].Next {
			if !seen[next] {
				seen[next] = true
				open = append(open, next)
			}
		}
	}
	return false
}

// short bounds the words of why a run failed: a server may have chosen some of them.
func short(s string) string {
	if len(s) <= longestReason {
		return s
	}
	end := longestReason
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "..."
}

// growth is by how many bytes values make a store larger.
func growth(store, values map[string]json.RawMessage) int {
	n := 0
	for name, value := range values {
		if was, ok := store[name]; ok {
			n -= len(name) + len(was)
		}
		if value != nil {
			n += len(name) + len(value)
		}
	}
	return n
}

// pack is a label as one number.
func pack(l gate.Label) int { return int(l.Confidentiality)<<4 | int(l.Integrity) }

func unpack(n int) gate.Label {
	return gate.Label{Confidentiality: gate.Confidentiality(n >> 4 & 15), Integrity: gate.Integrity(n & 15)}
}

// instant is a time from the disk.
func instant(nanoseconds int64) time.Time { return time.Unix(0, nanoseconds).UTC() }

// Bounds of what the disk may lack of one run.
const (
	mostUnsaved  = 64       // calls
	bytesUnsaved = 64 << 10 // of the steps of the trace, and of values
)

// unsaved is what calls have made of a run, and the disk lacks. If the gateway is killed, those that only read are made
// again: their run stands on the disk where it stood before them. Of one that writes, it is not known then whether it
// was carried out, as if it had not come back: so nothing is sent before that is written.
type unsaved struct {
	steps  [][]byte                   // of the trace, in JSON
	values map[string]json.RawMessage // that the store has otherwise; nil: it has none of the name now
	bytes  int                        // of both
	last   int                        // place in the plan of the step that was called last
	due    bool                       // a time is set at which it is written
	wrote  bool                       // one of the calls writes
}

// stands is the outcome that a run has now.
func (r *run) stands() outcome {
	return outcome{standing: r.standing, position: r.position, label: r.label}
}

// bytes is how many the plan and the store have after an outcome.
func (r *run) bytes(o outcome) int { return r.planned + size(r.store) + growth(r.store, o.values) }

// clear says that the disk lacks nothing of a run.
func (r *run) clear() {
	r.saved, r.unsaved = r.bytes(outcome{}), unsaved{due: r.unsaved.due}
}
