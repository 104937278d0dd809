package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/control"
)

// cut is a text, or of a longer one the beginning, with a mark at its end: width characters at most. What a person
// decides by is never cut without one.
func cut(s string, width int) string {
	if r := []rune(s); len(r) > width {
		s = strings.TrimSpace(string(r[:width-1])) + "…"
	}
	return s
}

// age is a duration in its largest unit.
func age(d time.Duration) string {
	switch {
	case d < time.Second:
		return "now"
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// plainly takes off what the layers of HTTP and MCP say around an error of the gateway's socket: that nobody answers
// there, or what the gateway says itself, is all there is to know.
func plainly(err error) error {
	var f *failure
	if errors.As(err, &f) {
		return f
	}
	for e := err; e != nil; e = errors.Unwrap(e) {
		if inner := errors.Unwrap(e); inner == control.ErrNotRunning || inner == control.ErrDenied {
			return e
		}
	}
	return err
}

func indent(s, by string) string { return by + strings.ReplaceAll(s, "\n", "\n"+by) }

// summary is the first sentence or line of a text, at most width characters long.
func summary(s string, width int) string {
	s = strings.TrimSpace(s)
	if i := strings.IndexByte(s, '\n'); i >= 0 {
		s = s[:i]
	}
	if i := strings.Index(s, ". "); i >= 0 {
		s = s[:i]
	}
	return cut(strings.TrimSpace(s), width)
}

// shellWord is a text as a shell takes it for one word.
func shellWord(s string) string {
	if visible.ShellSafe(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
