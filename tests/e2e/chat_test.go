package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/tests/standin/llm"
)

// chatSecret is what the service of TestChat takes.
const chatSecret = "ping_right-7c1f0de9Aa27b36D58e0"

// TestChat is a conversation that sets a service up and asks a question. The secret of the set-up is in the vault,
// and in no question to the model, no answer, no log, no database and no record, in whatever encoding.
func TestChat(t *testing.T) {
	t.Parallel()
	a := newAsking(t, "strict", everyUse, llm.Good(readIssue, "The site does not work."))
	a.accepts("tracker")
	a.ping()
	a.stdin = strings.Join([]string{
		"connect ping", "it is " + chatSecret + ", thanks", "\"" + chatSecret + "\"", chatSecret, "connect ping",
		"why does " + chatSecret + " not work?", "what does the issue say?", "yes",
	}, "\n")
	out, errs, code := a.command("chat", "--client", "agent0")
	if code != 0 || errs != "" {
		t.Errorf("exit %d: %s", code, errs)
	}
	at := 0
	for _, want := range []string{
		"ping needs ping_token.", "If it was ping_token, send it alone", "The secret is stored.", "ping is connected.",
		"less than a minute ago", "ping is connected already", "less than a minute ago", "a calls tracker.read_issue",
		"Answer yes or no.", "The site does not work.",
	} {
		next := strings.Index(out[at:], want)
		if next < 0 {
			t.Fatalf("no %q there:\n%s", want, out)
		}
		at += next
	}
	if got := a.called("tracker"); !slices.Equal(got, []string{"read_issue"}) {
		t.Errorf("called %q", got)
	}
	asked := a.api.Asked()
	if len(asked) != 2 {
		t.Errorf("the model was asked %d times", len(asked))
	}
	for _, form := range formsOf(chatSecret) {
		if strings.Contains(out+errs+fmt.Sprint(asked)+a.stderr.String(), form) {
			t.Errorf("%s is in an answer, in a question or in the log of pfard", form)
		}
	}
	inNoFile(t, a.home, a.run)
	a.operate(0, "audit", "verify")
	assertSecretNowhere(t, a.stage.pfar, chatSecret)
}

// formsOf are a secret and its encodings, of Base64 the part that is the same wherever the secret stands.
func formsOf(secret string) []string {
	forms := []string{secret, hex.EncodeToString([]byte(secret)), strings.ToUpper(hex.EncodeToString([]byte(secret)))}
	for before := range 3 {
		text := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", before) + secret))
		forms = append(forms, text[4:len(text)-4])
	}
	return forms
}

// inNoFile wants no file below the directories to have the secret of TestChat, but the vault and what the server itself
// gets. It sees a copy that it makes, so that it cannot pass because it looks nowhere.
func inNoFile(t *testing.T, dirs ...string) {
	t.Helper()
	copies := formsOf(chatSecret)
	for i, form := range copies {
		put(t, filepath.Join(dirs[0], fmt.Sprintf("copy%d", i)), "x"+form)
	}
	forms, seen := formsOf(chatSecret), 0
	for _, dir := range dirs {
		check(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return nil // sockets, and what has gone meanwhile
			}
			b, err := os.ReadFile(path)
			if err != nil || !slices.ContainsFunc(forms, func(form string) bool { return bytes.Contains(b, []byte(form)) }) {
				return nil
			}
			switch {
			case strings.HasPrefix(filepath.Base(path), "copy"):
				seen++
			case !strings.Contains(path, "/cred"):
				t.Errorf("the secret is in %s", path)
			}
			return nil
		}))
	}
	if seen != len(copies) {
		t.Errorf("of %d copies %d are seen", len(copies), seen)
	}
	for i := range copies {
		check(t, os.Remove(filepath.Join(dirs[0], fmt.Sprintf("copy%d", i))))
	}
}

// TestChatWaits: where the gate asks, no word of the conversation is an approval: nothing is called before somebody
// gives one elsewhere.
func TestChatWaits(t *testing.T) {
	t.Parallel()
	plan := `{"nodes":[{"id":"a","node":"tracker.comment","inputs":{"body":"We look into it."}}]}`
	a := newAsking(t, "strict", `phases = ["plan", "answer"]`, llm.Good(plan, "It is said."))
	a.accepts("tracker")
	s := a.atTerminal("chat", "--client", "agent0")
	s.reply(1, "Ctrl-D ends.", "answer the issue")
	s.await(1, "pfar approvals show ")
	_, err := s.terminal.WriteString("yes\nyes\n")
	check(t, err)
	var waits []waiting
	until(t, "a person is asked", func() bool {
		waits = decode[[]waiting](a.stage, "approvals", "list")
		waits = slices.DeleteFunc(waits, func(w waiting) bool { return w.State != "pending" })
		return len(waits) == 1
	})
	if len(a.called("tracker")) > 0 {
		t.Errorf("called before the approval: %q", a.called("tracker"))
	}
	a.stdin = ""
	a.operate(0, "approvals", "approve", waits[0].ID, "--yes")
	s.await(1, "It is said.")
	s.await(1, "No plan waits for your answer.")
	got := a.called("tracker")
	if !slices.Equal(got, []string{"comment"}) || strings.Contains(s.text(), "Answer yes or no") {
		t.Errorf("called %q:\n%s", got, s.text())
	}
}
