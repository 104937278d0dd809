package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pfar/pfar/policies/audit/trail"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/page"
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

func nothingKnown() attach.Known { return attach.Known{} }

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
	silent := func(ctx context.Context, _ func(control.Response) error) error { <-ctx.Done(); return nil }
	all := newConsoles(slog.New(slog.DiscardHandler), c, silent, nothingKnown, nil, dir)
	uid := os.Getuid() + 4711
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
		uid   int
		order attach.Order
	}
	asked, answers := make(chan want), make(chan error)
	silent := func(ctx context.Context, _ func(control.Response) error) error { <-ctx.Done(); return nil }
	all := newConsoles(slog.New(slog.DiscardHandler), c, silent, nothingKnown,
		func(_ context.Context, p control.Peer, o attach.Order) (string, error) {
			asked <- want{p.UID, o}
			return "http://127.0.0.1:19301/" + o.Server, <-answers
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
		if got := <-asked; got != (want{uid, attach.Order{Act: attach.OrderSecrets, Server: "wiki"}}) {
			t.Errorf("asked for %+v", got)
		}
		enter(end, "mail")
		if got := <-c.ordered; got.Link != "" || !strings.Contains(got.Error, "another order is being carried out") {
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

// TestOrdered: only who operates this pfard starts and stops servers at a console, and nothing else is ordered there.
func TestOrdered(t *testing.T) {
	d, _, changed := fixture(t)
	d.put(t, "b.hcl", fmt.Sprintf(good, "x"))
	changed <- struct{}{}
	d.state(t)
	order := func(p control.Peer, act, server string) error {
		_, err := d.ordered(t.Context(), p, attach.Order{Act: act, Server: server})
		return err
	}
	if err := order(control.Peer{UID: os.Getuid() + 4711}, attach.OrderStop, "b"); !errors.Is(err, control.ErrDenied) {
		t.Errorf("somebody else: %v", err)
	}
	for _, act := range []string{"", "remove", string(control.Undeclare), string(control.Export)} {
		if err := order(operator(), act, "b"); !errors.Is(err, control.ErrInvalid) {
			t.Errorf("%q: %v", act, err)
		}
	}
	if err := order(operator(), attach.OrderStart, "nobody"); !errors.Is(err, control.ErrNoServer) {
		t.Errorf("a server that is not declared: %v", err)
	}
	if state := d.state(t)["b"].State; state != control.Starting {
		t.Errorf("before all orders it is %s", state)
	}
	for _, each := range []struct {
		act  string
		want control.State
	}{
		{attach.OrderStop, control.Stopped}, {attach.OrderStart, control.Starting},
		{attach.OrderRestart, control.Starting},
	} {
		if err := order(operator(), each.act, "b"); err != nil {
			t.Errorf("%s: %v", each.act, err)
		}
		if state := d.state(t)["b"].State; state != each.want {
			t.Errorf("after %s it is %s", each.act, state)
		}
	}
}

// TestOrderedAllow: a host that the server was refused is added to the owner's file, which is read at once; no other
// host, and not one that the owner has blocked.
func TestOrderedAllow(t *testing.T) {
	d, _, changed := fixture(t)
	d.put(t, "b.hcl", fmt.Sprintf(good, "x")+"blocked_domains = [\"evil.example\"]\n")
	changed <- struct{}{}
	d.state(t)
	if err := d.do(func() error {
		var list []egress.Refusal
		for _, host := range []string{"evil.example:443", "good.example:8443"} {
			list = append(list, egress.Refusal{Host: host, Reason: egress.NameNotDeclared})
		}
		d.fleet.servers["b"].status.Refusals = list
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	allow := func(server, host string) error {
		_, err := d.ordered(t.Context(), operator(), attach.Order{Act: attach.OrderAllow, Server: server, Host: host})
		return err
	}
	path := filepath.Join(d.options.declarations, "b.hcl")
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ server, host, want string }{
		{"b", "evil.example", "blocked_domains names evil.example"}, {"b", "10.0.0.1", "did not refuse"},
		{"b", "other.example", "did not refuse"}, {"b", "*.example", "did not refuse"},
		{"b", "good.example", "did not refuse"}, {"nobody", "good.example:8443", "did not refuse"},
		{"b", "not a host", "invalid"}, {"b", "", "invalid"},
	} {
		if err := allow(test.server, test.host); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s %q: %v, want %q", test.server, test.host, err, test.want)
		}
	}
	if now, err := os.ReadFile(path); err != nil || string(now) != string(before) {
		t.Errorf("the file has changed: %s %v", now, err)
	}
	other := control.Peer{UID: os.Getuid() + 4711}
	o := attach.Order{Act: attach.OrderAllow, Server: "b", Host: "good.example:8443"}
	if _, err := d.ordered(t.Context(), other, o); !errors.Is(err, control.ErrDenied) {
		t.Errorf("somebody else: %v", err)
	}
	if err := allow("b", "good.example:8443"); err != nil {
		t.Fatal(err)
	}
	if now, err := os.ReadFile(path); err != nil || !strings.Contains(string(now), `"good.example:8443"`) {
		t.Errorf("the file: %s %v", now, err)
	}
	if domains := d.state(t)["b"].Domains; !slices.Contains(domains, "good.example:8443") {
		t.Errorf("it may reach %q", domains)
	}
}

// TestAddService: only who operates this pfard adds a service of the catalogue that way, only one that a page can set
// up and that is not declared. Nothing is installed or written before the person has used the page.
func TestAddService(t *testing.T) {
	d, m, b := withPages(t)
	d.known(t)
	f, path := d.orders.flows, filepath.Join(d.options.declarations, "x.hcl")
	add := func(p control.Peer, service string) (string, error) { return f.addService(t.Context(), p, service) }
	if link, err := add(control.Peer{UID: os.Getuid() + 4711}, "x"); link != "" || !errors.Is(err, control.ErrDenied) {
		t.Errorf("somebody else: %q, %v", link, err)
	}
	for _, service := range []string{"", "nothing", "filesystem", "cloudflare-dns", "../x"} {
		if link, err := add(operator(), service); link != "" || !errors.Is(err, control.ErrInvalid) {
			t.Errorf("%q: %q, %v", service, link, err)
		}
	}
	link, err := add(operator(), "x")
	w := <-b.opened
	if err != nil || link != page.Link(w.task.Nonce, 4711) || w.task.Server != "x" || w.task.Asker != "" ||
		!slices.Equal(w.task.Reaches, []string{"api.example.com"}) {
		t.Errorf("the page is %+v at %q, %v", w.task, link, err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) || m.count("x") > 0 {
		t.Errorf("before a person has used the page: %v, %d starts", err, m.count("x"))
	}
	w.acts(t, page.Cancel, "")
	w.until(t, func(s page.State) bool { return s.Phase.Over() })
	w.conn.Close()
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after a no: %v", err)
	}
	d.put(t, "x.hcl", fmt.Sprintf(good, "x"))
	if err := d.do(func() error { d.reload(); return nil }); err != nil {
		t.Fatal(err)
	}
	link, err = add(operator(), "x")
	if link != "" || err == nil || !strings.Contains(err.Error(), "declared already") {
		t.Errorf("one that is declared: %q, %v", link, err)
	}
}

// TestOffers: a console sees each service that somebody can add, and which of them a one-time page can set up.
func TestOffers(t *testing.T) {
	d, _, _ := fixture(t)
	d.known(t)
	of := map[string]attach.Offer{}
	for _, o := range offersOf(d.orders.flows.services()) {
		of[o.Name] = o
	}
	for name, want := range map[string]attach.Offer{
		"x": {
			Name: "x", Title: "X", Summary: "things", Runs: "npm:mcp-x@1.0.0", Reaches: []string{"api.example.com"},
			Page: true, Secrets: []string{"X_EXTRA (optional): Copy it.", "X_TOKEN: Make one."},
		},
	} {
		if got := of[name]; !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	for name, paged := range map[string]bool{
		"notion": true, "github": true, "filesystem": false, "cloudflare-dns": false, "cloudflare-docs": true,
	} {
		if o, ok := of[name]; !ok || o.Page != paged || o.Runs == "" {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

// TestEnterSecrets: only who operates this pfard begins a set-up that way, only of a server that lacks a secret, and
// not in place of another set-up.
func TestEnterSecrets(t *testing.T) {
	d, m, b := withPages(t)
	f := d.orders.flows
	enter := func(p control.Peer, server string) (string, error) { return f.enterSecrets(t.Context(), p, server) }
	for name, key := range map[string]string{"a": "a_token", "b": "b_token"} {
		d.put(t, name+".hcl", strings.ReplaceAll(withToken, "a_token", key))
	}
	if err := d.do(func() error { d.reload(); return nil }); err != nil {
		t.Fatal(err)
	}
	if link, err := enter(control.Peer{UID: os.Getuid() + 4711}, "a"); link != "" || !errors.Is(err, control.ErrDenied) {
		t.Errorf("somebody else: %q, %v", link, err)
	}
	if link, err := enter(operator(), "nobody"); link != "" || err == nil {
		t.Errorf("a server that is not declared: %q, %v", link, err)
	}
	var w *browser
	for range 2 { // the second page takes the place of the first
		link, err := enter(operator(), "a")
		if w = <-b.opened; err != nil || link != page.Link(w.task.Nonce, 4711) {
			t.Fatalf("%q, %v", link, err)
		}
	}
	if link, err := enter(operator(), "b"); link != "" || !errors.Is(err, control.ErrBusy) || m.count("a") > 0 {
		t.Errorf("while another set-up is under way: %q, %v", link, err)
	}
	w.acts(t, page.Enter, "hunter2-hunter2")
	d.comesUp(t, m, "a", 1, proven())
	w.until(t, func(s page.State) bool { return s.Phase.Over() })
	if link, err := enter(operator(), "a"); link != "" || err == nil || !strings.Contains(err.Error(), "has all secrets") {
		t.Errorf("with all secrets: %q, %v", link, err)
	}
	if m.count("a") != 1 {
		t.Errorf("it was started %d times", m.count("a"))
	}
	w.conn.Close()
}
