package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/audit/prose"
	"github.com/pfar/pfar/units"
)

// verifiedOf is what a verification finds of n chains, with a text in it.
func verifiedOf(n int, text string) string {
	list := []prose.Verified{}
	for i := range n {
		v := prose.Verified{Report: audit.Report{Chain: "gateway" + text, Records: 60, First: 1, Last: 60, Anchors: 3}}
		if i%2 == 1 {
			v.Problems = []audit.Problem{{File: "/var/lib/pfar/audit/x" + text, Line: 2, Seq: 2, What: "edited", Why: text}}
			v.More, v.Notes, v.Unmatched = 3, []string{"11 bytes" + text}, []audit.Unmatched{{ID: "1ng4" + text, Seq: 4}}
		}
		v.Journal = "nothing says whether the end was cut" + text
		list = append(list, v)
	}
	b, _ := json.Marshal(list) // strings and numbers
	return string(b)
}

// TestConsoleVerifies: a person has the audit verified in a real browser. The page says what pfar audit verify says of
// an audit that holds, of a changed, a removed and a cut record, and of one that the log knows otherwise.
func TestConsoleVerifies(t *testing.T) {
	if os.Getuid() == 0 {
		return // root has no console: TestAsOrdinaryUser
	}
	t.Parallel()
	s := newStage(t, "strict")
	s.tempted(false)
	path := filepath.Join(s.state(), "audit", "gateway-000001.jsonl")
	whole, err := os.ReadFile(path)
	check(t, err)
	lines := bytes.SplitAfter(whole, []byte("\n"))
	if len(lines) < 5 {
		t.Fatalf("the gateway has recorded only %s", whole)
	}
	b, _ := s.visit(`await page.click("text=Audit");`)
	args := map[string]any{"soon": soon.Milliseconds()}
	looks := func(content []byte) string {
		t.Helper()
		check(t, os.WriteFile(path, content, 0o600))
		now := b.looks(`
await page.click("nav >> text=Audit");
await page.click("text=Verify the whole audit");
await page.waitForSelector("text=Chains of records", { timeout: args.soon });`, args)
		out, _, code := s.command("audit", "verify")
		if broken := strings.Contains(now.Text, prose.Changed); broken != (code == 1) {
			t.Errorf("it is broken: %t, and in a terminal the exit code is %d", broken, code)
		}
		squeeze := func(text string) string { return strings.Join(strings.Fields(text), " ") }
		for line := range strings.Lines(out) {
			if !strings.Contains(squeeze(now.Text), squeeze(line)) {
				t.Errorf("the page has no line %q: %s", line, now.Text)
			}
		}
		return now.Text
	}
	last := len(lines) - 2 // behind it there is an empty one
	cut := whole[:len(whole)-len(lines[last])]
	told := func(hash [32]byte) {
		t.Helper()
		log, err := os.OpenFile(filepath.Join(s.state(), "log", units.GatewayLog+".log"), os.O_APPEND|os.O_WRONLY, 0)
		check(t, err)
		const entry = "time=2026-05-01T12:00:00Z level=INFO msg=audit chain=gateway seq=%d hash=%x\n"
		_, err = fmt.Fprintf(log, entry, last+1, hash)
		check(t, err)
		check(t, log.Close())
	}
	if text := looks(whole); !strings.Contains(text, "whole") || strings.Contains(text, "BROKEN") {
		t.Errorf("all holds: %s", text)
	}
	changed := bytes.Replace(whole, []byte(`"kind":"begin"`), []byte(`"kind":"bogus"`), 1)
	if text := looks(changed); !strings.Contains(text, "breaks at record 1") || !strings.Contains(text, "edited: ") {
		t.Errorf("a changed record: %s", text)
	}
	removed := bytes.Join(slices.Delete(slices.Clone(lines), 2, 3), nil)
	if text := looks(removed); !strings.Contains(text, "deleted: records 3 to 3 are missing") {
		t.Errorf("a removed record: %s", text)
	}
	told(audit.Hash(bytes.TrimSpace(lines[last])))
	if text := looks(whole); strings.Contains(text, "BROKEN") || !strings.Contains(text, "compared with the journal") {
		t.Errorf("the log knows the last record: %s", text)
	}
	if text := looks(cut); !strings.Contains(text, "cut: it ends with record") {
		t.Errorf("a cut tail: %s", text)
	}
	told([32]byte{})
	if text := looks(whole); !strings.Contains(text, "that was told to the journal: an old copy, or another chain") {
		t.Errorf("an anchor that does not match: %s", text)
	}
}
