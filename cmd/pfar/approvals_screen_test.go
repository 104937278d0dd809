package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
	"github.com/pfar/pfar/cmd/pfar-gateway/label"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/operator"
)

// deskScreen is the screen of a desk, without a terminal: a test gives it messages and runs the commands.
func deskScreen(t *testing.T, b *deskBench, columns, rows int) *approvalsScreen {
	t.Helper()
	n := b.again("")
	m := &approvalsScreen{approvalsVerb: approvalsVerb{n.pfar}, ctx: t.Context(), width: columns, height: rows}
	refresh(t, m)
	return m
}

// refresh tells the screen what the gateway has.
func refresh(t *testing.T, m *approvalsScreen) {
	t.Helper()
	var all []operator.Shown
	if err := m.askOperator(t.Context(), "GET", "/approvals", nil, &all); err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		m.Update(callEvent{operator.Event{Kind: s.State.String(), Approval: s}})
	}
}

// typed gives the screen keys, as bubbletea names them, and does what comes of them. It reports whether the last quits.
func typed(m *approvalsScreen, keys string) (quits bool) {
	special := map[string]tea.Key{
		"enter": {Code: tea.KeyEnter}, "esc": {Code: tea.KeyEscape}, "down": {Code: tea.KeyDown}, "up": {Code: tea.KeyUp},
		"space": {Code: tea.KeySpace, Text: " "}, "ctrl+c": {Code: 'c', Mod: tea.ModCtrl},
	}
	for key := range strings.FieldsSeq(keys) {
		k, ok := special[key]
		if !ok {
			k = tea.Key{Code: rune(key[0]), Text: key}
		}
		m.View() // a person sees it before the next key
		if _, act := m.Update(tea.KeyPressMsg(k)); act != nil {
			answer := act()
			_, quits = answer.(tea.QuitMsg)
			m.Update(answer)
		}
	}
	return quits
}

// TestApprovalsByKeys: what each row of keys does to three calls, of which the first two are alike.
func TestApprovalsByKeys(t *testing.T) {
	long := `{"to":"c","body":"` + strings.Repeat(`line\n`, 40) + `"}`
	for _, c := range []struct {
		keys   string
		want   string // states of the calls
		note   string
		grants int
		third  func(*approval.Request)
		first  func(*approval.Request) // nil: it writes
	}{
		{keys: "", want: "pending pending pending"},
		{keys: "a d y", want: "pending pending pending"}, // in the list these are no keys
		{keys: "enter", want: "pending pending pending"},
		{keys: "enter a", want: "approved pending pending", note: "approved"},
		{keys: "enter a a a", want: "approved pending pending"},
		{keys: "down enter a", want: "pending approved pending"},
		{keys: "enter d", want: "denied pending pending", note: "denied"},
		{keys: "enter c n", want: "pending pending pending", note: "not done"},
		{keys: "enter c y", want: "denied denied denied", note: "reset laptop/default"},
		{keys: "c", want: "pending pending pending"}, // it is asked
		{keys: "c n", want: "pending pending pending", note: "not done"},
		{keys: "c y", want: "denied denied denied", note: "reset laptop/default"},
		{keys: "down down c y", want: "pending pending denied", note: "reset phone/default", third: ofPhone},
		{keys: "down c y", want: "denied denied pending", note: "reset laptop/default", third: ofPhone},
		{keys: "down down down c esc", want: "pending pending pending", note: "not done"},
		{keys: "enter esc a", want: "pending pending pending"},
		{keys: "n n a", want: "pending approved pending"},
		{keys: "n n n a", want: "pending pending pending", note: "first read all of it"},
		{keys: "n n n space a", want: "pending pending pending", note: "first read all of it"},
		{keys: "n n n space space space space space a", want: "pending pending approved"},
		{keys: "n n n d", want: "pending pending denied"}, // a denial needs no reading
		{keys: "enter l", want: "pending pending pending"},
		{keys: "enter l a", want: "pending pending pending", note: "first read all of it"},
		{keys: "enter l space space a", want: "pending pending pending"}, // it is asked
		{keys: "enter l space space a n", want: "pending pending pending", note: "not done"},
		{keys: "enter l space space a y", want: "approved approved pending", note: "approved, 2 calls"},
		{keys: "enter l d", want: "denied denied pending"},
		{keys: "n n n l", want: "pending pending pending", note: "no other call is like this one"},
		{keys: "enter g", want: "pending pending pending"},
		{keys: "enter g y", want: "approved pending pending", grants: 1},
		{keys: "enter g esc", want: "pending pending pending", note: "not done"},
		{keys: "enter r", want: "pending pending pending", note: "no grant: it is not known to only read"},
		{keys: "enter r y", want: "pending pending pending", note: ""},
		{keys: "enter r", want: "pending pending pending", first: publicly},
		{keys: "enter r y", want: "approved pending pending", grants: 1, first: publicly},
		{keys: "enter r esc", want: "pending pending pending", note: "not done", first: publicly},
		{keys: "enter l space space g", want: "pending pending pending", note: "no grant"},
		{
			keys: "n n n space g", want: "pending pending pending", note: "no grant",
			third: func(r *approval.Request) { r.Decision.Once, r.Name, r.Arguments = true, "send", []byte(`{"to":"c"}`) },
		},
		{ // the row in which private data and strangers' text meet is answered alone
			keys: "enter l space space a y", want: "approved approved pending",
			third: func(r *approval.Request) { r.Decision.Once, r.Name, r.Arguments = true, "send", []byte(`{"to":"c"}`) },
		},
	} {
		b := newDesk(t)
		third := c.third
		if third == nil {
			third = func(r *approval.Request) { r.Name = "forward" }
		}
		plain := func(r *approval.Request) {
			r.Plain = gate.Facts{Output: gate.Start, Audience: gate.Public, Effect: gate.Irreversible}
			r.Decision.Data, r.Facts = gate.Start, r.Plain
		}
		first := c.first
		if first == nil {
			first = plain
		}
		ids := []string{
			b.sent(t, `{"to":"a"}`, first), b.sent(t, `{"to":"b"}`, plain), b.sent(t, long, third),
		}
		m := deskScreen(t, b, 80, 24)
		typed(m, c.keys)
		var states []string
		for _, id := range ids {
			shown, err := b.approvals.Show(id)
			if err != nil && !strings.Contains(err.Error(), "no call of this id") { // a denied one is gone
				t.Fatal(err)
			}
			states = append(states, shown.State.String())
		}
		got, grants := strings.Join(states, " "), len(b.grants.List())
		if reads := c.first != nil; grants > 0 && b.grants.List()[0].Public != reads {
			t.Errorf("%q: a grant of reads: %t", c.keys, !reads)
		}
		if got != c.want || !strings.Contains(m.note, c.note) || grants != c.grants {
			t.Errorf("%q: %s, %d grants, note %q; want %s, %d, %q", c.keys, got, grants, m.note, c.want, c.grants, c.note)
		}
	}
}

