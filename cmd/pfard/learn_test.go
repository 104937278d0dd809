package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
)

// lesson is a peer that asked for learning.
type lesson struct {
	hangUp context.CancelFunc
	ended  chan error
}

// learnNow asks for learning and returns when it was granted, or refused.
func (d *daemon) learnNow(t *testing.T, name string) (*lesson, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &lesson{cancel, make(chan error, 1)}
	first := make(chan struct{}, 1)
	go func() {
		l.ended <- d.answer(ctx, control.Peer{}, control.Request{Verb: control.Learn, Server: name}, func(r control.Response) error {
			if r.Status == nil {
				t.Error("a response without a report")
			}
			select {
			case first <- struct{}{}:
			default:
			}
			return nil
		})
	}()
	select {
	case <-first:
		return l, nil
	case err := <-l.ended:
		cancel()
		return nil, err
	}
}

// mode says how a server is: whether it runs, in learning mode or not, and how often it was started.
func (m *machine) mode(name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := m.runs[name]
	switch {
	case !ok:
		return fmt.Sprint("stopped ", m.starts[name])
	case p.Egress.Learn:
		return fmt.Sprint("learning ", m.starts[name])
	}
	return fmt.Sprint("declared ", m.starts[name])
}

// TestLearning: each step, and how the server is after it. The number is that of its starts.
func TestLearning(t *testing.T) {
	type step struct{ do, want string }
	tests := []struct {
		name  string
		extra string // of the declaration
		steps []step
		err   error // with which the lesson ended, if not by hanging up
	}{
		{"of a running server", "", []step{{"", "declared 1"}, {"learn", "learning 2"}, {"hang up", "declared 3"}}, nil},
		{"of a stopped server", "", []step{{"stop", "stopped 1"}, {"learn", "learning 2"}, {"hang up", "stopped 2"}}, nil},
		{"of one that starts on request", "autostart = false\n", []step{{"", "stopped 0"}, {"learn", "learning 1"}, {"hang up", "stopped 1"}}, nil},
		{"of a failed server", "", []step{{"fail", "declared 1"}, {"learn", "learning 2"}, {"hang up", "declared 3"}}, nil},
		{"twice in a row", "", []step{{"learn", "learning 2"}, {"hang up", "declared 3"}, {"learn", "learning 4"}, {"hang up", "declared 5"}}, nil},
		{"it fails meanwhile", "", []step{{"learn", "learning 2"}, {"fail", "learning 2"}, {"hang up", "declared 3"}}, nil},
		{"another starts what runs", "", []step{{"learn", "learning 2"}, {"run", "learning 2"}, {"start", "learning 2"}, {"hang up", "declared 3"}}, nil},
		{"another starts what failed", "", []step{{"learn", "learning 2"}, {"fail", "learning 2"}, {"start", "learning 3"}, {"hang up", "declared 4"}}, nil},
		{"another starts what was stopped before", "", []step{{"stop", "stopped 1"}, {"learn", "learning 2"}, {"run", "learning 2"}, {"start", "learning 2"}, {"hang up", "declared 3"}}, nil},
		{"another restarts it", "", []step{{"learn", "learning 2"}, {"restart", "learning 3"}, {"hang up", "declared 4"}}, nil},
		{"another stops it", "", []step{{"learn", "learning 2"}, {"stop", "stopped 2"}, {"hang up", "stopped 2"}}, control.ErrStopped},
		{"another stops and starts it", "", []step{{"learn", "learning 2"}, {"stop", "stopped 2"}, {"start", "declared 3"}, {"hang up", "declared 3"}}, control.ErrStopped},
		{"another wants to learn as well", "", []step{{"learn", "learning 2"}, {"learn again", "learning 2"}, {"hang up", "declared 3"}}, nil},
		{"its file is edited", "", []step{{"learn", "learning 2"}, {"edit", "learning 3"}, {"hang up", "declared 4"}}, nil},
		{"its file is edited so that it starts on request", "", []step{{"learn", "learning 2"}, {"no autostart", "learning 3"}, {"hang up", "stopped 3"}}, nil},
		{"its file breaks", "", []step{{"learn", "learning 2"}, {"break", "learning 2"}, {"hang up", "declared 3"}}, nil},
		{"its file broke before", "", []step{{"break", "declared 1"}, {"learn", "learning 2"}, {"hang up", "declared 3"}}, nil},
		{"it is disabled", "", []step{{"learn", "learning 2"}, {"disable", "stopped 2"}, {"hang up", "stopped 2"}}, control.ErrDisabled},
		{"its file is removed", "", []step{{"learn", "learning 2"}, {"remove", "stopped 2"}, {"hang up", "stopped 2"}}, control.ErrNoServer},
		{"its file is removed and comes back", "", []step{{"learn", "learning 2"}, {"remove", "stopped 2"}, {"edit", "declared 3"}, {"hang up", "declared 3"}}, control.ErrNoServer},
		{"an unrelated event", "", []step{{"learn", "learning 2"}, {"look", "learning 2"}, {"hang up", "declared 3"}, {"look", "declared 3"}}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d, m, changed := fixture(t)
			write := func(text string) {
				d.put(t, "a.hcl", text)
				changed <- struct{}{}
			}
			write(fmt.Sprintf(good, "x") + tt.extra)
			d.state(t)
			var l *lesson
			for i, s := range tt.steps {
				switch s.do {
				case "":
				case "learn":
					var err error
					if l, err = d.learnNow(t, "a"); err != nil {
						t.Fatal(err)
					}
				case "learn again":
					if _, err := d.learnNow(t, "a"); !errors.Is(err, control.ErrLearning) {
						t.Errorf("a second learner: %v", err)
					}
				case "hang up":
					l.hangUp()
					if err := <-l.ended; !errors.Is(err, tt.err) {
						t.Errorf("ended with %v, want %v", err, tt.err)
					}
				case "run":
					d.fleet.changed(units.Update{Server: "a", State: "running"})
				case "fail":
					d.fleet.changed(units.Update{Server: "a", State: "failed", Detail: "disabled after 3 crashes in a row"})
				case "start", "stop", "restart":
					ask(t, d, control.Request{Verb: control.Verb(s.do), Server: "a"})
				case "edit":
					write(fmt.Sprintf(good, "edited"))
				case "no autostart":
					write(fmt.Sprintf(good, "x") + "autostart = false\n")
				case "disable":
					write(fmt.Sprintf(good, "x") + "enabled = false\n")
				case "break":
					write("server {")
				case "remove":
					os.Remove(filepath.Join(d.options.declarations, "a.hcl"))
					changed <- struct{}{}
				case "look":
					changed <- struct{}{}
				default:
					t.Fatalf("no such step: %q", s.do)
				}
				r := d.state(t)["a"]
				if got := m.mode("a"); got != s.want {
					t.Errorf("step %d, %q: %s, want %s", i+1, s.do, got, s.want)
				}
				learning := strings.HasPrefix(s.want, "learning")
				if r.Learning != learning || strings.Contains(r.Detail, "learning: ") != learning {
					t.Errorf("step %d, %q: the report says %v, %q", i+1, s.do, r.Learning, r.Detail)
				}
			}
		})
	}
}

