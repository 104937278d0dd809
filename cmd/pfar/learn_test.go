package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/monitor"
	"github.com/pfar/pfar/units/wants"
)

// learnedAt is within the learning of these tests, which begins at fixedNow.
func learnedAt(seconds int) time.Time { return fixedNow().Add(time.Duration(seconds) * time.Second) }

// sampleRefusals are of every kind, with what a hostile server makes of them.
func sampleRefusals() []monitor.Connection {
	var all []monitor.Connection
	add := func(path monitor.Path, protocol, host, reason string, count int) {
		m := denied(learnedAt(len(all)), path, protocol, host, reason)
		m.ID = uint64(len(all) + 1)
		if count > 1 {
			m.Count, m.Last = count, m.Time.Add(time.Second)
		}
		all = append(all, m)
	}
	add(monitor.Resolver, "dns", "cdn.example.com", egress.NameNotDeclared, 2)
	add(monitor.Redirect, "tls", "cdn.example.com:443", egress.NameNotDeclared, 3)
	add(monitor.Redirect, "http", "cdn.example.com:80", egress.NameNotDeclared, 1)
	add(monitor.Proxy, "tls", "cdn.example.com:443", egress.NameNotDeclared, 1)
	add(monitor.Resolver, "dns", "smtp.example.com", egress.NameNotDeclared, 1)
	add(monitor.Redirect, "tcp", "smtp.example.com:587", egress.NameNotDeclared, 1)
	add(monitor.Redirect, "tcp", "smtp.example.com:2525", egress.NameNotDeclared, 2)
	add(monitor.Redirect, "tls", "smtp.example.com:443", egress.NameNotDeclared, 1)
	add(monitor.Resolver, "dns", "telemetry.example", egress.NameNotDeclared, 4)
	add(monitor.Redirect, "tcp", "api.notion.com:5432", egress.PortNotDeclared, 1)
	add(monitor.Kernel, "tcp", "93.184.216.34:443", "not-declared", 1)
	add(monitor.Proxy, "tcp", "[2606:2800:220:1::1]:8443", egress.AddressLiteral, 2)
	add(monitor.Kernel, "tcp", "169.254.169.254:80", "not-declared", 1)
	add(monitor.Proxy, "tcp", "10.0.0.5:5432", egress.AddressLiteral, 1)
	add(monitor.Kernel, "udp", "8.8.8.8:53", "protocol-udp", 9)
	add(monitor.Kernel, "udp", "cdn.example.com:443", "protocol-udp", 1)
	add(monitor.Kernel, "icmp", "1.1.1.1", "protocol-icmp", 1)
	add(monitor.Kernel, "tcp", "224.0.0.1:5353", "not-declared", 1)
	add(monitor.Resolver, "dns", "1.0.0.10.in-addr.arpa", egress.NameNotDeclared, 1)
	add(monitor.Redirect, "tls", "front.notion.com:443", "sni-mismatch", 1)
	add(monitor.Proxy, "", "", egress.BadName, 1)
	add(monitor.Resolver, "dns", `a",]`+"\n}\x1b[2J\u202e", egress.NameNotDeclared, 1)
	add(monitor.Redirect, "tls", `${file("/etc/passwd")}:443`, egress.NameNotDeclared, 1)
	add(monitor.Redirect, "tls", "*.com:443", egress.NameNotDeclared, 1)
	add(monitor.Redirect, "tls", "*.example.org:443", egress.NameNotDeclared, 1)
	add(monitor.Redirect, "tls", "10.0.0.0/8:443", egress.NameNotDeclared, 1)
	add(monitor.Redirect, "tls", "localhost:443", egress.NameNotDeclared, 1)
	add(monitor.Redirect, "tls", "zero.example:0", egress.NameNotDeclared, 1)
	add(monitor.Redirect, "tls", "CAFÉ.example:443", egress.NameNotDeclared, 1)
	add(monitor.Redirect, "tls", strings.Repeat("x", 5000)+".example:443", egress.NameNotDeclared, 1)
	add(monitor.Redirect, "tls", "now.declared:443", egress.NameNotDeclared, 1)
	return all
}

func sampleLesson(t *testing.T, declared ...string) wants.Lesson {
	t.Helper()
	w := newWishes(fixedNow(), func(wants.Wish, monitor.Connection) {})
	for range 2 { // a bridge that was started again tells everything once more
		for _, m := range sampleRefusals() {
			w.see(m)
		}
	}
	return w.lesson("notion", declared, time.Minute)
}

