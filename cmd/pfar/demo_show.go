package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// show goes through the steps. Each is a command that a person could type.
func (d *demonstration) show(ctx context.Context) error {
	d.step("2. A call: the server runs in its sandbox, and pfar passes the call on")
	if code := d.run(ctx, "call", "demo.echo", "--text", "hello"); code != exitOK {
		return d.stopped(ctx, "the call", code)
	}
	d.step("3. A refusal: the server tries " + demoOther + ", which is not declared")
	if code := d.run(ctx, "call", "demo.fetch", "--host", demoOther); code != exitToolError {
		return d.stopped(ctx, "the call that is to be refused", code)
	}
	d.step("4. An approval: a program asks for what nobody can take back")
	return d.approval(ctx)
}

// step begins a step.
func (d *demonstration) step(title string) {
	fmt.Fprintf(d.stdout, "\n%s\n\n", d.paint(d.stdout, bold, title))
}

// command prints a command line.
func (d *demonstration) command(args []string) {
	words := make([]string, len(args))
	for i, a := range args {
		if words[i] = a; strings.Contains(a, " ") {
			words[i] = "'" + a + "'"
		}
	}
	fmt.Fprintf(d.stdout, "$ pfar %s\n", strings.Join(words, " "))
}

// run runs a command in the demo's pfar, and returns its exit code.
func (d *demonstration) run(ctx context.Context, args ...string) int {
	d.command(args)
	return run(ctx, d.temporary(), args)
}

// stopped is the error of a step that went otherwise than it should.
func (d *demonstration) stopped(ctx context.Context, what string, code int) error {
	if ctx.Err() != nil {
		return exitWith(exitInterrupted) // the command has said so
	}
	return fail(exitFailed, "%s of the demo ended with exit code %d", what, code).withHint("pfar doctor")
}

// caller is a program that calls a tool, beside the person.
type caller struct {
	out  bytes.Buffer
	code int
	done chan struct{}
}

// beside runs a command while the person does something else, and keeps what it prints.
func (d *demonstration) beside(ctx context.Context, args []string) *caller {
	p := &caller{done: make(chan struct{})}
	c := d.temporary()
	c.stdin, c.stdout, c.stderr = strings.NewReader(""), &p.out, &p.out
	go func() {
		defer close(p.done)
		p.code = run(ctx, c, args)
	}()
	return p
}

// approval has a program call what waits for the person, and the person answer.
func (d *demonstration) approval(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := d.temporary().openOperator(ctx, http.MethodGet, "/approvals/watch", nil)
	if err != nil {
		return err
	}
	defer stream.Close()
	waiting := make(chan string, 1)
	go func() { waiting <- firstPending(stream) }()
	call := []string{"call", "--client", "default", "demo.publish", "--text", "hello"}
	d.command(call)
	program := d.beside(ctx, call)
	id := ""
	select {
	case id = <-waiting:
	case <-program.done:
		_, _ = d.stderr.Write(program.out.Bytes())
		return d.stopped(ctx, "the call that is to wait", program.code)
	case <-ctx.Done():
		return ctx.Err()
	}
	if id == "" {
		return d.stopped(ctx, "the watch of what waits", exitFailed)
	}
	fmt.Fprint(d.stdout, "\nIt waits for you.\n\n")
	approved := d.answer(ctx, id)
	if ctx.Err() != nil {
		return exitWith(exitInterrupted)
	}
	select {
	case <-program.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	if approved && program.code != exitOK && ctx.Err() == nil {
		d.run(ctx, call...) // it was told to come back later, before the person answered
		return ctx.Err()
	}
	fmt.Fprintln(d.stdout, "\nThe program gets:")
	fmt.Fprint(d.stdout, indented(program.out.String()))
	return ctx.Err()
}

// firstPending is the id of the first call that waits; "" if the stream ends before.
func firstPending(stream io.Reader) string {
	lines := bufio.NewReaderSize(stream, 64<<10)
	for {
		line, err := readLine(lines)
		if err != nil {
			return ""
		}
		var e struct {
			Kind     string      `json:"kind"`
			Approval waitingCall `json:"approval"`
		}
		if json.Unmarshal(line, &e) == nil && e.Kind == "pending" {
			return e.Approval.ID
		}
	}
}

// answer has the person answer, and reports whether the call may run. What is not approved is denied.
func (d *demonstration) answer(ctx context.Context, id string) (approved bool) {
	switch {
	case d.yes:
		return d.run(ctx, "approvals", "approve", id, "--yes") == exitOK
	case isTerminal(d.stdin):
		if d.run(ctx, "approvals", "approve", id) == exitOK {
			return true
		}
	default:
		d.run(ctx, "approvals", "show", id)
		fmt.Fprint(d.stdout, "\nAt a terminal you would be asked now:\nLet default call demo.publish once? [y/N]\n"+
			"Nobody is there, so it is denied. --yes approves it.\n\n")
	}
	if ctx.Err() == nil {
		d.run(ctx, "approvals", "deny", id)
	}
	return false
}

// indented sets a text off.
func indented(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if line != "\n" {
			b.WriteString("  ")
		}
		b.WriteString(line)
	}
	return b.String()
}
