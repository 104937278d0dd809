package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfard/vault"
	"github.com/pfar/pfar/generator/catalog"
	"github.com/pfar/pfar/units/control"
)

// withChats is a pfard with the chats home and work, which may begin set-ups, and quiet, which may not.
func withChats(t *testing.T) (d *daemon, dir string, changed chan struct{}) {
	t.Helper()
	base := t.TempDir()
	dirs := control.Dirs{Config: filepath.Join(base, "mcp.d"), State: filepath.Join(base, "state"), Run: t.TempDir()}
	v, err := vault.Open(filepath.Join(dirs.State, "vault"))
	if err != nil {
		t.Fatal(err)
	}
	dir = control.ChatFiles(dirs)
	for _, one := range []string{dirs.Config, dir} {
		if err := os.MkdirAll(one, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	const chat = "homeserver = \"https://matrix.example.org\"\nuser = \"@pfar:example.org\"\n" +
		"token = \"vault:matrix_token\"\nowner = \"@ada:example.org\"\n"
	for name, text := range map[string]string{
		"home": chat + "connect = true\n", "work": chat + "connect = true\n", "quiet": chat,
	} {
		if err := os.WriteFile(filepath.Join(dir, name+".hcl"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	d, _, changed, _ = over(t, options{declarations: dirs.Config, servers: "/srv/servers", dirs: dirs}, v)
	return d, dir, changed
}

// inChat is a wish for a service in a chat.
func inChat(chat, service string) *control.SetUp {
	return &control.SetUp{Chat: chat, Server: service, Service: service}
}

// answers is what becomes of an answer in a chat.
func (d *daemon) answers(t *testing.T, chat, id, value string) error {
	t.Helper()
	q := control.Request{
		Verb: control.Supply, SettingUp: control.SettingUp{Answer: &control.FlowAnswer{ID: id, Chat: chat}}, Secret: value,
	}
	return d.answer(t.Context(), operator(), q, func(control.Response) error { return nil })
}

// joins is the set-up that a chat joins; chat "": the user does.
func (d *daemon) joins(t *testing.T, chat string, lately bool) (now control.Flow, err error) {
	t.Helper()
	enough := errors.New("enough")
	q := control.Request{
		Verb: control.Begin, SettingUp: control.SettingUp{SetUp: &control.SetUp{Chat: chat, Lately: lately}},
	}
	err = d.answer(t.Context(), operator(), q, func(r control.Response) error { now = *r.Flow; return enough })
	if errors.Is(err, enough) {
		err = nil
	}
	return now, err
}

// TestChatSetUpRefuses: a chat begins what its file lets it begin, and nothing that would touch what is there.
func TestChatSetUpRefuses(t *testing.T) {
	d, dir, changed := withChats(t)
	d.put(t, "github.hcl", fmt.Sprintf(good, "x"))
	changed <- struct{}{}
	linear, known := catalog.Load(nil, "").Find("linear")
	if !known {
		t.Fatal("the catalogue has no linear")
	}
	key := linear.Secrets[0].Key
	ask(t, d, control.Request{Verb: control.Store, Key: key, Secret: "hunter2-hunter2"})
	before, guest := d.folderText(t), control.Peer{UID: os.Getuid() + 7}
	with := func(change func(*control.SetUp)) *control.SetUp {
		s := inChat("home", "notion")
		change(s)
		return s
	}
	for what, c := range map[string]struct {
		p    control.Peer
		wish *control.SetUp
		want error
		says string
	}{
		"a chat that is not declared": {operator(), inChat("ghost", "notion"), control.ErrDenied, "chat.d"},
		"an odd name":                 {operator(), inChat("../x", "notion"), control.ErrInvalid, "not the name of a chat"},
		"one without connect": {
			operator(), inChat("quiet", "notion"), control.ErrDenied,
			"write connect = true in " + filepath.Join(dir, "quiet.hcl") + ". Or run pfar add notion at the command line",
		},
		"without connect, no service": {operator(), inChat("quiet", "hunter2"), control.ErrDenied, "pfar add NAME"},
		"another user":                {guest, inChat("home", "notion"), control.ErrDenied, ""},
		"for a client":                {operator(), with(func(s *control.SetUp) { s.For = "claude" }), control.ErrDenied, ""},
		"a page":                      {operator(), with(func(s *control.SetUp) { s.Page = true }), control.ErrDenied, ""},
		"another name":                {operator(), with(func(s *control.SetUp) { s.Server = "b" }), control.ErrDenied, ""},
		"no service":                  {operator(), with(func(s *control.SetUp) { s.Service = "" }), control.ErrDenied, ""},
		"a text": {
			operator(), with(func(s *control.SetUp) { s.Text = &control.Text{} }), control.ErrDenied, "",
		},
		"answers": {
			operator(), with(func(s *control.SetUp) { s.Answers = map[string]string{"x": "y"} }), control.ErrDenied, "",
		},
		"an unknown service":  {operator(), inChat("home", "hunter2"), control.ErrInvalid, "no service of that name"},
		"one that asks":       {operator(), inChat("home", "postgres"), control.ErrInvalid, "pfar add postgres"},
		"one that is there":   {operator(), inChat("home", "github"), control.ErrDenied, "declared already"},
		"one with its secret": {operator(), inChat("home", "linear"), control.ErrDenied, "the vault has " + key},
	} {
		q := control.Request{Verb: control.Begin, SettingUp: control.SettingUp{SetUp: c.wish}}
		err := d.answer(t.Context(), c.p, q, func(r control.Response) error {
			t.Errorf("%s: begun: %+v", what, r.Flow)
			return errors.New("enough")
		})
		said := fmt.Sprint(err)
		if !errors.Is(err, c.want) || !strings.Contains(said, c.says) || strings.Contains(said, "hunter2") {
			t.Errorf("%s: %v, want %v with %q", what, err, c.want, c.says)
		}
	}
	if got := d.folderText(t); got != before {
		t.Errorf("the directory has changed: %s", got)
	}
}

// TestChatSetUp: a set-up that a chat has begun is answered in that chat and by the user. One of the user is answered
// in any chat. Who joins is told of an end for a minute.
func TestChatSetUp(t *testing.T) {
	d, _, _ := withChats(t)
	home := d.begins(t, operator(), inChat("home", "notion"))
	asked := home.until(control.AwaitingCredential)
	if asked.Principal != "chat home" || !asked.Formed {
		t.Errorf("it asks %+v", asked)
	}
	for _, other := range []string{"work", ""} {
		if now, err := d.joins(t, other, true); !errors.Is(err, control.ErrNoFlow) {
			t.Errorf("%q joins %+v, %v", other, now, err)
		}
	}
	for _, value := range []string{"cancel", "ntn_hunter2-hunter2"} {
		if err := d.answers(t, "work", asked.ID, value); !errors.Is(err, control.ErrDenied) {
			t.Errorf("another chat answers %q: %v", value, err)
		}
	}
	if err := d.begins(t, operator(), inChat("work", "notion")).end(); !errors.Is(err, control.ErrBusy) {
		t.Errorf("another chat begins the same: %v", err)
	}
	if now, err := d.joins(t, "home", false); err != nil || now.ID != asked.ID {
		t.Errorf("it joins %+v, %v", now, err)
	}
	if err := d.answers(t, "home", asked.ID, "cancel"); err != nil {
		t.Errorf("it cancels: %v", err)
	}
	home.until(control.FlowFailed)
	if now, err := d.joins(t, "home", true); err != nil || now.Reason != control.FlowCancelled {
		t.Errorf("just ended: %+v, %v", now, err)
	}
	if _, err := d.joins(t, "home", false); !errors.Is(err, control.ErrNoFlow) {
		t.Errorf("just ended, and not asked for: %v", err)
	}

	again := d.begins(t, operator(), inChat("home", "notion"))
	again.until(control.AwaitingCredential)
	user := d.begins(t, operator(), texted("notion", withToken))
	again.until(control.FlowFailed)
	mine := user.until(control.AwaitingCredential)
	if now, err := d.joins(t, "work", false); err != nil || now.ID != mine.ID {
		t.Errorf("a chat joins the user's: %+v, %v", now, err)
	}
	if err := d.answers(t, "work", mine.ID, "cancel"); err != nil {
		t.Errorf("a chat answers the user's: %v", err)
	}
}

// end is how following a set-up ends.
func (f *flowing) end() error {
	f.t.Helper()
	select {
	case err := <-f.err:
		return err
	case <-time.After(2 * time.Minute):
		f.t.Fatal("it does not end")
	}
	return nil
}
