package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/policies/plural"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/operator"
)

// situation is what pfar without a verb says in words.
type situation struct {
	root      bool
	machine   bool            // it is about the machine's pfar
	installed bool            // the machine has one
	err       error           // why there is no report
	report    *control.Report // nil: see err
	waiting   int             // calls that wait for the person
	held      []string        // servers with definitions that nobody has accepted
	directory string          // of the declarations
	declared  int             // files in there, where pfar does not run; -1: this user may not look
}

// advice is a command and what it does.
type advice struct{ command, words string }

// overviewVerb says what runs and what comes next.
type overviewVerb struct{ *pfar }

// overview says what there is, and what to do next.
func (c overviewVerb) overview(ctx context.Context) error {
	s := c.situation(ctx)
	if err := ctx.Err(); err != nil {
		return err
	}
	c.printOverview(s)
	return nil
}

func (c overviewVerb) printOverview(s situation) {
	for _, line := range s.state() {
		fmt.Fprintln(c.stdout, escape(line, oneLine))
	}
	fmt.Fprintf(c.stdout, "\n%s\n", c.paint(c.stdout, bold, "Next"))
	rows := [][]cell{}
	for _, n := range s.next() {
		rows = append(rows, []cell{{"  " + n.command, ""}, {n.words, ""}})
	}
	c.table(c.stdout, rows)
}

// situation looks. What it cannot learn it leaves out.
func (c overviewVerb) situation(ctx context.Context) situation {
	s := situation{root: c.uid == 0, machine: c.ofMachine(), installed: c.exists(machineTarget), directory: c.dirs.Config}
	report, err := c.report(ctx)
	if err != nil {
		s.err = err
		if s.installed && !c.named() {
			s.machine, s.directory = true, c.machine.Config
		}
		s.declared = declaredIn(s.directory)
		return s
	}
	s.report, s.directory = &report, report.Directory
	var waiting []waitingCall
	if err := c.askOperator(ctx, "GET", "/approvals", nil, &waiting); err == nil {
		for _, w := range waiting {
			if w.State == operator.Pending {
				s.waiting++
			}
		}
	}
	pins, _ := c.allPins(ctx)
	for _, p := range pins {
		if len(p.Held)+p.Left > 0 {
			s.held = append(s.held, p.Server)
		}
	}
	return s
}

// declaredIn counts the files of a directory of declarations; -1 if it cannot be read.
func declaredIn(dir string) (n int) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return -1
	}
	for _, e := range entries {
		if declaration.IsDeclaration(e.Name()) {
			n++
		}
	}
	return n
}

// denied reports whether pfar runs, and this user may not look.
func (s situation) denied() bool { return errors.Is(s.err, control.ErrDenied) }

// state says what there is.
func (s situation) state() []string {
	whose := "Your pfar"
	if s.machine {
		whose = "This machine's pfar"
	}
	switch {
	case s.denied():
		return []string{whose + " runs. Only root and the group pfar-admin may look at it."}
	case s.err != nil && !errors.Is(s.err, control.ErrNotRunning):
		return []string{cut(whose+" does not answer: "+s.err.Error(), maxLineShown)}
	case s.report == nil && (!s.machine || !s.installed):
		return []string{"pfar does not run.", s.files()}
	case s.report == nil:
		return []string{whose + " does not run.", s.files()}
	}
	if len(s.report.Servers) == 0 {
		return []string{whose + " runs.", s.files()}
	}
	lines := []string{whose + " runs.", cut(serversIn(*s.report), maxLineShown)}
	for _, trouble := range s.troubles() {
		lines = append(lines, "  "+trouble)
	}
	return lines
}

// files says how many declarations there are.
func (s situation) files() string {
	switch {
	case s.declared < 0:
		return "You may not read its declarations, in " + s.directory + "."
	case s.declared == 0:
		return "No server is declared in " + s.directory + "."
	}
	return plural.Count(s.declared, "declaration") + " in " + s.directory + "."
}

