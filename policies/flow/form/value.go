package form

import (
	"encoding/json"
	"fmt"

	"github.com/pfar/pfar/policies/block"
	"github.com/pfar/pfar/policies/flow"
)

// value is a value of either kind of file.
type value struct {
	kind   block.Kind
	at     flow.At
	text   string          // of a string
	raw    json.RawMessage // as JSON; nil: it was told that it has none
	items  []*value
	fields []field
}

// field is a key with its value, or a block of HCL.
type field struct {
	name   string
	at     flow.At
	value  *value
	labels []block.Label
}

// reader reads the values of a file.
type reader struct{ *decoder }

// kindName is what a value is, in the words of the form.
func (d reader) kindName(k block.Kind) string {
	if k == block.Table && d.form == JSON {
		return "an object"
	}
	return k.String()
}

// is reports whether a value is of a kind, or tells that it is not. What is broken was told already.
func (d reader) is(v *value, want block.Kind, what, example string) bool {
	if v.kind != want && v.kind != block.Broken {
		d.problem(v.at, "", fmt.Sprintf("%s is %s, but takes %s", what, d.kindName(v.kind), d.kindName(want)),
			"Write "+example+".")
	}
	return v.kind == want
}

// string reads a string that is not empty.
func (d reader) string(f field, example string) string {
	if d.is(f.value, block.Text, quote(f.name), example) && f.value.text == "" {
		d.problem(f.value.at, "", quote(f.name)+" is empty", "Write "+example+", or remove the key.")
	}
	return f.value.text
}

// strings reads a table of strings.
func (d reader) strings(f field, example string) map[string]string {
	if !d.is(f.value, block.Table, quote(f.name), example) {
		return nil
	}
	m := map[string]string{}
	for _, x := range f.value.fields {
		if d.is(x.value, block.Text, quote(x.name), "a name") {
			m[x.name] = x.value.text
		}
	}
	return m
}

// values reads a table of any JSON.
func (d reader) values(f field, example string) map[string]json.RawMessage {
	if !d.is(f.value, block.Table, quote(f.name), example) {
		return nil
	}
	m := map[string]json.RawMessage{}
	for _, x := range f.value.fields {
		if x.value.raw != nil {
			m[x.name] = x.value.raw
		}
	}
	return m
}

// most reads how many calls a run may make.
func (d reader) most(f field) {
	var n int
	if f.value.kind != block.Number || json.Unmarshal(f.value.raw, &n) != nil || n < 1 || n > flow.MaxMost {
		d.problem(f.value.at, "", fmt.Sprintf("%q is not a whole number from 1 to %d", f.name, flow.MaxMost),
			fmt.Sprintf("Correct it, or remove it for %d.", flow.DefaultMost))
		return
	}
	d.flow.Most = n
}

// metadata reads where a flow is from. It decides nothing, so what is not known is left out.
func (d reader) metadata(f field) {
	if !d.is(f.value, block.Table, quote(f.name), `a table such as {"prompt": "..."}`) {
		return
	}
	for _, x := range f.value.fields {
		to := map[string]*string{
			"planner_version": &d.flow.Metadata.Planner, "created_at": &d.flow.Metadata.CreatedAt,
			"prompt": &d.flow.Metadata.Prompt,
		}[x.name]
		if to != nil && d.is(x.value, block.Text, quote(x.name), "text") {
			*to = x.value.text
		}
	}
}
