package policies

import (
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/hashicorp/hcl/v2"
	"golang.org/x/tools/txtar"

	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/inspector"
)

var update = flag.Bool("update", false, "write the golden files")

const dir = "/etc/pfar/policies.d"

func loadFiles(files map[string]string) Set { return load(Shipped(), folder(files), dir) }

func folder(files map[string]string) fs.FS {
	fsys := fstest.MapFS{}
	for name, text := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return fsys
}

func sound(t *testing.T, text string) *gate.Policy {
	t.Helper()
	s := loadFiles(map[string]string{"local.hcl": text})
	if s.Policy == nil {
		t.Fatal(render(s.Diags))
	}
	return s.Policy
}

func render(diags hcl.Diagnostics) string {
	var b strings.Builder
	for _, d := range diags {
		severity := map[hcl.DiagnosticSeverity]string{hcl.DiagError: "error", hcl.DiagWarning: "warning"}[d.Severity]
		fmt.Fprintf(&b, "%s:%d:%d-%d: %s: %s\n  %s\n", d.Subject.Filename, d.Subject.Start.Line, d.Subject.Start.Column, d.Subject.End.Column, severity, d.Summary, d.Detail)
	}
	return b.String()
}

// TestMistakes has one file for each mistake, and what is said of it.
func TestMistakes(t *testing.T) {
	files, err := filepath.Glob("testdata/bad-*.txtar")
	if err != nil || len(files) < 40 {
		t.Fatalf("only %d golden files: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			in, want, out := map[string]string{}, "", txtar.Archive{Comment: a.Comment}
			for _, f := range a.Files {
				if f.Name == "diagnostics" {
					want = string(f.Data)
					continue
				}
				in[f.Name] = string(f.Data)
				out.Files = append(out.Files, f)
			}
			s := loadFiles(in)
			got := render(s.Diags)
			if (s.Policy == nil) != s.Diags.HasErrors() || got == "" {
				t.Errorf("a policy beside errors, or nothing said of a mistake: %q", got)
			}
			if *update {
				out.Files = append(out.Files, txtar.File{Name: "diagnostics", Data: []byte(got)})
				if err := os.WriteFile(file, txtar.Format(&out), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != want {
				t.Errorf("said:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

// decide is what the policy makes of a tool, in a session.
func decide(p *gate.Policy, profile string, label gate.Label, server, tool string) gate.Decision {
	f := p.Resolve(gate.Offer{Server: gate.Declared{Server: server, Service: server, Kept: true}, Name: tool})
	return p.Decide(gate.Session{Profile: profile, Label: label}, gate.Call{
		Client: "editor", Server: server, Name: tool, Method: "tools/call", Pinned: true, Schema: true, Audit: true, Facts: f,
	})
}

func TestFolderTightens(t *testing.T) {
	p := sound(t, `
deny "no mail" {
  reason  = "We send no mail."
  servers = ["gmail"]
  tools   = ["send_*"]
}
ask "looking" { reason = "Somebody looks.", profiles = ["balanced"], servers = ["notion"] }
profile "strict" {
  row "clean" "fits" { verdicts = ["ask", "ask", "deny"] }
}
service "notion" {
  output    = "regulated raw"
  forbidden = "Nobody uses it."
}
`)
	if len(p.Relaxed) != 0 {
		t.Errorf("relaxed: %+v", p.Relaxed)
	}
	if d := decide(p, "balanced", gate.Start, "gmail", "send_email"); d.Verdict != gate.Deny || d.Rule != dir+"/local.hcl:2: deny no mail" || d.Reason != "We send no mail." {
		t.Errorf("%+v", d)
	}
	if d := decide(p, "strict", gate.Start, "time", "get_current_time"); d.Verdict != gate.Ask || d.Rule != dir+"/local.hcl:9: clean, fits, none" {
		t.Errorf("%+v", d)
	}
	if d := decide(p, "balanced", gate.Start, "time", "get_current_time"); d.Verdict != gate.Allow {
		t.Errorf("another profile: %+v", d)
	}
	d := decide(p, "balanced", gate.Start, "notion", "search")
	if d.Verdict != gate.Deny || len(d.Fired) != 3 || d.Facts.Output != (gate.Label{Confidentiality: gate.Regulated, Integrity: gate.Raw}) || d.Facts.From.Integrity != "policy: "+dir+"/local.hcl:11" {
		t.Errorf("%+v", d)
	}
}

func TestFolderRelaxes(t *testing.T) {
	p := sound(t, `
profile "mine" {
  base    = "strict"
  inspect = "inspect"
  tiers   = ["browser/vision"]
  relax   = "The client is ours."
  row "clean" "fits" {
    verdicts = ["allow", "allow", "inspect"]
    relax    = "Nothing can be lost."
  }
}
declassify "notion" "search" { reason = "The pages are public." }
service "gmail" {
  tool "send_*" { audience = "internal", relax = "The server only mails to us." }
}
server "github" {
  trust { public_source = false }
  relax = "Nobody else may write there."
}
`)
	want := []gate.Relaxation{
		{At: dir + "/local.hcl:4", What: "inspect = \"inspect\" is less strict than strict.hcl:7:1 has it", Reason: "The client is ours."},
		{At: dir + "/local.hcl:5", What: "the profile has the tier browser/vision, which is more than strict.hcl:7:1 has it", Reason: "The client is ours."},
		{At: dir + "/local.hcl:7", What: "the row allows more than strict.hcl:12:3 has it", Reason: "Nothing can be lost."},
		{At: dir + "/local.hcl:12", What: "what comes from notion may go to search", Reason: "The pages are public."},
		{At: dir + "/local.hcl:14", What: "the audience of send_* is internal instead of public, less strict than services/gmail.hcl:3:1 has it", Reason: "The server only mails to us."},
		{At: dir + "/local.hcl:16", What: "the integrity of all that it offers is clean instead of raw, less strict than services/github.hcl:4:1 has it", Reason: "Nobody else may write there."},
	}
	if !reflect.DeepEqual(p.Relaxed, want) {
		for _, r := range p.Relaxed {
			t.Logf("%+v", r)
		}
		t.Errorf("want %+v", want)
	}
	for _, c := range []struct {
		profile, server, tool string
		verdict               gate.Verdict
	}{
		{"mine", "gmail", "send_email", gate.Inspect}, {"strict", "gmail", "send_email", gate.Ask},
		{"mine", "browser", "browser_take_screenshot", gate.Allow}, {"strict", "browser", "browser_take_screenshot", gate.Deny},
		{"mine", "browser", "browser_evaluate", gate.Deny},
	} {
		if d := decide(p, c.profile, gate.Start, c.server, c.tool); d.Verdict != c.verdict {
			t.Errorf("%+v: %+v", c, d)
		}
	}
	if f := p.Resolve(gate.Offer{Server: gate.Declared{Server: "github", Service: "github"}, Name: "get_issue"}); f.Output.Integrity != gate.Clean || f.From.Integrity != "policy: "+dir+"/local.hcl:16" {
		t.Errorf("%+v", f)
	}
}

// TestServiceIsNotLoosenedUnseen has a file that says no less of the servers of their names than what is shipped: of
// another service, or of none, it only tightens without a reason.
func TestServiceIsNotLoosenedUnseen(t *testing.T) {
	for relax, want := range map[string]gate.Integrity{"": gate.Raw, "\n  relax = \"Ours alone.\"": gate.Clean} {
		p := sound(t, "server \"time\" {\n  output = \"secret clean\""+relax+"\n}\n")
		if len(p.Relaxed) > 0 != (relax != "") {
			t.Errorf("relax %q: %+v", relax, p.Relaxed)
		}
		for _, d := range []gate.Declared{{Server: "time", Service: "github"}, {Server: "time", Service: "none"}} {
			f := p.Resolve(gate.Offer{Server: d, Name: "get_issue"})
			if f.Output.Integrity != want || f.Output.Confidentiality != gate.Secret {
				t.Errorf("%+v, relax %q: %+v", d, relax, f)
			}
		}
	}
}

// TestUnknownIsNotLoosened has a file that says of servers that nobody knows what makes them harmless: it gives its
// reason, which is kept.
func TestUnknownIsNotLoosened(t *testing.T) {
	for _, text := range []string{
		"server \"crm\" {\n  output = \"internal clean\"\n%s}\n",
		"server \"crm\" {\n  audience = \"internal\"\n%s}\n",
		"server \"crm\" {\n  trust { dangerous_writes = false }\n%s}\n",
		"server \"crm\" {\n  reads = [\"get_*\"]\n%s}\n",
		"server \"crm\" {\n  tool \"x\" { semantics = \"read\" }\n%s}\n",
		"service \"crm\" {\n  packages = [\"crm-mcp\"]\n  output = \"public raw\"\n%s}\n",
		"service \"filesystem\" {\n  packages = [\"crm-mcp\"]\n%s}\n",
		"service \"filesystem\" {\n  tool \"hash_*\" { effect = \"none\" }\n%s}\n", // which the shipped facts say nothing of
	} {
		without := loadFiles(map[string]string{"local.hcl": fmt.Sprintf(text, "")})
		if said := render(without.Diags); without.Policy != nil || !strings.Contains(said, dir+"/local.hcl:") || !strings.Contains(said, "Loosened without a reason") || !strings.Contains(said, "than an unknown server has it. Write what is as strict, or relax") {
			t.Errorf("%s: %s", text, said)
		}
		with := loadFiles(map[string]string{"local.hcl": fmt.Sprintf(text, "  relax = \"It is ours.\"\n")})
		if with.Policy == nil || len(with.Policy.Relaxed) == 0 || with.Policy.Relaxed[0].Reason != "It is ours." || !strings.Contains(with.Policy.Relaxed[0].What, gate.Unknown) {
			t.Errorf("%s: with a reason %s %+v", text, render(with.Diags), with.Policy)
		}
	}
	sound(t, "server \"crm\" {\n  output = \"regulated raw\"\n  audience = \"public\"\n  effect = \"irreversible\"\n}\nservice \"new\" { packages = [\"new-mcp\"] }\n")
}

func TestFolder(t *testing.T) {
	if s := Load(os.DirFS(filepath.Join(t.TempDir(), "none")), dir); s.Policy == nil || len(s.Diags) > 0 {
		t.Errorf("a directory that is not there: %v", s.Diags)
	}
	at := t.TempDir()
	if err := os.Mkdir(filepath.Join(at, "x.hcl"), 0o700); err != nil {
		t.Fatal(err)
	}
	if s := Load(os.DirFS(at), at); s.Policy != nil || !strings.Contains(render(s.Diags), "not a regular file") {
		t.Errorf("a directory as a file: %s", render(s.Diags))
	}
	if s := loadFiles(map[string]string{"big.hcl": strings.Repeat("#\n", MaxSize)}); s.Policy != nil || !strings.Contains(render(s.Diags), "File too large") {
		t.Errorf("a large file: %s", render(s.Diags))
	}
	if s := loadFiles(map[string]string{"deep.hcl": "a = " + strings.Repeat("[", 1000)}); s.Policy != nil || !strings.Contains(render(s.Diags), "nesting") {
		t.Errorf("a deep file: %s", render(s.Diags))
	}
	if s := loadFiles(map[string]string{".hidden.hcl": "!", "x.hcl~": "!", "README": "!"}); s.Policy == nil {
		t.Errorf("other files are read: %s", render(s.Diags))
	}
}

func TestFingerprint(t *testing.T) {
	seen := map[string]string{}
	for name, files := range map[string]map[string]string{
		"none": nil, "one": {"a.hcl": "x"}, "another": {"a.hcl": "y"}, "name": {"b.hcl": "x"}, "two": {"a.hcl": "x", "b.hcl": ""}, "beside": {"a.hcl": "x", "b": ""},
	} {
		mark := Fingerprint(folder(files))
		if other, twice := seen[mark]; twice || mark == "" || mark != Fingerprint(folder(files)) {
			t.Errorf("%s and %s are alike", name, other)
		}
		seen[mark] = name
	}
	if mark := Fingerprint(os.DirFS(filepath.Join(t.TempDir(), "none"))); mark == "" || seen[mark] != "" {
		t.Error("a directory that is not there is like one that is")
	}
}

// FuzzLoad wants every text to be a policy or a mistake with a place, and what is a policy to be no laxer than what is
// shipped, but for reasons.
func FuzzLoad(f *testing.F) {
	files, _ := filepath.Glob("testdata/bad-*.txtar")
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(a.Files[0].Data)
	}
	for _, name := range Shipped()[:6] {
		b, _ := shipped.ReadFile(name)
		f.Add(b)
	}
	few := []string{"strict.hcl", "balanced.hcl", "services/browser.hcl", "services/gmail.hcl", "services/github.hcl"}
	shipped := load(few, nil, "").Policy
	f.Fuzz(func(t *testing.T, b []byte) {
		s := load(few, folder(map[string]string{"local.hcl": string(b)}), dir)
		for _, d := range s.Diags {
			if d.Subject == nil || d.Subject.Filename != dir+"/local.hcl" || d.Subject.Start.Line < 1 || d.Summary == "" || d.Detail == "" {
				t.Fatalf("%+v", d)
			}
		}
		if (s.Policy == nil) != s.Diags.HasErrors() {
			t.Fatal(render(s.Diags))
		}
		if s.Policy == nil || len(s.Policy.Relaxed) > 0 {
			return
		}
		for name, before := range shipped.Profiles {
			for c := range gate.Cases() {
				was, _ := before.Says(c)
				if now, _ := s.Policy.Profiles[name].Says(c); was.Stricter(now) {
					t.Fatalf("%s has become laxer in %+v", name, c)
				}
			}
		}
		for _, tool := range []string{"send_email", "get_issue", "browser_evaluate", "x"} {
			for _, server := range []string{"gmail", "github", "browser", "unknown"} {
				o := gate.Offer{Server: gate.Declared{Server: server, Service: server, Kept: true}, Name: tool}
				was, now := shipped.Resolve(o), s.Policy.Resolve(o)
				if !was.Output.Below(now.Output) || now.Audience > was.Audience || now.Effect < was.Effect || was.Forbidden+was.Tier != "" && now.Forbidden+now.Tier == "" {
					t.Fatalf("%s %s has become laxer: %+v, was %+v", server, tool, now, was)
				}
			}
		}
	})
}

// TestNotices reads who is told that calls wait. No profile needs to name them, and none of them is an inspector.
func TestNotices(t *testing.T) {
	p := sound(t, `
notice "phone" {
  url     = "https://ntfy.example.com/topic"
  format  = "ntfy"
  key     = "vault:ntfy"
  every   = "30s"
  timeout = "5s"
}
notice "chat" {
  url           = "https://chat.lan/hooks/{key}"
  key           = "vault:chat"
  allow_private = ["10.0.0.0/8"]
}
`)
	for i, want := range []inspector.External{
		{Name: "phone", URL: "https://ntfy.example.com/topic", Key: "vault:ntfy", Timeout: 5 * time.Second,
			Role: inspector.Role{Notice: &inspector.Notice{Format: inspector.Ntfy, Every: 30 * time.Second}}},
		{Name: "chat", URL: "https://chat.lan/hooks/{key}", Key: "vault:chat", AllowPrivate: []string{"10.0.0.0/8"},
			Role: inspector.Role{Notice: &inspector.Notice{}}},
	} {
		want, err := want.Declared()
		if err != nil || len(p.Notices) != 2 || !reflect.DeepEqual(p.Notices[i], want) {
			t.Errorf("%+v, want %+v, %v", p.Notices, want, err)
		}
	}
	if len(p.Inspectors) > 0 || len(p.Relaxed) > 0 || p.Digest == shippedPolicy(t).Digest {
		t.Errorf("%+v, %+v", p.Inspectors, p.Relaxed)
	}
}

// TestInspectors has profiles that need them, and what is made from such ones.
func TestInspectors(t *testing.T) {
	p := sound(t, `
inspector "scan" {
  exec      = ["/usr/local/bin/scan", "-x"]
  read_only = ["/srv/rules"]
  memory    = "64m"
  direction = "results"
  timeout   = "2s"
  parallel  = 2
  chunk     = "8k"
  overlap   = "512"
  size      = "2m"
}
inspector "llm" {
  url           = "https://llm.lan/v1/chat/completions"
  model         = "small"
  key           = "vault:llm"
  allow_private = ["10.0.0.0/8"]
}
profile "strict" { inspectors = ["scan"] }
profile "mine" {
  base       = "strict"
  inspectors = ["scan", "llm"]
}
profile "other" {
  base       = "mine"
  inspectors = ["llm"]
  relax      = "It is slow."
}
profile "same" { base = "mine" }
`)
	want := []inspector.External{
		{Name: "scan", Exec: []string{"/usr/local/bin/scan", "-x"}, ReadOnly: []string{"/srv/rules"}, Memory: 64 << 20, Direction: inspector.Inbound, Timeout: 2 * time.Second, Parallel: 2, Chunk: 8 << 10, Overlap: 512, Size: 2 << 20},
		{Name: "llm", URL: "https://llm.lan/v1/chat/completions", Model: "small", Key: "vault:llm", AllowPrivate: []string{"10.0.0.0/8"}, Timeout: 20 * time.Second, Parallel: 4, Chunk: 12 << 10, Overlap: 1 << 10, Size: 1 << 20},
	}
	if !reflect.DeepEqual(p.Inspectors, want) {
		t.Errorf("%+v", p.Inspectors)
	}
	for profile, want := range map[string][]string{"strict": {"scan"}, "mine": {"llm", "scan"}, "other": {"llm"}, "same": {"llm", "scan"}, "balanced": nil, "none": nil} {
		if got := p.Asks(profile); !slices.Equal(got, want) {
			t.Errorf("%s asks %q, want %q", profile, got, want)
		}
	}
	if len(p.Relaxed) != 1 || p.Relaxed[0].Reason != "It is slow." || p.Relaxed[0].At != dir+"/local.hcl:26" {
		t.Errorf("%+v", p.Relaxed)
	}
	if p.Digest == shippedPolicy(t).Digest {
		t.Error("the digest does not tell it from the shipped one")
	}
	b, err := json.Marshal(p)
	again := new(gate.Policy)
	if err == nil {
		err = again.UnmarshalJSON(b)
	}
	if err != nil || !reflect.DeepEqual(again.Inspectors, want) || (*gate.Policy)(nil).Asks("strict") != nil {
		t.Errorf("%v %+v", err, again)
	}
}

// TestRecord has profiles of which audit keeps what calls carry, and what is made from such ones. It allows nothing
// more.
func TestRecord(t *testing.T) {
	p := sound(t, `
profile "strict" { record = "arguments" }
profile "mine" {
  record = "digests"
  base   = "strict"
}
profile "same" { base = "strict" }
`)
	for profile, want := range map[string]bool{"strict": true, "mine": false, "same": true, "balanced": false, "none": false} {
		if got := p.Keeps(profile); got != want {
			t.Errorf("%s keeps: %t", profile, got)
		}
	}
	b, err := json.Marshal(p)
	again := new(gate.Policy)
	if err == nil {
		err = again.UnmarshalJSON(b)
	}
	if err != nil || !again.Keeps("strict") || (*gate.Policy)(nil).Keeps("strict") || len(p.Relaxed) != 0 || p.Digest == shippedPolicy(t).Digest {
		t.Errorf("%v %+v", err, again)
	}
}
