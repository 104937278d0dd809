package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/oauth"
	"github.com/pfar/pfar/units/control"
)

// TestLogin: a person sees what to do, and what became of it; what a provider chose reaches no terminal raw.
func TestLogin(t *testing.T) {
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	device := control.SignIn{Name: "github", Key: "github_token", Way: oauth.ByDevice, Step: control.Step{
		URL: "https://login.example/d\x1b[2J", Complete: "https://login.example/d?c", Code: "ABCD\x07-EFGH",
		Until: now.Add(10 * time.Minute),
	}}
	browser := control.SignIn{Name: "github", Key: "github_token", Way: oauth.ByCode, Step: control.Step{
		URL: "https://login.example/auth?state=S", Port: 41234, Until: now.Add(10 * time.Minute),
	}}
	done := control.SignIn{Name: "github", Key: "github_token", Done: true, Scopes: []string{"repo"},
		Changes: []control.Change{
			{Key: "github_token", Result: "new", Uses: []control.Use{{Server: "github", Then: control.Starts}}},
		}}
	var asked control.Request
	var fails error
	b := newBench(t, "")
	p := b.pfard(t, control.Report{}, func(_ *fakePfard, q control.Request) error { asked = q; return fails })
	run := func(env map[string]string, list []control.SignIn, args ...string) (int, string, string) {
		t.Helper()
		p.signIns = list
		n, known := b.again(""), b.getenv
		n.now = func() time.Time { return now }
		n.getenv = func(k string) string {
			if v, ok := env[k]; ok {
				return v
			}
			return known(k)
		}
		code := n.run(t.Context(), append([]string{"login"}, args...))
		return code, n.out.String(), n.err.String()
	}

	code, out, errs := run(nil, []control.SignIn{{Name: "github"}, device, done}, "github", "--device")
	if code != 0 || out != "stored in the vault as github_token, granted repo\ngithub: starts: it has waited for it\n" {
		t.Errorf("%d: %s%s", code, out, errs)
	}
	for _, want := range []string{"Open this page, on any device:\n\n  https://login.example/d", "ABCD", "-EFGH",
		"https://login.example/d?c", "at most 10 minutes"} {
		if !strings.Contains(errs, want) || strings.ContainsAny(errs, "\x1b\x07") {
			t.Errorf("it says %q, and not %q", errs, want)
		}
	}
	if asked.Verb != control.LogIn || asked.Server != "github" || asked.Login == nil ||
		asked.Login.Way != oauth.ByDevice {
		t.Errorf("asked for %+v", asked)
	}

	_, _, errs = run(map[string]string{"SSH_CONNECTION": "192.0.2.9 50000 192.0.2.1 22", "DISPLAY": ":0"},
		[]control.SignIn{browser, done}, "github")
	if !strings.Contains(errs, "ssh -L 41234:127.0.0.1:41234 192.0.2.1\n") || !strings.Contains(errs,
		"pfar login github --device") || asked.Login.Way != "" {
		t.Errorf("over SSH: %s", errs)
	}
	_, _, errs = run(map[string]string{"SSH_CONNECTION": "a b $(x) d", "DISPLAY": ":0"}, []control.SignIn{browser,
		done}, "github")
	if strings.Contains(errs, "ssh") || !strings.Contains(errs,
		"Open this link in your browser, and sign in:\n\n  https://login.example/auth?state=S\n") {
		t.Errorf("at the machine: %s", errs)
	}
	_, _, errs = run(nil, []control.SignIn{browser, done}, "github")
	if !strings.Contains(errs, "ssh -L 41234:127.0.0.1:41234 MACHINE\n") {
		t.Errorf("without a display: %s", errs)
	}

	var got control.SignIn
	code, out, _ = run(nil, []control.SignIn{browser, done}, "github", "--json")
	if err := json.Unmarshal([]byte(out), &got); code != 0 || err != nil || !got.Done || got.Key != "github_token" {
		t.Errorf("%d: %s %v", code, out, err)
	}
	if code, out, errs = run(nil, []control.SignIn{browser}, "github"); code != exitFailed || out != "" ||
		!strings.Contains(errs, "pfard ended during the sign-in") {
		t.Errorf("without an end: %d: %s%s", code, out, errs)
	}
	fails = fmt.Errorf("%w; nothing was stored", control.ErrSignInExpired)
	var failed signedIn
	code, out, errs = run(nil, nil, "github", "--json")
	if err := json.Unmarshal([]byte(out), &failed); code != exitFailed || err != nil || failed.Done ||
		failed.Name != "github" || failed.Reason != control.CodeSignInExpired ||
		!strings.Contains(errs, "nothing was") {
		t.Errorf("%d: %s%s %v", code, out, errs, err)
	}
	fails = fmt.Errorf("the sign-in was refused \x1b[2J")
	if code, _, errs = run(nil, nil, "github"); code != exitFailed || !strings.Contains(errs,
		"the sign-in was refused") || strings.Contains(errs, "\x1b") {
		t.Errorf("%d: %q", code, errs)
	}
}
