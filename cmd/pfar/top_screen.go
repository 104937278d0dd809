package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/pfar/pfar/units/control"
)

// Control functions of xterm and of those like it (ctlseqs): the alternate screen keeps what was on the other one.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // and hide the cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	cursorHome  = "\x1b[H"
	eraseRight  = "\x1b[K"
	eraseBelow  = "\x1b[J"
)

const topKeys = "q quit  r reverse  sort: n name  c calls  a active  p p50  l p99  e errors  m memory  u cpu  s sessions"

// live reports whether the table is to be drawn again and again: there are a terminal to draw on and one to read keys
// from.
func (v *topView) live() bool {
	return !v.once && !v.json() && isTerminal(v.stdin) && isTerminal(v.stdout) && v.getenv("TERM") != "dumb"
}

// measured is one sample, or why there is none.
type measured struct {
	table topTable
	err   error
}

// follow draws until the operator has seen enough. What goes wrong is shown and tried again.
func (v *topView) follow(ctx context.Context, first topTable) error {
	terminal := int(v.stdin.(*os.File).Fd())
	before, err := term.MakeRaw(terminal)
	if err != nil {
		return fmt.Errorf("reading keys from the terminal: %w", err)
	}
	defer term.Restore(terminal, before)
	fmt.Fprint(v.stdout, enterScreen)
	defer fmt.Fprint(v.stdout, leaveScreen)
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	keys, samples := make(chan byte), make(chan measured)
	go readKeys(ctx, v.stdin, keys)
	ended := make(chan struct{})
	go func() { defer close(ended); v.measure(ctx, samples) }()
	defer func() { cancel(); <-ended }()
	last := measured{table: first}
	for {
		v.draw(last)
		select {
		case last = <-samples:
			if last.err != nil {
				last.table = topTable{Time: v.now(), Servers: []topServer{}}
			}
		case key, open := <-keys:
			if !open || !v.pressed(key) {
				return nil
			}
		case <-resized:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// readKeys passes on what is typed. A read cannot be ended: after the last drawing the goroutine ends with the process.
func readKeys(ctx context.Context, from io.Reader, keys chan<- byte) {
	defer close(keys)
	b := make([]byte, 1)
	for {
		if _, err := from.Read(b); err != nil {
			return
		}
		select {
		case keys <- b[0]:
		case <-ctx.Done():
			return
		}
	}
}

// measure samples once each interval.
func (v *topView) measure(ctx context.Context, samples chan<- measured) {
	tick := time.NewTicker(v.interval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		t, err := v.sample(ctx)
		select {
		case samples <- measured{t, err}:
		case <-ctx.Done():
			return
		}
	}
}

// pressed acts on a key and reports whether to go on. In raw mode Ctrl-C is a key like any other.
func (v *topView) pressed(key byte) bool {
	const ctrlC, ctrlD = 3, 4
	switch key {
	case 'q', 'Q', ctrlC, ctrlD:
		return false
	case 'r':
		v.reverse = !v.reverse
		return true
	}
	for _, c := range topColumns() {
		if c.key == key && key != 0 {
			v.sort, v.reverse = c.order, false
		}
	}
	return true
}

// draw writes one picture in one write, so that a terminal does not show half of it.
func (v *topView) draw(m measured) {
	width, height := v.dimensions()
	v.order(m.table.Servers)
	lines := append(v.summary(m), "")
	lines = append(lines, v.lines(m.table)...)
	if more := len(lines) - (height - 2); more > 0 && height > 6 {
		lines = append(lines[:height-3], fmt.Sprintf("and %d more", more+1))
	}
	lines = append(lines, "", topKeys)
	if len(lines) > height {
		lines = lines[:height]
	}
	var b strings.Builder
	b.WriteString(cursorHome)
	for i, line := range lines {
		if i > 0 {
			b.WriteString("\r\n") // raw mode does not make one of the other
		}
		b.WriteString(toWidth(line, width) + eraseRight)
	}
	b.WriteString(eraseBelow)
	io.WriteString(v.stdout, b.String())
}

// summary is what stands above the table.
func (v *topView) summary(m measured) []string {
	running, active, calls := 0, 0, 0.0
	for _, s := range m.table.Servers {
		if s.State == control.Running {
			running++
		}
		active += s.InFlight
		calls += s.Rate
	}
	line := fmt.Sprintf("pfar  %s  %d of %d servers run  %s calls/s  %d active",
		clock(m.table.Time), running, len(m.table.Servers), rate(calls), active)
	problem := m.table.Problem
	switch {
	case errors.Is(m.err, control.ErrNotRunning):
		problem = "pfar does not run"
	case m.err != nil:
		problem = m.err.Error()
	case problem != "":
		problem = "no calls are shown: " + problem
	}
	return []string{line, v.paint(v.stdout, red, escape(problem, oneLine))}
}

func (v *topView) dimensions() (width, height int) {
	if width, height = sizeOf(v.stdout); width > 0 && height > 0 {
		return width, height
	}
	return 80, 24
}

// toWidth cuts a line of ours to a width. The only control functions in it are colours, which take no room.
func toWidth(line string, width int) string {
	var b strings.Builder
	for i := 0; i < len(line); {
		if end := strings.IndexByte(line[i:], 'm'); end >= 0 && strings.HasPrefix(line[i:], "\x1b[") {
			b.WriteString(line[i : i+end+1])
			i += end + 1
			continue
		}
		_, n := utf8.DecodeRuneInString(line[i:])
		if width > 0 {
			b.WriteString(line[i : i+n])
		}
		width--
		i += n
	}
	return b.String()
}
