package main

import (
	"cmp"
	"context"
	"fmt"

	tea "charm.land/bubbletea/v2"
)

// live reports whether a screen can be drawn again and again: there are a terminal to draw on and one to read keys
// from. Screen readers read lines better than a screen: ACCESSIBLE asks for those, as in other programs.
func (c *streams) live() bool {
	plain := c.json() || c.getenv("TERM") == "dumb" || c.getenv("ACCESSIBLE") != ""
	return !plain && isTerminal(c.stdin) && isTerminal(c.stdout)
}

// show draws a model until it quits or the context ends, and leaves the terminal as it was. Signals end the context.
func (c *streams) show(ctx context.Context, m tea.Model) error {
	in, _ := fileOf(c.stdin)
	out, _ := fileOf(c.stdout)
	var environment []string // that says what the terminal can
	for _, name := range []string{"TERM", "TERM_PROGRAM", "COLORTERM", "NO_COLOR", "SSH_TTY", "TMUX"} {
		if value := c.getenv(name); value != "" {
			environment = append(environment, name+"="+value)
		}
	}
	p := tea.NewProgram(m, tea.WithInput(in), tea.WithOutput(out),
		tea.WithEnvironment(environment), tea.WithoutSignalHandler())
	defer context.AfterFunc(ctx, p.Quit)() // WithContext would kill it, which does not wait for the reader of keys
	if _, err := p.Run(); err != nil {
		return cmp.Or(ctx.Err(), fmt.Errorf("drawing on the terminal: %w", err))
	}
	return ctx.Err()
}

// fullScreen is a view that keeps what was on the screen before.
func fullScreen(text string) tea.View {
	v := tea.NewView(text)
	v.AltScreen = true
	return v
}
