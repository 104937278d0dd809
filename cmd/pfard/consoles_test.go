package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pfar/pfar/policies/audit/trail"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/control"
)

// invited runs consoles whose processes are the test, and notes the nonces that they get.
type invited struct {
	browsed
	nonces chan string
	uids   chan int

	reports chan string
	enters  chan bool         // of the invitations; nil: it does not matter
	ends    chan *attach.Conn // of the processes; nil: they do not matter
	records chan handed
	ordered chan *attach.Ordered // the answers that they get
	mu      sync.Mutex
	listen  attach.Listens
}

// listens has the next process say where it listens.
func (c *invited) listens(at attach.Listens) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listen = at
}

func (c *invited) runConsole(ctx context.Context, uid int, talk pageTalk) error {
	if c.fail != nil {
		return c.fail
	}
	c.uids <- uid
	ours, theirs, err := ends()
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { ours.Close() })()
	ended := make(chan struct{})
	if c.ends != nil {
		c.ends <- theirs
	}
	go func() {
		defer close(ended)
		for {
			m, files, err := theirs.Receive()
			if err != nil {
				return
			}
			if m.Report && len(files) == 1 {
				text, err := units.ReadSealed(files[0], 1<<20)
				c.reports <- string(text) + fmt.Sprint(err)
			}
			if m.Records != nil {
				c.records <- handed{*m.Records, files}
			}
			if m.Ordered != nil {
				c.ordered <- m.Ordered
			}
			if m.Invite != nil {
				c.nonces <- m.Invite.Nonce
				if c.enters != nil {
					c.enters <- m.Invite.Orders
				}
				c.mu.Lock()
				at := c.listen
				c.mu.Unlock()
				_ = theirs.Send(attach.Message{PageTalk: attach.PageTalk{Listens: &at}})
			}
		}
	}()
	talk(ours)
	theirs.Close()
	<-ended
	return nil
}

// silent is a consoleSource of a pfard in which nothing changes.
type silent struct {
	orders func(control.Peer, attach.Order) (attach.Ordered, error)
	views  func(control.Peer, attach.View) (*os.File, error)
}

func (s silent) reports(ctx context.Context, _ func(control.Response) error) error {
	<-ctx.Done()
	return nil
}

func (s silent) known() attach.Known { return attach.Known{} }

func (s silent) order(_ context.Context, p control.Peer, o attach.Order) (attach.Ordered, error) {
	return s.orders(p, o)
}

func (s silent) view(_ context.Context, p control.Peer, v attach.View) (*os.File, bool, error) {
	f, err := s.views(p, v)
	return f, true, err
}

// handed is one answer to a console that asked for the audit.
type handed struct {
	attach.Records
	files []*os.File
}

