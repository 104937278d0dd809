package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pfar/pfar/cmd/pfard/vault"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/plan"
)

// ranChats is a runner of inspectors that holds chats, unless it says why not.
type ranChats struct {
	plans []plan.Inspection
	why   error
}

func (r *ranChats) Inspect(plans []plan.Inspection) { r.plans = plans }
func (r *ranChats) Reinspect(string)                {}
func (r *ranChats) Talks() error                    { return r.why }

// names are what runs.
func (r *ranChats) names() string {
	var all []string
	for _, p := range r.plans {
		all = append(all, p.Inspector.String())
	}
	return strings.Join(all, ", ")
}

// TestChats: the chats of chat.d begin where the runner holds them; a file with a mistake costs its own chat only,
// whose last good version stays.
func TestChats(t *testing.T) {
	base := t.TempDir()
	v, err := vault.Open(filepath.Join(base, "state", "vault"))
	if err != nil {
		t.Fatal(err)
	}
	dirs := control.Dirs{Config: filepath.Join(base, "mcp.d"), State: filepath.Join(base, "state"), Run: t.TempDir()}
	d := newDaemon(options{dirs: dirs, declarations: dirs.Config}, slog.New(slog.DiscardHandler), v, "")
	d.audit.open(false)
	d.policy.open = os.DirFS
	r := &ranChats{}
	d.inspectors.runner = r
	write := func(file, text string) {
		t.Helper()
		path := filepath.Join(base, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	reads := func(want string, mistakes ...string) {
		t.Helper()
		d.reload()
		if got := r.names(); got != want {
			t.Errorf("what runs is %q, want %q", got, want)
		}
		var found []string
		for _, g := range d.reader.diagnostics {
			found = append(found, g.Summary+": "+g.Detail)
		}
		for _, m := range mistakes {
			if !strings.Contains(strings.Join(found, "\n"), m) {
				t.Errorf("the mistakes are %q, want %q", found, m)
			}
		}
		if len(mistakes) == 0 && len(found) > 0 {
			t.Errorf("the mistakes are %q", found)
		}
	}
	if err := os.MkdirAll(dirs.Config, 0o755); err != nil {
		t.Fatal(err)
	}
	const chat = `homeserver = "https://matrix.example.org"
user = "@pfar:example.org"
token = "vault:matrix_token"
owner = "@ada:example.org"
`
	reads("")
	write("chat.d/home.hcl", chat)
	reads("chat home")
	notes := strings.Join(d.inspectors.keyless, "\n")
	if !strings.Contains(notes, `the chat "home" has no key, and nobody can talk there`) {
		t.Errorf("the notes are %q", notes)
	}
	if with := d.inspectors.askersWith("matrix_token"); len(with) != 1 || with[0] != "chat home" {
		t.Errorf("the token is used by %q", with)
	}
	write("policies.d/local.hcl", "notice \"phone\" {\n  chat = \"nobody\"\n}\n")
	reads("chat home", `The notice "phone" is for the chat "nobody", which is not declared. chat.d has home.`)
	write("policies.d/local.hcl", "notice \"phone\" {\n  chat = \"home\"\n}\n")
	reads("chat home") // whose process sends the notice
	write("policies.d/local.hcl", "")
	write("chat.d/home.hcl", strings.Replace(chat, "@ada:example.org", "ada", 1))
	write("chat.d/work.hcl", chat)
	reads("chat home, chat work", "is not a Matrix account")
	for _, p := range r.plans {
		if p.Inspector.Account.Owner != "@ada:example.org" {
			t.Errorf("a chat listens to %q", p.Inspector.Account.Owner)
		}
	}
	write("models.d/work.hcl", "url = \"https://api.example.com/v1\"\nmodel = \"m\"\nnodes = true\n")
	reads("model work, chat home", "is not a Matrix account", `is called "work" as well`)
	if err := os.RemoveAll(filepath.Join(base, "chat.d")); err != nil {
		t.Fatal(err)
	}
	reads("model work")

	write("chat.d/home.hcl", chat)
	r.why = os.ErrPermission
	reads("model work", "The chat does not begin: permission denied")
	d.inspectors.runner = new(ranInspectors)
	r.plans = nil
	reads("", "this pfar holds no chats")
}
