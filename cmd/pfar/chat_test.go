package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/flows"
)

// chatBench is a pfard with a set-up, and a gateway with a model.
type chatBench struct {
	*addBench
	gateway *flowGateway
}

func newChat(t *testing.T, s *fakeSetUp, g *flowGateway) *chatBench {
	t.Helper()
	b := &chatBench{newAdd(t, s), g}
	if err := os.Remove(b.dirs.Gateway()); err != nil { // the one of newAdd knows no flows
		t.Fatal(err)
	}
	b.serveHTTP(t, g)
	return b
}

// talks runs pfar chat on lines, which a pipe carries.
func (b *chatBench) talks(t *testing.T, lines string, args ...string) *bench {
	t.Helper()
	n := b.again(lines)
	if code := n.run(t.Context(), append([]string{"chat"}, args...)); code != exitOK {
		t.Errorf("exit %d: %s", code, n.err)
	}
	return n
}

// planningReads is a gateway whose model plans one step, which the gate allows.
func planningReads() *flowGateway {
	g := planning()
	a := g.answers[flows.Ask][0]
	a.Steps = []flows.Judged{{Step: "a", Node: "tracker.read_issue", Verdict: gate.Allow, Reason: "It only reads."}}
	g.answers[flows.Ask] = []flows.Answer{a}
	return g
}

// TestChatSecretsGoNowhere: no line that may hold a secret is a question, in whatever form it comes, and none is
// printed.
func TestChatSecretsGoNowhere(t *testing.T) {
	for _, lines := range []string{
		"ntn_right-hunter2\n", "is ntn_right-hunter2 right?\n", "connect notion\nit is ntn_right-hunter2, thanks\n",
		"connect notion\nntn_right\nhunter2hunter2\n", "connect ntn_right-hunter2\n", "notion: \"ntn_right-hunter2\"\n",
		"connect notion\nyes ntn_right-hunter2\n", "connect notion\nTOKEN=ntn_right-hunter2\n",
	} {
		s, g := newSetUp(notionToken(t)), planningReads()
		s.good = "ntn_right-hunter2"
		n := newChat(t, s, g).talks(t, lines)
		if len(g.verbs()) > 0 || slices.Contains(s.given, s.good) ||
			strings.Contains(n.out.String()+n.err.String(), "hunter2") {
			t.Errorf("%q: asked %q, given %q, printed %s%s", lines, g.verbs(), s.given, n.out, n.err)
		}
	}
}

// TestChat is a conversation: a command, a question amid the set-up, a wrong secret, the right one, a plan, and a yes.
func TestChat(t *testing.T) {
	s, g := newSetUp(notionToken(t)), planningReads()
	s.good = "ntn_right-hunter2"
	b := newChat(t, s, g)
	lines := []string{
		"Connect Notion", "", "what is the token for?", "no", "ntn_wrong-hunter2", "`ntn_right-hunter2`",
		"connect slack", "connect no-such", "connect notion", "what is issue 7?", "yes", "yes", "cancel",
	}
	n := b.talks(t, strings.Join(lines, "\n"), "--client", "desk", "--session", "s1")
	golden(t, "chat.txtar", "a conversation", n.out.String())
	if n.err.Len() > 0 || strings.Contains(n.out.String(), "hunter2") {
		t.Errorf("it says %s", n.err)
	}
	if want := []string{"ntn_wrong-hunter2", s.good}; !slices.Equal(s.given, want) || len(s.begun) != 1 {
		t.Errorf("given %q, begun %d", s.given, len(s.begun))
	}
	if want := []string{flows.Ask, flows.Ask, flows.Run, flows.Word}; !slices.Equal(g.verbs(), want) {
		t.Errorf("asked %q", g.verbs())
	}
	if o := g.orders[2]; o.Digest != "d1" || o.Text != askedFlow || g.paths[2] != "/flows/desk/s1" {
		t.Errorf("ran %+v at %q", o, g.paths[2])
	}
}

// TestChatGateAsks: a plan that a person has to approve waits for no word, and says where it is approved.
func TestChatGateAsks(t *testing.T) {
	g := planning()
	n := newChat(t, newSetUp(notionToken(t)), g).talks(t, "close issue 7\nyes\n")
	if !slices.Equal(g.verbs(), []string{flows.Ask, flows.Run, flows.Word}) {
		t.Errorf("asked %q", g.verbs())
	}
	golden(t, "chat.txtar", "the gate asks", n.out.String())
}

// TestChatWithoutAModel: set-ups need none, and a question names the file to write.
func TestChatWithoutAModel(t *testing.T) {
	s := newSetUp(notionToken(t))
	g := &flowGateway{status: flows.NoModel}
	b := newChat(t, s, g)
	n := b.talks(t, "what is new?\nconnect notion\nntn_right-hunter2\n", "--json")
	var answers []string
	for line := range strings.Lines(n.out.String()) {
		var a struct {
			Answer string `json:"answer"`
		}
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatalf("%v: %q", err, line)
		}
		answers = append(answers, a.Answer)
	}
	file := filepath.Join(b.dirs.Models(), "main.hcl")
	if len(answers) != 4 || !strings.Contains(answers[0], file) || answers[3] != "notion is connected. It has 3 tools." {
		t.Errorf("answers %q", answers)
	}
}

// TestChatPasswords: where nothing tells the secret from other words, none is a question while a set-up waits.
func TestChatPasswords(t *testing.T) {
	for lines, given := range map[string]int{
		"correct horse battery staple\n": 0, "what is new in it?\n": 0, "pass: hunter2\n": 0, "hunter2\n": 1,
	} {
		s, g := newSetUp(control.Wanted{Key: "notion_token", Variable: "TOKEN"}), planningReads()
		n := newChat(t, s, g).talks(t, "connect notion\n"+lines)
		if len(g.verbs()) > 0 || len(s.given) != given || strings.Contains(n.out.String(), "hunter2") {
			t.Errorf("%q: asked %q, given %q, printed %s", lines, g.verbs(), s.given, n.out)
		}
	}
}

// TestChatAtATerminal: once a set-up waits for a secret, the terminal does not show what is typed, and that is the
// secret, whatever it looks like. Ctrl-C ends the conversation, and gives the terminal its echo back.
func TestChatAtATerminal(t *testing.T) {
	for _, w := range []control.Wanted{notionToken(t), {Key: "notion_token", Variable: "TOKEN"}} {
		for _, secret := range []string{"ntn_right-hunter2", "the hunter2 of ours", "connect hunter2"} {
			chatAtATerminal(t, w, secret)
		}
	}
}

func chatAtATerminal(t *testing.T, w control.Wanted, secret string) {
	t.Helper()
	s := newSetUp(w)
	b := newChat(t, s, planningReads())
	screen, program := newScreen(t, 80, 60)
	n := b.again("")
	n.stdin, n.stdout, n.stderr = program, program, program
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() { ended <- n.run(ctx, []string{"chat"}) }()
	screen.await(t, "Ctrl-D ends.")
	screen.press(t, "connect notion\n")
	screen.await(t, "notion_token (not shown):")
	screen.press(t, secret+"\n")
	screen.await(t, "notion is connected. It has 3 tools.")
	stop()
	if code := <-ended; code != exitInterrupted {
		t.Errorf("exit %d", code)
	}
	_, drawn, _ := screen.state()
	if strings.Contains(drawn, "hunter2") || !slices.Equal(s.given, []string{secret}) {
		t.Errorf("given %q, on the screen:\n%s", s.given, drawn)
	}
	echoes(t, program)
}