func TestLesson(t *testing.T) {
	var b strings.Builder
	if err := writeLesson(&b, sampleLesson(t, "api.notion.com", "*.now.declared", "now.declared")); err != nil {
		t.Fatal(err)
	}
	golden(t, "learn.txtar", "all kinds", b.String())
	if strings.ContainsFunc(b.String(), func(r rune) bool { return hostile(r, keepLines) }) {
		t.Errorf("a terminal would obey %q", b.String())
	}
	raw, err := json.MarshalIndent(sampleLesson(t, "api.notion.com", "now.declared"), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "learn.txtar", "as JSON", string(escapeJSON(raw))+"\n")
	b.Reset()
	none := newWishes(fixedNow(), nil).lesson("notion", nil, 0)
	if err := writeLesson(&b, none); err != nil || b.String() != "allowed_domains = []\n" {
		t.Errorf("nothing at all: %q, %v", b.String(), err)
	}
}

// TestLessonOfARemoteServer: its url names its host, and allowed_domains need not.
func TestLessonOfARemoteServer(t *testing.T) {
	for address, want := range map[string]string{
		"https://mcp.example/mcp":      `["auth.example:443"]`,
		"https://mcp.example:8443/mcp": `["auth.example:443","mcp.example:443"]`,
		"":                             `["auth.example:443","mcp.example:443"]`,
	} {
		l := newWishes(fixedNow(), nil).lesson("x", []string{"auth.example:443", "mcp.example:443"}, 0)
		leaveOut(&l, address)
		for _, list := range [][]string{l.Declared, l.AllDomains} {
			if got, _ := json.Marshal(list); string(got) != want {
				t.Errorf("%q: %s, want %s", address, got, want)
			}
		}
	}
}

// TestLessonIsADeclaration: what is printed is read by pfar's own parsers, and means what is above it. A server's word
// must not become a key.
func TestLessonIsADeclaration(t *testing.T) {
	l := sampleLesson(t, "api.notion.com", "*.now.declared")
	var b strings.Builder
	if err := writeLesson(&b, l); err != nil {
		t.Fatal(err)
	}
	for name, rest := range map[string]string{
		"notion.hcl":  "description = \"x\"\nserver {\n  command = \"sh\"\n}\n",
		"notion.toml": "description = \"x\"\n[server]\ncommand = \"sh\"\n",
	} {
		fsys := fstest.MapFS{name: {Data: []byte(b.String() + rest)}}
		set := declaration.Load([]declaration.Folder{{Path: "/d", FS: fsys}}, declaration.Options{Servers: "/srv"})
		if set.Diags.HasErrors() || len(set.Servers) != 1 {
			t.Fatalf("%s: %v\n%s", name, set.Diags, b.String())
		}
		var got []string
		for _, e := range set.Servers[0].Allowed {
			got = append(got, e.String())
		}
		if want := l.AllDomains; !slices.Equal(got, want) {
			t.Errorf("%s: read %q, want %q", name, got, want)
		}
	}
}

func TestWishesAreCountedOnce(t *testing.T) {
	var told []string
	w := newWishes(fixedNow(), func(w wants.Wish, _ monitor.Connection) { told = append(told, w.Target()) })
	m := denied(learnedAt(1), monitor.Redirect, "tls", "a.example:443", egress.NameNotDeclared)
	m.ID = 7
	see := func(count int) {
		m.Count, m.Last = count, m.Time.Add(time.Duration(count)*time.Second)
		w.see(m)
	}
	for _, n := range []int{0, 2, 2, 5, 3} { // 3 is of a bridge that had saved less
		see(n)
	}
	old := denied(fixedNow().Add(-time.Second), monitor.Redirect, "tls", "old.example:443", egress.NameNotDeclared)
	w.see(old)
	old.ID, old.Count, old.Last = 8, 50, learnedAt(3) // it began before, and went on
	w.see(old)
	old.Count = 52
	w.see(old)
	for _, not := range []monitor.Connection{
		{ID: 20, Time: learnedAt(1), Host: "open.example:443", Verdict: "deny", Reason: egress.NameNotDeclared, Open: true},
		{ID: 21, Time: learnedAt(1), Host: "fine.example:443", Verdict: "allow", Reason: egress.Declared},
		{ID: 22, Time: learnedAt(1), Host: "down.example:443", Verdict: "allow", Reason: "not-resolved"},
	} {
		w.see(not)
	}
	l := w.lesson("x", nil, 0)
	if got := fmt.Sprint(l.Suggested[0].Entry, l.Suggested[0].Times, " ", l.Suggested[1].Entry, l.Suggested[1].Times, len(l.Suggested)); got != "a.example5 old.example3 2" {
		t.Errorf("got %s", got)
	}
	if !slices.Equal(told, []string{"a.example:443", "old.example:443"}) {
		t.Errorf("told %q", told)
	}
}

