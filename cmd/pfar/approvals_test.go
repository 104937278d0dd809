package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
	"github.com/pfar/pfar/cmd/pfar-gateway/grant"
	"github.com/pfar/pfar/cmd/pfar-gateway/label"
	"github.com/pfar/pfar/cmd/pfar-gateway/operator"
	"github.com/pfar/pfar/cmd/pfar-gateway/state"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/redact"
)

// deskBench is a bench whose gateway has the real operator's socket.
type deskBench struct {
	*bench
	approvals *approval.Store
	grants    *grant.Store
	sessions  *label.Sessions
}

func newDesk(t *testing.T) *deskBench {
	t.Helper()
	b := &deskBench{bench: newBench(t, "")}
	db, err := state.Open(filepath.Join(b.dirs.Run, "gateway"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	if b.sessions, err = label.Open(db); err != nil {
		t.Fatal(err)
	}
	b.sessions.Declare([]string{"laptop", "phone"})
	limits := approval.DefaultLimits()
	limits.Wait = 0
	if b.approvals, err = approval.Open(db, b.sessions, limits); err != nil {
		t.Fatal(err)
	}
	secrets := redact.New(map[string][]byte{"mail_token": []byte("hunter2-secret-0123456789")})
	mask := func(text []byte) ([]byte, []string) {
		text, hits := secrets.ReplaceJSON(text)
		var names []string
		for _, h := range hits {
			names = append(names, h.Name)
		}
		return text, names
	}
	if b.grants, err = grant.Open(db, nil); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	desk := &operator.Desk{Approvals: b.approvals, Grants: b.grants, Sessions: b.sessions, Mask: mask, Log: log}
	b.serveAt(t, b.dirs.Operator(), desk.HTTP())
	return b
}

// sent is a call that waits, and its id.
func (b *deskBench) sent(t *testing.T, arguments string, change ...func(*approval.Request)) string {
	t.Helper()
	r := approval.Request{
		Client: "laptop", Session: "default", Server: "mail", Name: "send", Method: "tools/call", Arguments: []byte(arguments),
		Decision: gate.Decision{
			Verdict: gate.Ask, Rule: "strict.hcl: raw", Profile: "strict", Reason: "it cannot be undone",
			Data: gate.Label{Confidentiality: gate.Internal, Integrity: gate.Raw},
		},
		Facts: gate.Facts{Audience: gate.Internal, Effect: gate.Irreversible}, Pin: "pin", Policy: "policy",
	}
	r.Plain = r.Facts
	r.Plain = r.Facts
	for _, f := range change {
		f(&r)
	}
	o, err := b.approvals.Ask(t.Context(), r, func() (approval.Request, error) { return r, nil }, nil)
	if err != nil || o.State != approval.Pending && o.State != approval.Approved {
		t.Fatalf("%+v, %v", o, err)
	}
	if o.State == approval.Approved {
		return "approved"
	}
	return o.ID
}

func (b *deskBench) run(t *testing.T, args ...string) (int, string, string) {
	t.Helper()
	n := b.again("")
	code := n.run(t.Context(), args)
	for _, s := range []string{n.out.String(), n.err.String()} {
		if strings.ContainsAny(s, "\x1b\u202e") {
			t.Errorf("pfar %q prints what a terminal obeys: %q", args, s)
		}
	}
	return code, n.out.String(), n.err.String()
}

// TestApprovalsRefuse: nothing is approved by mistake.
func TestApprovalsRefuse(t *testing.T) {
	b := newDesk(t)
	id := b.sent(t, `{"to":"a@example.com"}`)
	long := b.sent(t, `{"to":"a","body":"`+strings.Repeat("lorem ipsum ", 6000)+`"}`)
	once := b.sent(t, `{"to":"b"}`, func(r *approval.Request) { r.Decision.Once = true })
	shown, err := b.approvals.Show(long)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		err  string
	}{
		{[]string{"approve", id}, exitUsage, "look first with pfar approvals show\n"},
		{[]string{"approve", id[:6], "--yes"}, exitUsage, "is not the ID of an approval"},
		{[]string{"approve", "k3bq7x-2mz4p-tw5ra-c6yhd-e7suf", "--yes"}, exitNoSuch, "no call of this id"},
		{[]string{"approve", "../../x", "--yes"}, exitUsage, "is not the ID of an approval"},
		{[]string{"approve", "--yes"}, exitUsage, "missing ID"},
		{[]string{"approve", id, "x", "--yes"}, exitUsage, "unexpected argument"},
		{[]string{"approve", id, "--yes", "--digest", strings.Repeat("0", 64)}, exitFailed, "the call has another digest than"},
		{[]string{"approve", id, "--yes", "--digest", ""}, exitOK, ""}, // none
		{[]string{"approve", long, "--yes"}, exitFailed, "too long to read on a terminal"},
		{[]string{"approve", long, "--yes", "--digest", shown.Digest[:8]}, exitFailed, "the call has another digest than"},
		{[]string{"approve", once, "--yes", "--grant"}, exitFailed, "you see each such call"},
		{[]string{"approve", once, "--yes", "--grant-public-reads"}, exitFailed, "you see each such call"},
		{[]string{"approve", once, "--yes", "--grant", "--for", "1s"}, exitFailed, "for 60 to 28800 seconds"},
		{[]string{"approve", once, "--yes", "--grant", "--for", "1500ms"}, exitUsage, "write whole seconds"},
		{[]string{"approve", once, "--yes", "--grant", "--for", "-1h"}, exitUsage, "write whole seconds"},
		{[]string{"approve", once, "--yes", "--grant", "--bytes", "4m"}, exitUsage, "write 512 or 4k"},
		{[]string{"approve", once, "--yes", "--grant", "--bytes", "-1"}, exitUsage, "write 512 or 4k"},
		{[]string{"approve", once, "--yes", "--grant", "--bytes", "1000000k"}, exitFailed, "1 to 65536 bytes"},
		{[]string{"approve", once, "--yes", "--calls", "3"}, exitUsage, "add --grant"},
		{[]string{"approve", once, "--yes", "--grant", "--grant-public-reads"}, exitUsage, "give one of them"},
		{[]string{"deny", "x"}, exitUsage, "is not the ID of an approval"},
		{[]string{"show", "k3bq7x-2mz4p-tw5ra-c6yhd-e7suf"}, exitNoSuch, "no call of this id"},
		{[]string{"nothing"}, exitUsage, `unknown verb "nothing"`},
	} {
		code, out, err := b.run(t, append([]string{"approvals"}, c.args...)...)
		if code != c.code || !strings.Contains(err, c.err) || code != exitOK && out != "" && c.code != exitFailed {
			t.Errorf("%q: exit %d, %q, %q, want %d, %q", c.args, code, out, err, c.code, c.err)
		}
	}
	if list := b.approvals.List(); len(list) != 3 || list[0].State != approval.Approved || list[1].State != approval.Pending || list[2].State != approval.Pending {
		t.Errorf("%+v", list)
	}
	if code, _, err := b.run(t, "approvals", "approve", long, "--yes", "--digest", shown.Digest); code != exitOK {
		t.Errorf("with its digest: exit %d, %s", code, err)
	}
}

func TestApprovals(t *testing.T) {
	b := newDesk(t)
	if code, _, err := b.run(t, "approvals"); code != exitOK || err != "no call waits\n" {
		t.Errorf("exit %d, %s", code, err)
	}
	const call = `{"to":"a@example.com\u001b[2J","body":"hunter2-secret-0123456789"}`
	id := b.sent(t, call)
	if code, out, err := b.run(t, "approvals"); code != exitOK || !strings.Contains(out, id) || !strings.Contains(out, "mail.send") || !strings.Contains(err, "hint: pfar approvals show "+id) {
		t.Errorf("exit %d, %s%s", code, out, err)
	}
	for _, args := range [][]string{{"approvals", "show", strings.ToUpper(id)}, {"approvals", "show", id, "--json"}, {"approvals", "--json"}} {
		if code, out, err := b.run(t, args...); code != exitOK || strings.Contains(out, "hunter2") || !strings.Contains(out, "[redacted: mail_token]") {
			t.Errorf("%q: exit %d, %s%s", args, code, out, err)
		}
	}
	if code, out, err := b.run(t, "approvals", "approve", id, "--yes"); code != exitOK || !strings.Contains(out, `/to: "a@example.com\x1b[2J"`) || !strings.HasSuffix(out, "\napproved\n") {
		t.Errorf("exit %d, %s%s", code, out, err)
	}
	if got := b.sent(t, call); got != "approved" {
		t.Error(got)
	}
	id = b.sent(t, call)
	if code, out, err := b.run(t, "approvals", "deny", id, "--reason", "no", "--json"); code != exitOK || !strings.Contains(out, `"denied"`) {
		t.Errorf("exit %d, %s%s", code, out, err)
	}
	code, out, err := b.run(t, "approvals", "history")
	if lines := strings.Split(out, "\n"); code != exitOK || len(lines) != 4 || !strings.Contains(lines[1], "denied") || !strings.Contains(lines[2], "used") {
		t.Errorf("exit %d, %s%s", code, out, err)
	}
}

// TestWatch: each call is told once, also across a gateway that hangs up, and the program gets nothing but text.
func TestWatch(t *testing.T) {
	b := newDesk(t)
	dir := b.dirs.Run
	script := filepath.Join(dir, "tell")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nprintf '%s\\n' \"$# $PFAR_APPROVAL $PFAR_CLIENT $PFAR_SERVER.$PFAR_TOOL $PFAR_REASON\" >>"+dir+"/told\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	first := b.sent(t, `{}`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := b.again("")
	r, w := io.Pipe()
	n.pfar.stdout = w
	done := make(chan int)
	go func() { done <- n.run(ctx, []string{"approvals", "watch", "--exec", script}) }()
	lines := bufio.NewScanner(r)
	next := func(want string) {
		t.Helper()
		if !lines.Scan() || !strings.Contains(lines.Text(), want) {
			t.Fatalf("%q, want %q", lines.Text(), want)
		}
	}
	next("pending   " + first + "  laptop calls mail.send({}): it cannot be undone")
	second := b.sent(t, `{"n":2}`, func(r *approval.Request) { r.Decision.Reason = "odd\x1b[2J\n$(reboot)"; r.Name = "a;b" })
	next("pending   " + second + `  laptop calls mail.a;b({"n":2}): odd\x1b[2J\n$(reboot)`)
	if err := b.approvals.Answer(second, approval.Answer{}, approval.Approver{Name: "x"}); err != nil {
		t.Fatal(err)
	}
	next("denied    " + second + "  laptop calls mail.a;b")
	if strings.HasSuffix(lines.Text(), ":") {
		t.Errorf("a colon without a reason: %q", lines.Text())
	}
	var told []byte
	for deadline := time.Now().Add(2 * time.Minute); strings.Count(string(told), "\n") < 2 && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		told, _ = os.ReadFile(filepath.Join(dir, "told"))
	}
	cancel()
	if code := <-done; code != exitInterrupted {
		t.Errorf("exit %d, %s", code, n.err)
	}
	want := fmt.Sprintf("0 %s laptop mail.send it cannot be undone\n0 %s laptop mail.a;b odd\\x1b[2J\\n$(reboot)\n", first, second)
	if string(told) != want {
		t.Errorf("told\n%s\nwant\n%s", told, want)
	}
}

