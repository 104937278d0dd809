package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/pfar/pfar/policies/audit"
)

// TestAuditOfCalls: each call has its records, with all that it was decided by, and its reader is told why.
func TestAuditOfCalls(t *testing.T) {
	t.Parallel()
	s := newStage(t, "strict")
	a := s.tempted(false)
	c := a.send("mail__send_mail", mail("hello"))
	s.operate(0, "approvals", "approve", s.awaitPending(a).ID, "--yes")
	c.says(t, ran)
	c = a.send("mail__send_mail", mail("hello again"))
	s.operate(0, "approvals", "deny", s.awaitPending(a).ID, "--reason", "no")
	c.says(t, "denied")
	calls := s.records(a)
	for _, want := range []struct {
		tool, verdict, rule, before, after, outcome string
	}{
		{"read_issue", "allow", "strict", "public clean", "public raw", "ok"},
		{"read_text_file", "allow", "strict", "public raw", "sensitive raw", "ok"},
		{"send_mail", "ask", "strict", "sensitive raw", "sensitive raw", "ok"},
		{"send_mail", "ask", "strict", "sensitive raw", "sensitive raw", "denied"},
	} {
		i := slices.IndexFunc(calls, func(r audit.Record) bool { return r.Kind == audit.Open && r.Tool == want.tool })
		if i < 0 {
			t.Fatalf("no record of %s in %+v", want.tool, calls)
		}
		o := calls[i]
		calls = slices.Delete(calls, i, i+1)
		d := o.Decision
		if d == nil || d.Verdict.String() != want.verdict || !strings.Contains(d.Rule, want.rule) || d.Reason == "" || len(o.Policy) != 64 {
			t.Errorf("%s: decided %+v", want.tool, d)
		}
		if o.Before == nil || o.Before.String() != want.before || o.After == nil || o.After.String() != want.after {
			t.Errorf("%s: %+v to %+v", want.tool, o.Before, o.After)
		}
		if o.Client != a.name() || o.Session != "default" || o.Method != "tools/call" || o.Arguments == nil || len(o.Arguments.SHA256) != 64 {
			t.Errorf("%s: %+v", want.tool, o)
		}
		if o.Facts == nil || o.Facts.Effect == 0 || o.Facts.From.Effect == "" || o.Facts.Audience == 0 {
			t.Errorf("%s: facts %+v", want.tool, o.Facts)
		}
		if i = slices.IndexFunc(calls, func(r audit.Record) bool { return r.Kind == audit.Close && r.ID == o.ID }); i < 0 || calls[i].Outcome != want.outcome {
			t.Errorf("%s: closed with %d of %+v", want.tool, i, calls)
		}
		shown := s.operate(0, "explain", o.ID)
		for _, line := range []string{"Call        " + o.ID, "Verdict     " + want.verdict, "Rule        ", "strict.hcl", "Facts       output ", "audience ", "effect ", "Session     " + want.before, "After it    " + want.after, "Closed      "} {
			if !strings.Contains(shown, line) {
				t.Errorf("no %q in\n%s", line, shown)
			}
		}
		if want.verdict == "ask" && (!strings.Contains(shown, "Approval") || !strings.Contains(shown, "operator socket")) {
			t.Errorf("nothing of the approval in\n%s", shown)
		}
	}
	var answers []string
	for _, r := range s.records(nil) {
		if r.Kind == audit.Approval {
			answers = append(answers, r.Method)
		}
	}
	if got := strings.Join(answers, " "); got != "approve ask deny ask" {
		t.Errorf("of approvals is recorded: %s", got)
	}
	s.audited("gateway: ")
	if out := s.operate(0, "audit", "verify"); strings.Contains(out, "not closed") || strings.Contains(out, "BROKEN") {
		t.Error(out)
	}
}