func TestLearningIsRefused(t *testing.T) {
	d, m, changed := fixture(t)
	d.put(t, "off.hcl", fmt.Sprintf(good, "x")+"enabled = false\n")
	changed <- struct{}{}
	for name, want := range map[string]error{"none": control.ErrNoServer, "": control.ErrNoServer, "off": control.ErrDisabled} {
		if _, err := d.learnNow(t, name); !errors.Is(err, want) {
			t.Errorf("learn %q: %v, want %v", name, err, want)
		}
	}
	if d.state(t); len(m.runs) != 0 {
		t.Errorf("running %v", m.runs)
	}
}

// TestLearningWaitsForACredential and goes on with learning once that is there.
func TestLearningWaitsForACredential(t *testing.T) {
	d, m, changed := fixture(t)
	d.put(t, "a.hcl", fmt.Sprintf(good, "x")+`auth = { TOKEN = "vault:a_token" }`+"\nallowed_domains = [\"b.example\", \"a.example:5432\"]\n")
	changed <- struct{}{}
	l, err := d.learnNow(t, "a")
	if err != nil {
		t.Fatal(err)
	}
	if s := d.state(t)["a"]; s.State != control.Waiting || !slices.Equal(s.Domains, []string{"b.example", "a.example:5432"}) {
		t.Errorf("without it: %+v", s)
	}
	ask(t, d, control.Request{Verb: control.Store, Key: "a_token", Secret: "hunter2"})
	if d.state(t); m.mode("a") != "learning 1" {
		t.Errorf("with it: %s", m.mode("a"))
	}
	l.hangUp()
	<-l.ended
	if d.state(t); m.mode("a") != "declared 2" {
		t.Errorf("after it: %s", m.mode("a"))
	}
}