// TestReasonsAreWhole: what a person decides by has no end before its end without a mark.
func TestReasonsAreWhole(t *testing.T) {
	b := newDesk(t)
	because := func(reason string) func(*approval.Request) {
		return func(r *approval.Request) { r.Decision.Reason, r.Name = reason, "send. all" }
	}
	b.sent(t, `{"n":1}`, because("It only reads. And it sends it on"))
	b.sent(t, `{"n":2}`, because("one line\nanother"))
	b.sent(t, `{"n":3}`, because(strings.Repeat("word ", 20)))
	_, list, _ := b.run(t, "approvals")
	for _, want := range []string{"It only reads. And it sends it on\n", `one line\nanother`, strings.Repeat("word ", 20)[:99] + "\n", "mail.send. all"} {
		if !strings.Contains(list, want) {
			t.Errorf("no %q in\n%s", want, list)
		}
	}
	script := filepath.Join(b.dirs.Run, "tell")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nfor a; do printf '<%s>' \"$a\" >>"+b.dirs.Run+"/told; done\nprintf %s \"$PFAR_REASON\" >>"+b.dirs.Run+"/told\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	w := sendsMail()
	w.Decision.Reason = "It only reads. And it sends it on"
	if err := (hook{path: script, within: time.Hour}).tell(t.Context(), w, io.Discard); err != nil {
		t.Fatal(err)
	}
	if told, _ := os.ReadFile(b.dirs.Run + "/told"); string(told) != w.Decision.Reason {
		t.Errorf("%s", told)
	}
}