// ofPhone is a call of another client, of another tool.
func ofPhone(r *approval.Request) { r.Client, r.Name = "phone", "forward" }

// publicly is a call that only reads, and from where everybody can, by the word of the service.
func publicly(r *approval.Request) {
	const web = "service: web"
	from := gate.From{Confidentiality: web, Integrity: web, Audience: web, Effect: web}
	r.Plain = gate.Facts{Output: gate.Start, Audience: gate.Public, Effect: gate.None, From: from}
	r.Decision.Data, r.Facts = gate.Start, r.Plain
}

// backAgain are sessions of laptop and phone whose clients came back after an hour and a half, having read something.
func backAgain(t *testing.T, b *deskBench) {
	t.Helper()
	now := fixedNow()
	b.sessions.Now = func() time.Time { return now }
	raw := gate.Label{Confidentiality: gate.Sensitive, Integrity: gate.Raw}
	for _, client := range []string{"laptop", "phone"} {
		if _, _, err := b.sessions.Raise(client, "default", raw, label.Source{Server: "mail", Tool: "read"}); err != nil {
			t.Fatal(err)
		}
		label.Silences{Sessions: b.sessions}.Called(client, "default")
	}
	now = now.Add(90 * time.Minute)
	for _, client := range []string{"laptop", "phone"} {
		label.Silences{Sessions: b.sessions}.Called(client, "default")
	}
}

