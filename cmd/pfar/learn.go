package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/monitor"
	"github.com/pfar/pfar/units/wants"
)

const learnHelp = `Run a server in learning mode until Ctrl-C, and print the allowed_domains that it needs. Review them and
paste them into its declaration, or have --write add them to it: pfar shows the change and asks.

Learning mode allows only the connections that were allowed before, and sends no undeclared name to a name
server. Every name gets an address inside the sandbox, which shows the port that the server wants. A server
may ask for more hosts after it reaches the first ones. The command starts or restarts the server in learning
mode. At the end the server restarts as declared, or stops if it was stopped before.`

// lastWordsTimeout is how long a bridge that ends may take to say what it has seen last.
const lastWordsTimeout = 2 * time.Second

// learnVerb watches which hosts a server wants.
type learnVerb struct{ *pfar }

func (c learnVerb) learnCommand() *cobra.Command {
	var limit time.Duration
	var keep keeping
	cmd := c.outputFlag(&cobra.Command{
		Use:   "learn NAME",
		Short: "Find out which hosts a server needs, and print allowed_domains",
		Long:  learnHelp,
		Example: example(
			"pfar learn notion", "pfar learn notion --for 2m > domains.hcl", "pfar learn notion --write"),
		ValidArgsFunction: offerFirst(c.offeredServers),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 0 || limit == 0 && cmd.Flags().Changed("for") {
				return usage("--for %s: want a time, such as 30s or 5m", limit)
			}
			if keep.yes && !keep.write {
				return usage("--yes goes with --write")
			}
			return c.learn(cmd.Context(), args[0], limit, keep)
		},
	})
	cmd.Flags().DurationVar(&limit, "for", 0, "end this `TIME` after the server's start, such as 30s or 5m")
	cmd.Flags().BoolVar(&keep.write, "write", false, "add the hosts to the declaration, as pfar allow does")
	cmd.Flags().BoolVar(&keep.yes, "yes", false, "with --write, do not ask")
	return cmd
}

// keeping is what becomes of what was learned.
type keeping struct{ write, yes bool }

// learning is one run of pfar learn.
type learning struct {
	*pfar
	name     string
	limit    time.Duration // 0: until Ctrl-C
	wishes   *wishes
	bridges  *bridges
	server   control.Server // as last reported, in learning mode
	began    time.Time      // of its start in learning mode; zero: not yet
	deadline <-chan time.Time
}

func (c learnVerb) learn(ctx context.Context, name string, limit time.Duration, keep keeping) error {
	if keep.write {
		if err := c.canAsk(keep.yes, "pfar learn "+name); err != nil {
			return err
		}
	}
	result, why, err := c.lesson(ctx, name, limit)
	if err != nil {
		return err
	}
	switch {
	case keep.write && len(result.Suggested) > 0:
		// Ctrl-C has ended the learning, and not this.
		err = allowVerb(c).allow(context.WithoutCancel(ctx), name, result.Entries(), keep.yes)
	case c.json():
		err = c.printJSON(result)
	default:
		err = writeLesson(c.stdout, result)
	}
	return errors.Join(err, why)
}

// lesson runs a server in learning mode. why is what has ended that, if it was neither the time nor the operator; with
// an error nothing was learned.
func (c learnVerb) lesson(ctx context.Context, name string, limit time.Duration) (result wants.Lesson, why, err error) {
	_, declared, err := serverNamed(ctx, c.pfar, name)
	if err != nil {
		return result, nil, err
	}
	l := &learning{pfar: c.pfar, name: name, limit: limit}
	l.wishes = newWishes(c.now(), l.tell)
	watching, cancel := context.WithCancel(ctx)
	l.bridges = newBridges(watching, c.dirs)
	why = l.follow(watching)
	cancel() // pfard brings the server back
	l.bridges.wait()
	if l.began.IsZero() {
		return result, nil, notLearned(why, declared, ctx)
	}
	c.ended(ctx, name)
	result = l.wishes.lesson(name, l.server.Domains, c.now().Sub(l.began))
	leaveOut(&result, l.server.URL)
	if len(result.Suggested)+len(result.Refused) == 0 {
		fmt.Fprintf(c.stderr, "%s asked for nothing that it may not have\n", name)
	}
	return result, why, nil
}

// ended waits until pfard has noticed that the learning has ended. Before that the server runs, but is about to start
// anew, and whoever looks would take it for what is declared.
func (c learnVerb) ended(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	_ = c.control().Await(ctx, func(r control.Report) (bool, error) { // without pfard there is nothing to wait for
		s, err := findServer(r, name)
		return err != nil || !s.Learning, nil
	})
}