// TestWishesAreBounded: a server may ask for names that it makes up.
func TestWishesAreBounded(t *testing.T) {
	w := newWishes(fixedNow(), func(wants.Wish, monitor.Connection) {})
	for i := range 3 * maxWishes {
		m := denied(learnedAt(i), monitor.Redirect, strings.Repeat("p", 5000), fmt.Sprintf("%d.%s.example:443", i, strings.Repeat("x", 5000)), strings.Repeat("r", 5000))
		m.ID = uint64(i + 1)
		w.see(m)
	}
	if len(w.by) != maxWishes || len(w.seen) > maxShown || len(w.order) > maxShown || w.left != 2*maxWishes {
		t.Errorf("%d wishes, %d seen, %d left out", len(w.by), len(w.seen), w.left)
	}
	for x, a := range w.by {
		if n := len(x.Host) + len(x.Obstacle); n > 500 {
			t.Fatalf("a wish of %d octets", n)
		}
		for p := range a.protocols {
			if len(p) > 200 {
				t.Fatalf("a protocol of %d octets", len(p))
			}
		}
	}
	w.lost = 7
	var b strings.Builder
	const ends = "  # left out: 2000 refusals of more than these 1000\n  # missed: 7 refusals that came too fast\n]\n"
	if err := writeLesson(&b, w.lesson("x", nil, 0)); err != nil || !strings.HasSuffix(b.String(), ends) {
		t.Errorf("%v: %s", err, b.String()[max(0, b.Len()-200):])
	}
}

// teacher is a pfard that has one server, and takes learners as pfard does: the report is its word for what follows.
type teacher struct {
	*fakePfard
	learners chan struct{} // one for each that has come
	gone     chan struct{} // one for each that has hung up
	dismiss  chan error    // ends the learning
}

func (b *bench) teacher(t *testing.T, state control.State, refuse error) *teacher {
	t.Helper()
	reach := control.Reach{Domains: []string{"api.notion.com"}}
	server := control.Server{Name: "notion", State: state, File: "/d/notion.hcl", Reach: reach}
	report := control.Report{Servers: []control.Server{server}}
	p := &teacher{&fakePfard{report: report, changed: make(chan struct{})}, make(chan struct{}, 9), make(chan struct{}, 9), make(chan error, 1)}
	l := b.listen(t, b.dirs.Control())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		control.Serve(ctx, l, func(ctx context.Context, peer control.Peer, r control.Request, send func(control.Response) error) error {
			if r.Verb != control.Learn {
				return p.serve(ctx, peer, r, send)
			}
			if refuse != nil {
				return refuse
			}
			p.learners <- struct{}{}
			defer func() { p.gone <- struct{}{} }()
			watching, enough := context.WithCancelCause(ctx)
			defer enough(nil)
			go func() {
				select {
				case err := <-p.dismiss:
					enough(err)
				case <-watching.Done():
				}
			}()
			r.Verb = control.Watch
			if err := p.serve(watching, peer, r, send); err != nil {
				return err
			}
			if cause := context.Cause(watching); ctx.Err() == nil && !errors.Is(cause, context.Canceled) {
				return cause
			}
			return nil // of pfard's end
		})
	}()
	t.Cleanup(func() { cancel(); <-done })
	return p
}

func (p *teacher) state(s control.State, detail string) {
	p.set(func(r *control.Report) { r.Servers[0].State, r.Servers[0].Detail = s, detail })
}

// lessonOf starts pfar learn and returns when it learns.
func (b *bench) lessonOf(t *testing.T, args ...string) *running {
	t.Helper()
	r := b.start(t, append([]string{"learn", "notion"}, args...)...)
	if got := next(t, r.err); !strings.HasPrefix(got, "notion is in learning mode ") {
		t.Fatalf("got %q", got)
	}
	return r
}