// TestConsoleAudit: a console gets the newest files of each chain, open for reading alone, oldest first.
func TestConsoleAudit(t *testing.T) {
	dir := trail.Dir{Path: filepath.Join(t.TempDir(), "audit"), Group: -1}
	if err := dir.Make(); err != nil {
		t.Fatal(err)
	}
	put := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir.Path, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for n := range maxNewest + 2 {
		put(fmt.Sprintf("gateway-%06d.jsonl", n+1), fmt.Sprint(n+1))
	}
	put("pfard-000001.jsonl", "pfard")
	put("secret", "not of the audit")
	c := &invited{
		nonces: make(chan string, 9), uids: make(chan int, 9), reports: make(chan string, 99),
		ends: make(chan *attach.Conn, 9), records: make(chan handed, 9), listen: attach.Listens{Port: 19300},
	}
	uid := os.Getuid() + 4711
	views := func(p control.Peer, v attach.View) (*os.File, error) {
		if p.UID != uid || v.What != attach.ViewLog || v.Subject != "wiki" {
			return nil, fmt.Errorf("uid %d wants %+v", p.UID, v)
		}
		return units.Sealed("view", []byte("| hello\n"))
	}
	all := newConsoles(slog.New(slog.DiscardHandler), c, silent{views: views}, dir)
	if _, err := all.link(uid); err != nil {
		t.Fatal(err)
	}
	defer all.logout(uid)
	end := <-c.ends
	number := uint64(0)
	ask := func() handed {
		number++
		if err := end.Send(attach.Message{PageTalk: attach.PageTalk{Audit: &attach.Question{Number: number}}}); err != nil {
			t.Fatal(err)
		}
		got := <-c.records
		if got.Number != number {
			t.Errorf("question %d is answered with the number %d", number, got.Number)
		}
		return got
	}
	got := ask()
	defer attach.CloseAll(got.files)
	var said []string
	for i, f := range got.files {
		text, err := io.ReadAll(f)
		if err != nil {
			t.Fatal(err)
		}
		said = append(said, got.Chains[i]+" "+string(text))
		if _, err := f.WriteString("x"); err == nil {
			t.Errorf("%s: the console may write", said[i])
		}
	}
	want := []string{"gateway 3", "gateway 4", "gateway 5", "gateway 6", "pfard pfard"}
	if !slices.Equal(said, want) || !got.More || got.Error != "" {
		t.Errorf("it is handed %q, %+v", said, got.Records)
	}
	if err := os.Remove(filepath.Join(dir.Path, "pfard-000001.jsonl")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("secret", filepath.Join(dir.Path, "pfard-000001.jsonl")); err != nil {
		t.Fatal(err)
	}
	if got := ask(); got.Error == "" || len(got.files) > 0 {
		t.Errorf("through a link: %+v", got)
	}
	view := func(subject string) handed {
		v := attach.View{What: attach.ViewLog, Subject: subject}
		if err := end.Send(attach.Message{PageTalk: attach.PageTalk{View: &v}}); err != nil {
			t.Fatal(err)
		}
		got := <-c.records
		t.Cleanup(func() { attach.CloseAll(got.files) })
		return got
	}
	if got := view("wiki"); len(got.files) != 1 || !got.More || got.Error != "" {
		t.Errorf("a view: %+v", got)
	}
	if got := view("mail"); len(got.files) > 0 || !strings.Contains(got.Error, "wants") {
		t.Errorf("a view that pfard refuses: %+v", got)
	}
}

// TestConsole: each link has a nonce of its own, at one process for each user; after its end there is another one. Root
// has none.
func TestConsole(t *testing.T) {
	d, _, _ := fixture(t)
	c := &invited{
		nonces: make(chan string, 9), uids: make(chan int, 9), reports: make(chan string, 99),
		listen: attach.Listens{Port: 19300},
	}
	d.servePages(c)
	ask := func(uid int, verb control.Verb) (link string, err error) {
		err = d.answer(t.Context(), control.Peer{UID: uid}, control.Request{Verb: verb}, func(r control.Response) error {
			link = r.Link
			return nil
		})
		return link, err
	}
	if _, err := ask(0, control.Console); !errors.Is(err, control.ErrDenied) ||
		!strings.Contains(err.Error(), "pfar-admin") {
		t.Errorf("root: %v", err)
	}
	links := map[string]bool{}
	open := func(uid int) {
		t.Helper()
		link, err := ask(uid, control.Console)
		if err != nil {
			t.Fatal(err)
		}
		if want := "http://127.0.0.1:19300/" + <-c.nonces; link != want || links[link] {
			t.Errorf("the link is %s, want %s", link, want)
		}
		links[link] = true
	}
	open(1000)
	var first control.Report
	if text := <-c.reports; json.Unmarshal([]byte(strings.TrimSuffix(text, "<nil>")), &first) != nil ||
		first.Directory == "" {
		t.Errorf("the console hears %s", text)
	}
	if err := d.do(func() error { d.tell(); return nil }); err != nil {
		t.Fatal(err)
	}
	if text := <-c.reports; !strings.Contains(text, "<nil>") {
		t.Errorf("after a change it hears %s", text)
	}
	open(1000)
	open(1001)
	if len(c.uids) != 2 || <-c.uids != 1000 || <-c.uids != 1001 {
		t.Error("not one process for each user")
	}
	if _, err := ask(1000, control.Logout); err != nil {
		t.Error(err)
	}
	open(1000)
	if len(c.uids) != 1 {
		t.Error("after a logout there is no other process")
	}
	<-c.uids
	if _, err := ask(4711, control.Logout); err != nil {
		t.Errorf("logout without a console: %v", err)
	}
	c.listens(attach.Listens{Error: "no port is free"})
	if link, err := ask(1002, control.Console); err == nil || !strings.Contains(err.Error(), "no port is free") {
		t.Errorf("%q, %v", link, err)
	}
	c.listens(attach.Listens{Port: 19300})
	for range len(c.nonces) {
		<-c.nonces
	}
	open(1002)
	for _, uid := range []int{1000, 1001, 1002} {
		if _, err := ask(uid, control.Logout); err != nil {
			t.Error(err)
		}
	}
	c.fail = errors.New("its unit is masked")
	if _, err := ask(1000, control.Console); err == nil || !strings.Contains(err.Error(), "masked") {
		t.Errorf("without a process: %v", err)
	}
}

// TestConsoleEnters: a console gets the link of a page for a server's secrets if its user operates this pfard, and else
// the reason why not. It opens one page at a time.
func TestConsoleEnters(t *testing.T) {
	c := &invited{
		nonces: make(chan string, 9), uids: make(chan int, 9), reports: make(chan string, 99), enters: make(chan bool, 9),
		ends: make(chan *attach.Conn, 9), ordered: make(chan *attach.Ordered, 9), listen: attach.Listens{Port: 19300},
	}
	type want struct {
		uid         int
		act, server string
	}
	asked, answers := make(chan want), make(chan error)
	all := newConsoles(slog.New(slog.DiscardHandler), c, silent{
		orders: func(p control.Peer, o attach.Order) (attach.Ordered, error) {
			asked <- want{p.UID, o.Act, o.Server}
			return attach.Ordered{Link: "http://127.0.0.1:19301/" + o.Server}, <-answers
		},
	}, trail.Dir{})
	enter := func(end *attach.Conn, server string) {
		t.Helper()
		o := attach.Order{Act: attach.OrderSecrets, Server: server}
		if err := end.Send(attach.Message{PageTalk: attach.PageTalk{Order: &o}}); err != nil {
			t.Fatal(err)
		}
	}
	other := os.Getuid() + 4711
	for uid, enters := range map[int]bool{os.Getuid(): true, other: false} {
		if uid == 0 {
			continue // root has no console
		}
		if _, err := all.link(uid); err != nil || <-c.enters != enters {
			t.Fatalf("the user %d may enter secrets: %v, %v", uid, !enters, err)
		}
		end := <-c.ends
		enter(end, "wiki")
		if got := <-asked; got != (want{uid, attach.OrderSecrets, "wiki"}) {
			t.Errorf("asked for %+v", got)
		}
		enter(end, "mail")
		if got := <-c.ordered; got.Link != "" || !strings.Contains(got.Error, "pfard carries out another order") {
			t.Errorf("a second page: %+v", got)
		}
		answers <- nil
		if got := <-c.ordered; got.Link != "http://127.0.0.1:19301/wiki" || got.Error != "" {
			t.Errorf("the page: %+v", got)
		}
		all.logout(uid)
	}
	if _, err := all.link(other); err != nil {
		t.Fatal(err)
	}
	end := <-c.ends
	enter(end, "wiki")
	<-asked
	answers <- errors.New("no \x1b[31mpage")
	if got := <-c.ordered; got.Link != "" || strings.Contains(got.Error, "\x1b") || !strings.Contains(got.Error, "page") {
		t.Errorf("without a page: %+v", got)
	}
	all.logout(other)
}

// link returns a link that lets a person in once.
func (c *consoles) link(uid int) (string, error) {
	l, err := c.invite(uid)
	return l.url, err
}
