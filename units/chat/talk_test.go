package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pfar/pfar/units/control"
)

var token = "ntn" + "_26501193847aB3dEfGhIjKlMnOpQrStUvWxYz0123456789"

// world is a platform, pfard and a gateway for one conversation. crash, if it is the name of a step, ends the process
// there: the step panics.
type world struct {
	mu      sync.Mutex
	sent    []string
	deleted []string // ids of messages
	given   []string // to the set-up
	asked   []string // questions that went to the model
	begun   []string // services
	ran     []Plan
	crash   string

	waits     *control.Flow
	plan      Plan
	unknown   error // of Waiting
	notBegun  error
	notStored error
	undeleted error
	unsent    error
	hold      chan struct{} // the model waits for it; nil: it does not
}

func (w *world) step(name string) {
	if w.crash == name {
		panic("crash at " + name)
	}
}

func (w *world) Send(_ context.Context, room, text string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.step("send")
	if w.unsent == nil {
		w.sent = append(w.sent, text)
	}
	return w.unsent
}

func (w *world) Delete(_ context.Context, m Message) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.step("before delete")
	if m.Text != "" || m.Room != "R" || m.From != "owner" {
		return fmt.Errorf("asked to delete %+v", m)
	}
	if w.undeleted == nil && !slices.Contains(w.deleted, m.ID) {
		w.deleted = append(w.deleted, m.ID)
	}
	w.step("after delete")
	return w.undeleted
}

func (w *world) Waiting(context.Context) (*control.Flow, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.waits, w.unknown
}

func (w *world) Answer(_ context.Context, asked control.Flow, value string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.step("before answer")
	if w.notStored == nil {
		w.given, w.waits = append(w.given, value), nil
	}
	w.step("after answer")
	return w.notStored
}

func (w *world) After(_ context.Context, asked control.Flow) (control.Flow, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.Contains(w.given, "cancel") {
		return control.Flow{
			Server: asked.Server, State: control.FlowFailed, Reason: control.FlowCancelled, Detail: "cancelled",
		}, nil
	}
	return control.Flow{Server: asked.Server, State: control.FlowComplete, Tools: 12}, nil
}

func (w *world) Begin(_ context.Context, service string) (control.Flow, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.notBegun != nil {
		return control.Flow{}, w.notBegun
	}
	w.begun = append(w.begun, service)
	w.waits = notionWaits()
	return *w.waits, nil
}

func (w *world) Plan(_ context.Context, question string) (Plan, error) {
	if w.hold != nil {
		<-w.hold
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, question)
	return w.plan, nil
}

func (w *world) Run(_ context.Context, p Plan, tell func(string)) (string, error) {
	w.mu.Lock()
	w.ran = append(w.ran, p)
	w.mu.Unlock()
	if !p.Free {
		tell("waits for the approval a1: pfar approvals show a1")
	}
	return "the answer", nil
}

// said is all that the owner has read.
func (w *world) said() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.sent, "\n---\n")
}

func notionWaits() *control.Flow {
	return &control.Flow{
		ID: "f1", Server: "notion", State: control.AwaitingCredential, Traits: control.Traits{Formed: true},
		Wants: &control.Wanted{
			Key: "notion_token", Prefixes: []string{"ntn_"}, Where: "Make an integration",
			URL: "https://example.com/integrations",
		},
	}
}

// postgresWaits is a set-up that waits for a password, of which no form is known.
func postgresWaits() *control.Flow {
	return &control.Flow{
		ID: "f2", Server: "postgres", State: control.AwaitingCredential, Wants: &control.Wanted{Key: "postgres_password"},
	}
}

// newTalk is a conversation whose record is in dir.
func newTalk(t *testing.T, w *world, dir string) *Talk {
	t.Helper()
	d, err := OpenDeletions(dir)
	if err != nil {
		t.Fatal(err)
	}
	return &Talk{
		Room: "R", Owner: "owner", Platform: w, Setups: w, Asker: w, Deletions: d,
		Known: func(service string) bool { return service == "notion" },
	}
}

