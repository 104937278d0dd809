package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/plan"
)

// fill has the kernel take no more of the audit, as a full disk does (setrlimit(2), RLIMIT_FSIZE), until the returned
// function is called. Files that are smaller, as all others of a test are, can still be written.
func (a *auditor) fill(t *testing.T) (empty func()) {
	t.Helper()
	const larger = 4 << 20 // than any of them
	filler := audit.Record{Kind: audit.Open, Arguments: &audit.Arguments{Text: strings.Repeat("x", 16<<10)}}
	size := int64(0)
	for size < larger {
		if err := a.append(filler); err != nil {
			t.Fatal(err)
		}
		paths, err := a.dir.Files(ownChain)
		if err != nil || len(paths) != 1 {
			t.Fatalf("files %q, %v", paths, err)
		}
		info, err := os.Stat(paths[0])
		if err != nil {
			t.Fatal(err)
		}
		size = info.Size()
	}
	signal.Ignore(unix.SIGXFSZ)
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	set := func(limit unix.Rlimit) {
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
			t.Fatal(err)
		}
	}
	set(unix.Rlimit{Cur: uint64(size), Max: before.Max})
	t.Cleanup(func() { set(before) })
	if a.append(filler) == nil {
		t.Fatal("the disk is not full")
	}
	return func() { set(before) }
}

