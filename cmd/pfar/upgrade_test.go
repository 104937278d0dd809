package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/drift"
	"github.com/pfar/pfar/units/control"
)

const oldPackage, nextPackage = "npm:@a/mcp-x@1.0.0", "npm:@a/mcp-x@2.0.0"

// upgrades is a bench with a server whose package has versions.
type upgradeBench struct {
	t    *testing.T
	p    *fakePfard
	b    *bench
	file string
	edit editRun
	text string

	mu        sync.Mutex
	installed []string
	sent      []control.Text // that were to be written
	refuses   error          // to install
	unsound   bool           // the next text
	last      *control.Upgrade
	offers    map[string]string // by version: what is found, "" if it cannot be listed
}

func upgrading(t *testing.T) *upgradeBench {
	t.Helper()
	u := &upgradeBench{t: t, text: "# npm:@a/mcp-x@1.0.0\npackage = \"" + oldPackage + "\"\n"}
	u.b, u.p, u.file, u.edit = editing(t)
	u.put(u.text)
	u.p.answer = func(_ *fakePfard, q control.Request) error {
		u.mu.Lock()
		defer u.mu.Unlock()
		if q.Verb != control.Install || q.Package == "npm:@a/mcp-x" {
			return nil
		}
		u.installed = append(u.installed, q.Package)
		return u.refuses
	}
	u.p.installing = func(q control.Request) control.Installing {
		if q.Package == "npm:@a/mcp-x" { // which version is the newest?
			return control.Installing{Package: q.Package + "@7.0.0"}
		}
		return control.Installing{Package: q.Package, Done: true}
	}
	u.p.lists = func(q control.Request) control.Listing {
		for version, found := range u.offers {
			if strings.Contains(string(q.Text.New), `"npm:@a/mcp-x@`+version) && found != "" {
				return control.Listing{Found: []byte(found)}
			}
		}
		return control.Listing{Failed: "it ended", Refused: "refused x.example:443"}
	}
	u.p.declares = func(r control.Request) (*control.Declared, error) {
		u.mu.Lock()
		defer u.mu.Unlock()
		if r.Text.Dry {
			return &control.Declared{Upgraded: u.last}, nil
		}
		u.sent = append(u.sent, *r.Text)
		u.p.set(func(r *control.Report) {
			r.Servers[0].State, r.Servers[0].Since = control.Running, r.Servers[0].Since.Add(time.Second)
		})
		return &control.Declared{Server: "notion", File: u.file, Done: !u.unsound}, nil
	}
	return u
}

func (u *upgradeBench) put(text string) {
	u.t.Helper()
	if err := os.WriteFile(u.file, []byte(text), 0o644); err != nil {
		u.t.Fatal(err)
	}
}

// run is pfar upgrade of the server. It forgets what was done before.
func (u *upgradeBench) run(args ...string) (code int, out, stderr string) {
	u.t.Helper()
	u.installed, u.sent = nil, nil
	code, n := u.edit("", append([]string{"upgrade"}, args...)...)
	return code, n.out.String(), n.err.String()
}