// take has a message taken, and waits for all that comes of it.
func take(t *testing.T, talk *Talk, id, text string) {
	t.Helper()
	if err := talk.Take(t.Context(), Message{ID: id, Room: "R", From: "owner", Text: text}); err != nil {
		t.Errorf("%.30q: %v", text, err)
	}
	talk.Wait()
}

// records are the files below a directory, and all that is in them.
func records(t *testing.T, dir string) (n int, text string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		n, text = n+1, text+path+string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n, text
}

// TestStrangers: nobody but the owner, in the owner's room, is heard.
func TestStrangers(t *testing.T) {
	w := &world{waits: notionWaits()}
	talk := newTalk(t, w, t.TempDir())
	for _, m := range []Message{
		{}, {ID: "1", Room: "R", Text: token}, {ID: "1", Room: "R", From: "stranger", Text: token},
		{ID: "1", Room: "S", From: "owner", Text: token}, {Room: "R", From: "owner", Text: token},
	} {
		if err := talk.Take(t.Context(), m); !errors.Is(err, ErrStranger) {
			t.Errorf("%+v: %v", m, err)
		}
	}
	if err := new(Talk).Take(t.Context(), Message{ID: "1", Text: token}); !errors.Is(err, ErrStranger) {
		t.Errorf("the zero value takes a message: %v", err)
	}
	if len(w.given)+len(w.asked)+len(w.begun)+len(w.sent)+len(w.deleted) > 0 {
		t.Errorf("%+v", w)
	}
}

// TestSecretsGoNowhere: a secret reaches the set-up that waits for it, and neither a model, the record on the disk
// nor an answer. Its message is deleted.
func TestSecretsGoNowhere(t *testing.T) {
	for name, c := range map[string]struct {
		w     *world
		text  string
		given bool
		says  string
	}{
		"for the set-up":   {&world{waits: notionWaits()}, token, true, "The secret is stored. Its message is deleted."},
		"in code marks":    {&world{waits: notionWaits()}, "`" + token + "`", true, "notion is connected. It has 12 tools."},
		"among words":      {&world{waits: notionWaits()}, "it is " + token + ", thanks", false, "alone in a message"},
		"in two lines":     {&world{waits: notionWaits()}, token[:20] + "\n" + token[20:], false, "alone in a message"},
		"nothing waits":    {&world{}, token, false, `begin with "connect NAME"`},
		"asked with one":   {&world{}, "why does " + token + " not work?", false, "given it to no model"},
		"connect with one": {&world{}, "connect " + token, false, "The message is deleted."},
		"pfard is away":    {&world{unknown: errors.New("pfard does not run")}, token, false, "The message is deleted."},
		"not stored": {
			&world{waits: notionWaits(), notStored: errors.New("the disk is full")}, token, false,
			"The secret is not stored: the disk is full. Its message is deleted.",
		},
		"an error that quotes it": {
			&world{waits: notionWaits(), notStored: fmt.Errorf("%q is too long", token)}, token, false, "does not repeat it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			talk := newTalk(t, c.w, dir)
			take(t, talk, "m1", c.text)
			if given := slices.Contains(c.w.given, token); given != c.given || len(c.w.asked)+len(c.w.begun) > 0 {
				t.Errorf("given %q, asked %q, begun %q", c.w.given, c.w.asked, c.w.begun)
			}
			if !slices.Equal(c.w.deleted, []string{"m1"}) {
				t.Errorf("deleted %q", c.w.deleted)
			}
			n, kept := records(t, dir)
			if n > 0 || strings.Contains(kept+c.w.said(), token[8:20]) {
				t.Errorf("%d records are left, or the secret is there: %s%s", n, kept, c.w.said())
			}
			if !strings.Contains(c.w.said(), c.says) {
				t.Errorf("no %q in:\n%s", c.says, c.w.said())
			}
		})
	}
}

// TestRecordIsThereBefore: the record of the message is on the disk, without its text, when the secret is handed over.
func TestRecordIsThereBefore(t *testing.T) {
	dir := t.TempDir()
	w := &world{waits: notionWaits(), crash: "before answer"}
	talk := newTalk(t, w, dir)
	crashes(t, talk, Message{ID: "m1", Room: "R", From: "owner", Text: token})
	n, kept := records(t, dir)
	if n != 1 || !strings.Contains(kept, `"m1"`) || strings.Contains(kept, token[8:20]) || len(w.given) > 0 {
		t.Errorf("%d records: %s; given %q", n, kept, w.given)
	}
}

