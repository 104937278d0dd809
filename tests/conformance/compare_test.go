package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// check is one judgement of the suite, as it writes them to checks.json.
type check struct {
	ID      string          `json:"id"`
	Status  string          `json:"status"` // SUCCESS, FAILURE, WARNING, SKIPPED or INFO
	About   string          `json:"description"`
	Error   string          `json:"errorMessage"`
	Details json.RawMessage `json:"details"`
}

const passed, failed = "SUCCESS", "FAILURE"

// reason is what the suite says against it.
func (c check) reason() string {
	text := c.Status + ": " + c.About
	if c.Error != "" {
		text += ": " + c.Error
	}
	if len(c.Details) > 0 {
		var line bytes.Buffer
		json.Compact(&line, c.Details)
		text += " " + line.String()
	}
	const most = 2000
	return text[:min(len(text), most)]
}

// results are the checks of each scenario.
type results map[string][]check

// count returns how many checks have a status.
func (r results) count(status string) int {
	n := 0
	for _, checks := range r {
		for _, c := range checks {
			if c.Status == status {
				n++
			}
		}
	}
	return n
}

// stamp is what the suite adds to a scenario's name to have a directory.
var stamp = regexp.MustCompile(`-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-\d+Z$`)

// read adds what the suite has left in a directory; prefix is what it puts before a scenario's name.
func (r results) read(dir, prefix string) error {
	return filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.Name() != "checks.json" {
			return err
		}
		name, err := filepath.Rel(dir, filepath.Dir(path))
		if err != nil {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var checks []check
		if err := json.Unmarshal(b, &checks); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		scenario := strings.TrimPrefix(stamp.ReplaceAllString(filepath.ToSlash(name), ""), prefix)
		r[scenario] = append(r[scenario], checks...)
		return nil
	})
}

// loss is a check that is worse with pfar in between.
type loss struct{ scenario, id, reason string }

func (l loss) String() string { return fmt.Sprintf("%s: %s: %s", l.scenario, l.id, l.reason) }

// losses compares. An id that a scenario judges several times counts each time: all that passes without pfar has to
// pass with it, and nothing may fail that does not fail without it.
func losses(direct, through results) []loss {
	var all []loss
	for _, scenario := range sorted(direct, through) {
		with, without := byID(through[scenario]), byID(direct[scenario])
		for _, id := range sorted(without, with) {
			lostOnes := number(without[id], passed) - number(with[id], passed)
			newOnes := number(with[id], failed) - number(without[id], failed)
			if lostOnes <= 0 && newOnes <= 0 {
				continue
			}
			reason := "not judged with pfar in between; " + failures(through[scenario])
			if i := slices.IndexFunc(with[id], func(c check) bool { return c.Status != passed }); i >= 0 {
				reason = with[id][i].reason()
			}
			all = append(all, loss{scenario, id, reason})
		}
	}
	return all
}

// failures says in short what else failed in a scenario, or that it did not run.
func failures(checks []check) string {
	if checks == nil {
		return "the scenario left no checks"
	}
	var ids []string
	for _, c := range checks {
		if c.Status == failed {
			ids = append(ids, c.ID)
		}
	}
	return fmt.Sprintf("of the scenario failed %q", ids)
}

func byID(checks []check) map[string][]check {
	m := map[string][]check{}
	for _, c := range checks {
		m[c.ID] = append(m[c.ID], c)
	}
	return m
}

func number(checks []check, status string) int { return results{"": checks}.count(status) }

// sorted returns the keys that either has.
func sorted[V any](a, b map[string]V) []string {
	var keys []string
	for _, m := range []map[string]V{a, b} {
		for k := range m {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

func TestLosses(t *testing.T) {
	one := func(statuses ...string) results {
		r := results{"s": {}}
		for _, status := range statuses {
			id, status, _ := strings.Cut(status, " ")
			r["s"] = append(r["s"], check{ID: id, Status: status, Error: "why"})
		}
		return r
	}
	for _, c := range []struct {
		name            string
		direct, through results
		want            []string // ids
	}{
		{"the same", one("a SUCCESS", "b WARNING"), one("a SUCCESS", "b WARNING"), nil},
		{"better", one("a FAILURE", "b SKIPPED"), one("a SUCCESS", "b SUCCESS"), nil},
		{"no scenario", one("a SUCCESS"), results{}, []string{"a"}},
		{"no check", one("a SUCCESS", "b SUCCESS"), one("b SUCCESS"), []string{"a"}},
		{"failed", one("a SUCCESS"), one("a FAILURE"), []string{"a"}},
		{"a warning now", one("a SUCCESS"), one("a WARNING"), []string{"a"}},
		{"skipped now", one("a SUCCESS"), one("a SKIPPED"), []string{"a"}},
		{"worse than a warning", one("a WARNING"), one("a FAILURE"), []string{"a"}},
		{"one of three", one("a SUCCESS", "a SUCCESS", "a SUCCESS"), one("a SUCCESS", "a FAILURE", "a SUCCESS"), []string{"a"}},
		{"two of three", one("a SUCCESS", "a SUCCESS", "a SUCCESS"), one("a SUCCESS", "a SUCCESS"), []string{"a"}},
		{"a failure of its own", one("a SUCCESS"), one("a SUCCESS", "b FAILURE"), []string{"b"}},
		{"failed before", one("a FAILURE"), one("a FAILURE"), nil},
	} {
		var got []string
		for _, l := range losses(c.direct, c.through) {
			got = append(got, l.id)
			if l.scenario != "s" || l.reason == "" {
				t.Errorf("%s: %q is no reason", c.name, l)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: lost %q, want %q", c.name, got, c.want)
		}
	}
}
