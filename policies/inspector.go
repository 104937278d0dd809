package policies

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/pfar/pfar/policies/block"
	"github.com/pfar/pfar/policies/inspector"
)

// inspectorReader reads what the owner has look at arguments and results, beside what is built in, and who is told that
// calls wait.
type inspectorReader struct {
	*decoder
	found map[string]hcl.Range // by name, notices too: both have a unit of that name
	told  map[string]bool      // which of them are notices
	asked []block.Label        // that profiles name
}

func (d *inspectorReader) keys() []block.Key {
	return []block.Key{
		key("inspector", `inspector "scan" { exec = ["/usr/local/bin/scan"] }`, d.read),
		key("notice", `notice "phone" { url = "https://ntfy.example.com/TOPIC" }`, d.notice),
	}
}

func (d *inspectorReader) read(f *block.Field) {
	i := inspector.External{}
	if d.external(f, &i, d.attributes(&i)) {
		d.policy.Inspectors = append(d.policy.Inspectors, i)
	}
}

// notice reads who is told that calls wait.
func (d *inspectorReader) notice(f *block.Field) {
	i := inspector.External{Role: inspector.Role{Notice: &inspector.Notice{}}}
	if d.external(f, &i, d.ofNotice(&i)) {
		d.policy.Notices = append(d.policy.Notices, i)
	}
}

// external reads one of them by its keys, and reports whether it has no mistake.
func (d *inspectorReader) external(f *block.Field, i *inspector.External, keys []block.Key) bool {
	names, ok := d.labels(f, 1)
	if !ok {
		return false
	}
	label := f.Labels[0]
	if first, twice := d.found[label.Text]; twice {
		const words = "%q stands in %s already. Keep one of the two, or give this one another name."
		d.Problem(label.At, "Duplicate "+f.Key, words, label.Text, exactly(first))
		return false
	}
	d.found[label.Text], d.told[label.Text] = label.At, i.Notice != nil
	before := len(d.Diags)
	i.Name = names[0]
	d.section(f, keys)
	if len(d.Diags) > before {
		return false // what else would be found may come of it
	}
	declared, err := i.Declared()
	*i = declared
	for _, m := range inspector.Mistakes(err) {
		at, words := label.At, m.Words
		if k := f.Val.Index[m.Attribute]; k != nil {
			at = k.Val.At
		}
		if m.Attribute != "" {
			words = m.Attribute + " " + words
		} else if !strings.HasPrefix(words, `"`) {
			words = "It " + words
		}
		d.Problem(at, strings.ToUpper(f.Key[:1])+f.Key[1:]+" not possible", "%s.", words)
	}
	return err == nil
}

// attributes are those of an inspector. What goes together inspector.External knows.
func (d *inspectorReader) attributes(i *inspector.External) []block.Key {
	return []block.Key{
		key("exec", `["/usr/local/bin/scan"]`, list(d.decoder, &i.Exec)),
		key("read_only", `["/srv/rules"]`, list(d.decoder, &i.ReadOnly)),
		key("memory", `"512m"`, size(d, &i.Memory, math.MaxInt64)),
		key("url", `"https://api.example.com/v1/chat/completions"`, d.text(&i.URL)),
		key("model", `"small"`, d.text(&i.Model)),
		key("key", `"vault:llm"`, d.text(&i.Key)),
		key("allow_private", `["10.0.0.5"]`, list(d.decoder, &i.AllowPrivate)),
		key("direction", `"both"`, d.fact(&i.Direction, []string{"arguments", "results", "both"})),
		key("timeout", `"20s"`, d.duration(&i.Timeout)),
		key("parallel", `4`, d.count(&i.Parallel)),
		key("chunk", `"12k"`, size(d, &i.Chunk, math.MaxInt32)),
		key("overlap", `"1k"`, size(d, &i.Overlap, math.MaxInt32)),
		key("size", `"1m"`, size(d, &i.Size, math.MaxInt32)),
	}
}

// ofNotice are the keys of a notice.
func (d *inspectorReader) ofNotice(i *inspector.External) []block.Key {
	return []block.Key{
		key("url", `"https://ntfy.example.com/TOPIC"`, d.text(&i.URL)),
		key("chat", `"matrix"`, d.text(&i.Notice.Chat)),
		key("format", `"ntfy"`, func(f *block.Field) { i.Notice.Format, _ = d.word(f, inspector.Formats) }),
		key("key", `"vault:ntfy"`, d.text(&i.Key)),
		key("allow_private", `["10.0.0.5"]`, list(d.decoder, &i.AllowPrivate)),
		key("every", `"1m"`, d.duration(&i.Notice.Every)),
		key("timeout", `"20s"`, d.duration(&i.Timeout)),
	}
}

func (d *inspectorReader) duration(to *time.Duration) block.Value {
	return func(f *block.Field) {
		s, ok := d.Filled(f)
		if !ok {
			return
		}
		v, err := time.ParseDuration(s)
		if err != nil || v <= 0 {
			d.WrongType(f, f.Val, "a length of time")
			return
		}
		*to = v
	}
}

// count is the value of a key that takes a number from 1 on.
func (d *inspectorReader) count(to *int) block.Value {
	return func(f *block.Field) {
		if f.Val.Kind != block.Number {
			d.WrongType(f, f.Val, "a number, without quotes")
			return
		}
		n, err := strconv.ParseInt(f.Val.Text, 10, 32)
		if err != nil || n < 1 {
			d.WrongType(f, f.Val, "a whole number, 1 or more")
			return
		}
		*to = int(n)
	}
}

// size is the value of a key that takes a size: digits, and k, m or g for the powers of 1024.
func size[T int | int64](d *inspectorReader, to *T, most int64) block.Value {
	return func(f *block.Field) {
		s, ok := d.Filled(f)
		if !ok {
			return
		}
		digits := strings.TrimRight(s, "kmg")
		unit, known := map[string]int64{"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}[s[len(digits):]]
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || !known || n < 1 || n > most/unit || digits[0] == '+' {
			d.WrongType(f, f.Val, "a number of bytes")
			return
		}
		*to = T(n * unit)
	}
}

// askedAt is where a profile names an inspector.
func (d *inspectorReader) askedAt(name string) hcl.Range {
	i := slices.IndexFunc(d.asked, func(l block.Label) bool { return l.Text == name })
	return d.asked[i].At
}

// check finds profiles that need an inspector that there is none of, and inspectors that no profile needs.
func (d *inspectorReader) check() {
	known := slices.DeleteFunc(slices.Sorted(maps.Keys(d.found)), func(name string) bool { return d.told[name] })
	for _, l := range d.asked {
		if slices.Contains(known, l.Text) {
			continue
		}
		remedy := `Write inspector "` + l.Text + `" { exec = ["/usr/local/bin/scan"] }.`
		if len(known) > 0 {
			remedy = block.Meant(d.Says.Meant, l.Text, known, nil)
		}
		d.Problem(l.At, "Unknown inspector", "%q is declared nowhere. %s", l.Text, remedy)
	}
	for _, name := range known {
		if at := d.found[name]; !slices.ContainsFunc(d.asked, func(l block.Label) bool { return l.Text == name }) {
			d.Caution(at, "Inspector not asked", "No profile needs %q. Write profile \"strict\" { inspectors = [%q] }, and so "+
				"for each profile that is to.", name, name)
		}
	}
}
