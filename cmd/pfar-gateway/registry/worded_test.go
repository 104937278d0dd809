package registry

import (
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/units/handover"
)

func TestWorded(t *testing.T) {
	yes, no := true, false
	for name, tt := range map[string]struct {
		owner map[string]handover.Tool
		want  string // names that clients see
		taken string
	}{
		"nothing said":      {nil, "read write drop", ""},
		"one off":           {map[string]handover.Tool{"drop": {Enabled: &no}}, "read write", ""},
		"all off":           {map[string]handover.Tool{"*": {Enabled: &no}}, "", ""},
		"one on":            {map[string]handover.Tool{"*": {Enabled: &no}, "read": {Enabled: &yes}}, "read", ""},
		"on, a pattern off": {map[string]handover.Tool{"*": {Enabled: &yes}, "d*": {Enabled: &no}}, "read write", ""},
		"as heavy":          {map[string]handover.Tool{"d*": {Enabled: &yes}, "*p": {Enabled: &no}}, "read write", ""},
		"renamed":           {map[string]handover.Tool{"read": {Rename: "get"}}, "get write drop", ""},
		"to its own name":   {map[string]handover.Tool{"read": {Rename: "read"}}, "read write drop", ""},
		"to another's":      {map[string]handover.Tool{"read": {Rename: "write"}}, "read write drop", "write"},
		"to a look-alike":   {map[string]handover.Tool{"read": {Rename: "Write"}}, "read write drop", "Write"},
		"to one that is off": {
			map[string]handover.Tool{"read": {Rename: "drop"}, "drop": {Enabled: &no}}, "read write", "drop",
		},
		"swapped": {
			map[string]handover.Tool{"read": {Rename: "write"}, "write": {Rename: "read"}}, "read write drop", "write read",
		},
		"no such tool": {map[string]handover.Tool{"other": {Rename: "x", Enabled: &no}}, "read write drop", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var tools []Item
			for _, n := range []string{"read", "write", "drop"} {
				tools = append(tools, Item{Name: n, Raw: []byte(`{"name":"` + n + `"}`)})
			}
			list, taken := worded("s", tools, tt.owner)
			var got []string
			for _, i := range list {
				got = append(got, i.served())
			}
			if !slices.Equal(got, strings.Fields(tt.want)) || !slices.Equal(taken, strings.Fields(tt.taken)) {
				t.Errorf("served %q, taken %q", got, taken)
			}
		})
	}
}

// TestOwnersDescription: the owner's words take the place of the server's, wherever that has put them.
func TestOwnersDescription(t *testing.T) {
	for raw, want := range map[string]string{
		`{"name":"a"}`:                         `{"description":"\"mine\"","name":"a"}`,
		`{"name":"a","description":"theirs"}`:  `{"name":"a","description":"\"mine\""}`,
		`{"description":{"odd":1},"name":"a"}`: `{"description":"\"mine\"","name":"a"}`,
	} {
		tools := []Item{{Name: "a", Raw: []byte(raw)}}
		list, _ := worded("s", tools, map[string]handover.Tool{"a": {Description: `"mine"`}})
		if got := string(list[0].Raw); got != want {
			t.Errorf("%s becomes %s, want %s", raw, got, want)
		}
	}
}