// TestCleanByKeys: while no call waits, the screen lists the sessions whose clients came back after an hour, and c
// makes the chosen one clean; while one waits it does not list them.
func TestCleanByKeys(t *testing.T) {
	for _, c := range []struct {
		keys         string
		waits        bool // a call of laptop's
		clean, still string
	}{
		{"", false, "", "laptop phone"},
		{"enter a d y", false, "", "laptop phone"},
		{"c", false, "", "laptop phone"},
		{"c n", false, "", "laptop phone"},
		{"c y", false, "laptop", "phone"},
		{"down c y", false, "phone", "laptop"},
		{"down down down c y", false, "phone", "laptop"},
		{"up c y", false, "laptop", "phone"},
		{"c y c y", false, "laptop phone", ""},
		{"down c y", true, "laptop", "phone"},
	} {
		b := newDesk(t)
		backAgain(t, b)
		if c.waits {
			b.sent(t, `{"to":"a"}`)
		}
		m := deskScreen(t, b, 80, 24)
		look := func() {
			m.back.asked = time.Time{}
			m.Update(m.back.lookAround(m.ctx, m.pfar)())
		}
		look()
		for _, client := range []string{"laptop", "phone"} {
			shown, line := m.View().Content, client+"/default  sensitive raw  came back after 1h30m0s"
			if strings.Contains(shown, line) == c.waits {
				t.Errorf("%q: no %s, or while a call waits:\n%s", c.keys, line, shown)
			}
		}
		for keys := range strings.SplitAfterSeq(c.keys, "y") {
			typed(m, keys)
			look()
		}
		for names, want := range map[string]bool{c.clean: true, c.still: false} {
			for client := range strings.FieldsSeq(names) {
				if l, err := b.sessions.Label(client, "default"); err != nil || (l == gate.Start) != want {
					t.Errorf("%q: the session of %s is %s, %v", c.keys, client, l, err)
				}
				if listed := strings.Contains(m.View().Content, client+"/default  sensitive"); !c.waits && listed == want {
					t.Errorf("%q: %s\n%s", c.keys, client, m.View().Content)
				}
			}
		}
	}
	m := deskScreen(t, newDesk(t), 80, 24)
	m.back.asked = m.now()
	if m.back.lookAround(m.ctx, m.pfar) != nil {
		t.Error("it asks all the time")
	}
	m.Update(sessionsSeen{err: errors.New("gone")})
	if typed(m, "c y"); m.note != "" {
		t.Errorf("nothing is listed: %q", m.note)
	}
}

// TestApprovalsScreenEnds: q and Ctrl-C end it, but q is also an answer to a question.
func TestApprovalsScreenEnds(t *testing.T) {
	b := newDesk(t)
	b.sent(t, `{}`)
	for keys, want := range map[string]bool{
		"q": true, "enter q": true, "ctrl+c": true, "enter g q": false, "enter": false, "x": false,
	} {
		if got := typed(deskScreen(t, b, 80, 24), keys); got != want {
			t.Errorf("%q: ends %v", keys, got)
		}
	}
}

// TestScreenApprovesWhatItShows: a call that changes below an open page, or ends elsewhere, is not approved.
func TestScreenApprovesWhatItShows(t *testing.T) {
	b := newDesk(t)
	id := b.sent(t, `{"to":"a"}`)
	m := deskScreen(t, b, 80, 24)
	typed(m, "enter")
	shown, _ := b.approvals.Show(id)
	other := shown
	other.Digest = strings.Repeat("0", 64)
	other.Arguments = []byte(`{"to":"thief"}`)
	m.Update(callEvent{operator.Event{Kind: "pending", Approval: other}})
	if text := m.View().Content; strings.Contains(text, "thief") || !strings.Contains(text, shown.Digest) {
		t.Errorf("the page has changed:\n%s", text)
	}
	if err := b.approvals.Answer(id, approval.Answer{Reason: "no"}, approval.Approver{Name: "anna"}); err != nil {
		t.Fatal(err)
	}
	ended := shown
	ended.State, ended.Reason, ended.By = operator.Denied, "no", &approval.Approver{Name: "anna"}
	m.Update(callEvent{operator.Event{Kind: "denied", Approval: ended}})
	if text := m.View().Content; !strings.Contains(text, "denied by anna: no") {
		t.Errorf("that it was denied is not shown:\n%s", text)
	}
	if typed(m, "a"); m.note != "already denied" {
		t.Errorf("note %q", m.note)
	}

	id = b.sent(t, `{"to":"b"}`)
	refresh(t, m)
	typed(m, "esc n")
	m.Update(streamLost{errors.New("the gateway has hung up")})
	if typed(m, "a"); m.note != "already expired" {
		t.Errorf("after the connection is lost: note %q", m.note)
	}
	if shown, _ := b.approvals.Show(id); shown.State != operator.Pending {
		t.Errorf("%v", shown.State)
	}
	refresh(t, m)
	if typed(m, "a"); m.note != "approved" {
		t.Errorf("when it is back: note %q", m.note)
	}
}

