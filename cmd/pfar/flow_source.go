package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/pfar/pfar/policies/flow/form"
	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/flows"
)

// flowSource is a flow that a command line names, and how its mistakes name it.
type flowSource struct {
	order   flows.Order // without its verb
	shown   string      // the file; "": it is the command line
	typed   bool        // it is a line of words that the shell has split
	ownFlag bool        // one of pfar's own flags stands behind it
}

// flowWord is what may stand in a line without quotes.
var flowWord = regexp.MustCompile(`^[A-Za-z0-9_./:=,@%^~-]+$`)

// flowReader reads flows that command lines name.
type flowReader struct{ *pfar }

// readFlow finds out what the words of a command line name, and reads it.
func (v flowReader) readFlow(ctx context.Context, words []string) (flowSource, error) {
	if len(words) == 0 {
		return flowSource{}, usage("missing FLOW").withHint("pfar flow --help")
	}
	first, flags := words[0], words[1:]
	path, isFile := v.flowFile(ctx, first)
	between := func(w string) bool { return w == "+" || w == ">>" || w == ";" }
	s := flowSource{}
	var err error
	switch {
	case first == "-":
		s, err = v.flowOnInput(ctx)
		s.order.Flags = flags
		return s, err
	case strings.ContainsAny(first, " \t\n;") || strings.Contains(first, ">>"):
		s.order = flows.Order{Form: form.Line, Text: first, Flags: flags}
	case slices.ContainsFunc(flags, between):
		s.order, s.typed = flows.Order{Form: form.Line, Text: joinedLine(words, between)}, true
	case isFile:
		if s, err = readFlowFile(path); err != nil {
			return s, err
		}
		s.order.Flags = flags
	default:
		s.order, s.typed = flows.Order{Form: form.Line, Text: joinedLine(words, between)}, true
	}
	s.order.Input, err = v.fed(ctx)
	return s, err
}

// joinedLine joins words that a shell has split, so that the gateway splits them the same way.
func joinedLine(words []string, sign func(string) bool) string {
	line := make([]string, len(words))
	for i, w := range words {
		switch {
		case w == "+":
			line[i] = ">>"
		case sign(w) || flowWord.MatchString(w):
			line[i] = w
		default:
			line[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(line, " ")
}

// flowFile is the file that a word names: a path, or a name in flows.d beside the declarations of the running pfar.
func (v flowReader) flowFile(ctx context.Context, word string) (path string, ok bool) {
	ext := filepath.Ext(word)
	if strings.Contains(word, "/") || ext == "."+form.JSON || ext == "."+form.HCL {
		return word, true
	}
	if strings.ContainsAny(word, " \t\n;>+") || word == "-" {
		return "", false
	}
	dir := v.located(ctx, sources{}).flows()
	for _, ext := range []string{"." + form.HCL, "." + form.JSON} {
		path := filepath.Join(dir, word+ext)
		if v.exists(path) {
			return path, true
		}
	}
	return "", false
}

func readFlowFile(path string) (flowSource, error) {
	ext := filepath.Ext(path)
	if ext != "."+form.JSON && ext != "."+form.HCL {
		return flowSource{}, usage("%q does not end in .json or .hcl", path).
			withHint("rename the file, or read it from standard input: pfar flow run - <FILE")
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return flowSource{}, fail(exitNoSuch, "reading the flow: %w", err).withHint("pfar flow --help")
	}
	if err != nil {
		return flowSource{}, fmt.Errorf("reading the flow: %w", err)
	}
	defer f.Close()
	name := strings.TrimSuffix(filepath.Base(path), ext)
	return flowText(f, name, ext[1:], path)
}

// flowText reads the text of a flow up to its bound.
func flowText(r io.Reader, name, kind, shown string) (flowSource, error) {
	b, err := io.ReadAll(io.LimitReader(r, form.MaxText+1))
	if err != nil {
		return flowSource{}, fmt.Errorf("reading the flow: %w", err)
	}
	if len(b) > form.MaxText {
		return flowSource{}, usage("the flow is larger than %d bytes", form.MaxText)
	}
	return flowSource{order: flows.Order{Name: name, Form: kind, Text: string(b)}, shown: shown}, nil
}

// blockOfHCL is how a line of a flow in HCL begins.
var blockOfHCL = regexp.MustCompile(`(?m)^\s*(step\s+"|most_steps\s*=|store\s*=|metadata\s*\{)`)

// flowOnInput reads a flow from standard input, in the form that it has.
func (v flowReader) flowOnInput(ctx context.Context) (flowSource, error) {
	var s flowSource
	_, err := v.streams.answered(ctx, func() (b []byte, err error) {
		s, err = flowText(v.stdin, "", form.Line, "-")
		return nil, err
	})
	switch text := strings.TrimSpace(s.order.Text); {
	case strings.HasPrefix(text, "{"):
		s.order.Form = form.JSON
	case blockOfHCL.MatchString(text):
		s.order.Form = form.HCL
	}
	return s, err
}

// fed is what standard input has for the first step: nothing if it is a terminal, a device such as /dev/null, or empty.
func (v flowReader) fed(ctx context.Context) (*string, error) {
	if v.stdin == nil {
		return nil, nil
	}
	if f, ok := fileOf(v.stdin); ok {
		info, err := f.Stat()
		if err != nil || !info.Mode().IsRegular() && info.Mode()&(os.ModeNamedPipe|os.ModeSocket) == 0 {
			return nil, nil
		}
	}
	b, err := v.streams.answered(ctx, func() ([]byte, error) {
		return io.ReadAll(io.LimitReader(v.stdin, form.MaxText+1))
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading standard input: %w", err)
	case len(b) > form.MaxText:
		return nil, usage("standard input is larger than %d bytes", form.MaxText).
			withHint("add </dev/null if the input is not for the flow")
	case len(b) == 0:
		return nil, nil
	}
	text := string(b)
	return &text, nil
}

// redirected is the file that a shell made of the next step: pfar flow run A >> B appends the output to a file B.
func (v flowReader) redirected() string {
	f, ok := fileOf(v.stdout)
	if !ok {
		return ""
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || !appends(f) {
		return ""
	}
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if name := filepath.Base(path); err == nil && visible.ShellSafe(name) {
		return name
	}
	return ""
}
