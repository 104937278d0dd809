package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/gate"
)

// meter is a tracker of a stranger's whose definitions the owner reviews, and of which one tool only reads.
func (s *stage) meter(t *testing.T) {
	t.Helper()
	tracker, err := os.ReadFile(s.path("tracker.hcl"))
	check(t, err)
	const trusted = `pins = "trust-first"`
	if !strings.Contains(string(tracker), trusted) {
		t.Fatalf("no %s in %s", trusted, tracker)
	}
	s.write("meter.hcl", strings.NewReplacer(trusted, `pins = "hold"
tool "count_issues" { effect = "none" }`, filepath.Join(s.log, "tracker"), filepath.Join(s.log, "meter")).Replace(string(tracker)))
}

// TestTypedValues: an agent that has read typed values of a stranger's may go on with typed arguments, where one that
// has read anything else of his may not; and whatever a server puts beside the values or in their place, it is not
// taken for them.
func TestTypedValues(t *testing.T) {
	t.Parallel()
	s := prepareStage(t, "strict")
	s.meter(t)
	s.begin()
	s.awaitRunning("meter")
	s.operate(0, "pins", "accept", "meter", "--yes")
	count := func(a *agent, tool, via string) string {
		t.Helper()
		return a.ask("tools/call", map[string]any{"name": tool, "arguments": map[string]any{"via": via}, "_meta": map[string]any{"progressToken": "p"}})
	}
	number := 1000
	closes := func() map[string]any {
		number++
		return map[string]any{"number": number}
	}
	for _, modern := range []bool{false, true} {
		a := s.patient(modern)
		whole := a.url
		a.url += "/meter" // of the other servers nobody has accepted what they list
		a.connect()
		until(t, "what was accepted is served", func() bool { return strings.Contains(a.ask("tools/list", nil), `"count_issues"`) })
		a.url = whole
		a.connect()
		got := count(a, "meter__count_issues", "")
		if !strings.Contains(got, `"structuredContent":{"newest":"2026-11-20","open":3,"state":"red"}`) || strings.Contains(got, "private notes") {
			t.Errorf("counted: %s", got)
		}
		if l := s.label(a.name()); l != "public extracted" {
			t.Errorf("who has counted is %s", l)
		}
		if got := a.call("meter__close_issue", closes()); !strings.Contains(got, ran) {
			t.Errorf("closed: %s", got)
		}
		s.got(fmt.Sprintf(`"number":%d`, number), 1)
		s.typedExplained(t, a, "count_issues", "public extracted: typed values alone", "the outputSchema that was accepted")
		c := a.send("meter__comment", map[string]any{"body": "free text"})
		s.operate(0, "approvals", "deny", s.awaitPending(a).ID, "--reason", "no")
		c.says(t, "denied")
	}

	a := s.patient(false)
	a.call("tracker__read_issue", map[string]any{})
	c := a.send("meter__close_issue", closes())
	s.operate(0, "approvals", "approve", s.awaitPending(a).ID, "--yes")
	c.says(t, ran)
	b := s.patient(false)
	if count(b, "meter__count_issues", ""); s.label(b.name()) != "public raw" {
		t.Errorf("of a server that a raw session has written to, who counts is %s", s.label(b.name()))
	}
	s.operate(0, "sessions", "clear", "meter", "--yes")

	raw := func(name string, modern bool, server, via string) {
		t.Run(fmt.Sprintf("%s, modern %t", name, modern), func(t *testing.T) {
			a := s.patient(modern)
			if via == "log" && !modern {
				stop := a.listen()
				defer stop()
				a.ask("logging/setLevel", map[string]any{"level": "debug"})
			}
			got := count(a, server+"__count_issues", via)
			if via == "log" {
				a.await(plan)
			}
			if l := s.label(a.name()); l != "public raw" {
				t.Errorf("who has got that is %s: %s", l, got)
			}
			c := a.send(server+"__close_issue", closes())
			s.awaitPending(a)
			c.giveUp() // nobody answers
			<-c.answer
			s.got(fmt.Sprintf(`"number":%d`, number), 0)
			all := s.records(a)
			if i := slices.IndexFunc(all, func(r audit.Record) bool { return r.Kind == audit.Open && r.Tool == "close_issue" }); i < 0 || all[i].Decision.Verdict != gate.Ask {
				t.Errorf("nobody is asked whether it may close an issue: %+v", all)
			}
			if server == "meter" && via != "log" { // which is no part of the call
				s.typedExplained(t, a, "count_issues", "public raw: not only typed values")
			}
		})
	}
	for _, via := range []string{"isError", "error", "data", "structured", "key", "text", "member", "name", "word", "date", "number", "progress"} {
		raw(via, false, "meter", via)
		raw(via, true, "meter", via)
	}
	raw("log", false, "meter", "log")
	raw("what nobody has accepted", false, "tracker", "")

	for _, via := range []string{"elicitation", "sampling"} { // what the agent answers, it may have from a stranger
		raw(via, false, "meter", via)
		s.operate(0, "sessions", "clear", "meter", "--yes")
	}
}

// typedExplained finds words in what explain says of an agent's only call of a tool, and that the record has what came
// back.
func (s *stage) typedExplained(t *testing.T, a *agent, tool string, words ...string) {
	t.Helper()
	all := s.records(a)
	i := slices.IndexFunc(all, func(r audit.Record) bool { return r.Kind == audit.Close && r.Tool == tool && r.Method == "tools/call" })
	if i < 0 || all[i].Output == nil || (all[i].Output.Integrity == gate.Extracted) != (all[i].Reason == "") {
		t.Errorf("recorded of %s: %+v", tool, all)
		return
	}
	shown := s.operate(0, "explain", all[i].ID)
	for _, word := range words {
		if !strings.Contains(shown, word) {
			t.Errorf("no %q in\n%s", word, shown)
		}
	}
}
