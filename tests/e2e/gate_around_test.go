package e2e

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/units/handover"
)

// pfar's own tools, for clients that search.
const (
	searchTool   = "search_tools"
	describeTool = "describe_tool"
)

// called are those of heists that call_tool can carry: each way in and out by a call.
var called = []string{
	"result", "in structured", "in isError", "in error", "in embedded", "in meta", "in progress",
	"by mail", "by mail's address", "by comment", "by search", "by argument that is none", "by _meta",
	"by elicitation", "by sampling", "as base64",
	"through a file, by another client", "letter by letter",
}

// foundTools are heists by a client that searches for tools: those of called, and strangers' text in what is found.
func foundTools(all []heist) (more []heist) {
	for _, th := range all {
		if !slices.Contains(called, th.name) {
			continue
		}
		th.name, th.search = "search, "+th.name, true
		more = append(more, th)
	}
	find := func(tool string, arguments map[string]any) func(*stage, *agent) {
		return func(_ *stage, a *agent) { a.call(tool, arguments) }
	}
	return append(more,
		heist{
			name: "search, in what is found", search: true, carries: plan,
			arrive: find(searchTool, map[string]any{"query": "build fails private notes", "limit": 50}),
		},
		heist{
			name: "search, in what is described", search: true, carries: plan + " [in description]",
			arrive: find(describeTool, map[string]any{"name": rogueServer + "__read_issue"}),
		},
		heist{
			name: "search, protocol of 2026", search: true, modern: true, carries: plan + " [in description]",
			arrive: find(describeTool, map[string]any{"name": rogueServer + "__read_issue"}),
		},
	)
}

// granted are heists by a client to whom a person has given grants before strangers' text came: for the ways out, and
// for the way in. What the person saw each time was harmless.
func granted() []heist {
	search := func(_ *stage, a *agent, data string) { a.call("tracker__search", map[string]any{"query": data}) }
	// sure reads what is private, and then has a person grant tools.
	sure := func(tools ...string) func(*stage, *agent) {
		return func(s *stage, a *agent) {
			s.readFile(a)
			for _, tool := range append(tools, "tracker__read_issue") {
				s.grant(a, tool, harmless(tool), "--grant", "--calls", "40")
			}
		}
	}
	nothing := func(*stage, *agent) {}
	all := []heist{
		{name: "granted", arrive: sure("tracker__search"), leave: search},
		{name: "granted, protocol of 2026", modern: true, arrive: sure("tracker__search"), leave: search},
		{name: "granted, by mail", arrive: sure("mail__send_mail")},
		{name: "granted, letter by letter", arrive: sure("tracker__search"), leave: letterByLetter, got: spelled},
		{name: "granted, by _meta", arrive: sure("tracker__search"), leave: ways()["_meta"]},
		{name: "granted, by argument that is none", arrive: sure("tracker__search"), leave: ways()["argument that is none"]},
		{name: "granted, in a resource's address", arrive: sure("tracker__search"), leave: ways()["resource's address"]},
		{name: "granted, searched for", search: true, arrive: sure("tracker__search"), leave: search},
		{name: "granted, letter by letter, searched for", search: true, arrive: sure("tracker__search"),
			leave: letterByLetter, got: spelled},
		{name: "granted to a client that searches, by _meta", search: true, arrive: sure("tracker__search"),
			leave: ways()["_meta"]},
		{name: "granted, after connecting anew", arrive: sure("tracker__search"),
			leave: func(s *stage, a *agent, data string) {
				a.connect()
				search(s, a, data)
			}},
		{name: "granted, in pieces by many tools", arrive: sure("tracker__search", "tracker__comment", "mail__search"),
			leave: func(_ *stage, a *agent, data string) {
				third := len(data) / 3
				a.call("tracker__search", map[string]any{"query": data[:third]})
				a.call("tracker__comment", map[string]any{"body": data[third : 2*third]})
				a.call("mail__search", map[string]any{"query": data[2*third:]})
			}, got: func(received, data string) bool {
				third := len(data) / 3
				return strings.Contains(received, data[:third]) && strings.Contains(received, data[third:2*third]) &&
					strings.Contains(received, data[2*third:])
			}},
		{name: "granted, reads of public sources", arrive: func(s *stage, a *agent) {
			s.readFile(a)
			s.grant(a, listerServer+"__look", harmless("look"), "--grant-public-reads")
			s.grant(a, "tracker__read_issue", harmless("read_issue"), "--grant")
		}, leave: func(_ *stage, a *agent, data string) {
			a.call(listerServer+"__look", map[string]any{"query": data})
		}},
		{name: "granted, before the private data is read", arrive: func(s *stage, a *agent) {
			a.call("tracker__read_issue", map[string]any{})
			s.grant(a, "tracker__search", harmless("search"), "--grant")
		}, read: (*stage).readFile, leave: search},
		{name: "granted, through a file, by a client that may search", arrive: func(_ *stage, a *agent) {
			a.call("tracker__read_issue", map[string]any{})
		}, read: (*stage).readFile, leave: func(s *stage, a *agent, data string) {
			b := s.agent(a.modern)
			check(s.t, os.WriteFile(s.file(b), []byte("nothing of note"), 0o644))
			s.readFile(b)
			s.grant(b, "tracker__search", harmless("search"), "--grant")
			a.call("shared__write_file", map[string]any{"path": s.sharedFile(a), "content": data + " " + plan})
			b.call("shared__read_text_file", map[string]any{"path": s.sharedFile(a)})
			if found := s.found(b.said()); found != "" {
				search(s, b, found)
			}
		}},
	}
	for _, name := range []string{"base64", "backwards", "spaced letters", "invisible characters"} {
		all = append(all, heist{
			name: "granted, as " + name, arrive: sure("tracker__search"), leave: search, encode: encodings()[name],
		})
	}
	for i := range all {
		if all[i].read == nil {
			all[i].read = nothing // it has been
		}
	}
	return all
}

