package main

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/pfar/pfar/cmd/pfard/vault"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/inspector"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/control"
)

// newTestChats are the chats of a pfard whose run directory is one of this test's, with a way of the chat home.
func newTestChats(t *testing.T) (c *chatUnits, home inspector.External) {
	t.Helper()
	base := t.TempDir()
	v, err := vault.Open(filepath.Join(base, "state", "vault"))
	if err != nil {
		t.Fatal(err)
	}
	run, err := os.MkdirTemp("/dev/shm", "pfar-chats-") // a short path, on which every kernel knows lists
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(run) })
	dirs := control.Dirs{Config: filepath.Join(base, "mcp.d"), State: filepath.Join(base, "state"), Run: run}
	d := newDaemon(options{dirs: dirs, declarations: dirs.Config}, slog.New(slog.DiscardHandler), v, "")
	c = newChatUnits(d)
	c.told = func() {}
	if err := os.MkdirAll(units.InspectDir(run), 0o711); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(units.InspectDir(run), "home.sock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	home.Name, home.Account = "home", &inspector.Account{Client: "desk"}
	return c, home
}

// ownerOf is whose a file is, with its mode.
func ownerOf(t *testing.T, path string) (uid int, mode os.FileMode) {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return int(info.Sys().(*syscall.Stat_t).Uid), info.Mode().Perm()
}

// attached attaches a process of a user to a chat, and returns its connection, and what ends it.
func attached(t *testing.T, c *chatUnits, e inspector.External, uid int) (conn *attach.Conn, end func()) {
	t.Helper()
	ours, theirs, err := attach.Pair("pfard")
	if err != nil {
		t.Fatal(err)
	}
	if conn, err = attach.FromFile(theirs); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.held(ours, e, uid) }()
	end = func() {
		conn.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		ours.Close()
	}
	if m, _, err := conn.Receive(); err != nil || m.Welcome == nil {
		end()
		t.Fatalf("it is not welcome: %+v, %v", m, err)
	}
	return conn, end
}

// TestChatProcess: the process of a chat gets the sockets of that chat as long as it is attached, and status shows
// whether it holds the chat. What an earlier process leaves behind does not touch the next one.
func TestChatProcess(t *testing.T) {
	c, home := newTestChats(t)
	list := []inspector.External{home}
	faults := func(want string) {
		t.Helper()
		if got := strings.Join(c.faults(list), "\n"); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("the faults are %q, want %q", got, want)
		}
	}
	faults("does not run: journalctl -u pfar-chat@home says why")
	uid := os.Getuid()
	if uid == 0 {
		uid = 61234
	}
	conn, end := attached(t, c, home, uid)
	for _, path := range []string{units.InspectDir(c.run) + "/home.sock", units.ChatDir(c.run) + "/home.sock"} {
		if owner, mode := ownerOf(t, path); owner != uid || mode != 0o600 {
			t.Errorf("%s belongs to %d, mode %v", path, owner, mode)
		}
	}
	faults("has not reached its homeserver: journalctl -u pfar-chat@home -u pfar-model@home says why")
	changed := make(chan struct{}, 8)
	c.told = func() { changed <- struct{}{} }
	for state, want := range map[string]string{units.StateRunning: ""} {
		if err := conn.Send(attach.Message{Notify: map[string]string{units.NotifyState: state}}); err != nil {
			t.Fatal(err)
		}
		<-changed
		faults(want)
	}
	_, endNext := attached(t, c, home, uid) // before pfard has heard that the first one has ended
	<-changed
	end()
	<-changed
	if _, err := net.Dial("unix", units.ChatDir(c.run)+"/home.sock"); uid == os.Getuid() && err != nil {
		t.Errorf("the second process does not get to its socket: %v", err)
	}
	faults("has not reached")
	endNext()
	faults("does not run")
	if err := os.Remove(units.InspectDir(c.run) + "/home.sock"); err != nil {
		t.Fatal(err)
	}
	if err := c.held(nil, home, uid); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a way: %v", err)
	}
}

