package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/pfar/pfar/tests/standin/llm"
)

// TestAskLost kills the gateway while a model plans, for pfar ask and for pfar chat. Both say that the question is
// lost and how it is asked again; asked again, it is answered.
func TestAskLost(t *testing.T) {
	t.Parallel()
	plans, asked := make(chan struct{}), make(chan struct{}, 16)
	good := llm.Good(readIssue, "The site does not work.")
	a := newAsking(t, "strict", everyUse, func(c llm.Chat) llm.Reply {
		if c.Kind() == llm.Plan {
			asked <- struct{}{}
			<-plans
		}
		return good(c)
	})
	a.accepts("tracker")
	kill := func() {
		<-asked
		g := a.gateway()
		check(t, syscall.Kill(g.pid, syscall.SIGKILL))
		awaitGone(t, soon, []process{g})
		a.gateway(g)
	}
	said := make(chan string, 1)
	go func() {
		out, errs, code := a.command("ask", "what does the issue say?", "--client", "agent0", "--plan-only")
		said <- fmt.Sprintf("exit %d: %s%s", code, out, errs)
	}()
	kill()
	got := <-said
	for _, want := range []string{"exit 1: ", "the question is lost", "pfar ask 'what does the issue say?'"} {
		if !strings.Contains(got, want) {
			t.Errorf("pfar ask: no %q in %s", want, got)
		}
	}
	s := a.atTerminal("chat", "--client", "agent0")
	s.reply(1, "Ctrl-D ends.", "what does the issue say?")
	kill()
	s.await(1, "your question is lost")
	close(plans)
	until(t, "the gateway is back", func() bool {
		_, _, code := a.command("describe", "tracker.read_issue")
		return code == 0
	})
	_, err := s.terminal.WriteString("what does the issue say?\n")
	check(t, err)
	s.await(1, "Answer yes or no.")
	if n := strings.Count(s.text(), "question is lost"); n != 1 {
		t.Errorf("it is said %d times that the question is lost:\n%s", n, s.text())
	}
}
