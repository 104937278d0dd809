package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/chat"
	"github.com/pfar/pfar/units/chat/desk"
	"github.com/pfar/pfar/units/control"
)

const chatHelp = `Talk with pfar in lines: set up services, and ask questions. Each line is one of these, the first
that fits:

  - while a set-up waits for a secret: the secret, alone in its line. "cancel" or "nevermind" ends the set-up,
    and "skip" leaves an optional secret out. A terminal does not show what you type then;
  - "connect", "add", "setup", "set up", "integrate" or "enable", followed by one name, such as "connect notion":
    pfar sets up that service, as "pfar add" does, and asks only for its secrets. A name alone is a question;
  - "yes" or "no" to a plan that was shown;
  - a question. Your model writes a plan, as for "pfar ask". pfar shows the whole plan, and carries it out after
    your yes.

A line that may hold a secret is never a question: no model reads it. If the gate wants a person's approval,
the run begins without your yes, and waits for the approval before its first step. Approve it with "pfar
approvals" or in the console, never in the conversation.

Only questions need a model; pfar-models(5) says how to declare one. pfar asks as a declared client ("default"
if you name none), never as the operator. Ctrl-D or Ctrl-C ends the conversation; set-ups and runs that have
begun go on. With --json, each answer is one object on a line.`

// chatVerb holds a conversation on standard input and output.
type chatVerb struct{ *pfar }

func (v chatVerb) chatCommand() *cobra.Command {
	cmd := v.outputFlag(&cobra.Command{
		Use: "chat", Short: "Set up services and ask questions in a conversation", Long: chatHelp,
		Example: example("pfar chat", "pfar chat --client desk", "echo connect notion | pfar chat --json"),
		RunE:    alone(v.run),
	})
	v.persona.flags(cmd.Flags())
	return cmd
}

// chatRoom and chatOwner name both ends of the conversation.
const chatRoom, chatOwner = "terminal", "you"

func (v chatVerb) run(ctx context.Context) error {
	if err := units.NoCore(); err != nil { // lines may be secrets
		return err
	}
	if v.persona.client == access.Operator {
		return errOperator
	}
	if _, err := v.persona.address("/flows", access.Default, ""); err != nil {
		return err
	}
	setUps := &desk.Setups{Control: v.control(), Check: v.checker(ctx)}
	if _, err := setUps.Waiting(ctx); err != nil { // pfard does not run, or refuses this user
		return err
	}
	talk := &chat.Talk{
		Room: chatRoom, Owner: chatOwner, Platform: v, Setups: setUps, Terminal: true,
		Asker: desk.Asker{
			HTTP: &http.Client{Transport: v.gatewayHTTP().Transport}, Client: v.persona.client, Session: v.persona.session,
			Models: filepath.Join(v.dirs.Models(), "main.hcl"), Most: gate.Secret,
		},
		Known: func(name string) bool {
			_, known := servicesVerb(v).naming(ctx, name).Find(name)
			return known
		},
	}
	if isTerminal(v.stdin) && !v.json() {
		fmt.Fprintln(v.stderr, `Ask a question, or enter "connect NAME" to set up a service. Ctrl-D ends.`)
	}
	err := v.converse(ctx, talk, setUps)
	if ctx.Err() != nil {
		v.hintAt("set-ups and runs that have begun go on: pfar status, pfar flow list")
		return context.Cause(ctx)
	}
	return err
}

// converse takes line after line, and waits for all that comes of each.
func (v chatVerb) converse(ctx context.Context, talk *chat.Talk, setUps *desk.Setups) error {
	lines := bufio.NewReaderSize(v.stdin, maxAnswered)
	for n := 1; ; n++ {
		line, err := v.line(ctx, lines, setUps)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("reading a line: %w", err)
		}
		m := chat.Message{ID: strconv.Itoa(n), Room: chatRoom, From: chatOwner, Text: line}
		if err := talk.Take(ctx, m); err != nil {
			return err
		}
		if talk.Wait(); ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// line reads one line. While a set-up waits for a secret, a terminal does not show it.
func (v chatVerb) line(ctx context.Context, lines *bufio.Reader, setUps *desk.Setups) (string, error) {
	f, ok := fileOf(v.stdin)
	if !ok || !isTerminal(f) {
		b, err := interruptible(ctx, func() ([]byte, error) { return longLine(lines) })
		return string(b), err
	}
	if now, err := setUps.Waiting(ctx); err == nil && now != nil {
		b, err := readHidden(ctx, f, func() { fmt.Fprintf(v.stderr, "%s (not shown): ", escape(now.Wants.Key, oneLine)) })
		fmt.Fprintln(v.stderr)
		return string(b), err
	}
	return v.askLine(ctx, ">")
}

// longLine reads a line of a pipe. One that is too long for any message is cut, and its rest is no line of its own.
func longLine(lines *bufio.Reader) (line []byte, err error) {
	for {
		part, err := lines.ReadSlice('\n')
		if len(line) <= maxChat {
			line = append(line, part...)
		}
		switch {
		case err == nil, errors.Is(err, io.EOF) && len(line) > 0:
			return line, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

// Send prints an answer.
func (v chatVerb) Send(_ context.Context, _, text string) error {
	if !v.json() {
		_, err := fmt.Fprintln(v.stdout, escape(text, keepLines))
		return err
	}
	b, err := json.Marshal(struct {
		Answer string `json:"answer"`
	}{text})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(v.stdout, string(escapeJSON(b)))
	return err
}

// Delete has nothing to do: a terminal keeps no messages (chat.Talk).
func (v chatVerb) Delete(context.Context, chat.Message) error { return nil }

// checker says why a service cannot be set up in a conversation.
func (v chatVerb) checker(ctx context.Context) func(service string) error {
	return func(name string) error {
		a, err := addVerb(v).proposed(servicesVerb(v).naming(ctx, name), []string{name}, additions{})
		if err != nil {
			return withItsHint(err)
		}
		if missing := a.unanswered(); len(missing) > 0 {
			return fmt.Errorf("%s needs more than its secrets. Run: pfar add %[1]s --set %s=VALUE", name, missing[0].Name)
		}
		if err := a.declare(); err != nil {
			return withItsHint(err)
		}
		report, err := v.report(ctx)
		if err != nil {
			return withItsHint(err)
		}
		s, err := findServer(report, a.server())
		if err == nil && (s.State == control.Running || s.State == control.Sleeping) {
			return fmt.Errorf("%s is connected already: %s", s.Name, describe(s))
		}
		return nil
	}
}

// withItsHint is an error with its hint, for a conversation.
func withItsHint(err error) error {
	if _, hint := classify(err); hint != "" {
		return fmt.Errorf("%w (%s)", err, hint)
	}
	return err
}