// serversIn counts servers by their state, in the order of its words.
func serversIn(r control.Report) string {
	states := []control.State{
		control.Running, control.CredentialInvalid, control.Sleeping, control.Fetching, control.Starting, control.BackOff,
		control.Offline, control.NeedsLogin, control.Waiting,
		control.Failed, control.Stopping, control.Stopped,
	}
	var parts []string
	for _, state := range states {
		n := 0
		for _, s := range r.Servers {
			if s.State == state {
				n++
			}
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	return plural.Count(len(r.Servers), "server") + ": " + strings.Join(parts, ", ")
}

// maxTroubles and maxLineShown keep the whole on one screen.
const (
	maxTroubles  = 6
	maxLineShown = 79
)

// troubles are what waits for the person, a line each.
func (s situation) troubles() []string {
	var lines []string
	if s.waiting > 0 {
		lines = append(lines, plural.Count(s.waiting, "call")+" for you to approve")
	}
	for _, name := range s.held {
		lines = append(lines, name+" offers what you have not accepted")
	}
	if n := len(s.report.Diagnostics); n > 0 {
		lines = append(lines, plural.Count(n, "mistake")+" in files")
	}
	for _, v := range s.report.Servers {
		if v.State == control.Failed || v.State.Waits() || v.State.TriedAgain() {
			lines = append(lines, cut(v.Name+": "+describe(v), maxLineShown-2))
		}
	}
	if len(lines) > maxTroubles {
		lines = append(lines[:maxTroubles-1], fmt.Sprintf("and %d more", len(lines)-maxTroubles+1))
	}
	return lines
}

// next says what to do, most urgent first.
func (s situation) next() []advice {
	help := advice{"pfar help", "all verbs"}
	demo := advice{"pfar demo", "see what pfar does, in a minute"}
	switch {
	case s.denied():
		return []advice{{"pfar tools", "what you may call, if you are a declared client"}, {"sudo pfar", "look as root"}, demo, help}
	case s.err != nil && !errors.Is(s.err, control.ErrNotRunning):
		return []advice{{"pfar doctor", "see what is wrong on this machine"}, help}
	case s.report == nil:
		return append(s.start(), help)
	}
	return append(s.todo(), help)
}

// start is what to do where pfar does not run.
func (s situation) start() []advice {
	demo := advice{"pfar demo", "see what pfar does, in a minute"}
	check := advice{"pfar doctor", "see whether this machine can run it"}
	declare := advice{"man pfar-declaration", "how to declare a server"}
	up := advice{"pfar up", "run your servers, until Ctrl-C"}
	if s.declared == 0 {
		up.words = "run pfar until Ctrl-C; in another terminal: pfar add"
	}
	if s.declared > 0 {
		demo, declare = advice{"pfar check", "find mistakes in the declarations"}, demo
	}
	if !s.machine || !s.installed {
		return []advice{demo, check, declare, up}
	}
	begin := advice{"systemctl enable --now pfar.target", "start it, now and at each boot"}
	if !s.root {
		begin.command = "sudo " + begin.command
		return []advice{begin, demo, check, up}
	}
	return []advice{begin, demo, check, declare}
}

// todo is what to do where it runs.
func (s situation) todo() []advice {
	var list []advice
	if s.waiting > 0 {
		list = append(list, advice{"pfar approvals", "answer the calls that wait"})
	}
	if len(s.held) > 0 {
		list = append(list, advice{"pfar pins show " + s.held[0], "read what it offers, and accept it"})
	}
	if len(s.report.Diagnostics) > 0 {
		list = append(list, advice{"pfar check", "what is wrong in the files"})
	}
	for _, v := range s.report.Servers {
		if v.State == control.Failed || v.State.Waits() {
			list = append(list, advice{"pfar status " + v.Name, "why it does not run, and what to do"})
			break
		}
	}
	if len(s.report.Servers) == 0 {
		return append(list, advice{"pfar add notion", "set up a server by its name"},
			advice{"pfar services", "those that pfar knows"}, advice{"man pfar-declaration", "how to declare another one"},
			advice{"pfar demo", "see what pfar does, in a minute"})
	}
	return append(list, advice{"pfar status", "the servers"}, advice{"pfar tools", "what they offer"},
		advice{"pfar connect", "for the configuration of a desktop client"})
}
