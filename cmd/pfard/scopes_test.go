package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfard/vault"
	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/policies/oauth"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/plan"
)

const requiresScopes = "server {\n  command = \"sh\"\n}\nauth = { TOKEN = \"vault:drive\", scopes = [\"read\", \"write\"] }\n"

const lacksWrite = `the OAuth token "drive" was not granted "write": obtain one that was and store it with pfar vault set drive --oauth, or correct scopes in the declaration`

// grant stores a set that was granted scopes, as `pfar vault set` does.
func (d *daemon) grant(t *testing.T, key string, scopes ...string) control.Response {
	t.Helper()
	text, err := json.Marshal(map[string]any{
		"access_token": "AT-hunter2hunter2-" + key, "refresh_token": "RT-hunter2hunter2", "token_url": "https://login.example/token", "client_id": "id",
		"expiry": noon.Add(time.Hour), "scopes": scopes,
	})
	if err != nil {
		t.Fatal(err)
	}
	r, err := askVault(t, d, control.Request{Verb: control.Store, Key: key, OAuth: true, Secret: string(text)})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestScopes: a server does not run with tokens that are known to lack what it requires.
func TestScopes(t *testing.T) {
	d, m, changed, _, _, said := clerk(t)
	d.within(t, func() { d.fleet.log = slog.New(slog.NewTextHandler(said, nil)) })
	d.grant(t, "drive", "read")
	d.put(t, "a.hcl", requiresScopes)
	changed <- struct{}{}
	if s := d.state(t)["a"]; s.State != control.Waiting || s.Detail != "for credentials: "+lacksWrite || m.count("a") != 0 {
		t.Errorf("without a scope it is %+v, %d starts", s, m.count("a"))
	} else if s.Remedy.Command != "pfar vault set drive --oauth" {
		t.Errorf("the remedy is %q", s.Remedy)
	}
	for i, step := range []struct {
		scopes []string
		state  control.State
		detail string // ends so
		use    control.Use
		starts int
	}{
		{[]string{"other"}, control.Waiting, `the OAuth token "drive" was not granted "read", "write": obtain one that was and store it with pfar vault set drive --oauth, or correct scopes in the declaration`,
			control.Use{Server: "a", Then: control.Waits, Why: strings.Replace(lacksWrite, `"write"`, `"read", "write"`, 1)}, 0},
		{[]string{"write", "read", "more"}, control.Starting, "starting", control.Use{Server: "a", Then: control.Starts}, 1},
		{[]string{"read"}, control.Waiting, "for credentials: " + lacksWrite, control.Use{Server: "a", Then: control.Waits, Why: lacksWrite}, 1},
		{nil, control.Starting, `starting; whether "read", "write" was granted is not known: the OAuth token "drive" does not say its scopes; store it with them with pfar vault set drive --oauth`, control.Use{Server: "a", Then: control.Starts}, 2},
		{[]string{"read,write"}, control.Starting, "starting", control.Use{Server: "a", Then: control.RunsOn}, 2},
	} {
		r := d.grant(t, "drive", step.scopes...)
		if len(r.Changes) != 1 || !slices.Equal(r.Changes[0].Uses, []control.Use{step.use}) {
			t.Errorf("step %d: who stores it hears %+v, want %+v", i, r.Changes, step.use)
		}
		eventually(t, fmt.Sprintf("step %d", i), func() bool {
			s := d.state(t)["a"]
			return s.State == step.state && strings.HasSuffix(s.Detail, step.detail) && m.count("a") == step.starts
		})
		if list := secrets(t, d); len(list) != 1 || !slices.Equal(list[0].Scopes, step.scopes) {
			t.Errorf("step %d: the list says %+v", i, list)
		}
	}
	ask(t, d, control.Request{Verb: control.Store, Key: "drive", Secret: "a plain token"})
	const plain = `whether "read", "write" was granted is not known: no credential of it is an OAuth token set (pfar vault set KEY --oauth)`
	if s := d.state(t)["a"]; !strings.HasSuffix(s.Detail, plain) || s.State == control.Waiting {
		t.Errorf("with a plain token it is %+v", s)
	}
	ask(t, d, control.Request{Verb: control.Remove, Key: "drive"})
	eventually(t, "it waits", func() bool { return d.state(t)["a"].Detail == "for credentials: TOKEN: pfar vault set drive" })
	if n := strings.Count(said.String(), "scopes are not compared"); n != 2 {
		t.Errorf("the log says %d times what is not known: %s", n, said)
	}
	if strings.Contains(said.String(), "hunter2") {
		t.Errorf("the log has a secret: %s", said)
	}
}

// TestRefreshedScopes: what an endpoint grants less stops a server, what it grants again starts it, and if it says
// nothing of scopes they are those before.
func TestRefreshedScopes(t *testing.T) {
	for _, waits := range []bool{false, true} {
		d, m, changed, h, e, _ := clerk(t)
		d.within(t, func() { d.fleet.waits = waits })
		d.grant(t, "drive", "read", "write")
		d.put(t, "a.hcl", requiresScopes)
		changed <- struct{}{}
		d.state(t)
		refreshed := func(n int, scopes ...string) {
			t.Helper()
			h.advance(48 * time.Minute)
			e.answer(t, func(key string, _ oauth.Set, base string) {
				content, err := json.Marshal(oauth.Answer{AccessToken: fmt.Sprintf("AT-%d-hunter2hunter2", (n+1)/2), ExpiresIn: 3600, Scopes: scopes})
				if err != nil {
					t.Error(err)
				}
				e.t.take(key, attach.Refreshed{Base: base, Asked: h.now()}, content)
			})
		}
		is := func(what string, state control.State) {
			t.Helper()
			eventually(t, what, func() bool { return d.state(t)["a"].State == state })
		}
		refreshed(1)
		is("it runs on", control.Starting)
		if n := m.count("a"); n != 1 {
			t.Errorf("%d starts", n)
		}
		refreshed(2, "read") // with the same access token
		is("it stops", control.Waiting)
		if s := d.state(t)["a"]; s.Detail != "for credentials: "+lacksWrite {
			t.Errorf("it waits %s", s.Detail)
		}
		refreshed(3, "read", "write")
		is("it starts", control.Starting)
	}
}

// TestScopesOfATool: a token that lacks what one tool needs stops that tool alone, and the gateway hears of another one
// at once.
func TestScopesOfATool(t *testing.T) {
	d, m, changed, _, _, said := clerk(t)
	d.within(t, func() { d.fleet.log = slog.New(slog.NewTextHandler(said, nil)) })
	d.grant(t, "drive", "read")
	d.put(t, "a.hcl", "server {\n  command = \"sh\"\n}\nauth = { TOKEN = \"vault:drive\" }\n"+
		"tool \"send_*\" {\n  scopes = [\"write\"]\n}\n")
	changed <- struct{}{}
	d.state(t)
	d.fleet.changed(units.Update{Server: "a", State: units.StateRunning, PID: 7})
	for _, step := range []struct {
		scopes  []string
		lacks   string
		granted []string
	}{
		{nil, "", nil}, // nobody knows
		{
			[]string{"read"},
			`"write": its owner can obtain one that was and store it with pfar vault set drive --oauth`, nil,
		},
		{[]string{"read", "write"}, "", []string{"write"}},
	} {
		d.grant(t, "drive", step.scopes...)
		if s := d.state(t)["a"]; s.State.Waits() {
			t.Errorf("with %q it is %s: %s", step.scopes, s.State, s.Detail)
		}
		m.mu.Lock()
		tool := m.runs["a"].Gateway.Tools["send_*"]
		m.mu.Unlock()
		if tool.Lacks != step.lacks || !slices.Equal(tool.Scopes, []string{"write"}) ||
			!slices.Equal(tool.Granted, step.granted) {
			t.Errorf("with %q the gateway is told %+v", step.scopes, tool)
		}
	}
	if got := said.String(); strings.Count(got, "scopes are not compared") != 1 {
		t.Errorf("the log says %s", got)
	}
}

// TestScopesOfSeveral: what one token of a server's was not granted, another may have been.
func TestScopesOfSeveral(t *testing.T) {
	const scopes, plain = "read write", "plain"
	for name, tt := range map[string]struct {
		sets              map[string]string // scopes by key; "plain" is no set
		mismatch, unknown string
	}{
		"one has all":         {map[string]string{"a": "read write", "b": "other"}, "", ""},
		"each has one":        {map[string]string{"a": "read", "b": "write"}, "", ""},
		"none has one":        {map[string]string{"a": "read", "b": "other"}, `the OAuth tokens "a", "b" were not granted "write": obtain one that was and store it with pfar vault set a --oauth`, ""},
		"one does not say":    {map[string]string{"a": "read", "b": ""}, "", `whether "write" was granted is not known: the OAuth token "b"`},
		"one is a plain one":  {map[string]string{"a": "read", "b": plain}, `the OAuth token "a" was not granted "write"`, ""},
		"both are plain ones": {map[string]string{"a": plain, "b": plain}, "", `whether "read", "write" was granted is not known: no credential`},
		"one is missing":      {map[string]string{"a": "read"}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			v, err := vault.Open(filepath.Join(t.TempDir(), "vault"))
			if err != nil {
				t.Fatal(err)
			}
			p := plan.Plan{Name: "x", Scopes: strings.Fields(scopes)}
			for _, key := range []string{"a", "b"} {
				p.Credentials = append(p.Credentials, plan.Credential{Name: strings.ToUpper(key), Key: key, Deliver: broker.OnWire, Hosts: []egress.Endpoint{{Host: "x.example", Port: 443}}})
				granted, there := tt.sets[key]
				switch {
				case !there:
				case granted == plain:
					err = v.Set(key, []byte("a-plain-value-of-some-length"))
				default:
					err = v.PutTokens(key, oauth.Set{AccessToken: "AT-hunter2hunter2", RefreshToken: "RT", TokenURL: "https://login.example/t", ClientID: "id", Scopes: strings.Fields(granted)})
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			log := slog.New(slog.DiscardHandler)
			d := delivery{vault: served{v, newTokens(log, v)}, learn: func(string, []byte) {}, handing: handing{log, recordsAll}, stood: newStood("", log), given: givenTo(t)}
			c := d.compare(p)
			if got := c.mismatch(); !strings.HasPrefix(got, tt.mismatch) || (got == "") != (tt.mismatch == "") {
				t.Errorf("lacking: %q, want %q", got, tt.mismatch)
			}
			if got := c.unknown(); !strings.HasPrefix(got, tt.unknown) || (got == "") != (tt.unknown == "") {
				t.Errorf("not known: %q, want %q", got, tt.unknown)
			}
			runs := tt.mismatch == "" && len(tt.sets) == 2
			s, err := d.secrets(p)
			if err != nil || (len(s.Values) > 0) != runs {
				t.Errorf("the launcher gets %+v, %v", s, err)
			}
			f, err := d.brokered(p)
			if err != nil {
				t.Fatal(err)
			}
			text, err := units.ReadSealed(f, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Contains(string(text), `"value"`); got != (tt.mismatch == "") {
				t.Errorf("the bridge gets a value: %t", got)
			}
		})
	}
}

// TestTheNextPfardComparesScopes: a token that was refreshed as a pfard ended, and lacks a scope, stops its server.
func TestTheNextPfardComparesScopes(t *testing.T) {
	d, m, changed, _, _, _ := clerk(t)
	dir := d.remembers(t)
	d.grant(t, "drive", "read", "write")
	d.put(t, "a.hcl", requiresScopes)
	changed <- struct{}{}
	d.state(t)
	d.fleet.changed(units.Update{Server: "a", State: units.StateRunning, PID: 7})
	set, _, _, err := d.vault.Tokens("drive")
	if err != nil {
		t.Fatal(err)
	}
	set.Scopes = []string{"read"}
	if err := d.vault.PutTokens("drive", set); err != nil {
		t.Fatal(err)
	}
	next, other, _ := again(t, d, m, dir, "a")
	eventually(t, "it waits", func() bool {
		s := next.state(t)["a"]
		return s.State == control.Waiting && s.Detail == "for credentials: "+lacksWrite
	})
	if n := other.count("a"); n != 0 {
		t.Errorf("%d starts", n)
	}
}