// sendsMail is a call that waits.
func sendsMail() *waitingCall {
	w := approval.Shown{ID: "id"}
	w.Client, w.Server, w.Name = "laptop", "mail", "send"
	return &waitingCall{w}
}

// TestHook: the program learns of the call by its environment.
func TestHook(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "tell")
	w := sendsMail()
	t.Setenv("PFAR_RUN_DIR", "/run/of-its-own")
	t.Setenv("PFAR_SERVER", "another")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nprintf %s \"$PFAR_RUN_DIR $PFAR_SERVER\" >"+dir+"/told\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := (hook{path: script, within: time.Hour}).tell(t.Context(), w, io.Discard); err != nil {
		t.Fatal(err)
	}
	if told, _ := os.ReadFile(filepath.Join(dir, "told")); string(told) != "/run/of-its-own mail" { // so that it may ask pfar for more
		t.Errorf("its environment: %s", told)
	}
	if err := os.WriteFile(script, []byte("#!/bin/sh\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	err := hook{path: script, within: time.Hour}.tell(t.Context(), w, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("%v", err)
	}
}

// TestHookEnds: pfar kills a program that hangs, and its children.
func TestHookEnds(t *testing.T) {
	dir := t.TempDir()
	script, open := filepath.Join(dir, "tell"), filepath.Join(dir, "open")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nexec 9>"+open+"\nsleep 1d &\nsleep 1d\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(open, 0o600); err != nil {
		t.Fatal(err)
	}
	held, err := os.OpenFile(open, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	w := sendsMail()
	err = (hook{path: script, within: time.Second}).tell(t.Context(), w, io.Discard)
	if err == nil || !strings.Contains(err.Error(), `/tell": the program still ran after 1s`) {
		t.Errorf("%v", err)
	}
	_ = held.SetReadDeadline(time.Now().Add(2 * time.Minute))
	if n, err := held.Read(make([]byte, 1)); err != io.EOF { // all who had it open are dead
		t.Errorf("what it has started lives on: %d, %v", n, err)
	}
}

// TestWatchAgain: a gateway that is started again is asked again, and says nothing twice.
func TestWatchAgain(t *testing.T) {
	b := newBench(t, "")
	if code := b.run(t.Context(), []string{"approvals", "watch"}); code != exitNotRunning {
		t.Errorf("without a gateway: exit %d", code)
	}
	asked := make(chan bool, 9)
	b.serveOperator(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- true
		fmt.Fprintln(w, `{"kind":"pending","approval":{"id":"a\u001b","state":"pending"}}`)
	}))
	n := b.again("")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	go func() {
		<-asked
		<-asked
		<-asked
		cancel()
	}()
	n.run(ctx, []string{"approvals", "watch"})
	if got := n.out.String(); strings.Count(got, "pending") != 1 || strings.Contains(got, "\x1b") {
		t.Errorf("%q", got)
	}
}