// notLearned explains why there is nothing to print.
func notLearned(why error, s control.Server, ctx context.Context) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(why, control.ErrDisabled):
		return fail(exitFailed, "%w", why).withHint("set enabled = true in %s", s.File)
	case errors.Is(why, control.ErrOff):
		return fail(exitFailed, "%w", why).withHint("pfar enable %s", s.Name)
	case errors.Is(why, control.ErrLearning):
		return fail(exitFailed, "%w", why).withHint("end the other pfar learn %s first", s.Name)
	case why == nil:
		return fail(exitFailed, "%s was stopped before it started", s.Name).withHint("pfar logs %s", s.Name)
	}
	return why
}

// follow gathers wishes until the operator, the time or the server ends it. An error is to be told after what was
// learned.
func (l *learning) follow(ctx context.Context) error {
	reports, ended := make(chan control.Report), make(chan error, 1)
	go func() { ended <- l.control().Learn(ctx, l.name, deliver(ctx, reports)) }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.deadline:
			return nil
		case r := <-reports:
			if over, err := l.changed(r); over {
				l.lastWords(ctx)
				return err
			}
		case e := <-l.bridges.events:
			l.take(e)
		case err := <-ended:
			if ctx.Err() != nil {
				return nil
			}
			l.lastWords(ctx)
			return l.dismissed(err)
		}
	}
}

// changed follows the server's state, and reports whether that ends the learning.
func (l *learning) changed(r control.Report) (over bool, err error) {
	s, err := findServer(r, l.name)
	if err != nil {
		return false, nil // pfard says so itself
	}
	l.server = s
	l.bridges.watch(withSessions([]control.Server{s}))
	switch s.State {
	case control.Starting, control.Running, control.CredentialInvalid, control.BackOff, control.Offline:
		if l.began.IsZero() {
			l.start()
		}
	case control.Waiting, control.NeedsLogin, control.Failed:
		return true, fail(exitFailed, "%s", l.name+": "+describe(s)).withHint("%s", remedy(s))
	case control.Stopped:
		fmt.Fprintf(l.stderr, "%s has ended\n", l.name)
		return true, nil
	}
	return false, nil
}

func (l *learning) start() {
	l.began = l.now()
	until := "until Ctrl-C"
	if l.limit > 0 {
		until = fmt.Sprintf("for %s", l.limit)
		l.deadline = time.After(l.limit)
	}
	fmt.Fprintf(l.stderr, "%s is in learning mode %s; nothing more is allowed than before\n", l.name, until)
}

// dismissed says who has taken the server away.
func (l *learning) dismissed(err error) error {
	switch {
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%w any more", control.ErrNotRunning)
	case !l.began.IsZero() && (errors.Is(err, control.ErrStopped) || errors.Is(err, control.ErrDisabled) ||
		errors.Is(err, control.ErrNoServer)):
		fmt.Fprintf(l.stderr, "the learning has ended: %s\n", escape(err.Error(), oneLine))
		return nil
	}
	return err
}

// take takes a message of the bridge.
func (l *learning) take(e bridgeEvent) {
	if err := l.bridges.take(e); err != nil {
		l.complain(fmt.Errorf("watching the egress bridge of %q: %w", e.server, err))
	}
	l.wishes.lost += max(0, e.message.Lost)
	if e.message.Connection != nil {
		l.wishes.see(*e.message.Connection)
	}
}

// lastWords waits for the end of the bridge, which ends with its server and tells before what it has not told yet.
func (l *learning) lastWords(ctx context.Context) {
	clear(l.bridges.state) // it is not to be started again
	enough := time.After(lastWordsTimeout)
	for l.bridges.connected() {
		select {
		case e := <-l.bridges.events:
			l.take(e)
		case <-enough:
			return
		case <-ctx.Done():
			return
		}
	}
}

// tell shows a new wish while it is learned.
func (l *learning) tell(w wants.Wish, m monitor.Connection) {
	line := fmt.Sprintf("%s wants %s, refused: %s (%s)", l.name, w.Target(), m.Reason, m.Via())
	switch {
	case w.Host == "":
		line = fmt.Sprintf("%s was refused by %s: %s", l.name, m.Via(), m.Reason)
	case m.Path == monitor.Resolver:
		line = fmt.Sprintf("%s looks up %s", l.name, w.Host)
	}
	fmt.Fprintln(l.stderr, escape(line, oneLine))
}
