package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	desk "github.com/pfar/pfar/cmd/pfar-gateway/operator"
	"github.com/pfar/pfar/policies/drift"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
)

// someServers are those of a gateway.
type someServers map[string]units.Verification

func (s someServers) Verify(_ context.Context, server string) (units.Verification, error) {
	if v, ok := s[server]; ok {
		return v, nil
	}
	return units.Verification{}, errors.New("the server is ending")
}

func (s someServers) Refresh(_ context.Context, server string) ([]drift.Change, error) {
	switch server {
	case "ending":
		return nil, errors.New("the server is ending")
	case "bare", "wiki":
		return nil, nil
	}
	return []drift.Change{
		{
			Kind:   "tool",
			Name:   "send\x1b[2J",
			What:   drift.Changed,
			Breaks: []string{"needs to"},
			Held:   true,
		}, {Kind: "tool",
			Name: "new", What: drift.New},
	}, nil
}

func (s someServers) Offers(string) ([]drift.Definition, error) { return []drift.Definition{}, nil }

// tried is a bench with servers whose secrets are this and that.
func tried(t *testing.T, servers someServers) *bench {
	t.Helper()
	b := newBench(t, "")
	var report control.Report
	for _, name := range []string{"asleep", "bare", "down", "ending", "notion", "wiki"} {
		state := control.Running
		if name == "asleep" {
			state = control.Sleeping
		}
		if name == "down" {
			state = control.Stopped
		}
		if _, ok := servers[name]; ok || state != control.Running {
			report.Servers = append(report.Servers, control.Server{Name: name, State: state})
		}
	}
	b.pfard(t, report, nil)
	b.serveAt(t, b.dirs.Operator(), (&desk.Desk{Servers: servers, Log: slog.New(slog.DiscardHandler)}).HTTP())
	return b
}

// TestTest: each server has a line, and the exit code is by the worst.
func TestTest(t *testing.T) {
	all := someServers{
		"notion": {Result: units.Invalid, Tool: "API-get-self", Words: "API token is \x1b[31minvalid."},
		"wiki":   {Result: units.Verified, Tool: "whoami"}, "bare": {},
	}
	b := tried(t, all)
	code := b.run(t.Context(), []string{"test"})
	out := strings.Join(strings.Fields(b.out.String()), " ")
	if code != exitFailed || !strings.Contains(out, `notion invalid API-get-self API token is \x1b[31minvalid.`) ||
		!strings.Contains(out, "wiki verified whoami") || !strings.Contains(out, "bare no secrets") ||
		strings.Contains(out, "asleep") ||
		!strings.Contains(b.err.String(), "the secrets of notion are invalid") {
		t.Errorf("%d\n%s%s", code, b.out, b.err)
	}
	for name, want := range map[string]int{"wiki": exitOK, "bare": exitOK, "notion": exitFailed, "asleep": exitFailed,
		"down": exitFailed, "none": exitNoSuch} {
		n := b.again("")
		code := n.run(t.Context(), []string{"test", name, "--json"})
		var list []tested
		if code != want || want == exitOK && (json.Unmarshal(n.out.Bytes(), &list) != nil || len(list) != 1 ||
			list[0].Server != name) {
			t.Errorf("%s: %d, want %d\n%s%s", name, code, want, n.out, n.err)
		}
	}
}

// TestRefresh: what has changed is printed, and nothing of it acts on the terminal.
func TestRefresh(t *testing.T) {
	b := tried(t, someServers{"notion": {}})
	code := b.run(t.Context(), []string{"refresh", "notion"})
	out := strings.Join(strings.Fields(b.out.String()), " ")
	if code != exitOK || !strings.Contains(out,
		`changed tool send\x1b[2J needs to; held back until you accept it (pfar pins) new tool new`) {
		t.Errorf("%d\n%s%s", code, b.out, b.err)
	}
	n := b.again("")
	var list []drift.Change
	if code := n.run(t.Context(), []string{"refresh", "notion", "--json"}); code != exitOK ||
		json.Unmarshal(n.out.Bytes(), &list) != nil || len(list) != 2 {
		t.Errorf("as JSON: %d\n%s%s", code, n.out, n.err)
	}
	n = b.again("")
	if code := n.run(t.Context(), []string{"refresh", "down"}); code != exitFailed {
		t.Errorf("of one that is down: %d", code)
	}
}

// TestRefreshAll asks every server that runs, tells of each, and fails if one could not be asked.
func TestRefreshAll(t *testing.T) {
	b := tried(t, someServers{"ending": {}, "notion": {}, "wiki": {}})
	code := b.run(t.Context(), []string{"refresh"})
	out := strings.Join(strings.Fields(b.out.String()), " ")
	if code != exitFailed || !strings.Contains(out, "notion: CHANGE") || !strings.Contains(out, "new tool new") ||
		strings.Contains(out, "asleep") || strings.Contains(out, "down") ||
		!strings.Contains(b.err.String(), "wiki: no changes\n") ||
		!strings.Contains(b.err.String(), "ending: the server is ending\n") ||
		!strings.Contains(b.err.String(), "not refreshed: ending") {
		t.Errorf("%d\n%s%s", code, b.out, b.err)
	}
	n := b.again("")
	var list []refreshed
	if code := n.run(t.Context(), []string{"refresh", "--json"}); code != exitFailed ||
		json.Unmarshal(n.out.Bytes(), &list) != nil || len(list) != 3 || list[0].Server != "ending" ||
		list[0].Error == "" || len(list[1].Changes) != 2 || list[2].Changes == nil {
		t.Errorf("as JSON: %d\n%s%s", code, n.out, n.err)
	}
}

// TestStatusOfInvalid: the status has the tool's words, and what to do.
func TestStatusOfInvalid(t *testing.T) {
	b := newBench(t, "")
	b.pfard(t, control.Report{Servers: []control.Server{{
		Name: "notion", State: control.CredentialInvalid, Detail: "API-get-self refuses them: no",
		Owed: control.Owed{Verification: control.Verification{
			Result: units.Invalid, Tool: "API-get-self", Words: "API token is invalid.",
			Remedy: units.ToDo(units.StoreSecret, "notion_token"), Where: "Copy its secret. (https://notion.example)",
		}},
	}}}, nil)
	for line, want := range map[string][]string{
		"status": {"credential-invalid", "pfar vault set notion_token"},
		"status notion": {"credential-invalid", "API-get-self says: API token is invalid.",
			"pfar vault set notion_token", "https://notion.example"},
		"status notion --json": {`"state": "credential-invalid"`, `"result": "invalid"`, `"words": "API token is invalid."`},
	} {
		n := b.again("")
		code := n.run(t.Context(), strings.Fields(line))
		for _, text := range want {
			if code != exitOK || !strings.Contains(n.out.String(), text) {
				t.Errorf("%s: %d, want %q\n%s%s", line, code, text, n.out, n.err)
			}
		}
	}
}
