package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/pfar/pfar/policies/oauth"
	"github.com/pfar/pfar/policies/plural"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
)

// carry begins a set-up or, if begin is nil, joins that of this user. It answers its questions, and reports how it has
// ended.
func (a *adding) carry(ctx context.Context, begin *control.SetUp) error {
	if err := units.NoCore(); err != nil { // values pass through this process
		return err
	}
	following, leave := context.WithCancel(ctx)
	defer leave()
	t := &talk{adding: a, flows: make(chan control.Flow), ended: make(chan error, 1), values: newSecretValues(a)}
	go func() { t.ended <- a.control().SetUp(following, begin, deliver(following, t.flows)) }()
	last, err := t.converse(ctx)
	waits := last.Wants != nil && !errors.Is(err, control.ErrNotRunning)
	switch {
	case ctx.Err() != nil:
		if last.ID != "" {
			a.hintAt("the set-up goes on; join it with: pfar add " + a.server())
		}
		return context.Cause(ctx)
	case errors.Is(err, io.EOF) && waits: // Ctrl-D
		return fail(exitInterrupted, "no value was given").withHint("%s", a.goOn(*last.Wants))
	case err != nil && waits:
		code, _ := classify(err)
		return fail(code, "%w", err).withHint("%s", a.goOn(*last.Wants))
	case cutOff(err):
		const hint = "%sonce pfard runs again, the same command goes on: pfar add %s"
		return fail(exitNotRunning, "%w", err).withHint(hint, a.left(), a.server())
	case err != nil:
		_, hinted := errors.AsType[*failure](err)
		code, hint := classify(err)
		if hinted || hint != "" || a.file == "" {
			return err
		}
		return fail(code, "%w", err).withHint("%spfar add %s tries again", a.left(), a.server())
	case last.State == control.FlowFailed:
		if a.json() {
			if err := a.printJSON(a.outcome(last)); err != nil {
				return err
			}
		}
		return fail(exitFailed, "%s is not set up: %s", a.server(), last.Detail).
			withHint("%spfar logs %s says why; pfar add %[2]s tries again; stored secrets stay", a.left(), a.server())
	}
	return a.finish(ctx, last)
}

// rewrite is what the set-up does to the file of the declaration. pfard makes the text of a known service; of a set-up
// that is joined, this process does not know it.
func (a *adding) rewrite() rewrite {
	r := rewrite{file: a.file, wanted: anyText}
	if text := a.order().Text; text != nil && len(text.New) > 0 {
		r.wanted = control.DigestOf(text.New)
	}
	return r
}

// left starts a hint: it says what happened to the file. A server that was declared before keeps its file.
func (a *adding) left() string {
	if a.file == "" {
		return ""
	}
	return a.rewrite().outcome() + "; "
}

// join says that a set-up is joined. A server that is declared already keeps its file.
func join(a *adding, report control.Report) {
	if _, err := findServer(report, a.server()); err == nil {
		a.file = ""
	}
	fmt.Fprintf(a.stderr, "%s: joining the set-up that is under way\n", a.server())
}

// goOn returns a hint how to go on with a set-up that waits for a secret.
func (a *adding) goOn(w control.Wanted) string {
	words := "the set-up waits: pfar add " + a.server()
	if !isTerminal(a.stdin) {
		words += ", or in a browser pfar add " + a.server() + " --page"
	}
	if len(w.Ways) > 0 {
		words += ", or sign in: pfar login " + w.Key
	}
	return words
}

// talk is a conversation about a set-up.
type talk struct {
	*adding
	flows  chan control.Flow
	ended  chan error
	values *secretValues
	said   string // the last progress that was printed
	link   string // of the page, once the person has seen it
}

// question asks the person for a value.
type question struct {
	flow  control.Flow
	stop  context.CancelFunc
	given chan answer // by the person
	taken chan error  // by pfard
	sent  bool
}

// answer is what a person does about a question.
type answer struct {
	value string
	way   oauth.Way // to sign in, rather than to give a value
	skip  bool
	err   error
}

// same reports whether a set-up still asks this.
func (q *question) same(f control.Flow) bool {
	return f.Wants != nil && f.Wants.Key == q.flow.Wants.Key && f.Attempts == q.flow.Attempts
}

// close gives the terminal its echo back.
func (q *question) close() {
	if q == nil || q.sent {
		return
	}
	q.stop()
	<-q.given
}