// brokenWriter takes nothing.
type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("the disk is full") }

// TestWatchEnds: what asking again does not mend ends it, and what is wrong with a gateway that may come back is said
// once.
func TestWatchEnds(t *testing.T) {
	b := newBench(t, "")
	var asked atomic.Int32
	var answer func(w http.ResponseWriter)
	b.serveOperator(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == 1 {
			fmt.Fprintln(w, `{"kind":"pending","approval":{"id":"a","state":"pending"}}`)
			return
		}
		answer(w)
	}))
	refuse := func(code int, text string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { w.WriteHeader(code); fmt.Fprintf(w, `{"error":%q}`, text) }
	}
	watch := func(out io.Writer, enough int32) (int, string) {
		t.Helper()
		asked.Store(0)
		n := b.again("")
		if out != nil {
			n.pfar.stdout = out
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		last := answer
		answer = func(w http.ResponseWriter) {
			if asked.Load() >= enough {
				defer cancel()
			}
			last(w)
		}
		code := n.run(ctx, []string{"approvals", "watch"})
		return code, n.err.String()
	}
	answer = func(http.ResponseWriter) {}
	if code, err := watch(brokenWriter{}, 2); code != exitFailed || !strings.Contains(err, "the disk is full") || asked.Load() != 1 {
		t.Errorf("what cannot be written: exit %d after %d, %s", code, asked.Load(), err)
	}
	answer = refuse(http.StatusForbidden, "not you any more")
	if code, err := watch(nil, 3); code != exitDenied || !strings.Contains(err, "not you any more") || asked.Load() != 2 {
		t.Errorf("a refusal: exit %d after %d, %s", code, asked.Load(), err)
	}
	answer = refuse(http.StatusInternalServerError, "out of order")
	code, err := watch(nil, 3)
	if code != exitInterrupted || strings.Count(err, "hung up; asking again") != 1 || strings.Count(err, "out of order; asking again") != 1 {
		t.Errorf("an outage: exit %d, %s", code, err)
	}
}

