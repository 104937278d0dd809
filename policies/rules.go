package policies

import (
	"maps"
	"slices"
	"strings"

	"github.com/pfar/pfar/policies/block"
	"github.com/pfar/pfar/policies/gate"
)

// ruleReader reads deny, ask and declassify.
type ruleReader struct{ *decoder }

func (d ruleReader) keys() []block.Key {
	return []block.Key{
		key("deny", `deny "no mail" { reason = "..." }`, d.rule(gate.Deny)),
		key("ask", `ask "deletions" { reason = "..." }`, d.rule(gate.Ask)),
		key("declassify", `declassify "notion" "search" { reason = "..." }`, d.declassify),
	}
}

func (d ruleReader) rule(v gate.Verdict) block.Value {
	return func(f *block.Field) {
		names, ok := d.labels(f, 1)
		if !ok {
			return
		}
		r := gate.Rule{Verdict: v, Name: names[0], At: d.place(f.At)}
		d.section(f, []block.Key{
			key("reason", `"We send no mail."`, d.text(&r.Reason)),
			key("profiles", `["strict"]`, d.profiles(&r.Profiles)),
			key("clients", `["editor"]`, list(d.decoder, &r.Clients)),
			key("servers", `["gmail"]`, list(d.decoder, &r.Servers)),
			key("tools", `["send_*"]`, list(d.decoder, &r.Tools)),
			key("methods", `["tools/call"]`, list(d.decoder, &r.Methods)),
		})
		if d.wanting(f, "reason") {
			d.policy.Rules = append(d.policy.Rules, r)
		}
	}
}

func (d ruleReader) profiles(to *[]string) block.Value {
	return func(f *block.Field) {
		list(d.decoder, to)(f)
		known := slices.Sorted(maps.Keys(d.policy.Profiles))
		for _, name := range *to {
			if !slices.Contains(known, name) {
				d.noneOf(f.Val.At, "profile", name, known)
			}
		}
	}
}

// renamed says what a block is called that had another name before flows of calls had it.
func renamed(_ block.Section, name string) string {
	if name == "flow" {
		return `The block is called declassify. Write declassify "notion" "search" { reason = "..." }.`
	}
	return ""
}

// declassify is a loosening, whose reason has to be there.
func (d ruleReader) declassify(f *block.Field) {
	names, ok := d.labels(f, 2)
	if !ok {
		return
	}
	flow := gate.Flow{From: names[0], To: names[1], At: d.place(f.At)}
	var tool string
	d.section(f, []block.Key{
		key("reason", `"The pages are public."`, d.text(&flow.Reason)),
		key("tool", `"web_*"`, d.text(&tool)),
	})
	flow.Tool = gate.Pattern(tool)
	for _, l := range f.Labels {
		if strings.Contains(l.Text, "*") {
			d.Problem(l.At, "Not one pair", "Data is declassified from one server to one other. Write a block for each pair.")
		}
	}
	if d.wanting(f, "reason") {
		d.policy.Flows = append(d.policy.Flows, flow)
		d.policy.Relaxed = append(d.policy.Relaxed, gate.Relaxation{
			At: flow.At, What: "what comes from " + flow.From + " may go to " + flow.To, Reason: flow.Reason,
		})
	}
}
