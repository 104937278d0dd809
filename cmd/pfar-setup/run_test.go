package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/loopback"
	"github.com/pfar/pfar/units/page"
)

// pfard is the other end of a page's conversation.
type pfard struct {
	conn  *attach.Conn
	ended chan error // how the page's process ends
	stop  context.CancelFunc
}

// begin runs a page with a task, and returns its conversation once it has been welcomed.
func begin(t *testing.T, task []byte) *pfard {
	t.Helper()
	path := filepath.Join(t.TempDir(), "attach.sock")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, stop := context.WithCancel(t.Context())
	p := &pfard{ended: make(chan error, 1), stop: stop}
	t.Cleanup(stop)
	go func() { p.ended <- run(ctx, path) }()
	u, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	p.conn = attach.Accepted(u)
	t.Cleanup(func() { p.conn.Close() })
	if m, _, err := p.conn.Receive(); err != nil || m.Hello == nil || *m.Hello != (attach.Hello{Page: true}) {
		t.Fatalf("%+v, %v", m, err)
	}
	f, err := units.Sealed("page", task)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := p.conn.Send(attach.Message{Welcome: &attach.Welcome{}}, f); err != nil {
		t.Fatal(err)
	}
	return p
}

func encoded(t *testing.T, k page.Task) []byte {
	t.Helper()
	b, err := json.Marshal(k)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// next is what the page says next, and the value that comes with it.
func (p *pfard) next(t *testing.T) (attach.Message, string) {
	t.Helper()
	m, files, err := p.conn.Receive()
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		return m, ""
	}
	b, err := units.ReadSealed(files[0], page.MaxValue)
	if err != nil || len(files) > 1 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	return m, string(b)
}

