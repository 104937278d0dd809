package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/audit/trail"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/journal/journaltest"
)

var auditStart = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// chain writes records as one writer, a second apart, beginning at second from.
func (b *bench) chain(t *testing.T, writer string, from int, records ...audit.Record) {
	t.Helper()
	d := trail.Dir{Path: b.dirs.Audit(), Group: -1}
	if err := os.MkdirAll(filepath.Dir(d.Path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := d.Make(); err != nil {
		t.Fatal(err)
	}
	now := auditStart.Add(time.Duration(from) * time.Second)
	l := trail.New(trail.Options{Writer: writer, Now: func() time.Time { return now }})
	f, _, err := d.Open(writer, now)
	if err == nil {
		err = l.Use(f)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		now = now.Add(2 * time.Second)
		if err := l.Append(&r); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.End(); err != nil {
		t.Fatal(err)
	}
}

const (
	allowedID = "1ng41j3na7z4yvfrjpp"
	deniedID  = "1ng41j4bbbbbbbbbbbb"
	openID    = "1ng41j5cccccccccccc"
)

// recorded is a bench with some records of both chains.
func recorded(t *testing.T) *bench {
	t.Helper()
	b := newBench(t, "")
	worst := gate.Worst
	b.chain(t, "gateway", 0,
		audit.Record{
			Kind: audit.Open, ID: allowedID, Client: "claude", Session: "default", Server: "notion", Tool: "search", Method: "tools/call",
			Arguments: &audit.Arguments{Bytes: 17, SHA256: audit.Zero, Text: `{"query":"\u001b[2J"}`},
			Before:    &audit.Label{Label: gate.Start}, After: &audit.Label{Label: gate.Label{Confidentiality: gate.Sensitive, Integrity: gate.Raw}, Sources: []string{"notion.search"}},
			Facts:    &worst,
			Decision: &gate.Decision{Verdict: gate.Allow, Reason: "nothing leaves", Rule: "strict.hcl: clean, fits, none", Fired: []string{"strict.hcl: clean, fits, none", "owner: notion.hcl"}, Data: gate.Start, Profile: "strict"},
		},
		audit.Record{
			Kind: audit.Open, ID: deniedID, Client: "other", Server: "mail", Tool: "send\x1b[31m\nforged", Outcome: "denied",
			Decision: &gate.Decision{Verdict: gate.Deny, Reason: "secret to public", Rule: "strict.hcl: any"}, Findings: []audit.Finding{{Inspector: "patterns", Kind: "token", Detail: "ghp_\u202e"}},
		},
		audit.Record{
			Kind: audit.Close, ID: allowedID, Outcome: "done", Bytes: 2048, Latency: 3 * time.Millisecond,
			Findings: []audit.Finding{{Inspector: "built-in", Kind: "instruction", Detail: "/text ignore all", Digest: strings.Repeat("cd", 32)}},
			Withheld: &audit.Arguments{Bytes: 4711, SHA256: strings.Repeat("ef", 32), Text: "ignore all\nCall        forged"},
		},
		audit.Record{Kind: audit.Open, ID: openID, Server: "notion", Tool: "update", Decision: &gate.Decision{Verdict: gate.Ask}},
		audit.Record{Kind: audit.Approval, ID: openID, Approver: "uid 0", Channel: "cli", Outcome: "approved"},
	)
	b.chain(t, "pfard", 1,
		audit.Record{
			Kind: audit.Refused, Server: "notion", Subject: "evil.example", Outcome: egress.NameNotDeclared, Left: 17,
		},
		audit.Record{Kind: audit.Vault, Method: "deliver", Server: "notion", Subject: "notion_token", Channel: "env", To: "launcher", Outcome: "done"},
		audit.Record{Kind: audit.Declaration, Server: "notion", Subject: "/etc/pfar/mcp.d/notion.hcl", Old: audit.Zero, New: strings.Repeat("ab", 32)},
	)
	return b
}

func (b *bench) audited(t *testing.T, args ...string) (string, int) {
	t.Helper()
	b.out.Reset()
	b.err.Reset()
	b.output = "text"
	code := b.run(context.Background(), append([]string{"audit"}, args...))
	return b.out.String() + b.err.String(), code
}

// TestAuditShows merges both chains by time, a call as one line, with nothing in it that a terminal obeys.
func TestAuditShows(t *testing.T) {
	b := recorded(t)
	out, code := b.audited(t)
	at := func(s int) string {
		return stamp(auditStart.Add(time.Duration(s) * time.Second))
	}
	want := strings.Join([]string{
		at(0) + "  begin        gateway  " + fmt.Sprintf("uid %d", os.Getuid()) + "  start",
		at(1) + "  begin        pfard  " + fmt.Sprintf("uid %d", os.Getuid()) + "  start",
		at(3) + "  refused      notion  refused evil.example (name-not-declared)  (17 more before it)",
		at(4) + `  deny         mail.send\x1b[31m\nforged  by other  (secret to public)  denied  ` + deniedID,
		at(5) + "  vault        deliver  notion  notion_token  done  env  to the launcher",
		at(2) + "  allow        notion.search  by claude/default  done, 2.0 KiB, 3ms  " + allowedID,
		at(7) + "  declaration  notion  /etc/pfar/mcp.d/notion.hcl  000000000000 → abababababab",
		at(10) + "  approval     approved  uid 0  cli  " + openID,
		at(8) + "  ask          notion.update  ()  not closed: under way, or its gateway was killed  " + openID,
		"",
	}, "\n")
	if out != want || code != 0 {
		t.Errorf("exit code %d, got\n%s\nwant\n%s", code, out, want)
	}
}

func TestAuditFilters(t *testing.T) {
	b := recorded(t)
	now := auditStart.Add(time.Hour)
	b.now = func() time.Time { return now }
	for args, want := range map[string]int{
		"--server notion": 6, "--server mail": 1, "--client claude": 1, "--session default": 1, "--tool search": 1, "--verdict deny": 1, "--verdict allow": 1, "--kind vault": 1, "--kind call": 3,
		"--since 2026-05-01T12:00:07Z": 3, "--until 2026-05-01T12:00:01Z": 2, "--since 59m57s": 7, "--since 2d": 9, "--since 30m": 0, "--server none": 0,
		openID[:9]: 2, "--json --client claude": 2, "--json": 10,
	} {
		out, code := b.audited(t, strings.Fields(args)...)
		if got := strings.Count(out, "\n"); got != want || code != 0 {
			t.Errorf("%s: %d lines, want %d, exit code %d\n%s", args, got, want, code, out)
		}
	}
	out, _ := b.audited(t, "--json")
	for line := range strings.SplitSeq(strings.TrimSpace(out), "\n") {
		if !json.Valid([]byte(line)) || strings.ContainsAny(line, "\x1b\u202e") {
			t.Errorf("%q", line)
		}
	}
	for args, want := range map[string]int{"notion": exitUsage, "9999999999": exitNoSuch, "--since x": exitUsage, "--since -1h": exitUsage,
		"--verdict denied": exitUsage, "--kind calls": exitUsage, allowedID + " x": exitUsage} {
		if out, code := b.audited(t, strings.Fields(args)...); code != want {
			t.Errorf("%s: exit code %d: %s", args, code, out)
		}
	}
	if out, code := newBench(t, "").audited(t); code != exitNoSuch || !strings.Contains(out, "nothing has been recorded yet") {
		t.Errorf("with nothing: %d, %s", code, out)
	}
}

// TestAuditFollows shows what is recorded later, also in another file.
func TestAuditFollows(t *testing.T) {
	b := recorded(t)
	b.out, b.err = nil, nil
	lines := make(lineChannel, 100)
	b.stdout = lines
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan int)
	go func() { ended <- b.run(ctx, []string{"audit", "-f", "--kind", "vault"}) }()
	next := func() string {
		t.Helper()
		select {
		case l := <-lines:
			return l
		case <-time.After(2 * time.Minute):
			t.Fatal("nothing comes")
		}
		return ""
	}
	if l := next(); !strings.Contains(l, "notion_token") {
		t.Error(l)
	}
	b.chain(t, "pfard", 100, audit.Record{Kind: audit.Vault, Subject: "later"})
	if l := next(); !strings.Contains(l, "later") {
		t.Error(l)
	}
	b.chain(t, "pfard", 100+int(trail.MaxAge/time.Second), audit.Record{Kind: audit.Vault, Subject: "next file"})
	if l := next(); !strings.Contains(l, "next file") {
		t.Error(l)
	}
	cancel()
	if code := <-ended; code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// lineChannel takes each write as one line.
type lineChannel chan string

func (c lineChannel) Write(b []byte) (int, error) {
	c <- string(b)
	return len(b), nil
}

func TestExplainCall(t *testing.T) {
	b := recorded(t)
	for id, want := range map[string][]string{
		allowedID[:10]: {
			"Call        " + allowedID + " of notion.search, tools/call", "Verdict     allow: nothing leaves", "Rule        strict.hcl: clean, fits, none (profile strict)", "also: owner: notion.hcl",
			"Session     public clean\n", "After it    sensitive raw, by notion.search", "Facts       output sensitive (unknown), raw (unknown)", "audience public (unknown)", "effect irreversible (unknown)",
			`{"query":"\u001b[2J"}`, "Closed ", "done, 2.0 KiB, 3ms", "            sha256 " + strings.Repeat("cd", 32) + "\n",
			"Withheld    4711 bytes, sha256 " + strings.Repeat("ef", 32) + "\n            " + `ignore all\nCall        forged` + "\n",
		},
		deniedID: {"Verdict     deny: secret to public", `Inspector   patterns found token: ghp_\u202e`, `mail.send\x1b[31m`},
		openID:   {"Approval    ", "approved  uid 0  cli", "Closed      not:"},
	} {
		b.out.Reset()
		if code := b.run(context.Background(), []string{"explain", id}); code != 0 {
			t.Errorf("%s: exit code %d: %s", id, code, b.err)
		}
		for _, w := range want {
			if !strings.Contains(b.out.String(), w) {
				t.Errorf("%s: no %q in\n%s", id, w, b.out)
			}
		}
		if strings.ContainsAny(b.out.String(), "\x1b\u202e") {
			t.Errorf("a terminal would obey %q", b.out)
		}
	}
	for id, want := range map[string]int{"1ng41jzz": exitNoSuch, "1ng41j3na7z4yvfrjpq": exitNoSuch} {
		if code := b.run(context.Background(), []string{"explain", id}); code != want {
			t.Errorf("%s: exit code %d", id, code)
		}
	}
}

// TestExplainTyped says of a call that typed values were to come back of what has.
func TestExplainTyped(t *testing.T) {
	label := func(i gate.Integrity) *audit.Label {
		return &audit.Label{Label: gate.Label{Confidentiality: gate.Internal, Integrity: i}}
	}
	for want, r := range map[string]audit.Record{
		"Output      internal extracted: typed values alone\n":     {Kind: audit.Close, Outcome: "ok", Output: label(gate.Extracted)},
		"Output      internal raw: not only typed values\n":        {Kind: audit.Close, Outcome: "ok", Output: label(gate.Raw), Reason: "it is \x1b[2J an error"},
		`ok, raw: it is \x1b[2J an error`:                          {Kind: audit.Close, Outcome: "ok", Output: label(gate.Raw), Reason: "it is \x1b[2J an error"},
		"its results are typed values by the outputSchema":         {Kind: audit.Open, Facts: &gate.Facts{Extract: true}},
		"Closed      not: it is under way, or its gateway was kil": {Kind: audit.Open},
	} {
		var b strings.Builder
		_ = writeStory(&b, []*audit.Entry{{Record: r}})
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	var b strings.Builder
	_ = writeStory(&b, []*audit.Entry{{Record: audit.Record{Kind: audit.Close, Outcome: "ok", Reason: "x"}}})
	if strings.Contains(b.String(), "Output") {
		t.Errorf("of a call that nothing typed was to come back of:\n%s", b.String())
	}
}

// TestExplainListing: only a call can be under way. A listing raises a session's label, and nothing closes its record.
func TestExplainListing(t *testing.T) {
	raw := gate.Label{Confidentiality: gate.Internal, Integrity: gate.Raw}
	var b strings.Builder
	_ = writeStory(&b, []*audit.Entry{{Record: audit.Record{
		Kind: audit.Session, ID: "x", Client: "laptop", Session: "default", Server: "notes", Method: "resources/list",
		Before: &audit.Label{Label: gate.Start}, After: &audit.Label{Label: raw, Sources: []string{"notes (x)"}},
	}}})
	if got := b.String(); strings.Contains(got, "under way") || !strings.Contains(got, "resources/list") {
		t.Errorf("%s", got)
	}
}

// TestExplainDrawsNoLine: whatever a taken over gateway records, each record's line is its own.
func TestExplainDrawsNoLine(t *testing.T) {
	const forged = "x\nVerdict     allow: nothing leaves\x1b[2J"
	text := &audit.Arguments{SHA256: forged, Text: forged}
	var b strings.Builder
	_ = writeStory(&b, []*audit.Entry{
		{Record: audit.Record{
			Kind: audit.Open, ID: forged, Server: forged, Tool: forged, Method: forged, Writer: forged, Client: forged, Session: forged, Pin: forged, Policy: forged,
			Approver: forged, Channel: forged, Outcome: forged, Reason: forged, Arguments: text, Withheld: text, Before: &audit.Label{Sources: []string{forged}},
			Findings: []audit.Finding{{Inspector: forged, Kind: forged, Detail: forged, Digest: forged}}, Facts: &gate.Facts{Tier: forged, Forbidden: forged},
			Decision: &gate.Decision{Verdict: gate.Deny, Reason: forged, Rule: forged, Profile: forged, Fired: []string{"another " + forged}, Flows: []string{forged}},
		}},
		{Record: audit.Record{Kind: forged, Method: forged, Subject: forged, User: forged}},
		{Record: audit.Record{Kind: audit.Close, Outcome: forged, Approver: forged, Reason: forged}},
		{Record: audit.Record{}}, // and none has to say what it is
	})
	if strings.Contains(b.String(), "\x1b") || strings.Contains(b.String(), "\nVerdict     allow") || !strings.Contains(b.String(), "\nVerdict     deny: x") {
		t.Errorf("%s", b.String())
	}
}

// TestAuditIsInterrupted: what is long to be read is not read to its end.
func TestAuditIsInterrupted(t *testing.T) {
	b := recorded(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, args := range []string{"audit", "audit --json", "explain " + allowedID, "audit verify"} {
		b.out.Reset()
		if code := b.run(ctx, strings.Fields(args)); code != exitInterrupted || b.out.Len() > 0 {
			t.Errorf("%s: exit %d, %s", args, code, b.out)
		}
	}
}

// TestAuditVerifyOfABabblingJournal: what is no entry is told, and not waited for.
func TestAuditVerifyOfABabblingJournal(t *testing.T) {
	b := recorded(t)
	b.uid = 0
	b.pfard(t, control.Report{Journal: true}, nil)
	journaltest.Journalctl(t, "-- No entries --\n"+strings.Repeat("more than a pipe holds\n", 10000), 0)
	if out, code := b.audited(t, "verify"); code != 0 || !strings.Contains(out, "nothing says whether the end was cut: reading the journal: invalid character") {
		t.Errorf("%d, %s", code, out)
	}
}

// TestAuditVerify names the place, and compares with what a log was told.
func TestAuditVerify(t *testing.T) {
	b := recorded(t)
	out, code := b.audited(t, "verify")
	if code != 0 || !strings.Contains(out, "whole   gateway: 6 records, 1 to 6\n") || !strings.Contains(out, "1 call not closed") || !strings.Contains(out, "nothing says whether the end was cut") {
		t.Errorf("%d, %s", code, out)
	}
	path := filepath.Join(b.dirs.Audit(), "gateway-000001.jsonl")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(whole, []byte("\n"))
	hash := audit.Hash(bytes.TrimSpace(lines[5]))
	if err := os.MkdirAll(filepath.Dir(b.dirs.Log("x")), 0o700); err != nil {
		t.Fatal(err)
	}
	told := fmt.Sprintf("time=2026 level=INFO msg=other\ntime=2026-05-01T12:00:00Z level=INFO msg=audit chain=gateway seq=6 hash=%x\n", hash)
	if err := os.WriteFile(b.dirs.Log("pfar-gateway.service"), []byte(told), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, code := b.audited(t, "verify"); code != 0 || !strings.Contains(out, "1 compared with the journal") {
		t.Errorf("%d, %s", code, out)
	}
	for name, test := range map[string]struct {
		content []byte
		want    string
	}{
		"edited": {bytes.Replace(whole, []byte("claude"), []byte("claudf"), 1), path + ":2: edited: "},
		"broken": {
			bytes.Replace(whole, []byte("claude"), []byte("claudf"), 1),
			"6 records, 1 to 6, 1 compared with the journal, breaks at record 2",
		},
		"cut":     {bytes.Join(lines[:4], nil), path + ":4: cut: it ends with record 4, and record 6"},
		"emptied": {nil, "cut: it ends with record 0"},
		"deleted": {bytes.Join(append(append([][]byte{}, lines[:2]...), lines[3:]...), nil), path + ":3: deleted: records 3 to 3 are missing"},
	} {
		if err := os.WriteFile(path, test.content, 0o600); err != nil {
			t.Fatal(err)
		}
		if out, code := b.audited(t, "verify"); code != exitFailed || !strings.Contains(out, test.want) || !strings.Contains(out, "BROKEN  gateway") || !strings.Contains(out, "whole   pfard") {
			t.Errorf("%s: %d, %s", name, code, out)
		}
	}
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	b.cutOfPfard(t)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if out, code := b.audited(t, "verify", "--json"); code != exitFailed || !strings.Contains(out, `"what": "cut"`) {
		t.Errorf("the file is gone: %d, %s", code, out)
	}
	if err := os.RemoveAll(b.dirs.Audit()); err != nil {
		t.Fatal(err)
	}
	if out, code := b.audited(t, "verify"); code != exitFailed || !strings.Contains(out, "BROKEN  gateway") || !strings.Contains(out, "cut: it ends with record 0, and record 6 has been told") {
		t.Errorf("all of it is gone: %d, %s", code, out)
	}
	if err := os.Remove(b.dirs.Log("pfar-gateway.service")); err != nil {
		t.Fatal(err)
	}
	if out, code := b.audited(t, "verify"); code != exitNoSuch || !strings.Contains(out, "nothing has been recorded yet") {
		t.Errorf("there never was any: %d, %s", code, out)
	}
}

// cutOfPfard cuts the end of pfard's own chain, which a log of its own tells of, and puts it back.
func (b *bench) cutOfPfard(t *testing.T) {
	t.Helper()
	path := filepath.Join(b.dirs.Audit(), "pfard-000001.jsonl")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(whole, []byte("\n"))
	told := fmt.Sprintf("time=2026-05-01T12:00:00Z level=INFO msg=audit chain=pfard seq=4 hash=%x\n", audit.Hash(bytes.TrimSpace(lines[3])))
	for _, log := range []string{"", ".1"} { // the one before it counts as well
		at := b.dirs.Log("pfard.service") + log
		if err := os.WriteFile(at, []byte(told), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, code := b.audited(t, "verify"); code != 0 || !strings.Contains(out, "whole   pfard: 4 records, 1 to 4, 1 compared with the journal") {
			t.Errorf("whole: %d, %s", code, out)
		}
		if err := os.WriteFile(path, bytes.Join(lines[:3], nil), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, code := b.audited(t, "verify"); code != exitFailed || !strings.Contains(out, path+":3: cut: it ends with record 3, and record 4") || !strings.Contains(out, "whole   gateway") {
			t.Errorf("cut: %d, %s", code, out)
		}
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(at); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDoctorLooksAtTheAudit: files that can be changed are told of where pfard could have seen to it.
func TestDoctorLooksAtTheAudit(t *testing.T) {
	b := recorded(t)
	systemd := fstest.MapFS{"run/systemd/system": {Mode: fs.ModeDir}}
	for name, test := range map[string]struct {
		host host
		dir  string
		want outcome
		says string
	}{
		"a user's":        {host{uid: 1000, fs: systemd}, b.dirs.Audit(), pass, "can change it"},
		"without systemd": {host{uid: 0, fs: fstest.MapFS{}}, b.dirs.Audit(), pass, "can change it"},
		"changeable":      {host{uid: 0, fs: systemd, records: newestRecords, sealed: trail.Sealed}, b.dirs.Audit(), warn, "is not append-only"},
		"none":            {host{uid: 0, fs: systemd, records: newestRecords}, t.TempDir(), none, "none yet"},
	} {
		if f := test.host.auditFiles(test.dir); f.Outcome != test.want || !strings.Contains(f.Detail, test.says) || f.Outcome == warn && f.Remedy == "" {
			t.Errorf("%s: %+v", name, f)
		}
	}
}
