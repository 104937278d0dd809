package units

import "testing"

func TestSubordinate(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want IDRange
	}{
		"none":                 {"", IDRange{}},
		"another's":            {"bob:100000:65536\n1001:200000:65536\n", IDRange{}},
		"by name":              {"bob:1:1\nann:100000:65536\n", IDRange{100000, 65536}},
		"by id":                {"1000:100000:65536", IDRange{100000, 65536}},
		"the largest":          {"ann:5000:10\nann:100000:65536\nann:7000:100\n", IDRange{100000, 65536}},
		"root's":               {"ann:0:65536\n", IDRange{}},
		"negative":             {"ann:-5:65536\nann:5:-1\n", IDRange{}},
		"too large":            {"ann:4294967295:65536\n", IDRange{}},
		"neither user nor id":  {":100000:65536\n", IDRange{}},
		"a comment, and words": {"# ann:1:2\nann:one:two\nann\n", IDRange{}},
	} {
		if got := Subordinate([]byte(c.text), "ann", 1000); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
	if got := Subordinate([]byte(":5:10\n"), "", 1000); got != (IDRange{}) {
		t.Errorf("a user without a name got %v", got)
	}
}