// converse answers what the set-up asks for until it has ended.
func (t *talk) converse(ctx context.Context) (now control.Flow, err error) {
	var open *question
	defer func() { open.close() }()
	for {
		var given chan answer
		var taken chan error
		if open != nil && open.sent {
			taken = open.taken
		} else if open != nil {
			given = open.given
		}
		select {
		case <-ctx.Done():
			return now, context.Cause(ctx)
		case err := <-t.ended:
			if now.State == control.FlowComplete || now.State == control.FlowFailed {
				err = nil
			}
			return now, err
		case f := <-t.flows:
			if open != nil && open.same(f) {
				continue
			}
			open.close() // somebody else has answered, or it is too late
			now, open = f, nil
			if t.tell(f); f.Wants != nil && !t.paged(f) {
				open = t.pose(ctx, f)
			}
		case a := <-given:
			open.given <- a // for close
			if a.err != nil {
				return now, a.err
			}
			t.supply(ctx, open, a)
		case err := <-taken:
			if err == nil {
				open = nil
				continue
			}
			t.tellFault(err) // the set-up waits as before
			open = t.pose(ctx, now)
		}
	}
}

// tell prints the progress of the set-up.
func (t *talk) tell(now control.Flow) {
	busy := now.State == control.FlowSpawning || now.State == control.FlowVerifying
	if !busy || now.Detail == "" || now.Detail == t.said || t.json() {
		return
	}
	t.said = now.Detail
	fmt.Fprintln(t.stderr, escape(now.Detail, oneLine))
}

// paged shows the person the link of the set-up's page, and reports whether the page takes the secret that the set-up
// wants.
func (t *talk) paged(now control.Flow) bool {
	if !t.page || t.values.given(now.Wants.Key) {
		return false
	}
	if now.Page == "" || now.Page == t.link { // it is being opened, or shows by itself what is wanted
		return true
	}
	t.link = now.Page
	say := func(format string, a ...any) { fmt.Fprintf(t.stderr, format+"\n", a...) }
	showLink(t.pfar, now.Page)
	say("Do not show the link to others: anybody who has it can answer in your place.")
	minutes := max(1, int(now.Deadline.Sub(t.now()).Minutes()+0.5))
	say("Waiting for you, at most %s. The set-up waits after Ctrl-C too.", plural.Count(minutes, "minute"))
	return true
}

// pose begins to ask for the value that a set-up waits for.
func (t *talk) pose(ctx context.Context, now control.Flow) *question {
	asking, stop := context.WithCancel(ctx)
	q := &question{flow: now, stop: stop, given: make(chan answer, 1), taken: make(chan error, 1)}
	go func() { q.given <- t.values.read(asking, now) }()
	return q
}

// supply hands an answer over, or has the person sign in.
func (t *talk) supply(ctx context.Context, q *question, a answer) {
	q.sent = true
	q.stop()
	go func() {
		if a.way != "" {
			q.taken <- t.signIn(ctx, q.flow, a.way)
			return
		}
		_, err := t.control().Supply(ctx, control.FlowAnswer{ID: q.flow.ID, Key: q.flow.Wants.Key, Skip: a.skip}, a.value)
		q.taken <- err
	}()
}

// signIn obtains the token that a set-up waits for. pfard ends the sign-in if the set-up no longer waits for it.
func (t *talk) signIn(ctx context.Context, now control.Flow, way oauth.Way) error {
	l := control.Login{Way: way, Flow: now.ID, Key: now.Wants.Key}
	if !t.json() {
		fmt.Fprintln(t.stderr)
	}
	_, err := loginVerb{t.pfar}.obtain(ctx, t.server(), l, "pfar add "+t.server())
	return err
}

// steps say what is done, in order.
func (a *adding) steps() (list [][2]string) {
	add := func(what, more string) { list = append(list, [2]string{what, more}) }
	login := false
	for _, k := range a.service.Secrets {
		if login = k.Login; !login {
			add("ask for", k.Key+", unless the vault has it")
		}
	}
	if p := cmp.Or(a.choices.Package, a.service.Program.Package); p != "" {
		add("install", p+", in a sandbox, without its scripts")
	}
	add("write", "this declaration")
	switch {
	case !a.known && a.service.Program.URL == "":
		add("learn", fmt.Sprintf("which hosts it asks for, for %s", a.learn))
		add("ask", "which of them it may reach")
	case a.service.Test != nil:
		add("start", "the server, and call "+a.service.Test.Tool+", which only reads")
	case login:
		add("sign in", "afterwards, with pfar login "+a.server())
	case meets(a.service):
		add("connect", "to the server, and see whether it speaks MCP and wants you to sign in")
	default:
		add("start", "the server")
	}
	return list
}