// TestNothingLooserWithoutRecord: a policy and clients that cannot be recorded are not in force, what was before is,
// and the status says why; what takes something from somebody counts at once. As soon as there is room, all is recorded
// and in force.
func TestNothingLooserWithoutRecord(t *testing.T) {
	base := t.TempDir()
	dirs := control.Dirs{Config: filepath.Join(base, "mcp.d"), State: filepath.Join(base, "state"), Run: base}
	start := func() *daemon {
		d := newDaemon(options{dirs: dirs, declarations: dirs.Config}, slog.New(slog.DiscardHandler), vaultIn(t, dirs), "")
		d.audit.open(false)
		return d
	}
	for _, dir := range []string{dirs.State, dirs.Config, dirs.Policies(), dirs.Clients()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write := func(path, text string) {
		t.Helper()
		path = filepath.Join(base, path)
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if text == "" {
			return
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	client := func(n int, more string) string {
		return fmt.Sprintf("token_sha256 = [\"%064d\"]\n%s", n, more)
	}
	d := start()
	inForce := func() string {
		list, told, _ := d.clientele.now()
		var all []string
		if !told {
			all = append(all, "nobody is told")
		}
		for _, c := range list {
			word := c.Profile
			if !c.Enabled {
				word = "off"
			}
			all = append(all, c.Name+" "+word)
		}
		policy := "none"
		if p := d.policy.inForce(); p != nil {
			policy = fmt.Sprint(len(p.Rules), " rules, ", len(p.Relaxed), " relaxed")
		}
		return policy + "; " + strings.Join(all, ", ")
	}
	expect := func(when, want string, notes ...string) {
		t.Helper()
		d.reload()
		if got := inForce(); got != want {
			t.Errorf("%s, in force: %s, want %s", when, got, want)
		}
		said := strings.Join(d.report().Notes, "\n")
		for _, n := range notes {
			if !strings.Contains(said, n) {
				t.Errorf("%s, the status does not say %q: %s", when, n, said)
			}
		}
		if len(notes) == 0 && said != "" {
			t.Errorf("%s, the status says %s", when, said)
		}
	}
	const denying, relaxed = "deny \"mail\" {\n  reason = \"We send none.\"\n}\n", "profile \"strict\" {\n  inspect = \"inspect\"\n  relax = \"We look.\"\n}\n"
	write("policies.d/a.hcl", denying)
	write("clients.d/desk.hcl", client(1, ""))
	write("clients.d/lab.hcl", client(2, ""))
	write("clients.d/default.hcl", "enabled = false\n")
	expect("with room", "1 rules, 0 relaxed; default off, desk strict, lab strict")

	empty := d.audit.fill(t)
	write("policies.d/a.hcl", "") // which allows more, and is no relaxation by its file
	write("policies.d/b.hcl", relaxed)
	write("clients.d/default.hcl", "") // the built-in one is less strict
	write("clients.d/desk.hcl", client(1, "profile = \"operator\"\nrelax = \"A trial.\"\n"))
	write("clients.d/lab.hcl", "") // somebody has seen its token
	write("clients.d/new.hcl", client(3, ""))
	write("clients.d/off.hcl", client(4, "enabled = false\n"))
	for range 2 {
		expect("on a full disk", "1 rules, 0 relaxed; default off, desk strict, off off",
			"writing the audit: file too large; until it can be, no secret", "are in force as they were, until the change can be recorded: writing the audit: file too large", "may do no more than before, until the change can be recorded")
	}
	if err := d.audit.own.End(); err != nil {
		t.Fatal(err)
	}
	d = start() // which does not know who was let in
	if err := d.audit.append(audit.Record{Kind: audit.Lifecycle}); err == nil {
		t.Fatal("the next pfard has room")
	}
	expect("with the next pfard", "none; nobody is told", "are not in force until that can be recorded, and no call is allowed: ", "are not let in until they can be recorded")

	empty()
	d.audit.probe()
	if f := <-d.work; f == nil {
		t.Fatal("nobody tries again")
	} else {
		f()
	}
	expect("with room again", "0 rules, 1 relaxed; desk operator, new strict, off off")
	list := d.audit.recorded(t, ownChain)
	got := words(list, audit.Policy)
	for _, want := range []string{"relax  " + filepath.Join(base, "policies.d/b.hcl"), "relaxed: profile operator", "relaxed 1"} {
		if strings.Count(got, want) != 1 {
			t.Errorf("recorded are\n%s\nwant once %q", got, want)
		}
	}
	if n := strings.Count(words(list, audit.Resumed), "\n"); n > 1 || !strings.Contains(fmt.Sprint(list), "file too large") {
		t.Errorf("that nothing could be recorded: %s", words(list, audit.Resumed))
	}
}

// TestStatesAreRecordedLater: what servers have turned into on a full disk is recorded when there is room, from what
// was recorded before to what is.
func TestStatesAreRecordedLater(t *testing.T) {
	d, _, changed := fixture(t)
	d.put(t, "a.hcl", fmt.Sprintf(good, "one"))
	changed <- struct{}{}
	d.state(t)
	empty := d.audit.fill(t)
	d.put(t, "a.hcl", fmt.Sprintf(good, "two"))
	d.put(t, "b.hcl", fmt.Sprintf(good, "one"))
	changed <- struct{}{}
	d.state(t)
	d.put(t, "a.hcl", fmt.Sprintf(good, "three"))
	changed <- struct{}{}
	d.state(t)
	before := d.audit.recorded(t, ownChain)
	empty()
	d.audit.probe()
	d.await(t, func() error {
		got := words(d.audit.recorded(t, ownChain)[len(before):], audit.Declaration)
		if strings.Count(got, "\n") != 1 || !strings.Contains(got, " b "+d.options.declarations) || !strings.Contains(got, " a "+d.options.declarations) {
			return fmt.Errorf("declarations: %s", got)
		}
		if states := words(d.audit.recorded(t, ownChain)[len(before):], audit.Lifecycle); !strings.Contains(states, " b    >star") {
			return fmt.Errorf("states: %s", states)
		}
		return nil
	})
}

// await waits until what a daemon does by itself has come about.
func (d *daemon) await(t *testing.T, about func() error) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		d.state(t)
		err := about()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
}

// TestNoSecretWithoutRecord: no process is given a secret that it cannot be recorded of; a server waits, the status
// says for what, and it starts as soon as there is room. What runs goes on.
func TestNoSecretWithoutRecord(t *testing.T) {
	d, m, changed := fixture(t)
	for _, key := range []string{"tok", "other"} {
		if _, err := askVault(t, d, control.Request{Verb: control.Store, Key: key, Secret: "hunter2-hunter2-" + key}); err != nil {
			t.Fatal(err)
		}
	}
	d.put(t, "runs.hcl", fmt.Sprintf(good, "one")+"auth = { TOKEN = \"vault:tok\" }\n")
	changed <- struct{}{}
	d.state(t)
	if m.count("runs") != 1 {
		t.Fatal("it does not run")
	}
	d.holdTokens(t, time.Now(), time.Hour)
	_, set, _, err := d.vault.Tokens("drive")
	if err != nil {
		t.Fatal(err)
	}
	empty := d.audit.fill(t)
	d.put(t, "late.hcl", fmt.Sprintf(good, "one")+"auth = { TOKEN = \"vault:other\" }\n")
	d.put(t, "plain.hcl", fmt.Sprintf(good, "one"))
	changed <- struct{}{}
	for range 2 {
		s := d.state(t)
		if late := s["late"]; late.State != control.Waiting || !strings.Contains(late.Detail, "cannot be recorded: writing the audit: file too large") || m.count("late") != 0 {
			t.Errorf("it is %s: %s; starts %v", late.State, late.Detail, m.starts)
		}
		if m.count("plain") != 1 || m.count("runs") != 1 {
			t.Errorf("starts %v", m.starts)
		}
		changed <- struct{}{}
	}
	if err := d.tokens.users.tokenHanded("tok"); err == nil {
		t.Error("what refreshes is given a token set")
	}
	ours, theirs := pairOf(t)
	if err := serveErrand(ours, refreshing{d.tokens, "drive", set}, "", echoes{}); !errors.As(err,
		new(unrecorded)) {
		t.Errorf("the conversation ends with %v", err)
	}
	ours.Close()
	if got, files, err := theirs.Receive(); err == nil {
		t.Errorf("it was told %+v, %d files", got, len(files))
	}
	before := len(d.audit.recorded(t, ownChain))
	empty()
	d.audit.probe()
	d.await(t, func() error {
		if s := d.state(t)["late"]; s.State != control.Starting || m.count("late") != 1 {
			return fmt.Errorf("it is %s: %s; starts %d", s.State, s.Detail, m.count("late"))
		}
		return nil
	})
	if got := words(d.audit.recorded(t, ownChain)[before:], audit.Vault); !strings.Contains(got, "deliver late other  done") || m.count("runs") != 1 {
		t.Errorf("recorded is %s; starts %v", got, m.starts)
	}
}

// TestNoSecretForAUnitWithoutRecord is the same of a unit, for which systemd asks: its launcher is told for what it
// waits, and it is started again once.
func TestNoSecretForAUnitWithoutRecord(t *testing.T) {
	d, m, changed := fixture(t)
	_ = d.do(func() error { d.fleet.waits = true; return nil })
	if _, err := askVault(t, d, control.Request{Verb: control.Store, Key: "tok", Secret: "hunter2-hunter2"}); err != nil {
		t.Fatal(err)
	}
	empty := d.audit.fill(t)
	d.put(t, "late.hcl", fmt.Sprintf(good, "one")+"auth = { TOKEN = \"vault:tok\" }\n")
	changed <- struct{}{}
	d.state(t)
	plan := func(instance string) (plan.Plan, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.runs[instance], nil
	}
	c := credentials{log: slog.New(slog.DiscardHandler), plan: plan, secrets: d.delivery.secrets, give: d.uses.giveLauncher}
	text, err := c.of("late")
	if err != nil || strings.Contains(string(text), "values") || !strings.Contains(string(text), "cannot be recorded: writing the audit") {
		t.Fatalf("it is given %s, %v", text, err)
	}
	d.fleet.changed(units.Update{Server: "late", State: string(control.Waiting), Detail: "for credentials: what the launcher was told"})
	for range 3 {
		changed <- struct{}{}
		if s := d.state(t)["late"]; s.State != control.Waiting || m.count("late") != 1 {
			t.Errorf("it is %s: %s; starts %d", s.State, s.Detail, m.count("late"))
		}
	}
	empty()
	d.audit.probe()
	d.await(t, func() error {
		if n := m.count("late"); n != 2 {
			return fmt.Errorf("%d starts", n)
		}
		return nil
	})
	if text, err := c.of("late"); err != nil || !strings.Contains(string(text), "values") {
		t.Errorf("it is given %s, %v", text, err)
	}
}

// TestRefusalsAreCountedOnAFullDisk: a refusal that cannot be recorded is one that is left out, and told of when there
// is room.
func TestRefusalsAreCountedOnAFullDisk(t *testing.T) {
	full := true
	var list []audit.Record
	f := &refusals{of: map[string]*refusing{}, record: func(r audit.Record) bool {
		if !full {
			list = append(list, r)
		}
		return !full
	}}
	for i := range 7 {
		f.refused("s", "", refusalOf(fmt.Sprint(i)))
	}
	f.flush(f.of["s_"])
	full = false
	f.flush(f.of["s_"])
	if len(list) != 1 || list[0].Subject != "6" || list[0].Left != 6 {
		t.Errorf("recorded is %+v", list)
	}
	f.refused("s", "", refusalOf("7"))
	if len(list) != 2 || list[1].Left != 0 {
		t.Errorf("recorded is %+v", list)
	}
}

// TestVaultRecord: what an entry of the log says of the vault is in its record, too.
func TestVaultRecord(t *testing.T) {
	entry := slog.NewRecord(time.Now(), slog.LevelInfo, "vault", 0)
	entry.Add("operation", "refresh", "key", "drive", "deliver", "env", "to", "launcher", "server", "one", "uid", 7, "outcome", "done", "error", "none", "expiry", "2026-11-01 12:01:00 UTC")
	want := audit.Record{
		Kind: audit.Vault, Time: entry.Time, Method: "refresh", Subject: "drive", Channel: "env", To: "launcher", Server: "one", User: "uid 7",
		Outcome: "done", Reason: "none", New: "expires 2026-11-01 12:01:00 UTC",
	}
	if got := vaultRecord(entry); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestAnchorsWithoutAJournal: where pfard's own chain is stands in a file of its own, which keeps what stood there, and
// begins anew when it is large.
func TestAnchorsWithoutAJournal(t *testing.T) {
	dirs := control.Dirs{State: t.TempDir()}
	path := dirs.Log(units.AnchorsLog)
	run := func() {
		t.Helper()
		a := newAuditor(dirs, slog.New(slog.DiscardHandler))
		f, err := a.alsoTo(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		a.open(false)
		if err := a.own.End(); err != nil {
			t.Fatal(err)
		}
	}
	run()
	run()
	b, err := os.ReadFile(path)
	if err != nil || strings.Count(string(b), " msg=audit chain=pfard seq=") != 2 {
		t.Errorf("%s, %v", b, err)
	}
	if err := os.WriteFile(path, make([]byte, units.LogSegment), 0o600); err != nil {
		t.Fatal(err)
	}
	run()
	if b, err = os.ReadFile(path); err != nil || strings.Count(string(b), " msg=audit chain=pfard seq=3 ") != 1 || len(b) > 1<<10 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if info, err := os.Stat(path + ".1"); err != nil || info.Size() != units.LogSegment {
		t.Errorf("the one before: %v", err)
	}
}

// TestGatewayAnchorsAreWrittenByPfard: the gateway's user can rewrite the gateway's log, and does not fill this one.
func TestGatewayAnchorsAreWrittenByPfard(t *testing.T) {
	dirs := control.Dirs{State: t.TempDir()}
	path := dirs.Log(units.AnchorsLog)
	a := newAuditor(dirs, slog.New(slog.DiscardHandler))
	a.gatewayAnchor(1, "aa") // nobody to tell: a unit's is in the journal
	f, err := a.alsoTo(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	hash := strings.Repeat("ab", 32)
	for seq := range uint64(1000) {
		a.gatewayAnchor(seq, hash)
	}
	b, err := os.ReadFile(path)
	if n := strings.Count(string(b), "\n"); err != nil || n == 0 || n > 100 || !strings.Contains(string(b), " msg=audit chain=gateway seq=0 hash="+hash+"\n") {
		t.Errorf("%d lines, %v:\n%s", n, err, b)
	}
}
