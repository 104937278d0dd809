package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/rivo/uniseg"

	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/control"
)

// topColumn is a column of pfar top.
type topColumn struct {
	title   string
	order   topOrder // what sorts by it; "": nothing
	key     string   // that sorts by it
	text    func(topServer) string
	colour  func(topServer) string   // nil: none
	compare func(a, b topServer) int // the greatest comes first; nil: by name, in its order
}

// topOrder is the name of a column to sort by, as a flag.
type topOrder string

const byName topOrder = "name"

func (o *topOrder) String() string { return string(*o) }
func (o *topOrder) Type() string   { return "column" }
func (o *topOrder) Set(s string) error {
	if !slices.Contains(topOrderNames(), s) {
		return fmt.Errorf("want one of %s", strings.Join(topOrderNames(), ", "))
	}
	*o = topOrder(s)
	return nil
}

func topOrderNames() (names []string) {
	for _, c := range topColumns() {
		if c.order != "" {
			names = append(names, string(c.order))
		}
	}
	return names
}

func topColumns() []topColumn {
	by := func(value func(topServer) float64) func(a, b topServer) int {
		return func(a, b topServer) int { return cmp.Compare(value(b), value(a)) }
	}
	recent := func(value func(topServer) float64) func(topServer) string {
		return func(s topServer) string {
			if s.Recent == 0 {
				return "-"
			}
			return latency(value(s))
		}
	}
	p50 := func(s topServer) float64 { return s.P50 }
	p99 := func(s topServer) float64 { return s.P99 }
	return []topColumn{
		{"NAME", byName, "n", func(s topServer) string { return s.Name }, nil, nil},
		{"STATE", "", "", func(s topServer) string { return string(s.State) }, func(s topServer) string { return stateColour(s.State) }, nil},
		{"CALLS/S", "calls", "c", func(s topServer) string { return rate(s.Rate) }, nil, by(func(s topServer) float64 { return s.Rate })},
		{"ACTIVE", "active", "a", func(s topServer) string { return strconv.Itoa(s.InFlight) }, nil,
			by(func(s topServer) float64 { return float64(s.InFlight) })},
		{"P50", "p50", "p", recent(p50), nil, by(p50)},
		{"P99", "p99", "l", recent(p99), nil, by(p99)},
		{"ERRORS", "errors", "e", func(s topServer) string { return strconv.Itoa(s.Errors) }, errorColour,
			by(func(s topServer) float64 { return float64(s.Errors) })},
		{"MEMORY", "memory", "m", memoryText, nil, by(func(s topServer) float64 { return float64(known(s.Memory)) })},
		{"CPU", "cpu", "u", cpuText, nil, by(func(s topServer) float64 { return known(s.CPU) })},
		{"SESSIONS", "sessions", "s", func(s topServer) string { return strconv.Itoa(s.Sessions) }, nil,
			by(func(s topServer) float64 { return float64(s.Sessions) })},
	}
}

func errorColour(s topServer) string {
	if s.Errors > 0 {
		return red
	}
	return ""
}

// known is what p points to, and 0 if that is not known.
func known[N uint64 | float64](p *N) N {
	if p == nil {
		return 0
	}
	return *p
}

func memoryText(s topServer) string {
	if s.Memory == nil {
		return "-"
	}
	return visible.Size(int64(min(*s.Memory, 1<<62)))
}

func cpuText(s topServer) string {
	if s.CPU == nil {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", 100**s.CPU)
}

func rate(perSecond float64) string {
	if perSecond < 9.95 {
		return strconv.FormatFloat(perSecond, 'f', 1, 64)
	}
	return strconv.FormatFloat(perSecond, 'f', 0, 64)
}

// latency is a time in seconds with two or three digits that matter.
func latency(seconds float64) string {
	for _, unit := range []struct {
		name   string
		factor float64
	}{{"us", 1e6}, {"ms", 1e3}} {
		v := seconds * unit.factor
		switch {
		case v < 9.95:
			return strconv.FormatFloat(v, 'f', 1, 64) + " " + unit.name
		case v < 999.5:
			return strconv.FormatFloat(v, 'f', 0, 64) + " " + unit.name
		}
	}
	if seconds < 99.95 {
		return strconv.FormatFloat(seconds, 'f', 1, 64) + " s"
	}
	return strconv.FormatFloat(seconds, 'f', 0, 64) + " s"
}

// order sorts by the column that was chosen, and by name what is equal there.
func (v *topView) order(servers []topServer) {
	columns := topColumns()
	i := slices.IndexFunc(columns, func(c topColumn) bool { return c.order == v.sort })
	slices.SortStableFunc(servers, func(a, b topServer) int {
		byColumn := 0
		if i >= 0 && columns[i].compare != nil {
			byColumn = columns[i].compare(a, b)
		}
		n := cmp.Or(byColumn, strings.Compare(a.Name, b.Name))
		if v.reverse {
			return -n
		}
		return n
	})
}

// lines are the table, a server each, and what the gateway answers itself.
func (v *topView) lines(t topTable) []string {
	columns := topColumns()
	const words = 2
	heading := make([]cell, len(columns))
	for i, c := range columns {
		heading[i] = cell{c.title, bold}
		if c.order == v.sort {
			heading[i].colour = bold + ";4" // underlined
		}
	}
	rows := [][]cell{heading}
	servers := t.Servers
	if t.Gateway != nil {
		own := *t.Gateway
		own.Name, own.State = "(gateway)", control.State("")
		servers = append(slices.Clone(servers), own)
	}
	for _, s := range servers {
		row := make([]cell, len(columns))
		for i, c := range columns {
			row[i].text = c.text(s)
			if c.colour != nil {
				row[i].colour = c.colour(s)
			}
		}
		rows = append(rows, row)
	}
	return append(v.aligned(v.stdout, rows, words), v.elsewhere(t.Servers)...)
}

// elsewhere says where servers are that pfar does not start, in lines as wide as the terminal.
func (v *topView) elsewhere(servers []topServer) []string {
	var list []string
	for _, s := range servers {
		if at := place(control.Reach{URL: s.URL, Attached: s.Attached}); at != "" {
			list = append(list, s.Name+" at "+at)
		}
	}
	if len(list) == 0 {
		return nil
	}
	columns := widthOf(v.stdout)
	if columns == 0 {
		columns = math.MaxInt
	}
	return breakLines("elsewhere: "+escape(strings.Join(list, ", "), oneLine), columns, columns, uniseg.StringWidth)
}
