package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	failures "github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/flows"
	"github.com/pfar/pfar/units/flows/wording"
)

// follow tells of each change of a run until it is over, or until only its owner can move it on.
func (v flowPrinter) follow(ctx context.Context, stream io.Reader, s flowSource) error {
	p := progress{flowPrinter: v}
	answers := json.NewDecoder(stream)
	for {
		var a flows.Answer
		err := answers.Decode(&a)
		switch {
		case err != nil && ctx.Err() != nil:
			return p.left(context.Cause(ctx))
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return p.left(nil)
		case err != nil:
			return fmt.Errorf("reading the gateway's answer: %w", err)
		}
		if v.json() {
			if err := v.jsonLine(a); err != nil {
				return err
			}
		}
		if len(a.Problems) > 0 {
			if !v.json() {
				v.printProblems(s, a.Problems)
			}
			return exitWith(exitFailed)
		}
		if a.Run == nil {
			continue
		}
		p.tell(a.Run)
		switch a.Run.State {
		case flows.Done, flows.Failed, flows.Cancelled, flows.Unknown:
			return p.end(a.Run)
		}
	}
}

// jsonLine prints one answer on one line.
func (v flowPrinter) jsonLine(a flows.Answer) error {
	b, err := json.Marshal(a)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(v.stdout, string(escapeJSON(b)))
	return err
}

// progress tells people how a run goes: on a terminal in one line that changes, elsewhere in a line for each call.
type progress struct {
	flowPrinter
	run   *flows.Status  // as it was told last
	class failures.Class // of the last call
	line  bool           // a line that changes is on the screen
	asked string         // approval that was told
}

// tell tells of a change. Each has the calls that none before has had.
func (p *progress) tell(r *flows.Status) {
	first := p.run == nil
	p.run = r
	if n := len(r.Trace); n > 0 {
		p.class = r.Trace[n-1].Class
	}
	if p.json() {
		return
	}
	if first {
		fmt.Fprintf(p.stderr, "run %s\n", escape(r.ID, oneLine))
	}
	for _, s := range r.Trace {
		p.clear()
		text := fmt.Sprintf("  %s: %s, %s", s.Step, s.Verdict, s.Action)
		fmt.Fprintln(p.stderr, escape(text, oneLine))
	}
	switch {
	case r.State == flows.Waiting && r.Approval != p.asked:
		p.clear()
		p.asked = r.Approval
		head := "the run waits for the approval " + escape(r.Approval, oneLine)
		if r.At != "" {
			head += " before " + escape(r.At, oneLine)
		}
		printReason(p.stderr, head, r.Reason)
		p.printNext(r)
	case r.State == flows.Running && r.At != "" && isTerminal(p.stderr):
		p.clear()
		text := "  " + escape(r.At, oneLine) + " ..."
		fmt.Fprint(p.stderr, cut(text, columnsOf(p.stderr)))
		p.line = true
	}
}

// clear removes the line that changes.
func (p *progress) clear() {
	if p.line {
		fmt.Fprint(p.stderr, "\r\x1b[K")
		p.line = false
	}
}

// end prints what has become of a run, and is its exit code.
func (p *progress) end(r *flows.Status) error {
	p.clear()
	switch r.State {
	case flows.Done:
		if !p.json() {
			p.printResult(r)
		}
		return nil
	case flows.Unknown:
		if !p.json() {
			p.printNext(r)
		}
		return fail(exitFailed, "the run waits: %s", unfenced(r.Reason, p.stderr))
	case flows.Cancelled:
		return fail(exitFailed, "the run was cancelled")
	}
	return fail(exitOf(p.class), "the flow failed: %s", unfenced(r.Reason, p.stderr)).
		withHint("pfar flow show %s", shellWord(r.ID))
}

func (p *progress) printResult(r *flows.Status) {
	switch {
	case r.Result == nil && r.Reason != "":
		fmt.Fprintln(p.stderr, escape(unfenced(r.Reason, p.stderr), oneLine))
		return
	case r.Result == nil:
		return
	}
	text := resultShown(r.Result, textFor(p.stdout))
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	io.WriteString(p.stdout, text)
}

// printReason prints a reason behind its head. A reason in a fence is a stranger's: on a terminal it stands below the
// head, a mark before each line, without the fence.
func printReason(w io.Writer, head, reason string) {
	if text := unfenced(reason, w); text != reason {
		fmt.Fprintf(w, "%s:\n%s", head, wording.Quote(text))
		return
	}
	fmt.Fprintf(w, "%s: %s\n", head, escape(reason, oneLine))
}

// left is the end of pfar before that of the run, which goes on.
func (p *progress) left(err error) error {
	p.clear()
	switch {
	case p.run == nil && err == nil:
		return fail(exitFailed, "the gateway ended before the run began")
	case p.run == nil:
		return err
	}
	id := "RUN"
	if visible.ShellSafe(p.run.ID) {
		id = p.run.ID
	}
	if !p.json() {
		p.hintAt("the run goes on: pfar flow show " + id + "; to end it: pfar flow cancel " + id)
	}
	if err != nil {
		return err
	}
	return fail(exitFailed, "the gateway ended the connection; it continues the run after its restart")
}
