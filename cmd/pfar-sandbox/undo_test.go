package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/plan"
	"github.com/pfar/pfar/units/sandbox"
)

// undoing is a launcher whose server writes to a folder, and where that is on the host.
func undoing(t *testing.T, text string, size int64) (*run, string) {
	t.Helper()
	base, err := os.MkdirTemp("", "pfar-undo")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	dir, store := filepath.Join(base, "folder"), filepath.Join(base, "store")
	file := filepath.Join(dir, "a")
	err = errors.Join(os.Mkdir(dir, 0o700), os.Mkdir(store, 0o700), os.WriteFile(file, []byte("first"), 0o600))
	if os.Getuid() == 0 {
		for _, p := range []string{base, dir, store, file} {
			err = errors.Join(err, os.Chown(p, 61183, 61183))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	s := script(text)
	s.Mounts = append(s.Mounts, sandbox.Mount{Kind: sandbox.Bind, Source: dir, Dest: "/work"})
	u := plan.Undo{Dir: store, Folders: []plan.Folder{{Path: dir}}, Size: size, Time: time.Hour}
	r := beginPlan(t, s, map[string]any{"undo": u})
	r.hello()
	return r, dir
}

// answer is the launcher's answer, and the history that came with it.
func (r *run) answer() (handover.Message, handover.History) {
	r.t.Helper()
	var h handover.History
	m, files, err := r.gateway.Receive()
	if err != nil {
		r.t.Fatalf("%v\n%s", err, r.logged())
	}
	for _, f := range files {
		text, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<20))
		if err == nil {
			err = json.Unmarshal(text, &h)
		}
		if err != nil {
			r.t.Fatal(err)
		}
		f.Close()
	}
	return m, h
}

// does has the server run a line of sh, and waits for it.
func (r *run) does(line string) {
	r.t.Helper()
	b := make([]byte, 5)
	if _, err := r.stdin.WriteString(line + "\n"); err != nil {
		r.t.Fatal(err)
	}
	if _, err := io.ReadFull(r.stdout, b); err != nil || string(b) != "done\n" {
		r.t.Fatalf("%q, %v\n%s", b, err, r.logged())
	}
}

const obeys = `while read line; do eval "$line"; echo done; done`

// TestKept: a server in its sandbox overwrites and deletes, and what was there before the call is restored.
func TestKept(t *testing.T) {
	r, dir := undoing(t, obeys, 1<<20)
	r.say(handover.Message{Keep: &handover.Keep{ID: "k1", Call: handover.Call{ID: "c1", Client: "desk", Tool: "write"}}})
	if m, _ := r.answer(); m.Kept == nil || *m.Kept != (handover.Kept{ID: "k1"}) {
		t.Fatalf("%+v", m)
	}
	r.does("echo second > /work/a; ln -s /etc/passwd /work/link; chmod 600 /work/a")
	r.say(handover.Message{Undo: &handover.Undo{ID: "u1"}})
	m, h := r.answer()
	if m.Undone == nil || m.Undone.Error != "" || len(h.Steps) != 1 || len(h.Steps[0].Changes) != 2 {
		t.Fatalf("%+v, %+v", m, h)
	}
	r.say(handover.Message{Undo: &handover.Undo{ID: "u2", Since: "c1", Restore: true, Call: handover.Call{ID: "u2"}}})
	if m, h := r.answer(); m.Undone == nil || m.Undone.Error != "" || len(h.Restores) != 2 || h.Restores[0].Error != "" {
		t.Fatalf("%+v, %+v", m, h)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "a")); string(b) != "first" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "link")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestKeptAtStart: what a server does before any call can be taken back as well.
func TestKeptAtStart(t *testing.T) {
	r, dir := undoing(t, "echo at once > /work/a; echo done; "+obeys, 1<<20)
	r.does("true")
	r.say(handover.Message{Undo: &handover.Undo{ID: "u", Path: dir, Restore: true, Call: handover.Call{ID: "u"}}})
	if m, h := r.answer(); m.Undone == nil || m.Undone.Error != "" || len(h.Restores) != 1 {
		t.Fatalf("%+v, %+v", m, h)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "a")); string(b) != "first" {
		t.Errorf("%q, %v", b, err)
	}
}

// TestNotKept: what does not fit is not kept, which is said; nor is anything without a word of the plan's.
func TestNotKept(t *testing.T) {
	r, _ := undoing(t, obeys, 1<<20)
	r.does("truncate -s 1g /work/huge")
	for range 2 {
		r.say(handover.Message{Keep: &handover.Keep{ID: "k"}})
		if m, _ := r.answer(); m.Kept == nil || !strings.Contains(m.Kept.Error, "undo_size") {
			t.Fatalf("%+v", m)
		}
	}
	r.does("rm /work/huge")
	r.say(handover.Message{Keep: &handover.Keep{ID: "k"}})
	if m, _ := r.answer(); m.Kept == nil || m.Kept.Error != "" {
		t.Fatalf("%+v", m)
	}
	plain := begin(t, script("cat"), nil)
	plain.hello()
	plain.say(handover.Message{Keep: &handover.Keep{ID: "k"}})
	if m, _ := plain.answer(); m.Kept == nil || m.Kept.Error == "" {
		t.Fatalf("%+v", m)
	}
}