// TestWithoutARecord: a secret whose message cannot be recorded is not stored. The message is deleted.
func TestWithoutARecord(t *testing.T) {
	w := &world{waits: notionWaits()}
	talk := newTalk(t, w, t.TempDir())
	talk.Deletions = Deletions{}
	take(t, talk, "m1", token)
	if len(w.given) > 0 || !slices.Equal(w.deleted, []string{"m1"}) || !strings.Contains(w.said(), "pfar stored nothing") {
		t.Errorf("given %q, deleted %q, said %s", w.given, w.deleted, w.said())
	}
}

// crashes has a message taken by a process that ends amid it.
func crashes(t *testing.T, talk *Talk, m Message) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Error("the process did not end")
		}
	}()
	_ = talk.Take(t.Context(), m)
}

// TestCrash ends the process between each two steps. Whatever was done by then, the next process deletes the message,
// or the owner knows. If the platform gives the message again, that goes nowhere.
func TestCrash(t *testing.T) {
	for _, waits := range []*control.Flow{notionWaits(), nil} {
		for _, at := range []string{"before answer", "after answer", "before delete", "after delete", "send"} {
			for name, undeleted := range map[string]error{
				"it is deleted": nil, "it cannot be deleted": errors.New("forbidden"),
			} {
				if waits == nil && strings.Contains(at, "answer") {
					continue
				}
				t.Run(fmt.Sprintf("%v, crash at %s, %s", waits != nil, at, name), func(t *testing.T) {
					dir := t.TempDir()
					w := &world{waits: waits, crash: at, undeleted: undeleted}
					m := Message{ID: "m1", Room: "R", From: "owner", Text: token}
					crashes(t, newTalk(t, w, dir), m)
					w.crash = ""
					next := newTalk(t, w, dir)
					if err := next.Start(t.Context()); err != nil {
						t.Error(err)
					}
					gone, told := slices.Contains(w.deleted, "m1"), strings.Contains(w.said(), "Delete it by hand, and renew")
					if gone != (undeleted == nil) || told != (undeleted != nil) {
						t.Errorf("deleted %v, told %v: %s", gone, told, w.said())
					}
					if n, _ := records(t, dir); n != 0 && undeleted == nil {
						t.Errorf("%d records are left", n)
					}
					if undeleted != nil { // the platform still has it
						if err := next.Take(t.Context(), m); err != nil {
							t.Error(err)
						}
						next.Wait()
					}
					if len(w.asked)+len(w.begun) > 0 || strings.Contains(w.said(), token[8:20]) {
						t.Errorf("asked %q, begun %q, said %s", w.asked, w.begun, w.said())
					}
				})
			}
		}
	}
}

// TestGivenAgain: a message that is on record goes to nobody but the platform, even if it would be a question by now.
func TestGivenAgain(t *testing.T) {
	dir := t.TempDir()
	w := &world{}
	talk := newTalk(t, w, dir)
	// The secret of a set-up that has ended meanwhile, which nothing tells from a question.
	m := Message{ID: "m1", Room: "R", From: "owner", Text: "correct horse battery staple"}
	if err := talk.Deletions.add(m); err != nil {
		t.Fatal(err)
	}
	take(t, talk, "m1", m.Text)
	if len(w.asked) > 0 || !slices.Equal(w.deleted, []string{"m1"}) {
		t.Errorf("asked %q, deleted %q", w.asked, w.deleted)
	}
}

