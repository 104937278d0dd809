package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	failures "github.com/pfar/pfar/policies/failure"
)

// streams are what a verb reads and prints.
type streams struct {
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
	getenv func(string) string
	output string // "text" or "json"
}

// keptWriter keeps the first error of writing, so that no verb looks at each line that it prints: what has not arrived
// is no success.
type keptWriter struct {
	io.Writer
	mu     sync.Mutex
	failed error
}

func (w *keptWriter) Write(b []byte) (int, error) {
	n, err := w.Writer.Write(b)
	if err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.failed == nil {
			w.failed = err
		}
	}
	return n, err
}

func (w *keptWriter) error() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed
}

// complain tells of an error that does not end the verb.
func (c *streams) complain(err error) { c.complainWith(err, "", exitOK) }

// complainWith prints an error to standard error: in words or, under --json, as one line of JSON. code is the exit code
// that it leads to, if any.
func (c *streams) complainWith(err error, hint string, code int) {
	if c.json() {
		b, failed := json.Marshal(struct {
			Error    string            `json:"error"`
			Hint     string            `json:"hint,omitempty"`
			ExitCode int               `json:"exit_code,omitempty"`
			Failure  *failures.Failure `json:"failure,omitempty"`
		}{err.Error(), hint, code, failureOf(err)})
		if failed == nil {
			fmt.Fprintf(c.stderr, "%s\n", escapeJSON(b))
			return
		}
	}
	// Errors carry words of servers and of the gateway, so they are never printed raw, and none of their lines begins as
	// ours do.
	said := func(s string) string { return strings.ReplaceAll(escape(s, keepLines), "\n", "\n  ") }
	fmt.Fprintf(c.stderr, "%s %s\n", c.paint(c.stderr, red, "pfar:"), said(err.Error()))
	if hint != "" {
		fmt.Fprintf(c.stderr, "%s %s\n", c.paint(c.stderr, cyan, "hint:"), said(hint))
	}
}

// failureOf is how a call has failed, nil for any other error.
func failureOf(err error) *failures.Failure {
	f, ok := errors.AsType[*failure](err)
	if !ok || f.of.Class == "" {
		return nil
	}
	return &f.of
}

func (c *streams) json() bool { return c.output == "json" }

// printJSON prints the machine form: indented, and with nothing in it that a terminal obeys.
func (c *streams) printJSON(v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(c.stdout, string(escapeJSON(b)))
	return err
}

// hintAt says what may be done next, to people alone.
func (c *streams) hintAt(next string) {
	fmt.Fprintf(c.stderr, "%s %s\n", c.paint(c.stderr, cyan, "hint:"), escape(next, oneLine))
}

// canAsk refuses what nobody can be asked about, and says by which command one looks at it.
func (c *streams) canAsk(yes bool, look string) error {
	if !yes && !isTerminal(c.stdin) {
		return usage("not a terminal, so pfar cannot ask").withHint("use --yes to confirm; look first with %s", look)
	}
	return nil
}

// ask shows something and wants a yes. What the answer is about goes where the one who answers sees it.
func (c *streams) ask(ctx context.Context, yes bool, question string, show func(io.Writer)) error {
	if yes {
		if !c.json() {
			show(c.stdout)
		}
		return nil
	}
	w := c.stdout
	if !isTerminal(w) || c.json() {
		w = c.stderr
	}
	show(w)
	fmt.Fprintf(c.stderr, "\n%s [y/N] ", escape(question, oneLine))
	b, err := c.answered(ctx, func() ([]byte, error) {
		b := make([]byte, 64) // a terminal gives one line
		n, err := c.stdin.Read(b)
		return b[:n], err
	})
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	switch strings.ToLower(strings.TrimSpace(string(b))) {
	case "y", "yes":
		return nil
	}
	return fail(exitFailed, "nothing was changed")
}

// input opens a file, or standard input for "-" and "".
func (c *streams) input(file string) (in io.Reader, done func(), err error) {
	if file == "" || file == "-" {
		return c.stdin, func() {}, nil
	}
	f, err := os.Open(file)
	return f, func() { f.Close() }, err
}

func (c *streams) askHidden(ctx context.Context, prompt string, terminal *os.File) ([]byte, error) {
	b, err := readHidden(ctx, terminal, func() { fmt.Fprintf(c.stderr, "%s (not shown): ", prompt) })
	fmt.Fprintln(c.stderr)
	return b, err
}

// readHiddenOr reads a secret of whatever kind: from a file, if one is named, from the terminal that is standard input,
// or from standard input.
func (c *streams) readHiddenOr(ctx context.Context, prompt, file string) ([]byte, error) {
	if f, ok := c.stdin.(*os.File); ok && isTerminal(f) && (file == "" || file == "-") {
		return c.askHidden(ctx, prompt, f)
	}
	b, err := interruptible(ctx, func() ([]byte, error) {
		in, done, err := c.input(file)
		if err != nil {
			return nil, err
		}
		defer done()
		return io.ReadAll(io.LimitReader(in, maxSecret+2))
	})
	if err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(bytes.TrimSuffix(b, []byte("\n")), []byte("\r")), nil
}

// printLogLine prints one line of a server's log.
func (c *streams) printLogLine(server, line string) error {
	if c.json() {
		return (&jsonLines{w: c.stdout, server: server}).object(line)
	}
	if isTerminal(c.stdout) {
		line = escape(line, oneLine)
	}
	_, err := fmt.Fprintf(c.stdout, "%s  %s\n", server, line)
	return err
}

const maxSecret = 64 << 10 // bytes
