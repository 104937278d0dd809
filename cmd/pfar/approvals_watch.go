package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/desktop"
	"github.com/pfar/pfar/units/operator"
)

const watchHelp = `Print each call that begins to wait, and its outcome, until Ctrl-C.

--exec runs a program for each waiting call, with PFAR_APPROVAL (the ID), PFAR_CLIENT, PFAR_SESSION,
PFAR_SERVER, PFAR_TOOL and PFAR_REASON in its environment: to send a message, to play a sound. --notify shows a
notice on the desktop, with a button that opens "pfar approvals" in a terminal, and takes it back when the call no
longer waits. The program and the notice cannot approve or deny the call.

The user service pfar-notify.service runs "pfar approvals watch --notify".`

func (c approvalsVerb) approvalsWatchCommand() *cobra.Command {
	var program string
	var notify bool
	watch := c.outputFlag(&cobra.Command{
		Use: "watch", Short: "Print each call that begins to wait", Long: watchHelp,
		Example: example("pfar approvals watch", "pfar approvals watch --exec ~/bin/tell-me", "pfar approvals watch --notify"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var tell []teller
			if program != "" {
				path, err := exec.LookPath(program)
				if err != nil {
					return usage("--exec %q: %w", program, err)
				}
				tell = append(tell, hook{path: path, within: noticeTime})
			}
			if notify {
				d, err := desktop.Open(c.getenv, terminalFor(c.getenv))
				if err != nil {
					return fail(exitFailed, "showing notices: %w", err).withHint("run it in your desktop session, or use --exec")
				}
				defer d.Close()
				tell = append(tell, desktopNotices{d})
			}
			return c.approvalsWatch(cmd.Context(), tell)
		},
	})
	watch.Flags().StringVar(&program, "exec", "", "run this program for each call that begins to wait")
	watch.Flags().BoolVar(&notify, "notify", false, "show a notice on the desktop for each call that begins to wait")
	return watch
}

// watchPause is how long a watcher waits until it asks a gateway again that has hung up.
const watchPause = time.Second

// approvalsWatch prints what waits and what becomes of it.
func (c approvalsVerb) approvalsWatch(ctx context.Context, tell []teller) error {
	told := newTold(c.pfar, ctx, tell)
	defer told.wait()
	complained := ""
	return c.follow(ctx, told.happened, func(err error, lasted time.Duration) {
		if text := err.Error(); text != complained || lasted > watchPause { // what came before was another outage
			complained = text
			c.complain(fmt.Errorf("%w; asking again", err))
		}
	})
}