// TestScreenNeedsTheEnd: neither a jump nor another width counts as reading, and a small terminal approves nothing.
func TestScreenNeedsTheEnd(t *testing.T) {
	b := newDesk(t)
	b.sent(t, `{"to":"c","body":"`+strings.Repeat(`line\n`, 100)+`"}`)
	m := deskScreen(t, b, 80, 24)
	typed(m, "enter")
	for m.page.read < len(m.page.lines) {
		before := m.page.read
		if typed(m, "space"); m.page.read <= before || m.page.read > before+m.rows() {
			t.Fatalf("%d lines read after %d", m.page.read, before)
		}
	}
	if why := m.page.unread(m.width, m.rows()); why != "" {
		t.Error(why)
	}
	for _, size := range []tea.WindowSizeMsg{
		{Width: 60, Height: 24}, {Width: 30, Height: 24}, {Width: 80, Height: 6}, {Width: 1, Height: 1}, {},
	} {
		m.Update(size)
		if typed(m, "a"); !strings.Contains(m.note, "first read") && !strings.Contains(m.note, "too small") {
			t.Errorf("%v: note %q", size, m.note)
		}
		m.View()
	}
	long := b.sent(t, `{"to":"d","body":"`+strings.Repeat("lorem ipsum ", 6000)+`"}`)
	m = deskScreen(t, b, 80, 24)
	m.chosen = long
	typed(m, "enter")
	m.page.lay(m.width, m.rows())
	m.page.read = len(m.page.lines)
	if typed(m, "a"); !strings.Contains(m.note, "too long to read on a terminal") {
		t.Errorf("note %q", m.note)
	}
}

// TestApprovalScreens compares what is drawn with testdata/screens, at two sizes.
func TestApprovalScreens(t *testing.T) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	call := func(n int, name, arguments string, change ...func(*operator.Shown)) callEvent {
		s := operator.Shown{
			ID: fmt.Sprintf("k3bq7%c-2mz4p-tw5ra-c6yhd-e7suf", 'a'+n), Digest: strings.Repeat(fmt.Sprint(n), 64),
			State: operator.Pending, Asked: now.Add(time.Duration(n) * time.Second), Left: 290,
		}
		s.Client, s.Session, s.Server, s.Name, s.Method = "cursor", "default", "tracker", name, "tools/call"
		s.Arguments = []byte(arguments)
		from := gate.From{Effect: "service: github", Audience: "service: github"}
		s.Facts = gate.Facts{Audience: gate.Public, Effect: gate.Irreversible, From: from}
		secret := gate.Label{Confidentiality: gate.Sensitive, Integrity: gate.Raw}
		s.Decision = gate.Decision{Rule: "strict.hcl: raw", Reason: "it cannot be undone", Data: secret}
		s.Sources = []operator.Source{
			{Server: "web", Tool: "fetch", At: now, Label: gate.Label{Confidentiality: gate.Public, Integrity: gate.Raw}},
			{Server: "files", Tool: "read_file", At: now, Label: s.Decision.Data},
		}
		for _, f := range change {
			f(&s)
		}
		return callEvent{operator.Event{Kind: s.State.String(), Approval: s}}
	}
	issue := call(1, "create_issue", `{"repo":"acme/api","title":"Bug"}`)
	alike := call(2, "create_issue", `{"repo":"acme/web","title":"Bug"}`)
	hostile := call(3, "send\x1b[2J\u202e", `{"to":"`+strings.Repeat(`漢字`, 60)+`"}`, func(s *operator.Shown) {
		s.Decision.Once, s.Findings = true, []string{"model: \x1b]0;x\x07"}
	})
	denied := call(4, "create_issue", `{}`, func(s *operator.Shown) {
		s.State, s.Reason, s.By = operator.Denied, "not now", &operator.Approver{Name: "anna"}
	})
	offers := func(e callEvent) callEvent {
		reads := operator.GrantOffer{GrantTerms: operator.GrantTerms{Public: true}, Why: "it writes"}
		e.Approval.Grants = []operator.GrantOffer{{GrantTerms: operator.UsualGrant}, reads}
		return e
	}
	silent := func(client, handle string, seconds int, l gate.Label) operator.Session {
		return operator.Session{Client: client, Handle: handle, Silent: seconds, Label: l}
	}
	for _, c := range []struct {
		name   string
		events []callEvent
		keys   string
		then   tea.Msg
	}{
		{"empty", nil, "", nil},
		{"list", []callEvent{issue, alike, hostile, denied}, "down", nil},
		{"page", []callEvent{issue}, "enter", nil},
		{"more", []callEvent{issue}, "enter space", nil},
		{"unread", []callEvent{hostile}, "enter a", nil},
		{"alike", []callEvent{issue, alike, hostile}, "enter l space space space space space space space a", nil},
		{"grant", []callEvent{offers(issue)}, "enter space space g", nil},
		{"clean", []callEvent{issue, alike}, "down c", nil},
		{"silent", nil, "", sessionsSeen{sessions: []operator.Session{
			silent("laptop", "default", 5460, gate.Label{Confidentiality: gate.Sensitive, Integrity: gate.Raw}),
			silent("phone", "default", 0, gate.Start), // it came back soon
			silent("cursor", "k3bq7x2mz4p", 86400, gate.Label{Confidentiality: gate.Internal, Integrity: gate.Clean}),
		}}},
		{"lost", []callEvent{issue}, "enter", streamLost{errors.New("the gateway has hung up")}},
	} {
		for _, size := range []tea.WindowSizeMsg{{Width: 80, Height: 24}, {Width: 60, Height: 15}} {
			b := newBench(t, "")
			b.now = func() time.Time { return now }
			m := &approvalsScreen{approvalsVerb: approvalsVerb{b.pfar}, ctx: t.Context()}
			m.Update(size)
			for _, e := range c.events {
				m.Update(e)
			}
			typed(m, c.keys)
			if c.then != nil {
				m.Update(c.then)
			}
			got := m.View().Content + "\n"
			name := fmt.Sprintf("testdata/screens/%s-%dx%d.txt", c.name, size.Width, size.Height)
			lines := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
			wide := func(line string) bool { return mostColumns(line) > size.Width }
			if len(lines) > size.Height || slices.ContainsFunc(lines, wide) || strings.ContainsAny(got, "\x1b\u202e\x07") {
				t.Errorf("%s does not fit, or holds what a terminal obeys:\n%s", name, got)
			}
			if *update {
				if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if want, err := os.ReadFile(name); err != nil || got != string(want) {
				t.Errorf("%s: %v, got\n%s", name, err, got)
			}
		}
	}
	if files, _ := filepath.Glob("testdata/screens/*"); len(files) != 20 {
		t.Errorf("%d files", len(files))
	}
}

