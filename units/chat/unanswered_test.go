package chat

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/units/control"
)

// homeserver is a world that takes a text with a key once.
type homeserver struct {
	*world
	keys []string
}

func (h *homeserver) SendOnce(ctx context.Context, room, key, text string) error {
	if !slices.Contains(h.keys, key) {
		if err := h.Send(ctx, room, text); err != nil {
			return err
		}
		h.keys = append(h.keys, key)
	}
	return nil
}

// slow is a world in which a model, a run and a set-up take until the process ends.
type slow struct{ *homeserver }

func (s slow) Plan(ctx context.Context, question string) (Plan, error) {
	<-ctx.Done()
	return Plan{}, ctx.Err()
}

// owed is a conversation whose record of unanswered messages is in dir, at a homeserver.
func owed(t *testing.T, h *homeserver, dir string) *Talk {
	t.Helper()
	talk := newTalk(t, h.world, t.TempDir())
	u, err := OpenUnanswered(dir)
	if err != nil {
		t.Fatal(err)
	}
	talk.Platform, talk.Unanswered = h, u
	return talk
}

// TestLostQuestion: the question that a model plans when the process ends is answered once by a later one, which says
// that the question is lost. The record has no word of the question.
func TestLostQuestion(t *testing.T) {
	h, dir := &homeserver{world: &world{}}, t.TempDir()
	talk := owed(t, h, dir)
	talk.Asker = slow{h}
	ctx, end := context.WithCancel(t.Context())
	m := Message{ID: "1", Room: "R", From: "owner", Text: "what is new in the archive?"}
	if err := talk.Take(ctx, m); err != nil {
		t.Fatal(err)
	}
	if n, text := records(t, dir); n != 1 || strings.Contains(text, "archive") {
		t.Errorf("%d records: %s", n, text)
	}
	end()
	talk.Wait()
	if got := h.said(); got != "" {
		t.Errorf("a process that ends says %q", got)
	}
	for range 2 {
		if err := owed(t, h, dir).Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := h.said(); got != planning.lost() || !strings.Contains(got, "Ask it again") {
			t.Errorf("the owner reads %q", got)
		}
	}
	if n, text := records(t, dir); n != 0 {
		t.Errorf("%d records: %s", n, text)
	}
}

// TestOneAnswer: a message whose answer was sent right before a crash, which left its record, gets no second one. If
// the answer did not go out, the record stays, and a later process answers.
func TestOneAnswer(t *testing.T) {
	h, dir := &homeserver{world: &world{plan: Plan{Text: "Four."}}}, t.TempDir()
	left := promise{ID: "1", Room: "R", From: "owner", By: planning}
	take(t, owed(t, h, dir), "1", "what is two and two?")
	if n, text := records(t, dir); n != 0 || h.said() != "Four." {
		t.Errorf("the owner reads %q; %d records: %s", h.said(), n, text)
	}
	talk := owed(t, h, dir)
	if err := talk.Unanswered.write(left); err != nil { // as if the process had ended before it took the record away
		t.Fatal(err)
	}
	if err := talk.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, _ := records(t, dir); n != 0 || h.said() != "Four." {
		t.Errorf("the owner reads %q; %d records", h.said(), n)
	}
	h.unsent = errors.New("the homeserver is away")
	take(t, owed(t, h, dir), "2", "what is three and three?")
	if n, _ := records(t, dir); n != 1 {
		t.Errorf("of an answer that did not go out there are %d records", n)
	}
	h.unsent = nil
	if err := owed(t, h, dir).Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := h.said(); got != "Four.\n---\n"+planning.lost() {
		t.Errorf("the owner reads %q", got)
	}
}

// TestLost: each kind of answer that is owed has words of its own, and another room's stay.
func TestLost(t *testing.T) {
	h, dir := &homeserver{world: &world{}}, t.TempDir()
	talk := owed(t, h, dir)
	var want []string
	for _, by := range []endeavour{planning, running, settingUp, "of a later version"} {
		if err := talk.Unanswered.write(promise{ID: "1", Room: "R", From: "owner", By: by}); err != nil {
			t.Fatal(err)
		}
		if words := by.lost(); slices.Contains(want, words) {
			t.Errorf("%q is said of two", words)
		} else {
			want = append(want, words)
		}
	}
	if err := talk.Unanswered.write(promise{ID: "1", Room: "S", From: "owner", By: planning}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "bad.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := talk.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "bad.json") {
		t.Errorf("a record that cannot be read: %v", err)
	}
	slices.Sort(want)
	if got := slices.Sorted(slices.Values(h.sent)); !slices.Equal(got, want) {
		t.Errorf("said %q, want %q", got, want)
	}
	if n, text := records(t, dir); n != 2 || !strings.Contains(text, `"S"`) {
		t.Errorf("%d records: %s", n, text)
	}
}

// TestOwed: what a set-up or a run is to answer is on the disk meanwhile, and at a terminal nothing is.
func TestOwed(t *testing.T) {
	for _, terminal := range []bool{false, true} {
		for text, by := range map[string]endeavour{"connect notion": settingUp, "yes": running} {
			h, dir := &homeserver{world: &world{}}, t.TempDir()
			talk := owed(t, h, dir)
			talk.Terminal, talk.now.plan = terminal, &Plan{Flow: json.RawMessage(`{}`), Free: true}
			talk.now.until = time.Now().Add(planTime)
			kept := 0
			look := func() { kept, _ = records(t, dir) }
			talk.Asker, talk.Setups = looking{h.world, look}, looking{h.world, look}
			take(t, talk, "1", text)
			if want := map[bool]int{false: 1, true: 0}[terminal]; kept != want {
				t.Errorf("%s, at a terminal: %t: %d records, want %d", by, terminal, kept, want)
			}
			if n, _ := records(t, dir); n != 0 {
				t.Errorf("%s: %d records are left", by, n)
			}
		}
	}
}

// looking is a world that looks when it has something to do.
type looking struct {
	*world
	look func()
}

func (l looking) Begin(ctx context.Context, service string) (control.Flow, error) {
	l.look()
	return l.world.Begin(ctx, service)
}

func (l looking) Run(ctx context.Context, p Plan, tell func(string)) (string, error) {
	l.look()
	return l.world.Run(ctx, p, tell)
}
