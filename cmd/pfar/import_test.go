package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pfar/pfar/generator"
	"github.com/pfar/pfar/units/chores"
	"github.com/pfar/pfar/units/control"
)

// keptSecret is one of the vault, as far as a test needs it.
type keptSecret struct {
	value  string
	stored time.Time
}

// keptState is what pfard keeps.
type keptState struct {
	declared map[string]string
	vault    map[string]keptSecret
}

func (k keptState) copy() keptState { return keptState{maps.Clone(k.declared), maps.Clone(k.vault)} }

// String leaves out when secrets were stored.
func (k keptState) String() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(k.declared)) {
		fmt.Fprintf(&b, "server %s: %q\n", name, k.declared[name])
	}
	for _, key := range slices.Sorted(maps.Keys(k.vault)) {
		fmt.Fprintf(&b, "secret %s: %s\n", key, k.vault[key].value)
	}
	return b.String()
}

// keeper is a pfard that keeps declarations and secrets, and nothing else.
type keeper struct {
	mu sync.Mutex
	keptState
	installed map[string]bool
	refuses   map[string]string // declarations that have a text, and why they are refused
	asked     int
	step      func(n int, done bool) error // is called before and after each request
	clock     time.Time
}

func (b *bench) keeper(t *testing.T) *keeper {
	t.Helper()
	k := &keeper{
		keptState: keptState{
			declared: map[string]string{"old": "old\n"},
			vault:    map[string]keptSecret{"other": {"x", time.Unix(1, 0)}},
		},
		installed: map[string]bool{}, clock: time.Now().UTC().Truncate(time.Second),
		step: func(int, bool) error { return nil },
	}
	l := b.listen(t, b.dirs.Control())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { control.Serve(ctx, l, k.serve); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return k
}

func (k *keeper) serve(_ context.Context, _ control.Peer, r control.Request, send func(control.Response) error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked++
	n := k.asked
	if err := k.step(n, false); err != nil {
		return err
	}
	answer, err := k.answer(r)
	if err != nil {
		return err
	}
	if err := k.step(n, true); err != nil {
		return err
	}
	return send(answer)
}

func (k *keeper) answer(r control.Request) (a control.Response, err error) {
	users := func(key string) (list []string) {
		for _, name := range slices.Sorted(maps.Keys(k.declared)) {
			if strings.Contains(k.declared[name], `"vault:`+key+`"`) {
				list = append(list, name)
			}
		}
		return list
	}
	switch r.Verb {
	case control.Status:
		report := control.Report{Directory: "/etc/pfar/mcp.d"}
		for _, name := range slices.Sorted(maps.Keys(k.declared)) {
			report.Servers = append(report.Servers, control.Server{Name: name, File: "/etc/pfar/mcp.d/" + name + ".hcl",
				State: control.Starting})
		}
		a.Status = &report
	case control.Secrets:
		for _, key := range slices.Sorted(maps.Keys(k.vault)) {
			stored := k.vault[key].stored
			a.Secrets = append(a.Secrets, control.Secret{Key: key, Stored: &stored, Servers: users(key)})
		}
	case control.Store:
		had, there := k.vault[r.Key]
		if there && had.value != r.Secret {
			return a, control.ErrExists
		}
		result := "equal"
		if !there {
			result = "new"
			k.clock = k.clock.Add(time.Second)
			if now := time.Now().UTC().Truncate(time.Second); now.After(k.clock) {
				k.clock = now
			}
			k.vault[r.Key] = keptSecret{r.Secret, k.clock}
		}
		a.Changes = []control.Change{{Key: r.Key, Result: result}}
	case control.Remove:
		if _, there := k.vault[r.Key]; !there {
			return a, control.ErrNoKey
		}
		delete(k.vault, r.Key)
	case control.Install:
		k.installed[r.Package] = true
		a.Installing = &control.Installing{Package: r.Package, Detail: "installing", Done: true}
	case control.Declare, control.Undeclare:
		a.Declared, err = k.declare(r)
	default:
		err = errors.New("not prepared for that")
	}
	return a, err
}

var packageOf = regexp.MustCompile(`package = "([^"]*)"`)

func (k *keeper) declare(r control.Request) (*control.Declared, error) {
	d := &control.Declared{Server: r.Server, File: "/etc/pfar/mcp.d/" + r.Server + ".hcl"}
	before, there := k.declared[r.Server]
	if r.Verb == control.Undeclare {
		switch {
		case !there:
			return nil, control.ErrNoServer
		case control.DigestOf([]byte(before)) != r.Text.Old:
			return nil, control.ErrChanged
		}
		delete(k.declared, r.Server)
		d.Done = true
		return d, nil
	}
	if there {
		return nil, control.ErrChanged
	}
	text := string(r.Text.New)
	for part, why := range k.refuses {
		if strings.Contains(text, part) {
			d.Diagnostics = append(d.Diagnostics, control.Diagnostic{Severity: "error", Summary: why})
		}
	}
	if m := packageOf.FindStringSubmatch(text); m != nil && !k.installed[m[1]] {
		d.Diagnostics = append(d.Diagnostics, control.Diagnostic{Severity: "error", Summary: generator.NotInstalled})
	}
	if d.Sound() && !r.Text.Dry {
		k.declared[r.Server] = text
		d.Done = true
	}
	return d, nil
}

// clientsFile has three servers that can be imported, and two that cannot.
const clientsFile = `{
  // servers of mine
  "mcpServers": {
    "notion": {
      "command": "npx",
      "args": ["-y", "@notionhq/notion-mcp-server"],
      "env": {"NOTION_TOKEN": "ntn_12345678901FAKEFAKEFAKEFAKEFAKEFAKEFAKEFAKEFAK", "LD_PRELOAD": "x"}
    },
    "My Tool": {
      "command": "/usr/bin/env", "args": ["--count", "2"],
      "env": {"TOOL_TOKEN": "FAKE-tool-token-1", "TOOL_SECRET": "FAKE-tool-secret", "LEVEL": "3"}
    },
    "plain": {"command": "/bin/true", "cwd": "/srv"},
    "linear": {"url": "https://mcp.linear.app/mcp", "headers": {"Authorization": "Bearer FAKE-linear"}},
    "old": {"command": "old"}
  }
}
`

// withFile is a bench whose user has that file, as Cursor has it.
func withFile(t *testing.T, text string) (*bench, string) {
	t.Helper()
	b := newBench(t, "")
	home := filepath.Join(b.dirs.Run, "home")
	file := filepath.Join(home, ".cursor", "mcp.json")
	if err := firstOf(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	b.getenv = variables(b.getenv, map[string]string{"HOME": home})
	b.streams.getenv = b.getenv
	return b, file
}

// said runs a command line, and returns what it printed. No secret may be in that, nor in any file but the client's.
func (b *bench) said(t *testing.T, line string) (string, int) {
	t.Helper()
	n := b.again("")
	code := n.run(t.Context(), strings.Fields(line))
	text := n.out.String() + n.err.String()
	if strings.Contains(text, "FAKE") {
		t.Errorf("%s: a secret is printed: %s", line, text)
	}
	records, _ := filepath.Glob(filepath.Join(importRecords(b.dirs), "*"))
	for _, r := range records {
		if record, err := os.ReadFile(r); err != nil || strings.Contains(string(record), "FAKE") {
			t.Errorf("%s: the record is %s, %v", line, record, err)
		}
	}
	return text, code
}

// TestImport imports, and takes the import back: everything is as it was.
func TestImport(t *testing.T) {
	b, file := withFile(t, clientsFile)
	k := b.keeper(t)
	before := k.String()
	if text, code := b.said(t, "import --from cursor --dry-run"); code != 0 || k.String() != before ||
		!strings.Contains(text, "not imported") || exists(importRecords(b.dirs)) {
		t.Errorf("--dry-run: %d, %s", code, text)
	}
	if text, code := b.said(t, "import --from cursor"); code != exitUsage || k.String() != before {
		t.Errorf("without a terminal: %d, %s", code, text)
	}
	text, code := b.said(t, "import --from cursor --yes")
	if code != 0 || !strings.Contains(text, "pfar client install cursor") ||
		!strings.Contains(text, "pfar learn my-tool --write") {
		t.Errorf("%d, %s", code, text)
	}
	for key, want := range map[string]string{
		"notion_token":       "ntn_12345678901FAKEFAKEFAKEFAKEFAKEFAKEFAKEFAKEFAK",
		"my_tool_tool_token": "FAKE-tool-token-1", "my_tool_tool_secret": "FAKE-tool-secret", "other": "x",
		"linear_token": "FAKE-linear",
	} {
		if k.vault[key].value != want {
			t.Errorf("the vault has %q under %s", k.vault[key].value, key)
		}
	}
	if len(k.vault) != 5 || len(k.declared) != 5 || !k.installed["npm:@notionhq/notion-mcp-server@2.5.2"] {
		t.Errorf("%s, installed %v", k, k.installed)
	}
	if again, code := b.said(t, "import --from cursor --yes"); code != exitFailed ||
		!strings.Contains(again, "nothing to import") {
		t.Errorf("a second time: %d, %s", code, again)
	}
	if text, code := b.said(t, "import --undo --yes --json"); code != 0 || k.String() != before {
		t.Errorf("--undo: %d, %s; left is\n%s", code, text, k)
	}
	if text, code := b.said(t, "import --undo --yes"); code != exitFailed || !strings.Contains(text, "no import to undo") {
		t.Errorf("--undo twice: %d, %s", code, text)
	}
	if now, err := os.ReadFile(file); err != nil || string(now) != clientsFile {
		t.Errorf("the client's file is %s, %v", now, err)
	}
	if text, code := b.said(t, "import --from cursor --yes --json --only plain,My"); code != exitNoSuch {
		t.Errorf("--only: %d, %s", code, text)
	}
	if text, code := b.said(t, "import --from cursor --yes --json --only plain,my-tool"); code != 0 ||
		len(k.declared) != 3 {
		t.Errorf("--only: %d, %s", code, text)
	}
}

// TestImportAsJSON wants the console to find in the JSON of an import all that it shows.
func TestImportAsJSON(t *testing.T) {
	b, file := withFile(t, clientsFile)
	b.keeper(t)
	text, code := b.said(t, "import --from cursor --dry-run --json")
	var got chores.Import
	if err := json.Unmarshal([]byte(text), &got); err != nil || code != 0 {
		t.Fatalf("%d, %v: %s", code, err, text)
	}
	if len(got.Files) != 1 || got.Files[0].File != file || len(got.Wanted()) != 4 {
		t.Fatalf("it reads %+v", got)
	}
	var absent, refused, secrets, notes int
	for _, s := range got.Files[0].Servers {
		if s.Name == "" || s.Line == 0 || (s.Refused == "") != (s.Declaration != "") || s.Declared+s.Failed != "" {
			t.Errorf("a server is %+v", s)
		}
		secrets, notes = secrets+len(s.Secrets), notes+len(s.Notes)
		if s.Absent && s.Package != "" {
			absent++
		}
		if s.Refused != "" {
			refused++
		}
		for _, secret := range s.Secrets {
			if secret.Key == "" || secret.Variable == "" {
				t.Errorf("a secret is %+v", secret)
			}
		}
	}
	if absent == 0 || refused == 0 || secrets < 4 || notes == 0 {
		t.Errorf("%d packages, %d refused, %d secrets, %d notes: %s", absent, refused, secrets, notes, text)
	}
	text, _ = b.said(t, "import --from cursor --yes --json")
	if err := json.Unmarshal([]byte(text), &got); err != nil || got.Wanted()[0].Declared == "" {
		t.Errorf("once it is done: %v, %s", err, text)
	}
}

// copyRecords has the records of imports, by name.
func copyRecords(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all[f] = string(text)
	}
	return all
}

// TestImportKilled kills the import before and after each thing that pfard is asked, and wants each server to be
// imported or not, and undo to bring back what was there before.
func TestImportKilled(t *testing.T) {
	step := 1
	if testing.Short() {
		step = 4
	}
	for n := 1; !t.Failed() && killedAt(t, n, false); n += step {
		killedAt(t, n, true)
	}
}

// killedAt reports whether an import asks pfard n times.
func killedAt(t *testing.T, n int, after bool) bool {
	b, _ := withFile(t, clientsFile)
	k := b.keeper(t)
	dir, before := importRecords(b.dirs), k.String()
	var state keptState
	var records map[string]string
	k.step = func(at int, done bool) error {
		if at == n && done == after { // what happens from here on did not happen
			state, records = k.copy(), copyRecords(t, dir)
		}
		return nil
	}
	if text, code := b.said(t, "import --from cursor --yes"); code != 0 {
		t.Errorf("%d, %s", code, text)
	}
	whole := k.String()
	k.step = func(int, bool) error { return nil }
	if records == nil {
		return false
	}
	back := func() {
		k.keptState = state.copy()
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		for path, text := range records {
			if err := firstOf(os.MkdirAll(dir, 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
	}
	back()
	for _, name := range []string{"notion", "my-tool"} {
		key := map[string]string{"notion": "notion_token", "my-tool": "my_tool_tool_secret"}[name]
		if _, stored := k.vault[key]; k.declared[name] != "" && !stored {
			t.Errorf("killed at %d: %s is declared without its secret", n, name)
		}
	}
	if text, code := b.said(t, "import --undo --yes"); k.String() != before ||
		code != 0 && !strings.Contains(text, "no import") {
		t.Errorf("killed at %d, after %t: undo leaves\n%s%s", n, after, k, text)
	}
	back()
	if text, _ := b.said(t, "import --from cursor --yes"); k.String() != whole {
		t.Errorf("killed at %d, after %t: a second import leaves\n%s%s", n, after, k, text)
	}
	for range 2 {
		b.said(t, "import --undo --yes")
	}
	if k.String() != before {
		t.Errorf("killed at %d, after %t: a second import and undo leave\n%s", n, after, k)
	}
	return true
}

// TestImportFails has pfard refuse one thing after the other, as on a full disk, and wants each server whole or not at
// all, an exit code that says so, and undo to bring back what was there before.
func TestImportFails(t *testing.T) {
	step := 1
	if testing.Short() {
		step = 3
	}
	for n := 1; !t.Failed(); n += step {
		b, _ := withFile(t, clientsFile)
		k := b.keeper(t)
		before, failed := k.String(), false
		k.step = func(at int, done bool) error {
			if at == n && !done {
				failed = true
				return errors.New("no space left on device")
			}
			return nil
		}
		text, code := b.said(t, "import --from cursor --yes")
		if !failed {
			return
		}
		if code == 0 && len(k.declared) != 5 || code != 0 && !strings.Contains(text, "no space") {
			t.Errorf("%d: exit %d: %s", n, code, text)
		}
		for name, keys := range map[string][]string{
			"notion": {"notion_token"}, "my-tool": {"my_tool_tool_token", "my_tool_tool_secret"},
		} {
			for _, key := range keys {
				if _, stored := k.vault[key]; stored != (k.declared[name] != "") {
					t.Errorf("%d: %s is declared: %t, %s is stored: %t\n%s", n, name, k.declared[name] != "", key, stored, text)
				}
			}
		}
		b.said(t, "import --undo --yes")
		if k.String() != before {
			t.Errorf("%d: undo leaves\n%s", n, k)
		}
	}
}

// TestImportUnrecorded: what cannot be written down is not done.
func TestImportUnrecorded(t *testing.T) {
	b, _ := withFile(t, clientsFile)
	k := b.keeper(t)
	before := k.String()
	if err := firstOf(os.MkdirAll(b.dirs.State, 0o700), os.WriteFile(importRecords(b.dirs), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if text, code := b.said(t, "import --from cursor --yes"); code != exitFailed || k.String() != before ||
		!strings.Contains(text, "nothing was changed") {
		t.Errorf("%d, %s\n%s", code, text, k)
	}
	if err := os.Remove(importRecords(b.dirs)); err != nil {
		t.Fatal(err)
	}
	lost := false
	k.step = func(_ int, done bool) error {
		if len(k.declared) == 2 && done && !lost { // the first is imported; its record cannot be written
			lost = true
			return firstOf(os.Rename(importRecords(b.dirs), importRecords(b.dirs)+"-away"),
				os.WriteFile(importRecords(b.dirs), nil, 0o600))
		}
		return nil
	}
	text, code := b.said(t, "import --from cursor --yes")
	if code != exitFailed || len(k.declared) != 2 || !strings.Contains(text, "not begun") {
		t.Errorf("%d, %s\n%s", code, text, k)
	}
	if err := firstOf(os.Remove(importRecords(b.dirs)),
		os.Rename(importRecords(b.dirs)+"-away", importRecords(b.dirs))); err != nil {
		t.Fatal(err)
	}
	if text, code := b.said(t, "import --undo --yes"); code != 0 || k.String() != before {
		t.Errorf("undo: %d, %s\n%s", code, text, k)
	}
}

// TestImportRecordBounded: undo reads no record beyond its bound, and waits for no FIFO.
func TestImportRecordBounded(t *testing.T) {
	b, _ := withFile(t, clientsFile)
	record := filepath.Join(importRecords(b.dirs), "20260101T000000.000000000Z-AAAAAA.json")
	if err := os.MkdirAll(filepath.Dir(record), 0o700); err != nil {
		t.Fatal(err)
	}
	for want, put := range map[string]func() error{
		"the record has more than 4194304 bytes": func() error {
			return firstOf(os.WriteFile(record, []byte(`{"version": 1}`), 0o600), os.Truncate(record, 1<<40))
		},
		"not a regular file": func() error { return syscall.Mkfifo(record, 0o600) },
	} {
		if err := put(); err != nil {
			t.Fatal(err)
		}
		n := b.again("")
		if code := n.run(t.Context(), []string{"import", "--undo", "--yes"}); code != exitFailed ||
			!strings.Contains(n.err.String(), want) {
			t.Errorf("%s: %d, %s", want, code, n.err)
		}
		if err := os.Remove(record); err != nil {
			t.Fatal(err)
		}
	}
}

// TestImportKeeps: an import replaces no secret, and undo takes nothing that has become another one since, or that
// something else uses.
func TestImportKeeps(t *testing.T) {
	b, _ := withFile(t, clientsFile)
	k := b.keeper(t)
	k.vault["my_tool_tool_secret"] = keptSecret{"mine", time.Unix(1, 0)}
	k.vault["notion_token"] = keptSecret{"ntn_12345678901FAKEFAKEFAKEFAKEFAKEFAKEFAKEFAKEFAK", time.Unix(1, 0)}
	k.refuses = map[string]string{`"/bin/true"`: "Refused command"}
	text, code := b.said(t, "import --from cursor --yes")
	if code != exitFailed || k.vault["my_tool_tool_secret"].value != "mine" || k.declared["my-tool"] != "" ||
		k.vault["my_tool_tool_token"].value != "" || k.declared["notion"] == "" || k.declared["plain"] != "" {
		t.Errorf("%d, %s\n%s", code, text, k)
	}
	if !strings.Contains(text, "pfar vault rotate my_tool_tool_secret") || !strings.Contains(text, "Refused command") {
		t.Errorf("said is %s", text)
	}
	if b.said(t, "import --undo --yes"); k.vault["notion_token"].value == "" || len(k.declared) != 1 {
		t.Errorf("undo leaves\n%s", k)
	}
	delete(k.vault, "my_tool_tool_secret")
	delete(k.vault, "notion_token")
	b.said(t, "import --from cursor --yes")
	k.declared["notion"] += "# mine\n"
	k.declared["third"] = `"vault:my_tool_tool_token"`
	k.vault["my_tool_tool_secret"] = keptSecret{"rotated", time.Now().Add(time.Hour)}
	text, code = b.said(t, "import --undo --yes")
	want := []string{"my_tool_tool_secret", "my_tool_tool_token", "notion_token", "other"}
	if got := slices.Sorted(maps.Keys(k.vault)); code != 0 || !slices.Equal(got, want) ||
		k.declared["notion"] == "" || k.declared["my-tool"] != "" {
		t.Errorf("%d, %s\n%s", code, text, k)
	}
}

// TestImportRaces has another import be first with the same declaration: it is not taken back.
func TestImportRaces(t *testing.T) {
	b, _ := withFile(t, clientsFile)
	k := b.keeper(t)
	k.step = func(int, bool) error {
		_, stored := k.vault["my_tool_tool_token"]
		if stored && k.declared["my-tool"] == "" {
			k.declared["my-tool"] = "another's, at the same time"
		}
		return nil
	}
	text, code := b.said(t, "import --from cursor --yes --only my-tool,plain")
	if code != exitFailed || k.declared["my-tool"] == "" || k.declared["plain"] == "" || len(k.vault) != 1 {
		t.Errorf("%d, %s\n%s", code, text, k)
	}
	k.step = func(int, bool) error { return nil }
	b.said(t, "import --undo --yes")
	records := copyRecords(t, importRecords(b.dirs))
	if k.declared["my-tool"] == "" || len(k.declared) != 2 || len(records) != 0 {
		t.Errorf("undo leaves\n%s%v", k, records)
	}
}

// TestImportReads refuses files that root could be led to, and that are none.
func TestImportReads(t *testing.T) {
	for name, lay := range map[string]func(file string) error{
		"a link out of the home": func(file string) error {
			other := filepath.Join(filepath.Dir(filepath.Dir(filepath.Dir(file))), "other.json")
			return firstOf(os.Remove(file), os.WriteFile(other, []byte(clientsFile), 0o600), os.Symlink(other, file))
		},
		"a hard link": func(file string) error { return os.Link(file, file+"2") },
		"writable":    func(file string) error { return os.Chmod(file, 0o666) },
		"a folder":    func(file string) error { return firstOf(os.Remove(file), os.Mkdir(file, 0o700)) },
		"none":        func(file string) error { return os.Remove(file) },
		"huge": func(file string) error {
			return os.WriteFile(file, []byte(strings.Repeat(" ", 17<<20)), 0o600)
		},
		"broken": func(file string) error { return os.WriteFile(file, []byte("{\n\"FAKE"), 0o600) },
	} {
		b, file := withFile(t, clientsFile)
		k := b.keeper(t)
		if err := lay(file); err != nil {
			t.Fatal(err)
		}
		if text, code := b.said(t, "import --from cursor --yes"); code == 0 || len(k.declared) != 1 {
			t.Errorf("%s: %d, %s", name, code, text)
		}
	}
	b, file := withFile(t, clientsFile)
	b.keeper(t)
	for line, want := range map[string]int{
		"import": exitUsage, "import --from cursor " + file: exitUsage, "import --from nobody": exitUsage,
		"import --undo x": exitUsage, "import /dev/zero --yes": exitFailed, "import /nowhere --yes": exitFailed,
		"import " + filepath.Dir(file) + " --yes":               exitFailed,
		"import --from cursor --user nobody-is-called-so --yes": exitNoSuch,
	} {
		if text, code := b.said(t, line); code != want {
			t.Errorf("%s: %d, %s", line, code, text)
		}
	}
}

// TestImportScreen compares what a person sees at 80 and at 120 columns with goldens.
func TestImportScreen(t *testing.T) {
	for _, columns := range []int{80, 120} {
		b, _ := withFile(t, clientsFile)
		b.keeper(t)
		screen, program := newScreen(t, columns, 90)
		n := b.again("")
		n.stdin, n.stdout, n.stderr = program, program, program
		n.getenv = variables(b.getenv, map[string]string{"NO_COLOR": "1"})
		n.streams.getenv = n.getenv
		done := make(chan int, 1)
		go func() { done <- n.run(t.Context(), []string{"import", "--from", "cursor"}) }()
		screen.await(t, "[y/N]")
		fmt.Fprintln(screen.terminal, "y")
		if code := <-done; code != 0 {
			t.Errorf("exit %d", code)
		}
		fmt.Fprint(program, "end")
		screen.await(t, "end")
		_, drawn, _ := screen.state()
		got := strings.ReplaceAll(strings.ReplaceAll(drawn, "\r", ""), b.dirs.Run, "/tmp")
		golden := filepath.Join("testdata", "import", fmt.Sprintf("screen-%d.txt", columns))
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil || got != string(want) {
			t.Errorf("%v; the screen is\n%s", err, got)
		}
		for line := range strings.Lines(got) {
			if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > columns && !strings.HasPrefix(line, "+ ") {
				t.Errorf("%d columns: %s", n, line)
			}
		}
	}
}

// TestImportSignsIn: the next step for a server whose vendor wants people to sign in is the login, and for one that
// nobody knows the note says what to write.
func TestImportSignsIn(t *testing.T) {
	b, _ := withFile(t, `{"mcpServers":{"notion":{"url":"https://mcp.notion.com/mcp"},
		"notes":{"url":"https://mcp.notes.example/v1"}}}`)
	k := b.keeper(t)
	before := len(k.vault)
	text, code := b.said(t, "import --from cursor --yes")
	said := strings.Join(strings.Fields(text), " ")
	if code != 0 || len(k.vault) != before || !strings.Contains(said, "hint: pfar login notion: the server waits") ||
		!strings.Contains(said, `write auth = { token = "vault:notes_token" } with pfar edit notes`) ||
		strings.Contains(said, "pfar vault set") {
		t.Errorf("%d, %s, the vault has %d", code, text, len(k.vault))
	}
	if !strings.Contains(k.String(), `auth = { token = \"vault:notion_remote_token\" }`) {
		t.Errorf("declared is %s", k)
	}
}
