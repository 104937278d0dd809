package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/chores"
	"github.com/pfar/pfar/units/control"
)

// ownProgram stands in for pfar's own program: the test is asked what it prints.
type ownProgram struct {
	runs  chan []string // command lines
	says  chan string   // what each prints
	fails chan error    // how each ends, likewise
	learn func(ctx context.Context, server string)
}

func (p *ownProgram) run(ctx context.Context, _ time.Duration, args ...string) ([]byte, error) {
	if p.learn != nil {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		go p.learn(ctx, args[1])
	}
	p.runs <- args
	select {
	case text := <-p.says:
		return []byte(text), <-p.fails
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// ends has a run end.
func (p *ownProgram) ends(text string, err error) {
	p.says <- text
	p.fails <- err
}

// withProgram is a fixture with the server b, whose pfar is the test.
func withProgram(t *testing.T) (*daemon, *ownProgram) {
	t.Helper()
	d, _, changed := fixture(t)
	p := &ownProgram{runs: make(chan []string, 9), says: make(chan string, 9), fails: make(chan error, 9)}
	d.orders.commands.run, d.orders.commands.home = p.run, t.TempDir()
	d.put(t, "b.hcl", fmt.Sprintf(good, "x")+"blocked_domains = [\"evil.example\"]\n")
	changed <- struct{}{}
	d.state(t)
	return d, p
}

// viewOf has a console show a view, and decodes it.
func viewOf[T any](t *testing.T, d *daemon, what, subject string) (v T, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	f, _, err := shown{d}.view(ctx, control.Peer{UID: os.Getuid()}, attach.View{What: what, Subject: subject})
	if err != nil {
		return v, err
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	return v, err
}

// ended waits until nothing is under way, and returns what a console sees then.
func ended[T interface{ UnderWay() bool }](t *testing.T, d *daemon, what, subject string) T {
	t.Helper()
	changed, leave, err := d.followers.follow()
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	for {
		now, err := viewOf[T](t, d, what, subject)
		if err != nil {
			t.Fatal(err)
		}
		if !now.UnderWay() {
			return now
		}
		<-changed
	}
}

const printedLesson = `{"server":"b","seconds":120,"declared":[],"suggested":[{"entry":"good.example:8443","times":2},
{"entry":"evil.example","times":1}],"refused":[{"target":"10.0.0.1:443","reason":"special","times":1}]}`

// TestOrderedLearn: only the user who runs pfard has a server learn; one server at a time. The order is answered when
// the learning has begun. Then that user sees how it goes, and may allow the hosts that it suggests, and no others.
func TestOrderedLearn(t *testing.T) {
	d, p := withProgram(t)
	order := func(by control.Peer, o attach.Order) error {
		_, err := d.ordered(t.Context(), by, o)
		return err
	}
	learn := func(server string) error {
		return order(operator(), attach.Order{Act: attach.OrderLearn, Server: server})
	}
	allow := func(host string) error {
		return order(operator(), attach.Order{Act: attach.OrderAllow, Server: "b", Host: host})
	}
	other := control.Peer{UID: os.Getuid() + 4711}
	if err := order(other, attach.Order{Act: attach.OrderLearn, Server: "b"}); !errors.Is(err, control.ErrDenied) {
		t.Errorf("somebody else: %v", err)
	}
	if _, _, err := (shown{d}).view(t.Context(), other, attach.View{What: attach.ViewLesson, Subject: "b"}); !errors.Is(
		err, control.ErrDenied,
	) {
		t.Errorf("somebody else sees it: %v", err)
	}
	for _, server := range []string{"nobody", "", "--help", "../x"} {
		if err := learn(server); !errors.Is(err, control.ErrNoServer) || len(p.runs) > 0 {
			t.Errorf("%q: %v", server, err)
		}
		if _, err := viewOf[chores.Learning](t, d, attach.ViewLesson, server); !errors.Is(err, control.ErrNoServer) {
			t.Errorf("the lesson of %q: %v", server, err)
		}
	}
	if l, err := viewOf[chores.Learning](t, d, attach.ViewLesson, "b"); err != nil || l != (chores.Learning{}) {
		t.Errorf("before: %+v, %v", l, err)
	}

	p.ends("", errors.New("it is \x1b[31mbroken"))
	if err := learn("b"); err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("one that fails: %v", err)
	}
	<-p.runs
	if l := ended[chores.Learning](t, d, attach.ViewLesson, "b"); l.Found != nil || strings.Contains(l.Failed, "\x1b") ||
		!strings.Contains(l.Failed, "broken") {
		t.Errorf("its result: %+v", l)
	}
	if err := allow("good.example:8443"); err == nil || !strings.Contains(err.Error(), "did not refuse") {
		t.Errorf("a host that nobody suggests: %v", err)
	}

	p.learn = func(ctx context.Context, server string) {
		_ = d.learn(ctx, server, func(control.Response) error { return nil })
	}
	if err := learn("b"); err != nil {
		t.Fatal(err)
	}
	want := []string{"learn", "b", "--for", learnTime, "--json"}
	if got := <-p.runs; !slices.Equal(got, want) {
		t.Errorf("it runs %q, want %q", got, want)
	}
	if l, err := viewOf[chores.Learning](t, d, attach.ViewLesson, "b"); err != nil || !l.UnderWay() || l.Found != nil {
		t.Errorf("while it learns: %+v, %v", l, err)
	}
	if err := learn("b"); !errors.Is(err, control.ErrLearning) {
		t.Errorf("twice: %v", err)
	}
	d.put(t, "c.hcl", fmt.Sprintf(good, "x"))
	if err := d.do(func() error { d.reload(); return nil }); err != nil {
		t.Fatal(err)
	}
	if err := learn("c"); !errors.Is(err, control.ErrBusy) {
		t.Errorf("another one: %v", err)
	}
	p.ends(printedLesson, nil)
	l := ended[chores.Learning](t, d, attach.ViewLesson, "b")
	if l.Failed != "" || l.Found == nil || len(l.Found.Suggested) != 2 || len(l.Found.Refused) != 1 {
		t.Errorf("the lesson is %+v", l)
	}
	for host, want := range map[string]string{
		"10.0.0.1": "did not refuse", "other.example": "did not refuse", "good.example": "did not refuse",
		"evil.example": "blocked_domains names evil.example",
	} {
		if err := allow(host); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", host, err, want)
		}
	}
	if err := allow("good.example:8443"); err != nil {
		t.Error(err)
	}
	if domains := d.state(t)["b"].Domains; !slices.Contains(domains, "good.example:8443") {
		t.Errorf("it may reach %q", domains)
	}
	if got := ordersOf(t, d); !slices.Equal(got, []string{"learn b", "learn b", "learn c"}) {
		t.Errorf("the audit has %q", got)
	}
	if err := os.Remove(filepath.Join(d.options.declarations, "b.hcl")); err != nil {
		t.Fatal(err)
	}
	if err := d.do(func() error { d.reload(); return nil }); err != nil {
		t.Fatal(err)
	}
	if d.orders.commands.suggests("b", "evil.example") {
		t.Error("the lesson of a server that is gone counts")
	}
}

// ordersOf lists what consoles have ordered of pfar's own program.
func ordersOf(t *testing.T, d *daemon) (list []string) {
	t.Helper()
	for _, r := range d.audit.recorded(t, ownChain) {
		if r.Channel != byConsole || r.Method != attach.OrderLearn && r.Method != attach.OrderImport {
			continue
		}
		if r.User != fmt.Sprintf("uid %d", os.Getuid()) || r.Outcome != "requested" ||
			(r.Kind == audit.Declaration) != (r.Method == attach.OrderImport) {
			t.Errorf("the record is %+v", r)
		}
		list = append(list, r.Method+" "+r.Server+r.Subject)
	}
	return list
}

// TestLongLesson: a server that asks for many hosts fills no page.
func TestLongLesson(t *testing.T) {
	d, p := withProgram(t)
	var hosts []string
	for i := range 1000 {
		hosts = append(hosts, fmt.Sprintf(`{"entry":"x%d.example"}`, i))
	}
	p.ends(`{"suggested":[`+strings.Join(hosts, ",")+`],"left_out":5}`, nil)
	if err := learnHosts(t.Context(), d, operator(), "b"); err != nil {
		t.Fatal(err)
	}
	l := ended[chores.Learning](t, d, attach.ViewLesson, "b")
	if len(l.Found.Suggested) != maxLesson || l.Found.LeftOut != 1000-maxLesson+5 {
		t.Errorf("%d hosts, %d left out", len(l.Found.Suggested), l.Found.LeftOut)
	}
	if c := d.orders.commands; !c.suggests("b", "x0.example") || c.suggests("b", "x999.example") {
		t.Error("what no page shows may be allowed")
	}
}

// previewed is what a dry run prints, with a declaration.
func previewed(text string) string {
	f := chores.File{File: "/home/ann/.cursor/mcp.json", Servers: []chores.Server{
		{Name: "Echo", Server: "echo", Declaration: text}, {Name: "old", Refused: "it exists already"},
	}}
	b, _ := json.Marshal(chores.Import{Files: []chores.File{f}})
	return string(b)
}

// TestOrderedImport: only the user who runs pfard sees what an import would do, and has it done, if it is what was
// seen. It goes on after the order is answered; meanwhile there is no other.
func TestOrderedImport(t *testing.T) {
	d, p := withProgram(t)
	order := func(by control.Peer, program, digest string) error {
		o := attach.Order{Act: attach.OrderImport, Program: program, Digest: digest}
		_, err := d.ordered(t.Context(), by, o)
		return err
	}
	other := control.Peer{UID: os.Getuid() + 4711}
	if err := order(other, "cursor", ""); !errors.Is(err, control.ErrDenied) {
		t.Errorf("somebody else: %v", err)
	}
	for _, subject := range []string{"", "cursor"} {
		v := attach.View{What: attach.ViewImport, Subject: subject}
		if _, _, err := (shown{d}).view(t.Context(), other, v); !errors.Is(err, control.ErrDenied) {
			t.Errorf("somebody else sees %q: %v", subject, err)
		}
	}
	see := func(program string) (chores.Importing, error) {
		return viewOf[chores.Importing](t, d, attach.ViewImport, program)
	}
	if i, err := see(""); err != nil || i != (chores.Importing{}) {
		t.Errorf("before: %+v, %v", i, err)
	}
	if got := (shown{d}).known().Programs; len(got) > 0 {
		t.Errorf("there are files of %q", got)
	}
	file := filepath.Join(d.orders.commands.home, ".cursor/mcp.json")
	if err := errors.Join(os.Mkdir(filepath.Dir(file), 0o700), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if got := (shown{d}).known().Programs; !slices.Equal(got, []string{"cursor"}) {
		t.Errorf("there are files of %q", got)
	}
	for _, program := range []string{"zed", "--yes", "/etc/passwd", "../cursor"} {
		if _, err := see(program); !errors.Is(err, control.ErrInvalid) || len(p.runs) > 0 {
			t.Errorf("%q: %v", program, err)
		}
		if err := order(operator(), program, ""); !errors.Is(err, control.ErrInvalid) || len(p.runs) > 0 {
			t.Errorf("%q: %v", program, err)
		}
	}

	p.ends("", errors.New("it is \x1b[31mbroken"))
	if _, err := see("cursor"); err == nil || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("a file that cannot be read: %v", err)
	}
	<-p.runs
	p.ends(previewed("one"), nil)
	first, err := see("cursor")
	if err != nil || first.Digest == "" || first.Program != "cursor" || len(first.Import.Wanted()) != 1 {
		t.Errorf("the preview is %+v, %v", first, err)
	}
	dry := []string{"import", "--from", "cursor", "--dry-run", "--json"}
	if got := <-p.runs; !slices.Equal(got, dry) {
		t.Errorf("it runs %q, want %q", got, dry)
	}
	p.ends(previewed("two"), nil)
	if err := order(operator(), "cursor", first.Digest); err == nil ||
		!strings.Contains(err.Error(), "load the page again") {
		t.Errorf("another preview: %v", err)
	}
	p.ends(`{"files":[{"file":"x","servers":[{"name":"old","refused":"no"}]}]}`, errors.New("nothing to import"))
	none, err := see("cursor")
	if err != nil || none.Digest == "" {
		t.Errorf("nothing to import: %+v, %v", none, err)
	}
	p.ends(`{"files":[{"file":"x","servers":[{"name":"old","refused":"no"}]}]}`, errors.New("nothing to import"))
	if err := order(operator(), "cursor", none.Digest); err == nil ||
		!strings.Contains(err.Error(), "nothing to import") {
		t.Errorf("nothing to import: %v", err)
	}
	for range len(p.runs) {
		if got := <-p.runs; !slices.Equal(got, dry) {
			t.Errorf("it runs %q, want %q", got, dry)
		}
	}
	if got := ordersOf(t, d); got != nil {
		t.Errorf("the audit has %q", got)
	}

	p.ends(previewed("one"), nil)
	if err := order(operator(), "cursor", first.Digest); err != nil {
		t.Fatal(err)
	}
	<-p.runs
	want := []string{"import", "--from", "cursor", "--yes", "--json"}
	if got := <-p.runs; !slices.Equal(got, want) {
		t.Errorf("it runs %q, want %q", got, want)
	}
	if got := ordersOf(t, d); !slices.Equal(got, []string{"import cursor"}) {
		t.Errorf("the audit has %q", got)
	}
	if i, err := see(""); err != nil || !i.UnderWay() || i.Program != "cursor" {
		t.Errorf("while it goes on: %+v, %v", i, err)
	}
	if _, err := see("cursor"); !errors.Is(err, control.ErrBusy) {
		t.Errorf("a preview meanwhile: %v", err)
	}
	if err := order(operator(), "cursor", first.Digest); !errors.Is(err, control.ErrBusy) || len(p.runs) > 0 {
		t.Errorf("another import meanwhile: %v", err)
	}
	done := strings.Replace(previewed("one"), `"server":"echo"`, `"server":"echo","declared":"/x/echo.hcl"`, 1)
	p.ends(done, errors.New("the import ended early"))
	i := ended[chores.Importing](t, d, attach.ViewImport, "")
	if i.Failed != "the import ended early" || i.Import == nil || i.Import.Wanted()[0].Declared != "/x/echo.hcl" {
		t.Errorf("at its end: %+v", i)
	}
}

// TestCommandsEnd: what runs ends with pfard.
func TestCommandsEnd(t *testing.T) {
	d, p := withProgram(t)
	p.learn = func(ctx context.Context, server string) {
		_ = d.learn(ctx, server, func(control.Response) error { return nil })
	}
	if err := learnHosts(t.Context(), d, operator(), "b"); err != nil {
		t.Fatal(err)
	}
	d.orders.commands.close()
	if l := d.orders.commands.lessonOf("b"); l.UnderWay() || l.Found != nil {
		t.Errorf("after the end: %+v", l)
	}
}
