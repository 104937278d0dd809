package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/units/control"
)

// ofVault asks, and returns the answer.
func askVault(t *testing.T, d *daemon, q control.Request) (r control.Response, err error) {
	t.Helper()
	err = d.answer(t.Context(), control.Peer{UID: 4711}, q, func(answer control.Response) error { r = answer; return nil })
	return r, err
}

func usesOf(r control.Response) string {
	var list []string
	for _, c := range r.Changes {
		list = append(list, c.Key+" "+c.Result)
		for _, u := range c.Uses {
			list = append(list, u.Server+" "+string(u.Then))
		}
	}
	return strings.Join(list, ", ")
}

// TestSecretChanged: nothing runs on with a value that is not in the vault any more.
func TestSecretChanged(t *testing.T) {
	d, m, changed := fixture(t)
	for name, auth := range map[string]string{
		"one": `auth = { TOKEN = "vault:a" }`, "two": `auth = { TOKEN = "vault:a", OTHER = "vault:b" }`, "other": `auth = { TOKEN = "vault:b" }`, "none": "",
		"off": "enabled = false\n" + `auth = { TOKEN = "vault:a" }`,
	} {
		d.put(t, name+".hcl", fmt.Sprintf(good, "x")+auth+"\n")
	}
	changed <- struct{}{}
	d.state(t)
	settled := func(want string) {
		t.Helper()
		state := d.state(t)
		m.mu.Lock()
		defer m.mu.Unlock()
		var got string
		for _, name := range []string{"none", "one", "other", "two"} {
			got += fmt.Sprintf("%s %s %d; ", name, state[name].State, m.starts[name])
		}
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	for _, tt := range []struct {
		q         control.Request
		then, now string
	}{
		{control.Request{Verb: control.Store, Key: "a", Secret: "first-of-a"}, "a new, off later, one starts, two waits", "none starting 1; one starting 1; other waiting 0; two waiting 0; "},
		{control.Request{Verb: control.Store, Key: "b", Secret: "first-of-b"}, "b new, other starts, two starts", "none starting 1; one starting 1; other starting 1; two starting 1; "},
		{control.Request{Verb: control.Store, Key: "a", Secret: "first-of-a"}, "a equal", "none starting 1; one starting 1; other starting 1; two starting 1; "},
		{control.Request{Verb: control.Rotate, Key: "a", Secret: "second-of-a"}, "a changed, off later, one restarts, two restarts", "none starting 1; one starting 2; other starting 1; two starting 2; "},
		{control.Request{Verb: control.Store, Key: "unused", Secret: "of-nobody"}, "unused new", "none starting 1; one starting 2; other starting 1; two starting 2; "},
		{control.Request{Verb: control.Import, Replace: true, Bundle: []byte(`{"format":"pfar-vault-1","secrets":[{"key":"b","value":"` +
			base64.StdEncoding.EncodeToString([]byte("second-of-b")) + `"}]}`)}, "b changed, other restarts, two restarts", "none starting 1; one starting 2; other starting 2; two starting 3; "},
		{control.Request{Verb: control.Rekey}, "", "none starting 1; one starting 2; other starting 2; two starting 3; "},
		{control.Request{Verb: control.Remove, Key: "b"}, "b removed, other waits, two waits", "none starting 1; one starting 2; other waiting 2; two waiting 3; "},
	} {
		r, err := askVault(t, d, tt.q)
		if err != nil || usesOf(r) != tt.then {
			t.Errorf("%s: %q, %v; want %q", tt.q.Verb, usesOf(r), err, tt.then)
		}
		settled(tt.now)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !strings.Contains(m.secret["one"], "second-of-a") || !strings.Contains(m.secret["two"], "second-of-b") {
		t.Errorf("servers run with %q", m.secret)
	}
}

// TestBrokeredSecretChanged: a bridge has the new value at once, and the server runs on as long as its placeholder is
// good.
func TestBrokeredSecretChanged(t *testing.T) {
	d, m, changed := fixture(t)
	var told []string
	d.uses.bridges = bridgesFunc(func(server string) { told = append(told, server) }) // in the loop
	d.put(t, "held.hcl", fmt.Sprintf(good, "x")+`
allowed_domains = ["api.github.com"]
auth = { TOKEN = { secret = "vault:a", deliver = "broker" } }
`)
	changed <- struct{}{}
	d.state(t)
	var unwired error
	d.keeper.running = func(context.Context, string) ([]string, error) { return nil, unwired }
	for _, tt := range []struct {
		secret, then string
		starts       int
	}{
		{"ghp_0aB1cD2eF3gH4iJ5kL6mN7oP8qR9sT0uV1wX", "a new, held starts", 1},
		{"ghp_9zY8xW7vU6tS5rQ4pO3nM2lK1jI0hG9fE8dC", "a changed, held runs-on", 1},
		{"ghp_1aB1cD2eF3gH4iJ5kL6mN7oP8qR9sT0uV1wX", "a changed, held unconfirmed", 1}, // it may have the one before
		{"another-shape-of-token", "a changed, held restarts", 2},
		{"", "a removed, held waits", 2},
	} {
		q := control.Request{Verb: control.Store, Key: "a", Secret: tt.secret}
		if tt.secret == "" {
			q.Verb = control.Remove
		}
		told, unwired = nil, nil
		if strings.HasSuffix(tt.then, " unconfirmed") {
			unwired = context.DeadlineExceeded
		}
		r, err := askVault(t, d, q)
		d.state(t)
		if err != nil || usesOf(r) != tt.then || m.count("held") != tt.starts || strings.Join(told, " ") != "held" {
			t.Errorf("%.3q: %q, %v, %d starts, told %q; want %q and %d", tt.secret, usesOf(r), err, m.count("held"), told, tt.then, tt.starts)
		}
	}
}

// TestUnsearchedIsSaid: whoever stores a value that cannot be found in a text hears why, whatever way it came.
func TestUnsearchedIsSaid(t *testing.T) {
	d, _, _ := fixture(t)
	bundle := `{"format":"pfar-vault-1","secrets":[{"key":"b","value":"` + base64.StdEncoding.EncodeToString([]byte("0000000000000000")) + `"}]}`
	tokens := `{"access_token":"ya29-short","refresh_token":"rt","token_url":"https://login.example/t","client_id":"id"}`
	for _, tt := range []struct {
		q    control.Request
		want string
	}{
		{control.Request{Verb: control.Store, Key: "a", Secret: "hunter2"}, "it has fewer than 8 bytes"},
		{control.Request{Verb: control.Rotate, Key: "a", Secret: "production"}, "it is a word of fewer than 16 letters"},
		{control.Request{Verb: control.Import, Bundle: []byte(bundle)}, "it has fewer than four different characters"},
		{control.Request{Verb: control.Store, Key: "c", OAuth: true, Secret: tokens}, ""}, // no server has what is short in it
		{control.Request{Verb: control.Remove, Key: "a"}, ""},
	} {
		r, err := askVault(t, d, tt.q)
		if err != nil || len(r.Changes) != 1 || r.Changes[0].Unsearched != tt.want {
			t.Errorf("%s: %+v, %v; want %q", tt.q.Verb, r.Changes, err, tt.want)
		}
	}
}

func TestVaultRefusals(t *testing.T) {
	d, _, _ := fixture(t)
	if _, err := askVault(t, d, control.Request{Verb: control.Store, Key: "a", Secret: "first-of-a"}); err != nil {
		t.Fatal(err)
	}
	another := []byte(`{"format":"pfar-vault-1","secrets":[{"key":"a","value":"eA=="}]}`)
	for _, tt := range []struct {
		q    control.Request
		want error
	}{
		{control.Request{Verb: control.Rotate, Key: "b", Secret: "x"}, control.ErrNoKey},
		{control.Request{Verb: control.Remove, Key: "b"}, control.ErrNoKey},
		{control.Request{Verb: control.Export, Keys: []string{"b"}, Recipient: recipient}, control.ErrNoKey},
		{control.Request{Verb: control.Store, Key: "../b", Secret: "x"}, control.ErrInvalid},
		{control.Request{Verb: control.Remove, Key: "a=b"}, control.ErrInvalid},
		{control.Request{Verb: control.Export, Keys: []string{"a", "a=b"}, Recipient: recipient}, control.ErrInvalid},
		{control.Request{Verb: control.Store, Key: "b"}, control.ErrInvalid},
		{control.Request{Verb: control.Export, Recipient: "age1x"}, control.ErrInvalid},
		{control.Request{Verb: control.Import, Bundle: []byte("{}")}, control.ErrInvalid},
		{control.Request{Verb: control.Import, Bundle: another}, control.ErrExists},
	} {
		r, err := askVault(t, d, tt.q)
		if !errors.Is(err, tt.want) || !reflect.DeepEqual(r, control.Response{}) {
			t.Errorf("%s %s: %+v, %v; want %v", tt.q.Verb, tt.q.Key, r, err, tt.want)
		}
	}
}

// recipient is from age's own manual.
const recipient = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"

// TestVaultRecords: whatever is done to the vault, or tried, leaves a record of who and what, without a value.
func TestVaultRecords(t *testing.T) {
	d, _, changed := fixture(t)
	text := &loud{}
	_ = d.do(func() error { // the loop logs by it
		d.keeper.log = slog.New(slog.NewTextHandler(text, nil))
		d.delivery.log = d.keeper.log
		return nil
	})
	d.put(t, "one.hcl", fmt.Sprintf(good, "x")+`auth = { TOKEN = "vault:a" }`+"\n")
	changed <- struct{}{}
	d.state(t)
	for _, q := range []control.Request{
		{Verb: control.Store, Key: "a", Secret: "hunter2-one"}, {Verb: control.Rotate, Key: "a", Secret: "hunter2-two"}, {Verb: control.Rotate, Key: "b", Secret: "hunter2-two"},
		{Verb: control.Secrets}, {Verb: control.Export, Recipient: recipient}, {Verb: control.Export, Keys: []string{"a"}, Recipient: recipient}, {Verb: control.Rekey},
		{Verb: control.Import, Replace: true, Bundle: []byte(`{"format":"pfar-vault-1","secrets":[{"key":"a","value":"aHVudGVyMg=="},{"key":"c","value":"aHVudGVyMg=="}]}`)},
		{Verb: control.Remove, Key: "a"}, {Verb: control.Remove, Key: "a"},
		{Verb: control.Store, Key: "a=hunter2", Secret: "x"}, {Verb: control.Export, Keys: []string{"a", "hunter2.b"}, Recipient: recipient},
	} {
		askVault(t, d, q)
		d.state(t)
	}
	var got, given []string
	for line := range strings.Lines(text.String()) {
		_, record, ok := strings.Cut(line, "msg=vault ")
		switch {
		case strings.HasPrefix(record, "operation=deliver "):
			given = append(given, record)
		case ok:
			got = append(got, record)
		}
	}
	want := `operation=store key=a uid=4711 outcome=new
operation=rotate key=a uid=4711 outcome=changed
operation=rotate key=b uid=4711 outcome=failed error="secret \"b\" is not in the vault"
operation=secrets key="" uid=4711 outcome=done
operation=export key="" uid=4711 outcome=done
operation=export key=a uid=4711 outcome=done
operation=rekey key="" uid=4711 outcome=done
operation=import key="a changed, c new" uid=4711 outcome=done
operation=remove key=a uid=4711 outcome=removed
operation=remove key=a uid=4711 outcome=failed error="secret \"a\" is not in the vault"
operation=store key="" uid=4711 outcome=failed error="invalid request: a key has 1 to 64 of a-z, 0-9, _ and -"
operation=export key="" uid=4711 outcome=failed error="invalid request: a key has 1 to 64 of a-z, 0-9, _ and -"
`
	const each, none = "operation=deliver key=a deliver=env to=launcher server=one outcome=", "refused error=\"TOKEN: pfar vault set a\"\n"
	if all := none + "done\n" + "done\n" + "done\n" + none; strings.ReplaceAll(strings.Join(given, ""), each, "") != all {
		t.Errorf("given %q, want each with %q: %q", given, each, all)
	}
	if strings.Join(got, "") != want {
		t.Errorf("got\n%swant\n%s", strings.Join(got, ""), want)
	}
	if strings.Contains(text.String(), "hunter2") || strings.Contains(text.String(), "aHVudGVy") {
		t.Error("a value is in the log")
	}
}

func TestListSecrets(t *testing.T) {
	d, _, changed := fixture(t)
	for _, name := range []string{"one", "two"} {
		d.put(t, name+".hcl", fmt.Sprintf(good, "x")+`auth = { TOKEN = "vault:a" }`+"\n")
	}
	changed <- struct{}{}
	d.state(t)
	for _, k := range []string{"a", "unused"} {
		if _, err := askVault(t, d, control.Request{Verb: control.Store, Key: k, Secret: "hunter2"}); err != nil {
			t.Fatal(err)
		}
	}
	r, err := askVault(t, d, control.Request{Verb: control.Secrets})
	if err != nil || len(r.Secrets) != 2 {
		t.Fatalf("%+v, %v", r, err)
	}
	for i, want := range []control.Secret{{Key: "a", Kind: "plain", Servers: []string{"one", "two"}}, {Key: "unused", Kind: "plain", Servers: []string{}}} {
		got := r.Secrets[i]
		if got.Stored == nil || time.Since(*got.Stored) > time.Minute {
			t.Errorf("%s is stored at %v", got.Key, got.Stored)
		}
		if got.Stored = nil; !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}
