package main

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/handover"
)

// pfard is the other side of a launcher that is a unit.
type pfard struct {
	t        *testing.T
	path     string
	listener *net.UnixListener
	welcome  attach.Message // sent with the gateway's connection, if it is a welcome for the first time
	place    func() *attach.Message
	placing  int // the process that place is called for
	search   attach.Searcher
	oom      bool
	gateway  func() *os.File

	mu      sync.Mutex
	conn    *attach.Conn
	hellos  []attach.Hello
	told    map[string]string
	sockets int
}

func newPfard(t *testing.T) *pfard {
	t.Helper()
	dir, err := os.MkdirTemp("", "pfard")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	p := &pfard{
		t: t, path: filepath.Join(dir, "attach.sock"), told: map[string]string{}, welcome: attach.Message{Welcome: &attach.Welcome{}},
		place: held, search: asIs,
	}
	if p.listener, err = net.ListenUnix("unixpacket", &net.UnixAddr{Name: p.path, Net: "unixpacket"}); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(p.path, 0o666); err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			c, err := p.listener.AcceptUnix()
			if err != nil {
				return
			}
			served.Go(func() { p.serve(attach.Accepted(c)) })
		}
	})
	t.Cleanup(func() { p.listener.Close(); p.hangUp(); served.Wait() })
	return p
}

func held() *attach.Message { return &attach.Message{Placed: &attach.Placed{How: "held"}} }

// asIs finds nothing.
func asIs(text []byte, _ bool) ([]byte, attach.Found) { return text, attach.Found{} }

// localPfard is the launcher's end of a conversation with one that has forked it.
func localPfard(t *testing.T) *os.File {
	t.Helper()
	return localPfardOf(t, &pfard{t: t, place: held, search: asIs})
}

func localPfardOf(t *testing.T, p *pfard) *os.File {
	t.Helper()
	c, theirs, err := attach.Pair("pfard")
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() { p.serve(c) })
	t.Cleanup(func() { c.Close(); served.Wait() })
	return theirs
}

func (p *pfard) serve(c *attach.Conn) {
	defer c.Close()
	ctx, over := context.WithCancel(context.Background())
	defer over()
	p.mu.Lock()
	searches := c.Searches(ctx, p.search, attach.NewBudget())
	p.mu.Unlock()
	for {
		m, files, err := c.Receive()
		if err != nil {
			return
		}
		if m.Search != nil {
			searches.Take(*m.Search, files)
			continue
		}
		p.mu.Lock()
		switch {
		case m.Hello != nil:
			p.conn = c
			p.hellos = append(p.hellos, *m.Hello)
			var hand []*os.File
			if p.welcome.Welcome != nil && !m.Hello.Again {
				hand = []*os.File{p.gateway()}
			}
			err = c.Send(p.welcome, hand...)
		case m.Place != nil:
			p.placing = m.Place.PID
			if answer := p.place(); answer != nil {
				err = c.Send(*answer)
			} else {
				c.Close()
			}
		case m.Ended:
			err = c.Send(attach.Message{End: &attach.End{OOM: p.oom}})
		case m.Sockets:
			p.sockets += len(files)
		case m.Notify != nil:
			maps.Copy(p.told, m.Notify)
		}
		p.mu.Unlock()
		attach.CloseAll(files)
		if err != nil && !errors.Is(err, syscall.EPIPE) { // it has ended meanwhile
			p.t.Errorf("answering %+v: %v", m, err)
		}
	}
}

func (p *pfard) hangUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn != nil {
		p.conn.Close()
	}
}

// unit begins a launcher that attaches to p.
func (p *pfard) unit(text string, prepare func(runtime string)) *run {
	ready := make(chan *run, 1)
	p.mu.Lock()
	p.gateway = func() *os.File { r := <-ready; ready <- r; return r.passed }
	p.mu.Unlock()
	r := begin(p.t, script(text), prepare, "--attach", p.path, "--network", "own")
	ready <- r
	return r
}

func TestUnitRuns(t *testing.T) {
	p := newPfard(t)
	r := p.unit("cat; kill -9 $$", nil)
	r.hello()
	r.say(handover.Message{Ready: &handover.Ready{Tools: 7}})
	eventually(t, r, func() bool { return r.noted("STATUS") == "running: 7 tools; label internal" })
	eventually(t, r, func() bool { // pfard hears of it after systemd
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.told[units.NotifyState] == units.StateRunning
	})
	p.mu.Lock()
	if p.told["STATUS"] != "7 tools" || p.told[units.NotifyLimits] != "held" ||
		p.told[units.NotifyVersion] != units.Version() || p.sockets < 5 {
		t.Errorf("pfard was told %q, and given %d sockets", p.told, p.sockets)
	}
	first := p.hellos[0]
	if err := p.conn.Send(attach.Message{Refusal: "refused evil.example:443: not declared"}); err != nil {
		t.Error(err)
	}
	clear(p.told)
	p.mu.Unlock()
	eventually(t, r, func() bool {
		return r.noted("STATUS") == "running: 7 tools; label internal; refused evil.example:443: not declared"
	})

	public := "public"
	p.mu.Lock()
	if err := p.conn.Send(attach.Message{News: attach.News{Label: &public}}); err != nil {
		t.Error(err)
	}
	p.mu.Unlock()
	eventually(t, r, func() bool {
		return r.noted("STATUS") == "running: 7 tools; label public; refused evil.example:443: not declared"
	})

	p.hangUp() // it is started again
	eventually(t, r, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.hellos) > 1 && p.told[units.NotifyState] == units.StateRunning && p.told[units.NotifyTools] == "7"
	})
	p.mu.Lock()
	if again := p.hellos[len(p.hellos)-1]; first.Again || !again.Again || again.Digest != first.Digest || len(first.Digest) != 64 {
		t.Errorf("it said %+v, and then %+v", first, again)
	}
	p.oom = true
	p.mu.Unlock()
	r.stdin.Close() // and the server is killed by that
	if code := r.exit(2 * time.Minute); code != units.ExitCrashed {
		t.Errorf("exit code %d\n%s", code, r.logged())
	}
	eventually(t, r, func() bool {
		return strings.HasPrefix(r.noted("STATUS"), "back-off: back-off 1s after crash 1 of 3: killed by the kernel: out of its memory_limit")
	})
}