// endless says nothing, and never stops.
type endless struct{}

func (endless) Read(b []byte) (int, error) { return copy(b, strings.Repeat(" ", len(b))), nil }

// TestWatchIsBounded: a gateway that begins a line and does not end it costs no more than a message.
func TestWatchIsBounded(t *testing.T) {
	if err := events(endless{}, nil); !errors.Is(err, errTooLong) {
		t.Errorf("got %v", err)
	}
}

func TestSessions(t *testing.T) {
	b := newDesk(t)
	raw := gate.Label{Confidentiality: gate.Sensitive, Integrity: gate.Raw}
	if _, _, err := b.sessions.Raise("laptop", "default", raw, label.Source{Server: "issues", Tool: "sea\x1brch", Call: "c1"}); err != nil {
		t.Fatal(err)
	}
	if err := b.sessions.Stain("notion", raw, label.Source{Client: "laptop", Handle: "default", Tool: "create"}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		out  string
		err  string
	}{
		{[]string{"sessions"}, exitOK, "laptop/default  sensitive raw", ""},
		{[]string{"sessions", "list", "--json"}, exitOK, `"handle": "default"`, ""},
		{[]string{"sessions", "show", "laptop/default"}, exitOK, `issues.sea\x1brch`, ""},
		{[]string{"sessions", "show", "laptop"}, exitOK, "laptop/default: sensitive raw", ""},
		{[]string{"sessions", "show", "nobody"}, exitNoSuch, "", "no such session"},
		{[]string{"sessions", "show", "laptop/Of_a-Client"}, exitNoSuch, "", "no such session"}, // though there might be
		{[]string{"sessions", "show"}, exitUsage, "", "missing CLIENT[/HANDLE]\n"},
		{[]string{"sessions", "end"}, exitUsage, "", "missing CLIENT/HANDLE\n"}, // the default one does not end
		{[]string{"sessions", "show", "../x"}, exitUsage, "", "write CLIENT/HANDLE"},
		{[]string{"sessions", "show", "laptop/"}, exitUsage, "", "write CLIENT/HANDLE"},
		{[]string{"sessions", "show", "laptop/default/x"}, exitUsage, "", "write CLIENT/HANDLE"},
		{[]string{"sessions", "new", "nobody"}, exitNoSuch, "", `the client "nobody" is not declared`},
		{[]string{"sessions", "reset", "laptop/default"}, exitUsage, "", "look first with pfar sessions show\n"},
		{[]string{"sessions", "end", "laptop/default", "--yes"}, exitFailed, "", "does not end"},
		{[]string{"sessions", "thaw", "laptop/default", "--yes"}, exitOK, "thaw", ""},
		{[]string{"sessions", "stains"}, exitOK, "notion  sensitive raw", ""},
		{[]string{"sessions", "clear", "notion"}, exitUsage, "", "look first with pfar sessions stains\n"},
		{[]string{"sessions", "clear", "mail", "--yes"}, exitNoSuch, "", "no stain"},
		{[]string{"sessions", "clear", "../x", "--yes"}, exitNoSuch, "", "no such server"},
		{[]string{"sessions", "clear", "notion", "--yes"}, exitOK, "clear", ""},
		{[]string{"sessions", "stains"}, exitOK, "", "no server is stained"},
		{[]string{"sessions", "reset", "laptop/default", "--yes"}, exitOK, "reset", ""},
		{[]string{"sessions", "show", "laptop"}, exitOK, "laptop/default: public clean\nreset at ", ""},
	} {
		if code, out, err := b.run(t, c.args...); code != c.code || !strings.Contains(out, c.out) || !strings.Contains(err, c.err) {
			t.Errorf("%q: exit %d, %q %q, want %d, %q %q", c.args, code, out, err, c.code, c.out, c.err)
		}
	}
	code, out, err := b.run(t, "sessions", "new", "laptop")
	if handle := strings.TrimSpace(out); code != exitOK || len(handle) != 26 || !strings.Contains(err, "/mcp/laptop/"+handle) {
		t.Errorf("exit %d, %q, %q", code, out, err)
	}
}

