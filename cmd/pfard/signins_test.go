package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pfar/pfar/generator/catalog"
	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/policies/oauth"
	"github.com/pfar/pfar/units/control"
)

// TestWithoutClient has an owner follow the message of each login for which there is no client: what it says to write,
// with an id in the place of the dots, is a provider whose token the server gets.
func TestWithoutClient(t *testing.T) {
	known := catalog.Load(nil, "")
	remote := func(name string) declaration.Server { // as pfar add declares it
		s, _ := known.Find("gmail")
		text, err := s.Declaration(catalog.Choices{Server: name, Keys: map[string]string{"token": name + "_key"}})
		d, diags := declaration.Parse(name+".hcl", text, declaration.Options{})
		if err != nil || d == nil {
			t.Fatal(err, diags)
		}
		return *d
	}
	elsewhere := remote("gmail")
	elsewhere.URL = "https://mail.example/mcp"
	for _, c := range []struct {
		name     string
		declared []declaration.Server
		want     []string // in the message; nil: the server names a provider
		key      string   // of the provider
	}{
		{"gmail", nil, []string{"https://console.cloud.google.com/auth/clients, with the redirect address " +
			"http://127.0.0.1/callback", "/oauth.d/gmail.hcl:", "pfar vault set gmail_client"}, "gmail_token"},
		{"gmail", []declaration.Server{elsewhere}, nil, ""},
		{"work", []declaration.Server{remote("work")}, []string{"/oauth.d/work.hcl:", `"work"`, `= "gmail"`},
			"work_key"},
		{"google-drive", nil, []string{"google_drive_client"}, "google_drive_token"},
		{"google-calendar", nil, []string{"google_calendar_client"}, "google_calendar_token"},
		{"github", nil, []string{"https://github.com/settings/applications/new, with the redirect"}, "github_token"},
		{"gitlab", nil, []string{"https://gitlab.com/-/user_settings/applications, and write"}, "gitlab_token"},
		{"sentry", nil, []string{"https://sentry.io/"}, "sentry_token"},
		{"microsoft-365", nil, []string{"https://entra.microsoft.com/"}, "microsoft_365_token"},
		{"acme", nil, []string{"with the provider", "/oauth.d/acme.hcl:", "acme_client"}, "acme_token"},
		{"acme", []declaration.Server{{Name: "acme", Credentials: []declaration.Credential{{Env: "T", Key: "crm"}}}},
			[]string{"/oauth.d/acme.hcl:"}, "crm"},
	} {
		all := func() catalog.Set { return known }
		s := &signIns{dir: filepath.Join(t.TempDir(), "oauth.d"), open: os.DirFS, catalog: all}
		s.read()
		q := control.Request{Server: c.name, SettingUp: control.SettingUp{Login: &control.Login{}}}
		found, err := s.choose(q, c.declared)
		if c.want == nil {
			if err != nil || !found.discovers() {
				t.Errorf("%s: %v, of the endpoints %v", c.name, err, found)
			}
			continue
		}
		if !errors.Is(err, control.ErrInvalid) {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: want %q in\n%v", c.name, want, err)
			}
		}
		_, text, _ := strings.Cut(err.Error(), "hcl:\n\n")
		text, _, _ = strings.Cut(text, "\n\nThe provider gives")
		text = strings.NewReplacer(`"..."`, `"owners-client"`, "https://...", "https://login.example/x").Replace(text)
		if err := os.MkdirAll(s.dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(s.dir, c.name+".hcl"), []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, diags := s.read(); len(diags) > 0 {
			t.Errorf("%s: %v in\n%s", c.name, diags, text)
			continue
		}
		found, err = s.choose(q, c.declared)
		if err != nil || found.key != c.key || found.provider.ID != "owners-client" {
			t.Errorf("%s: %v, %+v of\n%s", c.name, err, found, text)
			continue
		}
		task, err := found.provider.Task(found.way)
		if err != nil || c.key == "gmail_token" && (found.way != oauth.ByCode ||
			strings.Join(task.Scopes, " ") != "https://www.googleapis.com/auth/gmail.readonly") {
			t.Errorf("%s: %v, %+v", c.name, err, task)
		}
	}
}