// TestUndeleted: the owner is told once what to do by hand. The next process tries again, and then gives up. If nobody
// could be told, the record stays as it is.
func TestUndeleted(t *testing.T) {
	dir := t.TempDir()
	w := &world{waits: notionWaits(), undeleted: errors.New("the homeserver does not answer")}
	take(t, newTalk(t, w, dir), "m1", token)
	const words = "Delete it by hand, and renew the secret"
	if !strings.Contains(w.said(), words) || !strings.Contains(w.said(), "the homeserver does not answer") ||
		strings.Contains(w.said(), "is deleted") {
		t.Errorf("said %s", w.said())
	}
	if n, _ := records(t, dir); n != 1 {
		t.Errorf("%d records", n)
	}
	if err := newTalk(t, w, dir).Start(t.Context()); err != nil {
		t.Error(err)
	}
	if n, _ := records(t, dir); n != 0 || strings.Count(w.said(), words) != 1 {
		t.Errorf("%d records, said %s", n, w.said())
	}

	w = &world{waits: notionWaits(), undeleted: errors.New("no network"), unsent: errors.New("no network")}
	talk := newTalk(t, w, dir)
	if err := talk.Take(t.Context(), Message{ID: "m2", Room: "R", From: "owner", Text: token}); err == nil {
		t.Error("nobody was told, and there is no error")
	}
	talk.Wait()
	w.undeleted, w.unsent = nil, nil
	if err := newTalk(t, w, dir).Start(t.Context()); err != nil {
		t.Error(err)
	}
	n, _ := records(t, dir)
	if n != 0 || !slices.Equal(w.deleted, []string{"m2"}) || !strings.Contains(w.said(), "is deleted") {
		t.Errorf("%d records, deleted %q, said %s", n, w.deleted, w.said())
	}
}

// TestRecordThatNobodyCanRead: the owner is told, and the other records are used.
func TestRecordThatNobodyCanRead(t *testing.T) {
	dir := t.TempDir()
	w := &world{}
	talk := newTalk(t, w, dir)
	if err := talk.Deletions.add(Message{ID: "m1", Room: "R", From: "owner"}); err != nil {
		t.Fatal(err)
	}
	if err := talk.Deletions.add(Message{ID: "m2", Room: "another", From: "owner"}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "broken.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := talk.Start(t.Context()); err == nil || !strings.Contains(w.said(), "broken.json") {
		t.Errorf("%v, said %s", err, w.said())
	}
	if !slices.Equal(w.deleted, []string{"m1"}) {
		t.Errorf("deleted %q", w.deleted)
	}
}

// TestOrder is a conversation: a set-up, a question amid it, a secret, then a plan.
func TestOrder(t *testing.T) {
	w := &world{plan: Plan{Text: "1. notion.search", Flow: json.RawMessage(`{}`), Free: true}}
	talk := newTalk(t, w, t.TempDir())
	take(t, talk, "1", "Connect Notion")
	take(t, talk, "2", "what is the token for?")
	take(t, talk, "3", "no")
	take(t, talk, "4", token)
	take(t, talk, "5", "search notion for the design")
	take(t, talk, "6", "yes")
	take(t, talk, "7", "yes")
	if want := []string{"what is the token for?", "search notion for the design"}; !slices.Equal(w.asked, want) {
		t.Errorf("asked %q", w.asked)
	}
	if !slices.Equal(w.begun, []string{"notion"}) || !slices.Equal(w.given, []string{token}) || len(w.ran) != 1 {
		t.Errorf("begun %q, given %q, ran %d", w.begun, w.given, len(w.ran))
	}
	want := []string{
		"notion needs notion_token. Make an integration.\nhttps://example.com/integrations\nIt begins with ntn_.\n" +
			"Send it alone in a message: pfar stores it and deletes the message at once. \"cancel\" ends the set-up.",
		"1. notion.search\n\nCarry it out? Answer yes or no.",
		"Nothing was carried out.",
		"The secret is stored. Its message is deleted. Connecting to notion...",
		"notion is connected. It has 12 tools.",
		"1. notion.search\n\nCarry it out? Answer yes or no.",
		"the answer",
		"No plan waits for your answer. A plan waits for ten minutes, and ends with any other message. Approvals of the " +
			"gate are given elsewhere: pfar approvals.",
	}
	if !slices.Equal(w.sent, want) {
		t.Errorf("said:\n%s", w.said())
	}
}

// TestGateAsks: where the gate wants a person, no word in the conversation is an approval. It says where to give one.
func TestGateAsks(t *testing.T) {
	w := &world{plan: Plan{Text: "1. mail.send", Flow: json.RawMessage(`{}`)}}
	talk := newTalk(t, w, t.TempDir())
	take(t, talk, "1", "mail it")
	take(t, talk, "2", "yes")
	if len(w.ran) != 1 || strings.Contains(w.said(), "Answer yes or no") ||
		!strings.Contains(w.said(), "pfar approvals show a1") {
		t.Errorf("ran %d, said %s", len(w.ran), w.said())
	}
}

