package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/pfar/pfar/units/control"
)

const topKeys = "q quit  r reverse  sort: n name  c calls  a active  p p50  l p99  e errors  m memory  u cpu  s sessions"

// measured is one sample, or why there is none.
type measured struct {
	table topTable
	err   error
}

// topScreen draws one sample after the other until the operator has seen enough. An error is shown and tried again.
type topScreen struct {
	*topView
	ctx    context.Context
	last   measured
	height int
}

// Init takes the next sample after the interval. There is never more than one on its way.
func (s *topScreen) Init() tea.Cmd {
	return tea.Tick(s.interval, func(time.Time) tea.Msg {
		t, err := s.sample(s.ctx)
		return measured{t, err}
	})
}

func (s *topScreen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case measured:
		if s.last = msg; msg.err != nil {
			s.last.table = topTable{Time: s.now(), Servers: []topServer{}}
		}
		return s, s.Init()
	case tea.WindowSizeMsg:
		s.height = msg.Height
	case tea.KeyPressMsg:
		if !s.pressed(msg.String()) {
			return s, tea.Quit
		}
	}
	return s, nil
}

// View is one picture. What does not fit the width is cut by the renderer.
func (s *topScreen) View() tea.View {
	s.order(s.last.table.Servers)
	lines := append(s.summary(s.last), "")
	lines = append(lines, s.lines(s.last.table)...)
	if more := len(lines) - (s.height - 2); more > 0 && s.height > 6 {
		lines = append(lines[:s.height-3], fmt.Sprintf("and %d more", more+1))
	}
	lines = append(lines, "", topKeys)
	return fullScreen(strings.Join(lines[:min(len(lines), max(s.height, 1))], "\n"))
}

// pressed acts on a key and reports whether to go on. In raw mode Ctrl-C is a key like any other.
func (v *topView) pressed(key string) bool {
	switch key {
	case "q", "Q", "ctrl+c", "ctrl+d":
		return false
	case "r":
		v.reverse = !v.reverse
		return true
	}
	for _, c := range topColumns() {
		if c.key == key && key != "" {
			v.sort, v.reverse = c.order, false
		}
	}
	return true
}

// summary is what stands above the table.
func (v *topView) summary(m measured) []string {
	running, active, calls := 0, 0, 0.0
	for _, s := range m.table.Servers {
		if s.State.Up() {
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
