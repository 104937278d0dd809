package main

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/units/control"
)

// say runs pfar message on a text.
func (b *addBench) say(t *testing.T, text string, code int, args ...string) (stdout, stderr string) {
	t.Helper()
	n := b.again(text)
	if got := n.run(t.Context(), append([]string{"message"}, args...)); got != code {
		t.Errorf("%q: exit %d, want %d: %s", text, got, code, n.err)
	}
	return n.out.String(), n.err.String()
}

// TestMessagePasses wants whatever is not for a set-up to come out as it went in, and to begin nothing.
func TestMessagePasses(t *testing.T) {
	for _, text := range []string{
		"", "hello\n", "add milk to the list", "connect", "please connect notion", "disconnect notion", "notion", "cancel",
		"ntn_a-token-that-nobody-asked-for", "list", "remove notion", "connect notion, then slack", "\x00\xff\n\n",
		"connect notion\nignore all else", strings.Repeat("x", maxChat+2), "connect " + strings.Repeat("x", maxChat),
	} {
		s := newSetUp(notionToken(t))
		b := newAdd(t, s)
		out, said := b.say(t, text, exitOK)
		if out != text || said != "" || len(s.begun) > 0 {
			t.Errorf("%.60q: %d of %d bytes came out, and %q; %d set-ups", text, len(out), len(text), said, len(s.begun))
		}
	}
}

// TestMessageSetsUp is a chat: a command, words that are none of pfar's, a wrong secret, the right one.
func TestMessageSetsUp(t *testing.T) {
	s := newSetUp(notionToken(t))
	s.good = "ntn_right-hunter2"
	b := newAdd(t, s)
	told := func(text string, want heard, words ...string) {
		t.Helper()
		out, said := b.say(t, text, exitOK, "--json")
		var h heard
		if err := json.Unmarshal([]byte(out), &h); err != nil || (said != "") != want.Secret {
			t.Fatalf("%q: %v, %s%s", text, err, out, said)
		}
		for _, w := range words {
			if !strings.Contains(h.Reply, w) {
				t.Errorf("%q: no %q in the reply %q", text, w, h.Reply)
			}
		}
		if strings.Contains(out, "hunter2") || strings.ContainsRune(h.Reply, '\x1b') {
			t.Errorf("%q: %q", text, out)
		}
		if h.Reply = ""; h != want {
			t.Errorf("%q: %+v, want %+v", text, h, want)
		}
	}
	told("Set up Notion\n", heard{Taken: true, Server: "notion", State: control.AwaitingCredential},
		"notion needs notion_token", "https://", "ntn_", `"cancel"`)
	for _, text := range []string{
		"what does it need the token for?", "ntn_", "hunter2", "thanks", "two words-of-20-characters",
	} {
		told(text, heard{})
	}
	told(" ntn_wrong-hunter2\n", heard{Taken: true, Secret: true, Server: "notion", State: control.CredentialRefused},
		"refuses the value (1 of 3)", "API token is invalid.")
	told(s.good, heard{Taken: true, Secret: true, Server: "notion", State: control.FlowComplete},
		"notion is set up: 3 tools.")
	if want := []string{"ntn_wrong-hunter2", s.good}; !slices.Equal(s.given, want) {
		t.Errorf("gave %q", s.given)
	}
	if len(s.begun) != 1 || s.begun[0].Service != "notion" || s.begun[0].Server != "notion" || s.begun[0].Text != nil {
		t.Errorf("began %+v", s.begun)
	}
	told("connect notion", heard{Taken: true, Server: "notion", State: control.FlowComplete}, "notion is set up: running")
	told("integrate no-such-service", heard{Taken: true, Server: "no-such-service"}, "no known service")
	told("connect slack", heard{Taken: true, Server: "slack"}, "pfar add slack --set team=VALUE")
	if len(s.begun) != 1 {
		t.Errorf("began %+v", s.begun)
	}
}

// onText closes a channel when a text is written to it.
type onText struct {
	*bytes.Buffer
	text string
	seen chan struct{}
}

func (o onText) Write(b []byte) (int, error) {
	before := strings.Contains(o.String(), o.text)
	n, err := o.Buffer.Write(b)
	if !before && strings.Contains(o.String(), o.text) {
		close(o.seen)
	}
	return n, err
}

// TestMessageIsToBeDeletedAtOnce: the set-up goes on only when the words are there.
func TestMessageIsToBeDeletedAtOnce(t *testing.T) {
	s := newSetUp(notionToken(t))
	s.good, s.slow = "ntn_right-hunter2", make(chan struct{})
	b := newAdd(t, s)
	b.say(t, "connect notion", exitOK)
	n := b.again(s.good)
	n.stderr = onText{n.err, "Delete the message from the chat", s.slow}
	if code := n.run(t.Context(), []string{"message"}); code != exitOK || !strings.Contains(n.err.String(), "is set up") {
		t.Errorf("exit %d: %s", code, n.err)
	}
}

func TestMessageEndsASetUp(t *testing.T) {
	s := newSetUp(notionToken(t))
	b := newAdd(t, s)
	b.say(t, "connect notion", exitOK)
	out, said := b.say(t, " cancel \n", exitOK)
	if out != "" || said != "notion is not set up: cancelled\n" || len(s.given) > 0 {
		t.Errorf("%q, %q, gave %q", out, said, s.given)
	}
	if out, _ := b.say(t, "cancel", exitOK); out != "cancel" {
		t.Errorf("without a set-up: %q", out)
	}
}

// TestMessageFails wants a secret that cannot be stored to go no further.
func TestMessageFails(t *testing.T) {
	w := notionToken(t)
	w.Pattern = "unstorable"
	b := newAdd(t, newSetUp(w))
	b.say(t, "connect notion", exitOK)
	out, said := b.say(t, "unstorable", exitFailed)
	if out != "" || !strings.Contains(said, "the disk is full") || !strings.HasPrefix(said, "Delete the message") {
		t.Errorf("%q, %q", out, said)
	}
}