// TestApprovalsOnTerminal runs the program on a terminal: it follows what happens, answers, and gives the screen back.
func TestApprovalsOnTerminal(t *testing.T) {
	b := newDesk(t)
	first := b.sent(t, `{"to":"a@example.com"}`)
	start := func(term string) (*screenOf, *bench, chan int) {
		screen, program := newScreen(t, 80, 40)
		n := b.again("")
		n.getenv = variables(n.getenv, map[string]string{"TERM": term})
		n.stdin, n.stdout = program, program
		done := make(chan int, 1)
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		go func() { done <- n.run(ctx, []string{"approvals"}) }()
		return screen, n, done
	}
	screen, _, done := start("xterm-256color")
	screen.await(t, "1 call waits for you")
	screen.awaitStyled(t, "\x1b[33m")
	second := b.sent(t, `{"to":"b@example.com"}`)
	screen.await(t, "2 calls wait for you")
	screen.press(t, "\r")
	screen.await(t, `/to: "a@example.com"`)
	screen.press(t, "\x1b[200~a\x1b[201~") // what is pasted answers nothing
	screen.resize(t, 60, 30)
	screen.await(t, "grant reads  l all alike  n\n")
	screen.press(t, "a")
	screen.await(t, "1 call waits for you")
	if s, _ := b.approvals.Show(first); s.State != operator.Approved {
		t.Errorf("%v", s.State)
	}
	screen.press(t, "n")
	screen.await(t, `/to: "b@example.com"`)
	if err := b.approvals.Answer(second, approval.Answer{Reason: "no"}, approval.Approver{Name: "anna"}); err != nil {
		t.Fatal(err)
	}
	screen.await(t, "denied by anna: the operator denied it: no")
	screen.press(t, "q")
	screen.awaitLeft(t)
	if code := <-done; code != exitOK {
		t.Errorf("exit %d", code)
	}
	screen, _, done = start("dumb")
	screen.await(t, "mail.send")
	if code := <-done; code != exitOK || screen.fullScreen() {
		t.Errorf("exit %d, %s", code, screen)
	}
}