// TestLearn is the whole way: the server is restarted, wants things, its bridge ends meanwhile, and Ctrl-C prints.
func TestLearn(t *testing.T) {
	for _, output := range []string{"text", "json"} {
		b := newBench(t, "")
		b.now = fixedNow
		p := b.teacher(t, control.Stopping, nil)
		table := monitor.NewTable("")
		table.Refuse(denied(fixedNow().Add(-time.Hour), monitor.Proxy, "tls", "long.ago:443", egress.NameNotDeclared))
		stop := b.bridge(t, "notion", table)
		r := b.start(t, "learn", "notion", "-o", output)
		<-p.learners
		p.state(control.Starting, "")
		said := []string{next(t, r.err)}
		table.Refuse(denied(learnedAt(1), monitor.Resolver, "dns", "cdn.example.com", egress.NameNotDeclared))
		said = append(said, next(t, r.err))
		table.Refuse(denied(learnedAt(2), monitor.Redirect, "tls", "cdn.example.com:443", egress.NameNotDeclared))
		said = append(said, next(t, r.err))
		stop()
		table = monitor.NewTable("")
		defer b.bridge(t, "notion", table)()
		p.state(control.Running, "3 tools")
		for range 2 {
			table.Refuse(denied(learnedAt(3), monitor.Kernel, "udp", "8.8.8.8:53", "protocol-udp"))
		}
		said = append(said, next(t, r.err))
		table.Refuse(denied(learnedAt(4), monitor.Proxy, "", "", egress.BadName))
		said = append(said, next(t, r.err))
		p.set(func(r *control.Report) { r.Servers[0].Domains = []string{"api.notion.com", "db.lan:5432"} }) // the owner edits
		table.Refuse(denied(learnedAt(5), monitor.Redirect, "tcp", "odd\x1b.example:22", egress.NameNotDeclared))
		said = append(said, next(t, r.err))
		r.interrupt()
		printed, more, code := r.finish()
		if code != 0 || more != "" {
			t.Errorf("exit %d, %q", code, more)
		}
		<-p.gone
		golden(t, "learn.txtar", "pfar learn -o "+output, printed+"-- stderr\n"+strings.Join(said, "\n")+"\n")
	}
}

// TestLearnEnds in every way but Ctrl-C. What was learned is printed first.
func TestLearnEnds(t *testing.T) {
	const learned = "allowed_domains = [\n  \"api.notion.com\",\n  \"cdn.example.com\",  # once, port 443 (tls)\n]\n"
	for _, tt := range []struct {
		name string
		args []string
		end  func(p *teacher)
		code int
		err  string
	}{
		{"time is up", []string{"--for", "1s"}, func(*teacher) {}, 0, ""},
		{"the server ends", nil, func(p *teacher) { p.state(control.Stopped, "stopped") }, 0, "notion has ended\n"},
		{"the server fails", nil, func(p *teacher) { p.state(control.Failed, "disabled after 3 crashes in a row") }, exitFailed,
			"pfar: notion: failed: disabled after 3 crashes in a row\nhint: pfar logs notion says why, pfar start notion tries again\n"},
		{"another stops it", nil, func(p *teacher) { p.dismiss <- fmt.Errorf("%w: x", control.ErrStopped) }, 0, "the learning has ended: stopped meanwhile: x\n"},
		{"it is disabled", nil, func(p *teacher) { p.dismiss <- fmt.Errorf("%w: x", control.ErrDisabled) }, 0, "the learning has ended: disabled by its declaration: x\n"},
		{"it is removed", nil, func(p *teacher) {
			p.set(func(r *control.Report) { r.Servers = nil })
			p.dismiss <- fmt.Errorf("%w: x\x1b", control.ErrNoServer)
		}, 0, `the learning has ended: no such server: x\x1b` + "\n"},
		{"pfard ends", nil, func(p *teacher) { p.dismiss <- nil }, exitNotRunning, "pfar: pfar is not running any more\nhint: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, "")
			b.now = fixedNow
			p := b.teacher(t, control.Running, nil)
			table := monitor.NewTable("")
			stop := b.bridge(t, "notion", table)
			r := b.lessonOf(t, tt.args...)
			table.Refuse(denied(learnedAt(1), monitor.Redirect, "tls", "cdn.example.com:443", egress.NameNotDeclared))
			next(t, r.err)
			tt.end(p)
			go stop() // the bridge ends with its server
			if got, said, code := r.finish(); got != learned || code != tt.code || !strings.HasPrefix(said, tt.err) || tt.err == "" && said != "" {
				t.Errorf("exit %d, want %d\nstdout: %s\nstderr: %s", code, tt.code, got, said)
			}
		})
	}
}