// harmless are arguments that a person approves.
func harmless(tool string) map[string]any {
	switch {
	case strings.HasSuffix(tool, "read_issue"):
		return map[string]any{}
	case strings.HasSuffix(tool, "send_mail"):
		return mail("weather")
	case strings.HasSuffix(tool, "comment"):
		return map[string]any{"body": "weather"}
	}
	return map[string]any{"query": "weather"}
}

// grant makes a call, which a person approves with a grant if the gate asks.
func (s *stage) grant(a *agent, tool string, arguments map[string]any, terms ...string) {
	s.t.Helper()
	defer func(patience time.Duration) { a.patience = patience }(a.patience)
	a.patience = soon
	c := a.send(tool, arguments)
	defer c.giveUp()
	for asked := ""; ; time.Sleep(50 * time.Millisecond) {
		select {
		case <-c.answer:
			return
		default:
		}
		waits := slices.DeleteFunc(s.pending(a), func(w waiting) bool {
			return w.ID == asked || w.Server+"__"+w.Name != tool
		})
		if len(waits) == 0 {
			continue
		}
		asked = waits[0].ID
		if _, _, code := s.command(append([]string{"approvals", "approve", asked, "--yes"}, terms...)...); code == 0 {
			s.mu.Lock()
			s.grants++
			s.mu.Unlock()
			continue
		}
		s.operate(0, "approvals", "approve", asked, "--yes") // of what no grant is given
	}
}

// resumed are heists in which the data goes on by way of a file, into a session that a person has begun anew, or past
// what a person has taken back. A person approves what is written.
func resumed() []heist {
	write := func(s *stage, a *agent, path, text string) {
		s.grant(a, "shared__write_file", map[string]any{"path": path, "content": text})
	}
	carry := func(s *stage, a *agent, data string) { write(s, a, s.sharedFile(a), data+" "+plan) }
	finish := func(s *stage, b *agent, path, data string) {
		s.t.Helper()
		s.grant(b, "shared__read_text_file", map[string]any{"path": path})
		found := s.found(b.said())
		if found != data {
			s.t.Errorf("%s has not read the file, so that this shows nothing: %s", b.name(), end(b.said()))
		}
		b.call("mail__send_mail", mail(found))
	}
	return []heist{
		{name: "through a file, into a clean session", leave: func(s *stage, a *agent, data string) {
			carry(s, a, data)
			b := a.twin(a.modern)
			b.url += "/" + a.name() + "/" + decode[struct{ Handle string }](s, "sessions", "new", a.name()).Handle
			b.connect()
			finish(s, b, s.sharedFile(a), data)
		}},
		{name: "through a file, into a session that was reset", leave: func(s *stage, a *agent, data string) {
			carry(s, a, data)
			s.operate(0, "sessions", "reset", a.name(), "--yes")
			b := a.twin(a.modern)
			b.connect()
			finish(s, b, s.sharedFile(a), data)
		}},
		{name: "through a file that was taken back, and put there again", leave: func(s *stage, a *agent, data string) {
			carry(s, a, data)
			s.undoWrites(s.sharedFile(a), func() {})
			finish(s, s.agent(a.modern), s.sharedFile(a), data)
		}},
		{name: "through a file's older version, put back by its path", leave: func(s *stage, a *agent, data string) {
			path := s.sharedFile(a)
			carry(s, a, data)
			write(s, a, path, "nothing of note")
			s.undoLast(path, a)
			finish(s, s.agent(a.modern), path, data)
		}},
		{name: "through a file, past another client's write that was taken back",
			leave: func(s *stage, a *agent, data string) {
				path, other := s.sharedFile(a), s.agent(a.modern)
				carry(s, a, data)
				write(s, other, path, "nothing of note")
				s.undoLast(path, other)
				finish(s, s.agent(a.modern), path, data)
			}},
	}
}