// TestChatClients: the user of a chat's process is the client that the chat names, if that is let in, and a person's
// word about a user counts more. The next pfard knows them by what this one has noted, and forgets them with the chat.
func TestChatClients(t *testing.T) {
	clients := []access.Client{
		{Name: "desk", Enabled: true, UIDs: []uint32{1000}}, {Name: "off"},
		{Name: "other", Enabled: true, UIDs: []uint32{1001}},
	}
	type uids = map[string][]uint32 // the users of each client
	for name, test := range map[string]struct {
		as   chatClient
		want uids
	}{
		"declared":       {chatClient{"desk", 61000}, uids{"desk": {1000, 61000}, "off": nil, "other": {1001}}},
		"disabled":       {chatClient{"off", 61000}, uids{"desk": {1000}, "off": {61000}, "other": {1001}}},
		"not declared":   {chatClient{"none", 61000}, uids{"desk": {1000}, "off": nil, "other": {1001}}},
		"a client's uid": {chatClient{"desk", 1001}, uids{"desk": {1000}, "off": nil, "other": {1001}}},
		"the default": {
			chatClient{"", 61000}, uids{"desk": {1000}, "off": nil, "other": {1001}, access.Default: {61000}},
		},
	} {
		c := newClientele(t.TempDir(), nil)
		c.list = clients
		if !c.admitChat("home", test.as) || c.admitChat("home", test.as) {
			t.Errorf("%s: it is not new once", name)
		}
		got, _, _ := c.now()
		if len(got) != len(test.want) {
			t.Errorf("%s: %+v", name, got)
		}
		for _, one := range got {
			if want, there := test.want[one.Name]; !there || !slices.Equal(one.UIDs, want) {
				t.Errorf("%s: %s has the users %v, want %v", name, one.Name, one.UIDs, want)
			}
		}
		if users := usersOf(got); name == "disabled" && slices.Contains(users, 61000) {
			t.Errorf("%s: it may connect", name)
		}
		c.dismissChats(func(string) bool { return false })
		if got, _, _ = c.now(); len(got) != len(clients) || !slices.Equal(got[0].UIDs, clients[0].UIDs) {
			t.Errorf("%s: afterwards %+v", name, got)
		}
	}

	c, home := newTestChats(t)
	c.clientele.list = clients
	if err := os.MkdirAll(units.ChatDir(c.run), 0o711); err != nil {
		t.Fatal(err)
	}
	const user = 61234
	if err := c.remember(home, user); err != nil {
		t.Fatal(err)
	}
	before := c.clientele
	c.clientele = newClientele(t.TempDir(), nil)
	c.clientele.list = clients
	c.want([]inspector.External{home})
	for _, known := range []*clientele{before, c.clientele} {
		if got, _, _ := known.now(); !slices.Contains(got[0].UIDs, user) {
			t.Errorf("its client has the users %v", got[0].UIDs)
		}
	}
	c.want(nil)
	if got, _, _ := c.clientele.now(); slices.Contains(got[0].UIDs, user) {
		t.Error("a chat that is gone is a client")
	}
	if _, err := os.Stat(units.ChatDir(c.run)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of a chat that is gone is left: %v", err)
	}
	if err := c.remember(home, os.Getuid()); err == nil {
		t.Error("a note without a folder is written")
	}
	c.admit(home, os.Getuid())
	if got, _, _ := c.clientele.now(); !slices.Equal(got[0].UIDs, clients[0].UIDs) {
		t.Errorf("pfard's own user has become a client: %v", got)
	}
}

// TestChatSetsUp: what the process of a chat asks for is a wish in that chat, whatever it says.
func TestChatSetsUp(t *testing.T) {
	d, _, _ := withChats(t)
	as := func(chat string, q control.Request) (now control.Flow, err error) {
		enough := errors.New("enough")
		ctx, p := t.Context(), control.Peer{UID: 61234}
		err = chatFlows{d.orders.flows}.answer(chat)(ctx, p, q, func(r control.Response) error {
			now = *r.Flow
			return enough
		})
		if errors.Is(err, enough) {
			err = nil
		}
		return now, err
	}
	begin := func(wish control.SetUp) control.Request {
		return control.Request{Verb: control.Begin, SettingUp: control.SettingUp{SetUp: &wish}}
	}
	supply := func(id, chat, value string) control.Request {
		answer := control.SettingUp{Answer: &control.FlowAnswer{ID: id, Chat: chat}}
		return control.Request{Verb: control.Supply, SettingUp: answer, Secret: value}
	}
	for name, wish := range map[string]control.SetUp{
		"a text":       {Server: "notion", Service: "notion", Text: &control.Text{}},
		"answers":      {Server: "notion", Service: "notion", Answers: map[string]string{"a": "b"}},
		"a name":       {Server: "mine", Service: "notion"},
		"no service":   {Server: "mine"},
		"a client's":   {Server: "notion", Service: "notion", For: "desk"},
		"with a page":  {Server: "notion", Service: "notion", Page: true},
		"another chat": {Server: "notion", Service: "notion", Chat: "home"},
		"no chat":      {Server: "notion", Service: "notion"},
	} {
		chat := "home"
		if strings.HasSuffix(name, " chat") {
			chat = "quiet" // which may begin nothing
		}
		if now, err := as(chat, begin(wish)); !errors.Is(err, control.ErrDenied) {
			t.Errorf("%s: %+v, %v", name, now, err)
		}
	}
	for name, c := range map[string]struct {
		q    control.Request
		want error
	}{
		"nothing waits":  {control.Request{Verb: control.Begin}, control.ErrNoFlow},
		"no answer":      {control.Request{Verb: control.Supply}, control.ErrInvalid},
		"another set-up": {supply("another", "home", "x"), control.ErrNoFlow},
		"no service":     {begin(control.SetUp{Server: "No Server", Service: "No Server"}), control.ErrInvalid},
	} {
		if now, err := as("home", c.q); !errors.Is(err, c.want) {
			t.Errorf("%s: %+v, %v", name, now, err)
		}
	}
	home := d.begins(t, operator(), inChat("home", "notion"))
	asked := home.until(control.AwaitingCredential)
	for _, named := range []string{"", "home"} {
		if now, err := as("work", supply(asked.ID, named, "cancel")); !errors.Is(err, control.ErrDenied) {
			t.Errorf("the process of another chat answers as %q: %+v, %v", named, now, err)
		}
	}
	if _, err := as("home", supply(asked.ID, "work", "cancel")); err != nil {
		t.Errorf("its own is not answered: %v", err)
	}
	home.until(control.FlowFailed)
}