// TestUpgrade: pfar installs first, and writes only the version into the text that it has seen. What fails changes
// nothing.
func TestUpgrade(t *testing.T) {
	u := upgrading(t)
	code, out, stderr := u.run("notion", "2.0.0", "--yes")
	if code != exitOK || !strings.Contains(out, "notion: "+nextPackage+", running") {
		t.Errorf("exit %d: %s%s", code, out, stderr)
	}
	if !slices.Equal(u.installed, []string{nextPackage}) || len(u.sent) != 1 || u.sent[0].Back ||
		u.sent[0].Old != control.DigestOf([]byte(u.text)) ||
		string(u.sent[0].New) != strings.Replace(u.text, `"`+oldPackage, `"`+nextPackage, 1) {
		t.Errorf("installed %q, sent %+v", u.installed, u.sent)
	}
	u.unsound = true
	if code, _, stderr := u.run("notion", "3.0.0", "--yes"); code != exitFailed ||
		!strings.Contains(stderr, "nothing was changed: it goes on with "+oldPackage) {
		t.Errorf("not sound: %d, %s", code, stderr)
	}
	u.unsound, u.refuses = false, errors.New("404")
	if code, _, stderr := u.run("notion", "9.0.0", "--yes"); code != exitFailed || len(u.sent) > 0 ||
		!strings.Contains(stderr, "nothing was changed: notion goes on with "+oldPackage) {
		t.Errorf("not there: %d, %s", code, stderr)
	}
	u.refuses = nil
	for want, args := range map[string][]string{
		"or --back":            {"notion", "2.0.0", "--back"},
		"not an exact version": {"notion", "latest", "--yes"},
		"has not upgraded":     {"notion", "--back", "--yes"},
		"no such server":       {"ntion", "2.0.0", "--yes"},
		"use --yes to confirm": {"notion", "2.0.0"},
		"name a server":        {"--back"},
	} {
		code, _, stderr := u.run(args...)
		if code == exitOK || !strings.Contains(stderr, want) {
			t.Errorf("%q: %d, %s, want %q", args, code, stderr, want)
		}
		if len(u.installed)+len(u.sent) > 0 {
			t.Errorf("%q: installed %q, sent %+v", args, u.installed, u.sent)
		}
	}
	if code, out, stderr := u.run("notion", "1.0.0"); code != exitOK || len(u.installed)+len(u.sent) > 0 ||
		!strings.HasPrefix(out, "notion: "+oldPackage+", running") {
		t.Errorf("to the same: %d, %s%s, installed %q, sent %+v", code, out, stderr, u.installed, u.sent)
	}
	if code, _, stderr := u.run("notion", "--yes"); code != exitOK || len(u.sent) != 1 ||
		!strings.Contains(string(u.sent[0].New), `"npm:@a/mcp-x@7.0.0"`) {
		t.Errorf("newest: %d, %s, %+v", code, stderr, u.sent)
	}
	u.put(u.text + "# \"npm:y@1.0.0\"\n")
	if code, _, stderr := u.run("notion", "2.0.0", "--yes"); code != exitFailed ||
		!strings.Contains(stderr, "the declaration names 2 packages") {
		t.Errorf("two packages: %d, %s", code, stderr)
	}
}