// TestAuditKilled: a call that is under way when the gateway is killed is in the record, as one that was not closed.
func TestAuditKilled(t *testing.T) {
	t.Parallel()
	s := newStage(t, "strict")
	s.write("slow.hcl", declare(program(t, "echo"), nil, `
label = "public"
trust {
  public_source    = false
  secret_data      = false
  public_sink      = true
  dangerous_writes = false
}`))
	s.awaitRunning("slow")
	a := s.patient(false)
	c := a.send("slow__sleep", map[string]any{"milliseconds": 60_000})
	id := ""
	until(t, "the call is recorded", func() bool {
		for _, r := range s.records(a) {
			if r.Tool == "sleep" && r.Kind == audit.Open {
				id = r.ID
			}
		}
		return id != ""
	})
	first := s.gateway()
	if err := syscall.Kill(first.pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.gateway(first)
	c.giveUp()
	<-c.answer
	s.audited("1 call not closed: under way, or their gateway was killed: " + id)
	if shown := s.operate(0, "explain", id); !strings.Contains(shown, "Closed      not: ") {
		t.Error(shown)
	}
	a.connect()
	if got := a.call("slow__echo", map[string]any{"message": "on"}); !strings.Contains(got, `"on"`) {
		t.Error(got)
	}
	s.audited(id)
}

// TestAuditFull: as long as a call cannot be recorded it is not made, and neither is anything loosened.
func TestAuditFull(t *testing.T) {
	if os.Getuid() != 0 {
		return // it needs a file system of its own
	}
	t.Parallel()
	s := newStage(t, "strict", "unshare", "--mount", "--propagation", "private", "sh", "-ec",
		`umask 077; mkdir -p "$PFAR_STATE_DIR/audit"; mount -t tmpfs -o size=256k,mode=700 tmpfs "$PFAR_STATE_DIR/audit"; umask 022; exec "$0" "$@"`)
	at := filepath.Join(s.state(), "audit")
	inside := fmt.Sprintf("/proc/%d/root", s.cmd.Process.Pid)
	seen := func(args ...string) (string, error) {
		c := exec.Command("nsenter", append([]string{fmt.Sprintf("--mount=/proc/%d/ns/mnt", s.cmd.Process.Pid), "--", program(t, "pfar")}, args...)...)
		c.Env = s.env
		out, err := c.CombinedOutput()
		return string(out), err
	}
	a := s.agent(false)
	comment := func(n int) (text, answer string) {
		text = fmt.Sprintf("comment-%d.", n)
		return text, a.call("tracker__comment", map[string]any{"body": text})
	}
	runs := func(n int) {
		t.Helper()
		text, got := comment(n)
		if !strings.Contains(got, ran) {
			t.Errorf("%s: %.1000s", text, got)
		}
		s.got(text, 1)
	}
	runs(0)
	s.operate(0, "sessions", "reset", a.name(), "--yes")
	fill(t, inside+at+"/fill")
	refused, n := 0, 1
	for ; n < 200 && refused < 3; n++ { // the last page of the file takes some yet
		text, got := comment(n)
		if strings.Contains(got, ran) {
			s.got(text, 1)
			s.operateUnlessFull("sessions", "reset", a.name(), "--yes")
			continue
		}
		if strings.Contains(got, "the record of it could not be closed") { // there was room for its first record
			s.got(text, 1)
			continue
		}
		refused++
		if !strings.Contains(got, "pfar does nothing that it cannot record") {
			t.Errorf("%s: %.1000s", text, got)
		}
		s.got(text, 0)
	}
	if refused == 0 {
		t.Fatal("no call was refused though the disk is full")
	}
	if out := s.operate(1, "sessions", "reset", a.name(), "--yes"); !strings.Contains(out, "pfar does nothing that it cannot record") {
		t.Error(out)
	}
	if err := os.Remove(inside + at + "/fill"); err != nil {
		t.Fatal(err)
	}
	until(t, "there is room again", func() bool { _, _, code := s.command("sessions", "reset", a.name(), "--yes"); return code == 0 })
	runs(n)
	if out, err := seen("audit", "verify"); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	s.eachRecorded(a, seen)
}

// operateUnlessFull is for what cannot be done without a record.
func (s *stage) operateUnlessFull(args ...string) {
	s.t.Helper()
	if out, errs, code := s.command(args...); code != 0 && !strings.Contains(errs, "pfar does nothing that it cannot record") {
		s.t.Errorf("pfar %q: %d: %s%s", args, code, out, errs)
	}
}

// fill writes a file until there is no room.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	check(t, err)
	defer f.Close()
	for _, size := range []int{4096, 1} {
		for b := make([]byte, size); ; {
			if _, err = f.Write(b); err != nil {
				break
			}
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
	}
}

// eachRecorded fails if a call has reached the tracker that the record does not have.
func (s *stage) eachRecorded(a *agent, run func(...string) (string, error)) {
	s.t.Helper()
	out, err := run("audit", "--json", "--client", a.name())
	if err != nil {
		s.t.Fatal(err, out)
	}
	recorded := 0
	for line := range strings.Lines(out) {
		if strings.Contains(line, `"kind":"open"`) && !strings.Contains(line, `"outcome":`) {
			recorded++
		}
	}
	if arrived := strings.Count(s.received(), `"comment-`); recorded != arrived || arrived == 0 {
		s.t.Errorf("%d calls have arrived, %d are recorded", arrived, recorded)
	}
}
