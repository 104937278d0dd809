package main

import (
	"fmt"
	"io"
)

// maxSpinners is how many lines of spinners are drawn; more would scroll, and what scrolled cannot be cleared.
const maxSpinners = 8

// screen draws lines that are replaced by the next drawing.
type screen struct {
	w     io.Writer
	live  bool // a terminal that can
	drawn int
	frame int
}

// clear takes back what draw drew, before something else is printed.
func (s *screen) clear() {
	if s.drawn > 0 {
		fmt.Fprintf(s.w, "\x1b[%dA\x1b[J", s.drawn) // cursor up, erase below: ECMA-48 8.3.22, 8.3.39
		s.drawn = 0
	}
}

func (s *screen) draw(lines []string) {
	if !s.live {
		return
	}
	s.clear()
	s.frame++
	wheel := []rune("|/-\\")[s.frame%4]
	if more := len(lines) - maxSpinners; more > 0 {
		lines = append(lines[:maxSpinners:maxSpinners], fmt.Sprintf("and %d more", more))
	}
	for _, line := range lines {
		if r := []rune(line); len(r) > s.width()-3 {
			line = string(r[:s.width()-3]) // a line that wraps would be two to clear
		}
		fmt.Fprintf(s.w, "%c %s\n", wheel, line)
		s.drawn++
	}
}

func (s *screen) width() int {
	if columns := widthOf(s.w); columns > 10 {
		return columns
	}
	return 80
}
