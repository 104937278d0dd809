package main

import (
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/operator"
	"github.com/pfar/pfar/units/operator/wording"
)

const (
	leastColumns = 40 // on which a call is shown whole
	leastRows    = 8
	listKeys     = "enter open  n next that waits  up down move  c clean session  q quit"
	pageKeys     = "a approve  d deny  g grant  r grant reads  l all alike  n next  c clean session  space more  esc back  q quit"
)

// callPage shows one call whole, or several that are alike.
type callPage struct {
	calls   []waitingCall
	lines   []string
	columns int // that lines are made for
	top     int // first line on the screen
	read    int // lines, from the first one on, that have been on the screen
}

// lay breaks the page into lines of a width. After another width all is to be read anew.
func (p *callPage) lay(width, rows int) {
	if p.columns != width {
		columns := max(width, leastColumns) - 1
		b := page{columns: columns}
		if len(p.calls) > 1 {
			var list []*waitingCall
			for i := range p.calls {
				list = append(list, &p.calls[i])
			}
			renderTogether(&b, list)
		}
		for i := range p.calls {
			b.WriteString(p.calls[i].render(columns))
		}
		*p = callPage{calls: p.calls, columns: width, lines: strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")}
	}
	p.scroll(0, rows)
}

// scroll moves the page, and notes what has been on the screen without a gap.
func (p *callPage) scroll(by, rows int) {
	p.top = max(0, min(p.top+by, len(p.lines)-rows))
	if p.top <= p.read {
		p.read = max(p.read, min(len(p.lines), p.top+rows))
	}
}

// unread says why the page has not been read whole; "": it has.
func (p *callPage) unread(width, rows int) string {
	switch {
	case width < leastColumns || rows < 1:
		return fmt.Sprintf("the terminal is too small: a call needs %d columns and %d rows", leastColumns, leastRows)
	case p.read < len(p.lines):
		return fmt.Sprintf("first read all of it: %d more lines, with the space key", len(p.lines)-p.read)
	}
	return ""
}

// rows is how many lines of a page there is room for, between its head, and the note and keys below it.
func (m *approvalsScreen) rows() int {
	if m.height < leastRows {
		return 0
	}
	return max(0, m.height-3-len(m.said())-len(m.fit(pageKeys)))
}

// said is the question that is open, or what came of the last key. A question is never cut.
func (m *approvalsScreen) said() []string {
	if m.sure != nil {
		return m.fit(m.sure.question)
	}
	return m.fit(m.note)
}

// fit breaks a text of ours for the width.
func (m *approvalsScreen) fit(text string) []string {
	columns := max(m.width, 1)
	lines := breakLines(text, columns, columns, mostColumns)
	for i := range lines {
		lines[i] = strings.TrimSuffix(lines[i], " ")
	}
	return lines
}

// one is a line that fits the width.
func (m *approvalsScreen) one(text string) string {
	if mostColumns(text) <= m.width {
		return text
	}
	r := []rune(text)
	for len(r) > 0 && mostColumns(string(r)) > m.width-2 {
		r = r[:len(r)-1]
	}
	return string(r) + "…"
}

func (m *approvalsScreen) View() tea.View {
	var lines []string
	keys := m.fit(listKeys)
	if m.page != nil {
		lines, keys = m.drawPage(), m.fit(pageKeys)
	} else {
		lines = m.drawList(m.height - 1 - len(m.said()) - len(keys))
	}
	lines = append(lines, "")
	for _, line := range m.said() {
		lines = append(lines, m.paint(m.stdout, yellow, line))
	}
	lines = append(lines, keys...)
	return fullScreen(strings.Join(lines[max(0, len(lines)-max(m.height, 1)):], "\n"))
}

// drawPage is the head of a page, and the part of it that is on the screen.
func (m *approvalsScreen) drawPage() []string {
	p, rows := m.page, m.rows()
	p.lay(m.width, rows)
	end := min(p.top+rows, len(p.lines))
	head := m.stateOf(p.calls[0].ID)
	if n := len(p.calls); n > 1 {
		head = fmt.Sprintf("%d calls that are alike; the first %s", n, head)
	}
	if end < len(p.lines) || p.top > 0 {
		head += fmt.Sprintf("; lines %d to %d of %d", p.top+1, end, len(p.lines))
	}
	lines := []string{m.paint(m.stdout, bold, m.one(head)), ""}
	for _, line := range p.lines[p.top:end] {
		lines = append(lines, m.paint(m.stdout, colourOf(line), line))
	}
	for len(lines) < rows+2 {
		lines = append(lines, "")
	}
	return lines
}

// stateOf says how long a call waits, or what has become of it.
func (m *approvalsScreen) stateOf(id string) string {
	c := m.call(id)
	switch {
	case c == nil:
		return "gone"
	case c.State == operator.Pending:
		return "waits " + c.until.Sub(m.now()).Round(time.Second).String()
	}
	text := c.State.String()
	if c.By != nil {
		text += " by " + escape(c.By.Name, oneLine)
	}
	if c.Reason != "" {
		text += ": " + escape(c.Reason, oneLine)
	}
	return text
}

// drawList is a line for each call or session, and the sentence of the chosen one.
func (m *approvalsScreen) drawList(rows int) []string {
	waiting := len(m.waiting())
	head := fmt.Sprintf("%d calls wait for you", waiting)
	switch waiting {
	case 0:
		head = "no call waits; this screen shows the next one"
	case 1:
		head = "1 call waits for you"
	}
	lines := []string{m.paint(m.stdout, bold, m.one(head)), ""}
	var below []string
	at := 0
	all := m.list()
	for i, l := range all {
		if l.key == m.chosen {
			at = i
			b := page{columns: max(m.width, leastColumns)}
			b.line("  ", l.sentence())
			below = strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
		}
	}
	below = below[:min(len(below), max(rows/2, 0))]
	room := max(rows-2-1-len(below), 1)
	from := max(0, min(at-room/2, len(all)-room))
	for _, l := range all[from:min(from+room, len(all))] {
		mark, colour := "  ", ""
		if l.key == m.chosen {
			mark = "> "
		}
		if c := l.call; c != nil && c.State == operator.Pending {
			colour = yellow
			if c.Decision.Once || len(c.Findings) > 0 {
				colour = red
			}
		}
		text := m.one(mark + m.line(l))
		lines = append(lines, m.paint(m.stdout, colour, text))
	}
	for len(lines) < rows-len(below) {
		lines = append(lines, "")
	}
	return append(lines, below...)
}

// sentence is what is said below the list of the line that is chosen.
func (l listLine) sentence() string {
	if l.call != nil {
		return wording.Sentence(&l.call.Shown)
	}
	return fmt.Sprintf("%s %s: c makes it a clean session", visible.Reveal(l.session), wording.CameBack(l.silent.Silent))
}

// line is the one of the list.
func (m *approvalsScreen) line(l listLine) string {
	if l.call != nil {
		return m.stateOf(l.call.ID) + "  " + wording.Sentence(&l.call.Shown)
	}
	return fmt.Sprintf("%s  %s  %s", visible.Reveal(l.session), l.silent.Label, wording.CameBack(l.silent.Silent))
}