// TestApprovalsTogether: of calls that are alike the list shows what is not, wherever it hides.
func TestApprovalsTogether(t *testing.T) {
	long := strings.Repeat("lorem ipsum ", 3000)
	to := func(client, server string) func(*approval.Request) {
		return func(r *approval.Request) { r.Client, r.Server = client, server }
	}
	for _, c := range []struct {
		name  string
		sent  []string
		other []func(*approval.Request) // of the last call
		want  []string                  // lines below the list; ID1 is the first call's id
	}{
		{"one alone", []string{`{"to":"a"}`}, nil, nil},
		{"of another client", []string{`{"to":"a"}`, `{"to":"b"}`}, []func(*approval.Request){to("phone", "mail")}, nil},
		{"of another server", []string{`{"to":"a"}`, `{"to":"b"}`}, []func(*approval.Request){to("laptop", "post")}, nil},
		{"in one argument", []string{`{"to":"a@example.com","body":"x"}`, `{"body":"x","to":"b@example.com"}`, `{"to":"c@evil.example","body":"x"}`}, nil, []string{
			"3 calls of laptop to mail.send differ only in /to",
			`  ID1  /to: "a@example.com"`,
			`  ID2  /to: "b@example.com"`,
			`  ID3  /to: "c@evil.example"`,
		}},
		{"behind what all begin with, and at the end", []string{`{"body":"` + long + `x"}`, `{"body":"` + long + `y` + long + `"}`}, nil, []string{
			"2 calls of laptop to mail.send differ only in /body",
			`  ID1  /body: …"m ipsum x"`,
			`  ID2  /body: …"m ipsum ylorem ipsum lorem ipsum lorem i"…`,
		}},
		{"that is there or not, a text or none", []string{`{"to":"a","n":1}`, `{"to":"a","n":"1"}`, `{"to":"a"}`, `{"to":"a","n":"nothing"}`}, nil, []string{
			"4 calls of laptop to mail.send differ only in /n",
			`  ID1  /n: 1`,
			`  ID2  /n: "1"`,
			`  ID3  /n: nothing`,
			`  ID4  /n: "nothing"`,
		}},
		{"in more places than are shown", []string{`{"a":1,"b":[1,2],"c":{"d":1},"to":"x"}`, `{"a":2,"b":[1,3],"c":{"d":2},"to":"y"}`}, nil, []string{
			"2 calls of laptop to mail.send differ only in /to, /a, /b/1 and 1 more",
			`  ID1  /to: "x", /a: 1, /b/1: 2`,
			`  ID2  /to: "y", /a: 2, /b/1: 3`,
		}},
		{"in nothing that is shown", []string{`{"to":"hunter2-secret-0123456789"}`, `{"to":"68756e746572322d7365637265742d30313233343536373839"}`}, nil, []string{"2 calls of laptop to mail.send have the same arguments, as far as they are shown"}},
		{"written to look like something else", []string{`{"to: \"a\"":"x"}`, `{"to":"a\u202e\n  ID1  b\u001b[2J"}`}, nil, []string{
			`2 calls of laptop to mail.send differ only in /to, "/to: \"a\""`,
			`  ID1  /to: nothing, "/to: \"a\"": "x"`,
			`  ID2  /to: "a\u202e\n  ID1  b\x1b[2J", "/to: \"a\"": nothing`,
		}},
	} {
		b := newDesk(t)
		var ids []string
		for i, arguments := range c.sent {
			var change []func(*approval.Request)
			if i == len(c.sent)-1 {
				change = c.other
			}
			ids = append(ids, b.sent(t, arguments, change...))
		}
		code, out, err := b.run(t, "approvals")
		below := strings.Split(strings.TrimSuffix(strings.ReplaceAll(out, "\n  + ", ""), "\n"), "\n")[1+len(ids):]
		for i, id := range ids {
			for k := range below {
				below[k] = strings.ReplaceAll(below[k], id, fmt.Sprintf("ID%d", i+1))
			}
		}
		if code != exitOK || !slices.Equal(below, c.want) {
			t.Errorf("%s: exit %d, %s\ngot\n%s\nwant\n%s", c.name, code, err, strings.Join(below, "\n"), strings.Join(c.want, "\n"))
		}
		for line := range strings.Lines(out[strings.LastIndex(out, ids[len(ids)-1]):]) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 && !strings.Contains(line, "pending") {
				t.Errorf("%s: %d columns: %q", c.name, n, line)
			}
		}
	}
}