func get(t *testing.T, link string) string {
	t.Helper()
	r, err := http.Get(link)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var turnField = regexp.MustCompile(`name="turn" value="([^"]+)"`)

// enter fills in the form as a browser does.
func enter(t *testing.T, link, value string) {
	t.Helper()
	found := turnField.FindStringSubmatch(get(t, link))
	if found == nil {
		t.Fatal("there is no form")
	}
	form := url.Values{"turn": {found[1]}, "act": {"enter"}, "value": {value}}
	r, err := http.NewRequest("POST", link, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	at, _ := url.Parse(link)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", "http://"+at.Host)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); resp.StatusCode != 200 || !strings.Contains(string(b), "Connecting") {
		t.Fatalf("%d %s", resp.StatusCode, b)
	}
}

// TestRun: a wrong value, a right one, and the end.
func TestRun(t *testing.T) {
	k := task()
	p := begin(t, encoded(t, k))
	m, _ := p.next(t)
	if m.Listens == nil || m.Listens.Port == 0 {
		t.Fatalf("%+v", m)
	}
	link := page.Link(k.Nonce, m.Listens.Port)
	enter(t, link, "ntn_wrong")
	if m, value := p.next(t); m.Acted == nil || m.Acted.Act != page.Enter || value != "ntn_wrong" {
		t.Fatalf("%+v %q", m, value)
	}
	show := func(s page.State) {
		t.Helper()
		if err := p.conn.Send(attach.Message{PageTalk: attach.PageTalk{Shown: &s}}); err != nil {
			t.Fatal(err)
		}
	}
	show(page.State{Phase: page.Waiting, Words: "unauthorized <b>", Left: 2, Wanted: k.State.Wanted})
	await(t, link, "unauthorized &lt;b&gt;")
	enter(t, link, "ntn_right")
	if m, value := p.next(t); m.Acted == nil || value != "ntn_right" {
		t.Fatalf("%+v %q", m, value)
	}
	show(page.State{Phase: page.Done, Tools: 24, Tested: true})
	await(t, link, "with 24 tools")
	if err := <-p.ended; err != nil {
		t.Error(err)
	}
	if _, err := http.Get(link); err == nil {
		t.Error("the page is there after its end")
	}
}

// await loads the page until it says something. Each try is a round trip to the page's process.
func await(t *testing.T, link, words string) {
	t.Helper()
	for !strings.Contains(get(t, link), words) {
		if t.Context().Err() != nil {
			t.Fatalf("the page never says %q", words)
		}
	}
}

// TestPfardGoes: the page says so, takes nothing, and ends.
func TestPfardGoes(t *testing.T) {
	k := task()
	p := begin(t, encoded(t, k))
	m, _ := p.next(t)
	link := page.Link(k.Nonce, m.Listens.Port)
	get(t, link)
	p.conn.Close()
	await(t, link, "pfar was stopped")
	if err := <-p.ended; err != nil {
		t.Error(err)
	}
}

// TestFixedPort: without its pfard a page leaves a port that the next pfard needs, and does not wait for anybody to
// look.
func TestFixedPort(t *testing.T) {
	l, err := loopback.Listen(0)
	if err != nil {
		t.Fatal(err)
	}
	k := task()
	k.Port = uint16(l.Addr().(*net.TCPAddr).Port)
	l.Close()
	p := begin(t, encoded(t, k))
	if m, _ := p.next(t); m.Listens == nil || m.Listens.Port != k.Port {
		t.Fatalf("%+v", m.Listens)
	}
	looked := time.After(lastLook)
	p.conn.Close()
	select {
	case err := <-p.ended:
		if err != nil {
			t.Error(err)
		}
	case <-looked:
		t.Fatal("it waits for a look")
	}
	if l, err = loopback.Listen(k.Port); err != nil {
		t.Fatal(err)
	}
	l.Close()
}

// TestStopped: SIGTERM ends it at once, whether or not somebody looks.
func TestStopped(t *testing.T) {
	p := begin(t, encoded(t, task()))
	p.next(t)
	p.stop()
	if err := <-p.ended; err != nil {
		t.Error(err)
	}
}

// TestNoTask: a page that is not whole is not served, and no error quotes it.
func TestNoTask(t *testing.T) {
	for name, change := range map[string]func(*page.Task){
		"no nonce": func(k *page.Task) { k.Nonce = "" },
		"short":    func(k *page.Task) { k.Nonce = "ABC" },
		"a path":   func(k *page.Task) { k.Nonce = "../../../../../../../../../../" },
		"a port":   func(k *page.Task) { k.Port = 8080 },
		"no title": func(k *page.Task) { k.Title = "\x00" },
		"no name":  func(k *page.Task) { k.Server = "" },
		"no phase": func(k *page.Task) { k.State.Phase = "" },
	} {
		k := task()
		change(&k)
		p := begin(t, encoded(t, k))
		if err := <-p.ended; err == nil || k.Nonce != "" && strings.Contains(err.Error(), k.Nonce) {
			t.Errorf("%s: %v", name, err)
		}
	}
	p := begin(t, []byte(`{"nonce":"QUOTED`))
	if err := <-p.ended; err == nil || strings.Contains(err.Error(), "QUOTED") {
		t.Errorf("no JSON: %v", err)
	}
}

// TestTakenPort: pfard hears why there is no page.
func TestTakenPort(t *testing.T) {
	l, err := loopback.Listen(0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	k := task()
	k.Port = uint16(l.Addr().(*net.TCPAddr).Port)
	p := begin(t, encoded(t, k))
	m, _ := p.next(t)
	if m.Listens == nil || m.Listens.Port != 0 || !strings.Contains(m.Listens.Error, fmt.Sprint(k.Port)) {
		t.Errorf("%+v", m.Listens)
	}
	if err := <-p.ended; err == nil {
		t.Error("it ends as if all were well")
	}
}

// TestPassed: a local pfard passes the connection itself.
func TestPassed(t *testing.T) {
	if _, _, err := join(t.Context(), ""); err == nil || !strings.Contains(err.Error(), units.FDPage) {
		t.Errorf("without one: %v", err)
	}
	os.Unsetenv("LISTEN_FDS")
}