// TestOutOfMemory: the kernel has killed something in the server's cgroup for memory, at some time. Only of a server
// that was killed itself that is the reason.
func TestOutOfMemory(t *testing.T) {
	const memory = "killed by the kernel: out of its memory_limit"
	for name, c := range map[string]struct {
		script string
		failed string // what the gateway says
		oom    bool
		want   string
	}{
		"ends by itself":       {"cat; exit 0", "", true, "it ended by itself with status 0"},
		"crashes":              {"cat; exit 7", "", true, "exit status 7"},
		"another signal":       {"cat; kill -SEGV $$", "", true, "killed by SIGSEGV"},
		"killed by others":     {"cat; kill -9 $$", "", false, "killed by SIGKILL"},
		"killed for memory":    {"cat; kill -9 $$", "", true, memory},
		"the gateway, crashed": {"cat; exit 7", "no answer to initialize", true, "no answer to initialize"},
		// On a stalled machine SIGTERM may come before it has seen the end of its input.
		"the gateway, for that": {"trap 'kill -9 $$' TERM; while read -r _; do :; done; kill -9 $$", "no answer to initialize", true, memory},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPfard(t)
			p.oom = c.oom
			r := p.unit(c.script, nil)
			r.hello()
			if c.failed != "" {
				r.say(handover.Message{Failed: c.failed})
				eventually(t, r, func() bool { return r.noted("STOPPING") == "1" })
			}
			r.stdin.Close()
			if code := r.exit(2 * time.Minute); code != units.ExitCrashed {
				t.Errorf("exit code %d\n%s", code, r.logged())
			}
			eventually(t, r, func() bool {
				return strings.HasPrefix(r.noted("STATUS"), "back-off: back-off 1s after crash 1 of 3: "+c.want)
			})
		})
	}
}

// TestUnitWaits: a missing credential is a state, not a crash.
func TestUnitWaits(t *testing.T) {
	p := newPfard(t)
	r := p.unit("cat", func(runtime string) {
		text, err := json.Marshal(units.Secrets{Missing: []string{"TOKEN: pfar vault set token"}})
		if err == nil {
			err = os.WriteFile(filepath.Join(filepath.Dir(runtime), "credentials", units.CredentialSecrets), text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	eventually(t, r, func() bool {
		return r.noted("READY") == "1" && r.noted("STATUS") == "waiting: for credentials: TOKEN: pfar vault set token; label internal"
	})
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := r.exit(2 * time.Minute); code != 0 {
		t.Errorf("exit code %d\n%s", code, r.logged())
	}
}

// TestUnitHalfACredential: pfard may end as it hands the secrets over, and systemd starts the unit all the same.
func TestUnitHalfACredential(t *testing.T) {
	for _, text := range []string{"", `{"values":{"TOK`} {
		p := newPfard(t)
		r := p.unit("cat", func(runtime string) {
			if err := os.WriteFile(filepath.Join(filepath.Dir(runtime), "credentials", units.CredentialSecrets), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		})
		if code := r.exit(2 * time.Minute); code != units.ExitGateway {
			t.Errorf("%q: exit code %d\n%s", text, code, r.logged())
		}
	}
}

// TestUnitCannotStart: what is pfard's fault is no crash and disables nothing; what no start would mend does.
func TestUnitCannotStart(t *testing.T) {
	for name, c := range map[string]struct {
		welcome *attach.Message
		place   func() *attach.Message
		code    int
		status  string
	}{
		"refused for now":      {&attach.Message{Error: "it is being stopped", Later: true}, nil, units.ExitGateway, ""},
		"refused for good":     {&attach.Message{Error: "no namespace"}, nil, units.ExitDisabled, "failed: no namespace"},
		"not placed":           {nil, func() *attach.Message { return &attach.Message{Placed: &attach.Placed{Error: "no scope"}} }, units.ExitDisabled, "failed: placing the server in its cgroup: no scope"},
		"not placed for now":   {nil, func() *attach.Message { return &attach.Message{Placed: &attach.Placed{Error: "no bus", Later: true}} }, units.ExitGateway, "starting: pfard cannot be had for now: placing the server in its cgroup: no bus"},
		"pfard ends meanwhile": {nil, func() *attach.Message { return nil }, units.ExitGateway, "starting: asking for a cgroup: pfard cannot be had for now: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPfard(t)
			p.mu.Lock()
			if c.welcome != nil {
				p.welcome = *c.welcome
			}
			if c.place != nil {
				p.place = c.place
			}
			p.mu.Unlock()
			r := p.unit("cat", nil)
			if code := r.exit(2 * time.Minute); code != c.code {
				t.Errorf("exit code %d, want %d\n%s", code, c.code, r.logged())
			}
			eventually(t, r, func() bool { return strings.HasPrefix(r.noted("STATUS"), c.status) })
			if _, err := os.Stat(historyFile(r.runtime)); !os.IsNotExist(err) {
				t.Errorf("it counts as a crash: %v", err)
			}
		})
	}
}