// TestHeistPastAClear: a person takes back what a tainted session has written to a file, clears the server's stain, for
// the file is gone, and then undoes the undo. Another session reads the file, in which nothing private should be, and
// sends it on.
func TestHeistPastAClear(t *testing.T) {
	t.Parallel()
	for _, profile := range append([]string{"operator"}, deciding...) {
		t.Run(profile, func(t *testing.T) {
			t.Parallel()
			s := prepareStage(t, profile)
			declared, err := os.ReadFile(s.path("shared.hcl"))
			check(t, err)
			s.write("shared.hcl", strings.NewReplacer(
				`"sensitive"`, `"public"`, "secret_data      = true", "secret_data      = false").Replace(string(declared)))
			s.begin()
			secret, read, _ := s.try(heist{leave: func(s *stage, a *agent, data string) {
				path := s.sharedFile(a)
				s.grant(a, "shared__write_file", map[string]any{"path": path, "content": data + " " + plan})
				s.undoWrites(path, func() { s.operate(0, "sessions", "clear", "shared", "--yes") })
				b := s.agent(false)
				b.call("shared__read_text_file", map[string]any{"path": path})
				found := s.found(b.said())
				if found != data {
					t.Errorf("the file was not read: %s", end(b.said()))
				}
				c := b.send("mail__send_mail", mail(found))
				defer c.giveUp()
				for len(s.pending(b)) == 0 {
					select {
					case <-c.answer:
						return
					case <-time.After(50 * time.Millisecond):
					}
				}
			}})
			if left := strings.Contains(s.received(), secret); !read || left != (profile == "operator") {
				t.Errorf("the private data was read: %t, and has left: %t", read, left)
			}
		})
	}
}

// undoWrites undoes the writes to a file as the operator, calls between, and undoes that undo.
func (s *stage) undoWrites(path string, between func()) {
	s.t.Helper()
	undo := func(args ...string) (h handover.History) {
		return decode[handover.History](s, append([]string{"undo", "shared", "--path", path}, args...)...)
	}
	undo("--yes")
	if _, err := os.Stat(path); err == nil {
		s.t.Errorf("%s is there after it was taken back", path)
	}
	between()
	steps := undo().Steps
	if i := slices.IndexFunc(steps, func(one handover.Step) bool {
		return len(one.Calls) > 0 && one.Calls[0].Tool == "pfar undo" &&
			slices.ContainsFunc(one.Changes, func(c handover.Change) bool { return c.Path == path })
	}); i >= 0 {
		undo("--since", steps[i].Calls[0].ID, "--yes")
	}
	if _, err := os.Stat(path); err != nil {
		s.t.Errorf("undone, it is not there again: %v", err)
	}
}

// undoLast undoes, as the operator, what a client's last write has made of a file.
func (s *stage) undoLast(path string, a *agent) {
	s.t.Helper()
	before, err := os.ReadFile(path)
	check(s.t, err)
	steps := decode[handover.History](s, "undo", "shared").Steps
	for _, step := range slices.Backward(steps) { // the latest first
		ofPath := slices.ContainsFunc(step.Changes, func(c handover.Change) bool { return c.Path == path })
		i := slices.IndexFunc(step.Calls, func(c handover.Call) bool { return c.Client == a.name() })
		if !ofPath || i < 0 {
			continue
		}
		s.operate(0, "undo", "shared", "--path", path, "--since", step.Calls[i].ID, "--yes")
		if after, err := os.ReadFile(path); err != nil || string(after) == string(before) {
			s.t.Errorf("%s is as it was: %v", path, err)
		}
		return
	}
	s.t.Errorf("undo knows no write of %s to %s", a.name(), path)
}
