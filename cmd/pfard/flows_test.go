package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
)

const withToken = "server {\n  command = \"sh\"\n}\nauth = { TOKEN = \"vault:a_token\" }\n"

// flowing is a set-up that somebody follows.
type flowing struct {
	t      *testing.T
	d      *daemon
	states chan control.Flow
	err    chan error
}

// begins has somebody begin a set-up.
func (d *daemon) begins(t *testing.T, p control.Peer, wish *control.SetUp) *flowing {
	t.Helper()
	f := &flowing{t, d, make(chan control.Flow, 99), make(chan error, 1)}
	ctx, leave := context.WithCancel(context.Background())
	t.Cleanup(leave)
	go func() {
		f.err <- d.answer(ctx, p, control.Request{Verb: control.Begin, SetUp: wish}, func(r control.Response) error {
			f.states <- *r.Flow
			return nil
		})
	}()
	return f
}

// until waits for a state.
func (f *flowing) until(state control.FlowState) control.Flow {
	f.t.Helper()
	late := time.After(2 * time.Minute)
	for {
		select {
		case now := <-f.states:
			switch now.State {
			case state:
				return now
			case control.FlowComplete, control.FlowFailed:
				f.t.Fatalf("it has ended as %+v, want %s", now, state)
			}
		case err := <-f.err:
			f.err <- err
			select {
			case now := <-f.states:
				f.states <- now
				continue
			default:
			}
			f.t.Fatalf("it has ended (%v), want %s", err, state)
		case <-late:
			f.t.Fatalf("it never is %s", state)
		}
	}
}

func operator() control.Peer { return control.Peer{UID: os.Getuid()} }

// supplies answers a set-up.
func (d *daemon) supplies(t *testing.T, id, value string) (now control.Flow, err error) {
	t.Helper()
	q := control.Request{Verb: control.Supply, Answer: &control.FlowAnswer{ID: id}, Secret: value}
	err = d.answer(t.Context(), operator(), q, func(r control.Response) error { now = *r.Flow; return nil })
	return now, err
}

// comesUp waits until a server has been started so often, and has it say that it runs.
func (d *daemon) comesUp(t *testing.T, m *machine, name string, starts, tools int) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); m.count(name) < starts; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s was started %d times, want %d", name, m.count(name), starts)
		}
	}
	d.fleet.changed(units.Update{Server: name, State: units.StateRunning, Tools: tools})
}

func texted(server, text string) *control.SetUp {
	return &control.SetUp{Server: server, Text: &control.Text{New: []byte(text)}}
}

// TestSetUp: a person begins a set-up and gives the secret; the declaration is written, and the server runs. What
// happens is recorded, and the value is nowhere.
func TestSetUp(t *testing.T) {
	d, m, _ := fixture(t)
	f := d.begins(t, operator(), texted("a", withToken))
	asked := f.until(control.AwaitingCredential)
	if w := asked.Wants; w == nil || w.Key != "a_token" || w.Variable != "TOKEN" || asked.Deadline.IsZero() {
		t.Fatalf("it asks %+v", asked)
	}
	if got := d.folderText(t); got != "" {
		t.Errorf("written before the secret is there: %s", got)
	}
	if _, err := d.supplies(t, asked.ID, "hunter2-hunter2\n"); err != nil {
		t.Fatal(err)
	}
	d.comesUp(t, m, "a", 1, 3)
	done := f.until(control.FlowComplete)
	if done.Tools != 3 || done.Server != "a" || done.Wants != nil {
		t.Errorf("done: %+v", done)
	}
	if err := <-f.err; err != nil {
		t.Error(err)
	}
	if got := m.secret["a"]; !strings.Contains(got, "TOKEN:hunter2-hunter2]") {
		t.Errorf("given %q", got)
	}
	if text, err := os.ReadFile(filepath.Join(d.options.declarations, "a.hcl")); err != nil || string(text) != withToken {
		t.Errorf("written %q, %v", text, err)
	}
	if left, err := os.ReadDir(d.options.dirs.Flows()); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
	var told []string
	for _, r := range d.audit.recorded(t, ownChain) {
		if strings.Contains(fmt.Sprintf("%+v", r), "hunter2") {
			t.Errorf("the record has the value: %+v", r)
		}
		if r.Kind == audit.SetUp {
			told = append(told, r.Method+" "+r.Server+" "+r.User)
		}
	}
	who := fmt.Sprintf(" a uid %d", os.Getuid())
	if got := strings.Join(told, "; "); got != "begin"+who+"; complete"+who {
		t.Errorf("recorded %q", got)
	}
	again := d.begins(t, operator(), texted("a", withToken))
	if now := again.until(control.FlowComplete); now.Detail != "it runs already" || now.ID != "" || m.count("a") != 1 {
		t.Errorf("again: %+v, %d starts", now, m.count("a"))
	}
	if _, err := d.supplies(t, asked.ID, "x"); !errors.Is(err, control.ErrNoFlow) && err == nil {
		t.Errorf("a value after the end: %v", err)
	}
}