// TestLearnDoesNotBegin: then nothing is printed that one could take for the result.
func TestLearnDoesNotBegin(t *testing.T) {
	for _, tt := range []struct {
		name   string
		args   []string
		state  control.State
		detail string
		refuse error
		code   int
		err    string
	}{
		{"disabled by the operator", nil, control.Stopped, "", fmt.Errorf("%w: x", control.ErrOff), exitFailed, "pfar: disabled by you: x\nhint: pfar enable notion\n"},
		{"disabled", nil, control.Stopped, "", fmt.Errorf("%w: x", control.ErrDisabled), exitFailed, "pfar: disabled by its declaration: x\nhint: set enabled = true in /d/notion.hcl\n"},
		{"by another", nil, control.Running, "", fmt.Errorf("%w: x", control.ErrLearning), exitFailed, "pfar: learning already: x\nhint: end the other pfar learn notion first\n"},
		{"removed just now", nil, control.Running, "", fmt.Errorf("%w: x", control.ErrNoServer), exitNoSuch, "pfar: no such server: x\n"},
		{"no credential", nil, control.Waiting, "for credentials: A: pfar vault set a_token", nil, exitFailed,
			"pfar: notion: waiting: for credentials: A: pfar vault set a_token\nhint: pfar vault set a_token\n"},
		{"cannot start", nil, control.Failed, "no bwrap", nil, exitFailed, "pfar: notion: failed: no bwrap\n"},
		{"no such server", []string{"learn", "notoin"}, control.Running, "", nil, exitNoSuch, "pfar: no such server: \"notoin\"\nhint: did you mean \"notion\"?\n"},
		{"no name", []string{"learn"}, control.Running, "", nil, exitUsage, "pfar: learn: missing NAME\n"},
		{"no time", []string{"learn", "notion", "--for", "0"}, control.Running, "", nil, exitUsage, "pfar: --for 0s: want a time, such as 30s or 5m\n"},
		{"a negative time", []string{"learn", "notion", "--for", "-1s"}, control.Running, "", nil, exitUsage, "pfar: --for -1s: want a time"},
		{"nonsense", []string{"learn", "notion", "--for", "soon"}, control.Running, "", nil, exitUsage, "pfar: invalid argument \"soon\""},
	} {
		first := newBench(t, "")
		p := first.teacher(t, tt.state, tt.refuse)
		p.report.Servers[0].Detail = tt.detail
		if tt.state == control.Waiting {
			p.report.Servers[0].Remedy = units.ToDo(units.StoreSecret, "a_token")
		}
		b := first.again("")
		if tt.args == nil {
			tt.args = []string{"learn", "notion"}
		}
		code := b.run(t.Context(), tt.args)
		if code != tt.code || !strings.HasPrefix(b.err.String(), tt.err) || b.out.Len() > 0 {
			t.Errorf("%s: exit %d, want %d\nstdout: %s\nstderr: %s", tt.name, code, tt.code, b.out, b.err)
		}
	}
	b := newBench(t, "")
	if code := b.run(t.Context(), []string{"learn", "notion"}); code != exitNotRunning {
		t.Errorf("without pfard: exit %d, %s", code, b.err)
	}
	b = newBench(t, "")
	p := b.teacher(t, control.Stopping, nil)
	r := b.start(t, "learn", "notion")
	<-p.learners
	r.interrupt()
	if _, printed, code := r.finish(); code != exitInterrupted || printed != "pfar: interrupted\n" {
		t.Errorf("interrupted before it started: exit %d, %q", code, printed)
	}
}

// TestLearnOfAContentServer: nothing to add, and the declaration stays as it is.
func TestLearnOfAContentServer(t *testing.T) {
	b := newBench(t, "")
	b.now = fixedNow
	b.teacher(t, control.Running, nil)
	b.bridge(t, "notion", monitor.NewTable(""))
	r := b.lessonOf(t)
	r.interrupt()
	printed, said, code := r.finish()
	if said != "notion asked for nothing that it may not have\n" {
		t.Errorf("got %q", said)
	}
	if printed != "allowed_domains = [\n  \"api.notion.com\",\n]\n" || code != 0 {
		t.Errorf("exit %d, %q", code, printed)
	}
}
