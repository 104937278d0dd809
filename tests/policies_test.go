package tests

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/pfar/pfar/policies"
)

const policiesPage = "../packaging/man/pfar-policies.5"

// loadPolicy reads one file of policies.d.
func loadPolicy(text string) policies.Set {
	return policies.Load(fstest.MapFS{"local.hcl": {Data: []byte(text)}}, "policies.d")
}

// TestPoliciesManualKnowsTheKeys has the reader list the keys of each block, and compares them with the manual's, both
// ways.
func TestPoliciesManualKnowsTheKeys(t *testing.T) {
	page := read(t, policiesPage)
	_, page, _ = strings.Cut(page, "\n.Sh KEYS\n")
	page, _, _ = strings.Cut(page, "\n.Sh ")
	blocks := map[string]string{
		"":                   "%s",
		"profile":            `profile "strict" { %s }`,
		"row":                `profile "strict" { row "raw" "fits" { %s } }`,
		"deny and ask":       `deny "x" { %s }`,
		"declassify":         `declassify "x" "y" { %s }`,
		"service and server": `service "x" { %s }`,
		"tier":               `service "x" { tier "y" { %s } }`,
		"inspector":          `inspector "x" { %s }`,
		"notice":             `notice "x" { %s }`,
	}
	listed := regexp.MustCompile(`Known are (.*)\.\n?$`)
	of := map[string][]string{}
	for block, form := range blocks {
		text := strings.NewReplacer("%s", "qqqqqqqqqqqq = 1", "{ ", "{\n", " }", "\n}").Replace(form)
		for _, d := range loadPolicy(text).Diags {
			if m := listed.FindStringSubmatch(d.Detail); m != nil {
				of[block] = strings.Split(m[1], ", ")
			}
		}
		if len(of[block]) == 0 {
			t.Fatalf("no keys of %q", block)
		}
	}
	sections := strings.Split("\n"+page, "\n.Ss ")
	for _, section := range sections {
		title, text, _ := strings.Cut(section, "\n")
		keys, ok := of[title]
		if !ok {
			t.Errorf("the manual has a block %q", title)
			continue
		}
		delete(of, title)
		var marked []string
		for _, m := range regexp.MustCompile(`(?m)^\.(?:It )?Cm (.*)$`).FindAllStringSubmatch(text, -1) {
			for _, w := range strings.Fields(m[1]) {
				if w = strings.Trim(w, ".,;:"); w != "" {
					marked = append(marked, w)
				}
			}
		}
		for _, k := range keys {
			if !slices.Contains(marked, k) {
				t.Errorf("the manual lacks the key %q of %q", k, title)
			}
		}
		for _, k := range marked {
			if !slices.Contains(keys, k) && !(title == "service and server" && slices.Contains([]string{"public_source", "secret_data", "public_sink", "dangerous_writes"}, k)) {
				t.Errorf("the manual has the key %q in %q", k, title)
			}
		}
	}
	for title := range of {
		t.Errorf("the manual lacks the block %q", title)
	}
}

// TestPoliciesManualExample reads the file that the manual shows.
func TestPoliciesManualExample(t *testing.T) {
	page := read(t, policiesPage)
	_, rest, _ := strings.Cut(page, ".Bd -literal -offset indent\n")
	text, _, ok := strings.Cut(rest, ".Ed\n")
	if !ok {
		t.Fatal("no example")
	}
	s := loadPolicy(strings.ReplaceAll(text, `\-`, "-"))
	if s.Policy == nil || len(s.Diags) > 0 || len(s.Policy.Rules) != 2 || len(s.Policy.Flows) != 1 || len(s.Policy.Relaxed) != 6 {
		t.Errorf("%v", s.Diags)
	}
}

// TestPoliciesManualInspectors reads what the manual shows of inspectors, and the example.
func TestPoliciesManualInspectors(t *testing.T) {
	_, rest, _ := strings.Cut(read(t, policiesPage), "\n.Sh INSPECTORS\n")
	_, rest, _ = strings.Cut(rest, ".Bd -literal -offset indent\n")
	shown, _, _ := strings.Cut(rest, ".Ed\n")
	for _, text := range []string{strings.ReplaceAll(shown, `\-`, "-"), read(t, "../examples/policies/inspectors.hcl")} {
		if s := loadPolicy(text); s.Policy == nil || len(s.Diags) > 0 || len(s.Policy.Inspectors) != 2 || len(s.Policy.Asks("strict")) != 1 || len(s.Policy.Asks("balanced")) != 2 {
			t.Errorf("%v of %s", s.Diags, text)
		}
	}
}

// TestPoliciesManualNotices reads what the manual shows of notices.
func TestPoliciesManualNotices(t *testing.T) {
	_, rest, _ := strings.Cut(read(t, policiesPage), "\n.Sh NOTICES\n")
	_, rest, _ = strings.Cut(rest, ".Bd -literal -offset indent\n")
	shown, _, _ := strings.Cut(rest, ".Ed\n")
	if s := loadPolicy(shown); s.Policy == nil || len(s.Diags) > 0 || len(s.Policy.Notices) != 3 {
		t.Errorf("%v of %s", s.Diags, shown)
	}
}

// TestPoliciesManualShowsWhatIsShipped compares the table and the services.
func TestPoliciesManualShowsWhatIsShipped(t *testing.T) {
	page := strings.ReplaceAll(read(t, policiesPage), `\-`, "-")
	everyday := strings.ReplaceAll(read(t, "../policies/everyday.hcl"), "{\n    verdicts", "{ verdicts")
	source := read(t, "../policies/strict.hcl") + read(t, "../policies/balanced.hcl") + everyday
	words := regexp.MustCompile(`"([^"]+)"`)
	rows := 0
	for line := range strings.Lines(source) {
		if !strings.HasPrefix(line, "  row ") {
			continue
		}
		rows++
		var cells []string
		for _, m := range words.FindAllStringSubmatch(line, -1) {
			cells = append(cells, regexp.QuoteMeta(m[1]))
		}
		if !regexp.MustCompile(`(?m)^` + strings.Join(cells, ` {2,}`) + `$`).MatchString(page) {
			t.Errorf("the manual lacks the row %s", line)
		}
	}
	_, list, _ := strings.Cut(page, ".\\\" services\n")
	list, _, _ = strings.Cut(list, ".\n.It")
	listed := strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' })
	want := policies.Services()
	slices.Sort(want)
	if !slices.Equal(listed, want) || rows != 13 {
		t.Errorf("%d rows; the manual lists\n%q, and there are\n%q", rows, listed, want)
	}
}
