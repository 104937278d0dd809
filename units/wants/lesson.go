package wants

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Lesson is what was learned of a server, as pfar learn --json prints it.
type Lesson struct {
	Server     string       `json:"server"`
	Seconds    float64      `json:"seconds"` // that it was observed
	Declared   []string     `json:"declared"`
	Suggested  []Suggestion `json:"suggested"`
	Refused    []Denial     `json:"refused"`
	LeftOut    int          `json:"left_out,omitempty"` // refusals of what was too much to be remembered
	Lost       int          `json:"lost,omitempty"`     // refusals that came too fast to be read
	AllDomains []string     `json:"allowed_domains"`    // Declared and Suggested
}

// Entries are the suggested ones.
func (l Lesson) Entries() (hosts []string) {
	for _, s := range l.Suggested {
		hosts = append(hosts, s.Entry)
	}
	return hosts
}

// Suggestion is an entry of allowed_domains that a server could use.
type Suggestion struct {
	Entry     string   `json:"entry"`
	Times     int      `json:"times"`           // connections, or questions for its address if it was only looked up
	Ports     []uint16 `json:"ports,omitempty"` // empty if it was only looked up
	Protocols []string `json:"protocols,omitempty"`
	LookedUp  bool     `json:"only_looked_up,omitempty"`
}

// Words say how the entry was asked for.
func (s Suggestion) Words() string {
	if s.LookedUp {
		return "only looked up, " + Times(s.Times)
	}
	var list []string
	for _, p := range s.Ports {
		list = append(list, strconv.Itoa(int(p)))
	}
	word := "port "
	if len(list) > 1 {
		word = "ports "
	}
	text := Times(s.Times) + ", " + word + strings.Join(list, " and ")
	if len(s.Protocols) > 0 {
		text += " (" + strings.Join(s.Protocols, ", ") + ")"
	}
	return text
}

// Denial is what a server wanted and cannot simply be given.
type Denial struct {
	Target string `json:"target"`
	Reason string `json:"reason"`
	Times  int    `json:"times"`
}

// Times is a number of times in words.
func Times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// Cut keeps at most this many suggestions and denials, and counts the others as left out.
func (l *Lesson) Cut(most int) {
	if n := len(l.Suggested) - most; n > 0 {
		l.Suggested, l.LeftOut = slices.Clip(l.Suggested[:most]), l.LeftOut+n
	}
	if n := len(l.Refused) - most; n > 0 {
		l.Refused, l.LeftOut = slices.Clip(l.Refused[:most]), l.LeftOut+n
	}
}
