package policies

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/inspector"
)

// inspector reads what the owner has look at arguments and results, beside what is built in.
func (d *decoder) inspector(e entry) {
	const example = `inspector "scan" { exec = ["/usr/local/bin/scan"] }`
	names, ok := d.labels(e, 1, example)
	if !ok {
		return
	}
	if first, twice := d.found[names[0]]; twice {
		d.report(problem(e.labels[0].at, "Duplicate inspector", "%q stands in %s already. Keep one of the two, or give this one another name.", names[0], exactly(first)))
		return
	}
	d.found[names[0]] = e.labels[0].at
	before := len(d.diags)
	i := inspector.External{Name: names[0]}
	d.block(e, "in inspector", false, d.inspectorKeys(&i))
	if len(d.diags) > before {
		return // what else would be found may come of it
	}
	i, err := i.Declared()
	for _, m := range inspector.Mistakes(err) {
		at, words := e.labels[0].at, m.Words
		if k := slices.IndexFunc(e.body, func(f entry) bool { return f.name == m.Attribute }); k >= 0 {
			if at = e.body[k].at; e.body[k].value != nil {
				at = e.body[k].value.Range()
			}
		}
		if m.Attribute != "" {
			words = m.Attribute + " " + words
		} else if !strings.HasPrefix(words, `"`) {
			words = "It " + words
		}
		d.report(problem(at, "Inspector not possible", "%s.", words))
	}
	if err == nil {
		d.policy.Inspectors = append(d.policy.Inspectors, i)
	}
}

// inspectorKeys are the attributes of an inspector. What goes together inspector.External knows.
func (d *decoder) inspectorKeys(i *inspector.External) []key {
	list := func(to *[]string, example string) func(entry) {
		return func(f entry) { *to, _ = d.texts(f, example) }
	}
	text := func(to *string, example string) func(entry) {
		return func(f entry) { *to, _ = d.text(f, example) }
	}
	size := func(to *int, example string) func(entry) {
		return func(f entry) {
			n, _ := d.bytes(f, example, math.MaxInt32)
			*to = int(n)
		}
	}
	return []key{
		{"exec", `exec = ["/usr/local/bin/scan"]`, list(&i.Exec, `["/usr/local/bin/scan"]`)},
		{"read_only", `read_only = ["/srv/rules"]`, list(&i.ReadOnly, `["/srv/rules"]`)},
		{"memory", `memory = "512m"`, func(f entry) { i.Memory, _ = d.bytes(f, `"512m"`, math.MaxInt64) }},
		{"url", `url = "https://api.example.com/v1/chat/completions"`, text(&i.URL, `"https://api.example.com/v1/chat/completions"`)},
		{"model", `model = "small"`, text(&i.Model, `"small"`)},
		{"key", `key = "vault:llm"`, text(&i.Key, `"vault:llm"`)},
		{"allow_private", `allow_private = ["10.0.0.5"]`, list(&i.AllowPrivate, `["10.0.0.5"]`)},
		{"direction", `direction = "both"`, func(f entry) { d.direction(f, &i.Direction) }},
		{"timeout", `timeout = "20s"`, func(f entry) { d.duration(f, &i.Timeout) }},
		{"parallel", `parallel = 4`, func(f entry) { d.number(f, &i.Parallel) }},
		{"chunk", `chunk = "12k"`, size(&i.Chunk, `"12k"`)},
		{"overlap", `overlap = "1k"`, size(&i.Overlap, `"1k"`)},
		{"size", `size = "1m"`, size(&i.Size, `"1m"`)},
	}
}

func (d *decoder) direction(f entry, to *inspector.Direction) {
	if word, ok := d.oneOf(f, []string{"arguments", "results", "both"}); ok {
		_ = to.UnmarshalText([]byte(word)) // it is one of them
	}
}

func (d *decoder) duration(f entry, to *time.Duration) {
	s, ok := d.text(f, `"20s"`)
	if !ok {
		return
	}
	v, err := time.ParseDuration(s)
	if err != nil || v <= 0 {
		d.report(problem(f.value.Range(), "Wrong type", `%s takes a length of time. Write %s = "20s".`, f.name, f.name))
		return
	}
	*to = v
}

// number reads one that counts something: from 1 on.
func (d *decoder) number(f entry, to *int) {
	v, ok := d.value(f, cty.Number, "a number, without quotes", "4")
	if !ok {
		return
	}
	n, exact := v.AsBigFloat().Int64()
	if exact != 0 || n < 1 || n > math.MaxInt32 {
		d.report(problem(f.value.Range(), "Wrong type", "%s takes a whole number, 1 or more. Write %s = 4.", f.name, f.name))
		return
	}
	*to = int(n)
}

// bytes reads a size: digits, and k, m or g for the powers of 1024.
func (d *decoder) bytes(f entry, example string, most int64) (int64, bool) {
	s, ok := d.text(f, example)
	if !ok {
		return 0, false
	}
	digits := strings.TrimRight(s, "kmg")
	unit, known := map[string]int64{"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}[s[len(digits):]]
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || !known || n < 1 || n > most/unit || digits[0] == '+' {
		d.report(problem(f.value.Range(), "Wrong type", "%s takes a number of bytes. Write %s = %s.", f.name, f.name, example))
		return 0, false
	}
	return n * unit, true
}

// asks reads which inspectors a profile needs. To name fewer than before is to loosen.
func (d *decoder) asks(f entry, profile string, p *gate.Profile, reason string) {
	var list []string
	if v, diag := plain(f); diag != nil || !v.Type().IsTupleType() || v.LengthInt() > 0 {
		var ok bool
		if list, ok = d.texts(f, `["scan"]`); !ok {
			return
		}
	}
	for _, name := range p.Inspectors {
		if i := slices.IndexFunc(d.asked, func(l label) bool { return l.text == name }); !slices.Contains(list, name) {
			d.relaxed(f.value.Range(), reason, "the profile "+profile+" is not inspected by "+name+", which is less", exactly(d.asked[i].at))
		}
	}
	for _, name := range list {
		d.asked = append(d.asked, label{name, f.value.Range()})
	}
	p.Inspectors = slices.Compact(slices.Sorted(slices.Values(list)))
}

// checkInspectors finds profiles that need an inspector that there is none of, and inspectors that no profile needs.
func (d *decoder) checkInspectors() {
	known := slices.Sorted(maps.Keys(d.found))
	for _, l := range d.asked {
		if slices.Contains(known, l.text) {
			continue
		}
		remedy := `Write inspector "` + l.text + `" { exec = ["/usr/local/bin/scan"] }.`
		if len(known) > 0 {
			remedy = didYouMean(l.text, known)
		}
		d.report(problem(l.at, "Unknown inspector", "%q is declared nowhere. %s", l.text, remedy))
	}
	for _, name := range known {
		if at := d.found[name]; !slices.ContainsFunc(d.asked, func(l label) bool { return l.text == name }) {
			d.report(caution(at, "Inspector not asked", "No profile needs %q. Write profile \"strict\" { inspectors = [%q] }, and so for each profile that is to.", name, name))
		}
	}
}