// TestAKilledLearner: the kernel closes its connection, and nothing else says that it is gone.
func TestAKilledLearner(t *testing.T) {
	d, m, changed := fixture(t)
	d.put(t, "a.hcl", fmt.Sprintf(good, "x"))
	changed <- struct{}{}
	dir, err := os.MkdirTemp("", "pfar") // t.TempDir is too long for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "control.sock")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- control.Serve(ctx, listener, d.answer) }()
	defer func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, `{"verb":"learn","server":"a"}`); err != nil {
		t.Fatal(err)
	}
	var r control.Response
	if err := json.NewDecoder(conn).Decode(&r); err != nil || r.Status == nil || !r.Status.Servers[0].Learning {
		t.Fatalf("%+v, %v", r, err)
	}
	if d.state(t); m.mode("a") != "learning 2" {
		t.Errorf("with the learner: %s", m.mode("a"))
	}
	client := control.Client{Path: path}
	if err := client.Learn(t.Context(), "a", nil); !errors.Is(err, control.ErrLearning) {
		t.Errorf("a second learner: %v", err)
	}
	changes := make(chan struct{}, 1)
	watching, enough := context.WithCancel(t.Context())
	defer enough()
	go client.Watch(watching, func(r control.Report) error {
		if !r.Servers[0].Learning {
			changes <- struct{}{}
			enough()
		}
		return nil
	})
	conn.Close()
	<-changes
	if d.state(t); m.mode("a") != "declared 3" {
		t.Errorf("without the learner: %s", m.mode("a"))
	}
	stopped := errors.New("never")
	err = client.Learn(t.Context(), "a", func(r control.Report) error {
		if r.Servers[0].State == control.Starting {
			_, stopped = client.Do(t.Context(), control.Request{Verb: control.Stop, Server: "a"})
		}
		return nil
	})
	if !errors.Is(err, control.ErrStopped) || stopped != nil {
		t.Errorf("stopped by another (%v): %v", stopped, err)
	}
}

// TestRandomWalkOfLearners: from any state, what runs is what the files, the operator and the learners say.
func TestRandomWalkOfLearners(t *testing.T) {
	d, m, changed := fixture(t)
	m.slow = time.Millisecond
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	names := []string{"a", "b", "c"}
	look := func() {
		changed <- struct{}{}
		d.reportNow(t)
	}
	exists, stopped, lessons := map[string]bool{}, map[string]bool{}, map[string]*lesson{}
	hangUp := func(name string) {
		if l := lessons[name]; l != nil {
			l.hangUp()
			<-l.ended
			delete(lessons, name)
		}
	}
	dismissed := func(name string) {
		if l := lessons[name]; l != nil {
			if err := <-l.ended; err == nil {
				t.Errorf("%s: the lesson ended without a reason", name)
			}
			delete(lessons, name)
		}
	}
	for step := range 300 {
		name := names[r.IntN(len(names))]
		switch r.IntN(8) {
		case 0, 1:
			d.put(t, name+".hcl", fmt.Sprintf(good, fmt.Sprint(step)))
			exists[name], stopped[name] = true, false
			look()
		case 2:
			os.Remove(filepath.Join(d.options.declarations, name+".hcl"))
			delete(exists, name)
			look()
			dismissed(name)
		case 3, 4:
			if exists[name] {
				verb := []control.Verb{control.Start, control.Stop, control.Restart}[r.IntN(3)]
				ask(t, d, control.Request{Verb: verb, Server: name})
				if stopped[name] = verb == control.Stop; stopped[name] {
					dismissed(name)
				}
			}
		case 5, 6:
			l, err := d.learnNow(t, name)
			switch {
			case !exists[name] && !errors.Is(err, control.ErrNoServer), exists[name] && lessons[name] != nil && !errors.Is(err, control.ErrLearning),
				exists[name] && lessons[name] == nil && err != nil:
				t.Fatalf("step %d: %s: %v", step, name, err)
			case err == nil:
				lessons[name] = l
			}
		case 7:
			hangUp(name)
		}
		if step%5 != 4 {
			continue
		}
		d.state(t)
		for _, n := range names {
			want := "stopped"
			if exists[n] && lessons[n] != nil {
				want = "learning"
			} else if exists[n] && !stopped[n] {
				want = "declared"
			}
			if got := m.mode(n); !strings.HasPrefix(got, want) {
				t.Fatalf("step %d: %s is %s, want %s", step, n, got, want)
			}
		}
	}
	for _, n := range names {
		hangUp(n)
	}
}
