package declaration

import (
	"reflect"
	"testing"
)

// What the schema says of a key that a file leaves out is what the reader takes.
func TestDefaultsAreTrue(t *testing.T) {
	parse := func(src string) *Server {
		t.Helper()
		s, diags := Parse("notion.hcl", []byte("command = \"node\"\n"+src), testOptions())
		if s == nil {
			t.Fatalf("%s: %v", src, diags)
		}
		s.places, s.sources = nil, nil
		return s
	}
	const own = "sessions = \"own\"\n" // without it, some keys mean nothing
	silent, checked := parse(""), 0
	for _, k := range Keys() {
		if k.Default == "" {
			continue
		}
		src := k.Name + " = " + k.Default + "\n"
		with := ""
		if k.Section == credentialSection {
			with = "allowed_domains = [\"x.example\"]\nauth = { A = { secret = \"vault:a\""
			if k.Name == "in" {
				with += ", deliver = \"broker\""
			}
			src, with = with+", "+k.Name+" = "+k.Default+" } }\n", with+" } }\n"
		} else if k.Section == authSection {
			src = authSection + " = { " + k.Name + " = " + k.Default + " }\n"
		} else if k.Section != "" {
			src = k.Section + " {\n" + src + "}\n"
		}
		without := silent
		if k.Name == "sessions_max" || k.Name == "session_idle" {
			src, without = own+src, parse(own)
		} else if with != "" {
			without = parse(with)
		}
		if said := parse(src); !reflect.DeepEqual(said, without) {
			t.Errorf("%s is another server than one without it:\n%+v\n%+v", src, said, without)
		}
		checked++
	}
	if checked < 15 {
		t.Errorf("only %d defaults", checked)
	}
}
