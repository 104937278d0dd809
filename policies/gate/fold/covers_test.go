package fold

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/gate"
)

const notForThis = "not approved for this step"

func raw(text string) json.RawMessage { return json.RawMessage(text) }

// covered is a step that was shown, and a call of it that the yes covers.
func covered() (Shown, Made) {
	facts := gate.Facts{
		Output: label(gate.Internal, gate.Clean), Audience: gate.Internal, Effect: gate.Irreversible,
	}
	label := label(gate.Internal, gate.Raw)
	s := Shown{
		Verdict: gate.Ask, Before: label, Facts: facts, Server: "slack", Name: "post", Pin: "pin", Declared: "declared",
		Policy: "policy", Client: "client",
		Arguments: map[string]json.RawMessage{"channel": raw(`"dev"`)}, From: []string{"text"},
	}
	m := Made{
		Decision: gate.Decision{Verdict: gate.Ask, Data: label, Facts: facts, Policy: "policy"}, Label: label,
		Server: "slack", Name: "post", Pin: "pin", Declared: "declared", Client: "client", Clean: true,
		Arguments: map[string]json.RawMessage{"channel": raw(`"dev"`), "text": raw(`"hello"`)},
	}
	return s, m
}

// TestCovers: a yes to a plan covers a call that is no worse than what was shown, and each thing that is worse ends it.
func TestCovers(t *testing.T) {
	for name, better := range map[string]func(*Shown, *Made){
		"as it was shown": func(*Shown, *Made) {},
		"a session that has seen less": func(_ *Shown, m *Made) {
			m.Label, m.Decision.Data = gate.Start, gate.Start
		},
		"a wider audience":     func(_ *Shown, m *Made) { m.Decision.Facts.Audience = gate.Secret },
		"it can be undone":     func(_ *Shown, m *Made) { m.Decision.Facts.Effect = gate.Reversible },
		"a cleaner output":     func(_ *Shown, m *Made) { m.Decision.Facts.Output = gate.Start },
		"nothing is from them": func(s *Shown, m *Made) { s.From = nil; delete(m.Arguments, "text") },
		"a value that the plan gives instead": func(s *Shown, _ *Made) {
			s.From, s.Or = nil, map[string][]json.RawMessage{"text": {raw(`"bye"`), raw(`"hello"`)}}
		},
		"what an earlier step gives instead": func(s *Shown, _ *Made) {
			s.Or = map[string][]json.RawMessage{"text": {raw(`"bye"`)}}
		},
		"past the audience, in a clean session": func(_ *Shown, m *Made) {
			m.Label.Integrity, m.Decision.Data = gate.Clean, label(gate.Sensitive, gate.Clean)
		},
		"past the audience, and shown whole": func(s *Shown, m *Made) {
			s.From, s.Before.Confidentiality = nil, gate.Sensitive
			m.Label.Confidentiality, m.Decision.Data.Confidentiality = gate.Sensitive, gate.Sensitive
			delete(m.Arguments, "text")
		},
	} {
		s, m := covered()
		better(&s, &m)
		if why := s.Other(&m); why != "" {
			t.Errorf("%s: %s", name, why)
		}
	}
	for name, tt := range map[string]struct {
		worse func(*Shown, *Made)
		want  string
	}{
		"nothing was shown":         {func(s *Shown, _ *Made) { *s = Shown{} }, notForThis},
		"the fold allowed it":       {func(s *Shown, _ *Made) { s.Verdict = gate.Allow }, notForThis},
		"the fold inspected it":     {func(s *Shown, _ *Made) { s.Verdict = gate.Inspect }, notForThis},
		"the fold denied it":        {func(s *Shown, _ *Made) { s.Verdict = gate.Deny }, notForThis},
		"the gate denies it":        {func(_ *Shown, m *Made) { m.Decision.Verdict = gate.Deny }, notForThis},
		"the trifecta, now":         {func(_ *Shown, m *Made) { m.Decision.Once = true }, "shown by itself"},
		"the trifecta, then":        {func(s *Shown, _ *Made) { s.Once = true }, "shown by itself"},
		"an inspector":              {func(_ *Shown, m *Made) { m.Clean = false }, "inspectors"},
		"another server":            {func(_ *Shown, m *Made) { m.Server = "mail" }, "another tool"},
		"another tool":              {func(_ *Shown, m *Made) { m.Name = "delete" }, "another tool"},
		"another definition":        {func(_ *Shown, m *Made) { m.Pin = "other" }, "definition"},
		"no definition":             {func(s *Shown, m *Made) { s.Pin, m.Pin = "", "" }, "definition"},
		"another declaration":       {func(_ *Shown, m *Made) { m.Declared = "other" }, "declaration"},
		"another policy":            {func(_ *Shown, m *Made) { m.Decision.Policy = "other" }, "policy"},
		"no policy":                 {func(s *Shown, m *Made) { s.Policy, m.Decision.Policy = "", "" }, "policy"},
		"other rights":              {func(_ *Shown, m *Made) { m.Client = "other" }, "what the client may do"},
		"rights that are not known": {func(s *Shown, m *Made) { s.Client, m.Client = "", "" }, "what the client may do"},
		"more secret data":          {func(_ *Shown, m *Made) { m.Label.Confidentiality = gate.Sensitive }, "seen more"},
		"strangers' text":           {func(s *Shown, _ *Made) { s.Before.Integrity = gate.Clean }, "seen more"},
		"a label that is not known": {func(_ *Shown, m *Made) { m.Label = gate.Label{} }, "seen more"},
		"nor the one shown":         {func(s *Shown, _ *Made) { s.Before = gate.Label{} }, "seen more"},
		"a narrower audience":       {func(_ *Shown, m *Made) { m.Decision.Facts.Audience = gate.Public }, "worse"},
		"no audience":               {func(_ *Shown, m *Made) { m.Decision.Facts.Audience = 0 }, "worse"},
		"it cannot be undone": {
			func(s *Shown, _ *Made) { s.Facts.Effect = gate.Reversible }, "worse"},
		"no effect":        {func(_ *Shown, m *Made) { m.Decision.Facts.Effect = 0 }, "worse"},
		"a worse output":   {func(_ *Shown, m *Made) { m.Decision.Facts.Output.Integrity = gate.Raw }, "worse"},
		"another tier":     {func(_ *Shown, m *Made) { m.Decision.Facts.Tier = "t" }, "worse"},
		"it remembers":     {func(_ *Shown, m *Made) { m.Decision.Facts.Remembers = true }, "worse"},
		"another argument": {func(_ *Shown, m *Made) { m.Arguments["channel"] = raw(`"all"`) }, "not as it was shown"},
		"an argument less": {func(_ *Shown, m *Made) { delete(m.Arguments, "channel") }, "not as it was shown"},
		"an argument more": {func(_ *Shown, m *Made) { m.Arguments["to"] = raw(`"x"`) }, "not shown"},
		"none of the values": {func(s *Shown, _ *Made) {
			s.From, s.Or = nil, map[string][]json.RawMessage{"text": {raw(`"bye"`)}}
		}, "not shown"},
		"past the audience, and one of two values": {func(s *Shown, m *Made) {
			s.From, s.Or = nil, map[string][]json.RawMessage{"text": {raw(`"bye"`), raw(`"hello"`)}}
			s.Before.Confidentiality = gate.Sensitive
			m.Label.Confidentiality, m.Decision.Data.Confidentiality = gate.Sensitive, gate.Sensitive
		}, "not shown whole"},
		"past the audience, and not whole": {func(s *Shown, m *Made) {
			s.Before.Confidentiality = gate.Sensitive
			m.Label.Confidentiality, m.Decision.Data.Confidentiality = gate.Sensitive, gate.Sensitive
		}, "not shown whole"},
	} {
		s, m := covered()
		tt.worse(&s, &m)
		if why := s.Other(&m); !strings.Contains(why, tt.want) || why == "" {
			t.Errorf("%s: %q, want %q", name, why, tt.want)
		}
	}
}