// follow passes on what waits and what changes, across restarts of the gateway, and what broke the connection after
// which time. That the gateway cannot be reached at all is an error, and so are what asking again does not mend: a
// refusal, and what each returns.
func (c approvalsVerb) follow(
	ctx context.Context, each func(*operator.Event) error, lost func(err error, lasted time.Duration),
) error {
	for first := true; ; first = false {
		stream, err := c.openOperator(ctx, http.MethodGet, "/approvals/watch", nil)
		if code, _ := classify(err); err != nil && (first || code == exitDenied || ctx.Err() != nil) {
			return cmp.Or(ctx.Err(), err)
		}
		begun := time.Now()
		if err == nil {
			err = events(stream, each)
			stream.Close()
		}
		if _, final := errors.AsType[unsaid](err); final || ctx.Err() != nil {
			return cmp.Or(ctx.Err(), err)
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("the gateway has hung up")
		}
		lost(err, time.Since(begun))
		select {
		case <-time.After(watchPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// unsaid is the error of an event that could not be passed on.
type unsaid struct{ error }

// events reads a stream, in lines, until an error.
func events(stream io.Reader, each func(*operator.Event) error) error {
	lines := bufio.NewReaderSize(stream, 64<<10)
	for {
		line, err := readLine(lines)
		if err != nil {
			return err
		}
		var e operator.Event
		if err := json.Unmarshal(line, &e); err != nil {
			return err
		}
		if err := each(&e); err != nil {
			return unsaid{err}
		}
	}
}

// teller tells a person about a call that waits, and that it no longer does.
type teller interface {
	tell(ctx context.Context, w *waitingCall, out io.Writer) error
	untell(id string) error
}

// told is who has been told of what.
type told struct {
	*pfar
	seen  map[string]string // state, by id
	queue chan operator.Event
	done  chan struct{}
}

// newTold starts to give notices, one after the other, while the caller prints. It skips those for which there is no
// room.
func newTold(c *pfar, ctx context.Context, tell []teller) *told {
	t := &told{pfar: c, seen: map[string]string{}, queue: make(chan operator.Event, 32), done: make(chan struct{})}
	go func() {
		defer close(t.done)
		for e := range t.queue {
			for _, n := range tell {
				err := n.untell(e.Approval.ID)
				if e.Kind == "pending" {
					err = n.tell(ctx, &waitingCall{e.Approval}, c.stderr)
				}
				if err != nil && ctx.Err() == nil {
					c.complain(fmt.Errorf("telling of %s: %w", e.Approval.ID, err))
				}
			}
		}
	}()
	return t
}

func (t *told) wait() {
	close(t.queue)
	<-t.done
}

// happened says what has not been said before.
func (t *told) happened(e *operator.Event) error {
	w := waitingCall{e.Approval}
	if t.seen[w.ID] == e.Kind {
		return nil
	}
	if err := t.say(e.Kind, &w); err != nil {
		return err
	}
	if t.seen[w.ID] = e.Kind; e.Kind != "pending" && e.Kind != "approved" {
		delete(t.seen, w.ID)
	}
	select {
	case t.queue <- *e:
	default:
	}
	return nil
}

// maxShownArguments bounds the arguments in a line of approvals watch, in characters. "pfar approvals show" prints all.
const maxShownArguments = 200

func (t *told) say(kind string, w *waitingCall) error {
	if t.json() { // a line each, for programs
		b, err := json.Marshal(w)
		if err == nil {
			_, err = fmt.Fprintf(t.stdout, "%s\n", escapeJSON(b))
		}
		return err
	}
	why := w.Reason
	if kind == "pending" {
		why = w.Decision.Reason
	}
	text := fmt.Sprintf("%s  %s calls %s", visible.Reveal(w.ID), visible.Reveal(w.Client), visible.Reveal(w.what()))
	if kind == "pending" {
		text += "(" + cut(visible.Reveal(string(w.Arguments)), maxShownArguments) + ")"
	}
	if why != "" {
		text += ": " + visible.Reveal(why)
	}
	return t.event(t.stdout, []cell{{clock(t.now()), ""}, {visible.Reveal(kind), ""}, {text, ""}}, len(time.TimeOnly), len("approved"))
}

// hook is a program that is run for a call that begins to wait.
type hook struct {
	path   string
	within time.Duration // it is killed, with its children, when this is over
}

// noticeTime is what a notice has: one that hangs must not hold back the next one.
const noticeTime = 30 * time.Second

func (hook) untell(string) error { return nil }

// tell runs the program. What is a stranger's is in its environment alone.
func (n hook) tell(ctx context.Context, w *waitingCall, out io.Writer) error {
	ctx, cancel := context.WithTimeoutCause(ctx, n.within, fmt.Errorf("the program still ran after %s", n.within))
	defer cancel()
	cmd := exec.CommandContext(ctx, n.path)
	cmd.Env = os.Environ() // PFAR_RUN_DIR too: the program may ask pfar for more
	for name, value := range map[string]string{
		"APPROVAL": w.ID, "CLIENT": w.Client, "SESSION": w.Session, "SERVER": w.Server, "TOOL": w.Name, "REASON": w.Decision.Reason,
	} {
		cmd.Env = append(cmd.Env, "PFAR_"+name+"="+cut(visible.Reveal(value), 1000))
	}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = time.Second // what it leaves running may hold its output open
	if err := cmd.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("%q: %w", n.path, err)
	}
	return nil
}