// TestCancels: the word ends the set-up that waits, else the plan, else nothing.
func TestCancels(t *testing.T) {
	w := &world{waits: notionWaits(), plan: Plan{Text: "1. notion.search", Flow: json.RawMessage(`{}`), Free: true}}
	talk := newTalk(t, w, t.TempDir())
	take(t, talk, "1", " Cancel\n")
	take(t, talk, "2", "search")
	take(t, talk, "3", "nevermind")
	take(t, talk, "4", "cancel")
	take(t, talk, "5", "yes")
	if !slices.Equal(w.given, []string{"cancel"}) || len(w.ran) > 0 || len(w.deleted) > 0 {
		t.Errorf("given %q, ran %d, deleted %q", w.given, len(w.ran), w.deleted)
	}
	for _, words := range []string{
		"notion is not connected: cancelled.", "Nothing was carried out.", "Nothing waits that",
	} {
		if !strings.Contains(w.said(), words) {
			t.Errorf("no %q in %s", words, w.said())
		}
	}
}

// TestOneQuestion: while the model plans, a second question is refused, and secrets are still deleted.
func TestOneQuestion(t *testing.T) {
	w := &world{hold: make(chan struct{}), plan: Plan{Text: "Four."}}
	talk := newTalk(t, w, t.TempDir())
	for id, text := range []string{"two and two?", "and three?", token} {
		m := Message{ID: fmt.Sprint(id), Room: "R", From: "owner", Text: text}
		if err := talk.Take(t.Context(), m); err != nil {
			t.Error(err)
		}
	}
	close(w.hold)
	talk.Wait()
	if !slices.Equal(w.asked, []string{"two and two?"}) || !slices.Equal(w.deleted, []string{"2"}) ||
		!strings.Contains(w.said(), "still plans") || !strings.HasSuffix(w.said(), "Four.") {
		t.Errorf("asked %q, deleted %q, said %s", w.asked, w.deleted, w.said())
	}
}

// TestUnsure: while pfard does not say whether a set-up waits, each message may be a password. A wish for a set-up goes
// nowhere, and is not deleted.
func TestUnsure(t *testing.T) {
	w := &world{unknown: errors.New("pfard does not run")}
	talk := newTalk(t, w, t.TempDir())
	take(t, talk, "1", "what is new?")
	take(t, talk, "2", "connect notion")
	take(t, talk, "3", "cancel")
	if len(w.asked)+len(w.begun) > 0 || !slices.Equal(w.deleted, []string{"1"}) ||
		strings.Count(w.said(), "pfard does not run") != 3 {
		t.Errorf("asked %q, begun %q, deleted %q, said %s", w.asked, w.begun, w.deleted, w.said())
	}
}

// TestHostileWords: what others say has nothing in it that a terminal obeys.
func TestHostileWords(t *testing.T) {
	w := &world{plan: Plan{Text: "hello\x1b[2J\u202eolleh\nbye"}}
	talk := newTalk(t, w, t.TempDir())
	talk.Asker = w
	take(t, talk, "1", "hello?")
	if w.said() != `hello\x1b[2J\u202eolleh`+"\nbye" {
		t.Errorf("said %q", w.said())
	}
}

// TestTerminal: a terminal keeps no messages, so none is deleted and none is recorded.
func TestTerminal(t *testing.T) {
	dir := t.TempDir()
	w := &world{waits: notionWaits()}
	talk := newTalk(t, w, dir)
	talk.Terminal = true
	take(t, talk, "1", "it is "+token)
	take(t, talk, "2", token)
	n, _ := records(t, dir)
	if n > 0 || len(w.deleted)+len(w.asked) > 0 || !slices.Equal(w.given, []string{token}) {
		t.Errorf("%d records, deleted %q, given %q, asked %q", n, w.deleted, w.given, w.asked)
	}
	if strings.Contains(w.said(), "deleted") || !strings.Contains(w.said(), "If others can read this screen") {
		t.Errorf("said %s", w.said())
	}
}
