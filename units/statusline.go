package units

import "strings"

// StatusLine is what a launcher says of its server in the status of its unit. systemd keeps it as one line, which
// people read in `systemctl status`, and pfard if it was not there when the launcher ended.
type StatusLine struct {
	State, Detail, Label string
	Mistake, Refusal     string // in words
}

// labelMark stands before the label.
const labelMark = "; label "

// String writes the line. It says a state once that is its own detail.
func (s StatusLine) String() string {
	text := s.State
	if s.Detail != "" && s.Detail != s.State {
		text += ": " + s.Detail
	}
	if s.Label != "" {
		text += labelMark + s.Label
	}
	for _, words := range []string{s.Mistake, s.Refusal} {
		if words != "" {
			text += "; " + words
		}
	}
	return text
}

// ParseStatusLine reads the state and the detail of a line that String wrote with a label or with nothing behind them.
func ParseStatusLine(text string) StatusLine {
	text, _, _ = strings.Cut(text, labelMark)
	state, detail, _ := strings.Cut(text, ": ")
	switch state { // pfard has the state by what it is told, and people by this line
	case StateInvalid:
		state = StateRunning
	case StateLogin:
		state = StateWaiting
	}
	return StatusLine{State: state, Detail: detail}
}