// TestUpgradeBack: back goes to the version before the last upgrade, and stays there.
func TestUpgradeBack(t *testing.T) {
	of := func(from, to string) *control.Upgrade { return &control.Upgrade{From: from, To: to} }
	for name, c := range map[string]struct {
		last *control.Upgrade
		code int
		to   string // "": nothing is written
		says string
	}{
		"never":   {nil, exitFailed, "", "VERSION; 0.9.0 is installed; 1.1.0 is installed"},
		"once":    {of("npm:@a/mcp-x@0.9.0", oldPackage), exitOK, "npm:@a/mcp-x@0.9.0", ""},
		"again":   {of(oldPackage, nextPackage), exitOK, "", "notion is back already; pfar upgrade notion 2.0.0"},
		"by hand": {of("npm:@a/mcp-x@0.1.0", "npm:@a/mcp-x@0.2.0"), exitFailed, "", "has been changed since"},
	} {
		u := upgrading(t)
		for _, version := range []string{"1.0.0", "0.9.0", "1.1.0"} {
			dir := filepath.Join(u.b.dirs.Packages(), "npm/@a/mcp-x", version)
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "record.json"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		u.last = c.last
		u.p.set(func(r *control.Report) { r.Servers[0].State, r.Servers[0].Since = control.Running, time.Now() })
		code, out, stderr := u.run("notion", "--back", "--yes")
		if code != c.code || !strings.Contains(out+stderr, c.says) || (c.to != "") != (len(u.sent) == 1) {
			t.Errorf("%s: %d, %s%s, sent %+v", name, code, out, stderr, u.sent)
		}
		if c.to != "" && (len(u.sent) != 1 || !u.sent[0].Back || !strings.Contains(string(u.sent[0].New), `"`+c.to+`"`)) {
			t.Errorf("%s: sent %+v, want %s", name, u.sent, c.to)
		}
	}
}

// listingOf has tools whose schemas want these arguments.
func listingOf(tools ...string) string {
	var l drift.Listing
	for _, tool := range tools {
		name, argument, _ := strings.Cut(tool, " ")
		quoted, _ := json.Marshal(name) // a string
		raw := fmt.Sprintf(`{"name":%s,"inputSchema":{"type":"object","properties":{%q:{}},"required":[%[2]q]}}`, quoted,
			argument)
		l.Definitions = append(l.Definitions, drift.Definition{Kind: drift.Tool, Name: name, Raw: json.RawMessage(raw)})
	}
	text, err := json.Marshal(l)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// TestUpgradePreview: the changes come before the question, those that break callers first. What cannot be listed is
// said, with the reason, and is no obstacle. A dry run installs, and writes nothing.
func TestUpgradePreview(t *testing.T) {
	u := upgrading(t)
	u.offers = map[string]string{
		"1.0.0": listingOf("gone a", "kept a", "more a"), "2.0.0": listingOf("kept a", "more b", "new\x1b[2J a"),
	}
	code, out, stderr := u.run("notion", "2.0.0", "--dry-run")
	flat := strings.Join(strings.Fields(out), " ")
	if code != exitOK || len(u.sent) > 0 || !slices.Equal(u.installed, []string{nextPackage}) {
		t.Errorf("%d %s, sent %+v, installed %q", code, stderr, u.sent, u.installed)
	}
	at := 0
	for _, words := range []string{
		"gone tool gone", "changed tool more", "held back until you accept it", `new tool new\x1b[2J`, "Nothing was switched",
	} {
		i := strings.Index(flat[at:], words)
		if i < 0 {
			t.Fatalf("%q is not shown, or not in its place: %s", words, out)
		}
		at += i
	}
	if strings.Contains(flat, "tool kept") {
		t.Errorf("what has not changed is shown: %s", out)
	}
	code, out, _ = u.run("notion", "2.0.0", "--yes", "--json")
	var got upgraded
	err := json.Unmarshal([]byte(out), &got)
	if err != nil || code != exitOK || len(got.Changes) != 3 || got.Unlisted != "" {
		t.Errorf("%d %v %s", code, err, out)
	}
	for old, next := range map[string]string{"": listingOf("a a"), listingOf("a a"): "", "{": listingOf("a a")} {
		u.offers = map[string]string{"1.0.0": old, "2.0.0": next}
		code, out, stderr = u.run("notion", "2.0.0", "--yes")
		flat := strings.Join(strings.Fields(out), " ")
		want := "it ended; it has no network meanwhile: refused x.example:443"
		if old == "{" {
			want = "its listing cannot be read: the listing is not one object of definitions"
		}
		if code != exitOK || len(u.sent) != 1 || !strings.Contains(flat, want) || strings.Contains(flat, "CHANGE") {
			t.Errorf("%q to %q: %d %s%s, want %q", old, next, code, out, stderr, want)
		}
	}
	u.offers = map[string]string{"1.0.0": listingOf("a a"), "2.0.0": listingOf("a a")}
	code, out, _ = u.run("notion", "2.0.0", "--dry-run")
	if code != exitOK || !strings.Contains(out, "It offers what it did.") {
		t.Errorf("nothing new: %d %s", code, out)
	}
	if code, out, _ := u.run("notion", "1.0.0", "--dry-run"); code != exitOK || len(u.installed)+len(u.sent) > 0 ||
		!strings.Contains(out, oldPackage+" already") {
		t.Errorf("to the same: %d %s", code, out)
	}
}

// TestUpgradeGives: who agrees to another version agrees that it gets the secrets that the server has, as it was said.
// What was kept from the server before is not given by the way.
func TestUpgradeGives(t *testing.T) {
	u := upgrading(t)
	u.p.secrets = []control.Secret{
		{Key: "notion_token", Servers: []string{"notion"}}, {Key: "other", Servers: []string{"wiki"}},
	}
	const why = "the command was another"
	kept := control.Gift{Server: "notion", Keys: []string{"notion_token"}, Why: []string{why}, Digest: "d"}
	declares := u.p.declares
	u.p.declares = func(r control.Request) (*control.Declared, error) {
		if !r.Text.Dry {
			u.p.gift = kept
		}
		return declares(r)
	}
	given := func() (list []string) {
		u.p.mu.Lock()
		defer u.p.mu.Unlock()
		for _, r := range u.p.requests {
			if r.Verb == control.Give && r.Gift != "" {
				list = append(list, r.Gift)
			}
		}
		u.p.requests = nil
		return list
	}
	code, out, stderr := u.run("notion", "2.0.0", "--yes")
	flat := strings.Join(strings.Fields(out), " ")
	if got := given(); code != exitOK || !slices.Equal(got, []string{"d"}) ||
		!strings.Contains(flat, "secrets notion_token are given to it as well") || strings.Contains(flat, "other") {
		t.Errorf("%d %s%s, given %q", code, out, stderr, got)
	}
	code, out, stderr = u.run("notion", "2.0.0", "--yes")
	if got := given(); code == exitOK || len(got) > 0 || !strings.Contains(stderr, "its secrets are kept from it") {
		t.Errorf("kept before: %d %s%s, given %q", code, out, stderr, got)
	}
	code, out, stderr = u.run("notion", "1.0.0", "--yes") // as after a command that was cut off
	if got := given(); code != exitOK || !slices.Equal(got, []string{"d"}) || !strings.Contains(out, why) {
		t.Errorf("cut off: %d %s%s, given %q", code, out, stderr, got)
	}
}

// TestUpgradeVersions: each server with a package has a line, also where its registry fails.
func TestUpgradeVersions(t *testing.T) {
	u := upgrading(t)
	dir := filepath.Dir(u.file)
	servers := []control.Server{{Name: "notion", File: u.file}}
	for name, text := range map[string]string{
		"current": "package = \"npm:current@1.0.0\"\n", "none": "server {\n  command = \"x\"\n}\n",
		"silent": "package = \"pypi:silent==1.0\"\n", "two": "# \"npm:x@1.0.0\" \"npm:y@1.0.0\"\n",
	} {
		file := filepath.Join(dir, name+".hcl")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		servers = append(servers, control.Server{Name: name, File: file})
	}
	file := filepath.Join(t.TempDir(), "installed.hcl")
	if err := os.WriteFile(file, []byte(u.text), 0o644); err != nil {
		t.Fatal(err)
	}
	servers = append(servers, control.Server{Name: "shipped", File: file})
	u.p.set(func(r *control.Report) { r.Servers = servers })
	u.p.answer = func(_ *fakePfard, q control.Request) error {
		if q.Package == "pypi:silent" {
			return errors.New("the registry is silent")
		}
		return nil
	}
	u.p.installing = func(q control.Request) control.Installing {
		version := map[string]string{"npm:@a/mcp-x": "@7.0.0", "npm:current": "@1.0.0"}[q.Package]
		return control.Installing{Package: q.Package + version}
	}
	code, out, stderr := u.run()
	flat := strings.Join(strings.Fields(out), " ")
	for _, want := range []string{
		"notion npm:@a/mcp-x 1.0.0 7.0.0 pfar upgrade notion", "current npm:current 1.0.0 1.0.0",
		"silent pypi:silent 1.0 ? the registry is silent",
		"two ? the declaration names 2 packages", "shipped npm:@a/mcp-x 1.0.0 7.0.0 pfar edit shipped",
	} {
		if !strings.Contains(flat, want) {
			t.Errorf("%q is not there: %s", want, out)
		}
	}
	if code != exitFailed || strings.Contains(flat, "none") || !strings.Contains(stderr, "not known for") {
		t.Errorf("%d %s%s", code, out, stderr)
	}
	_, out, _ = u.run("--json")
	var list []version
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list) != 5 || len(u.sent)+len(u.installed) > 0 {
		t.Errorf("%v %s", err, out)
	}
}
