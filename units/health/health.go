// Package health makes the notes of a report: problems on this machine that need its owner.
package health

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/operator"
)

// Notes are all notes of a report, one sentence each: pfard's own, and those of this package.
func Notes(r control.Report) []string {
	return slices.Concat(r.Notes, outlived(r), unjudged(r.Servers), LeftBehind(r))
}

// outlived notes which servers began before an upgrade: they run on as they began.
func outlived(r control.Report) (notes []string) {
	for _, s := range r.Servers {
		if s.Launcher != "" {
			notes = append(notes, s.Name+" "+UnderAnother(s, r.Version))
		}
	}
	return notes
}

// UnderAnother says by which pfar a server was started, and how that changes. version is that of pfard.
func UnderAnother(s control.Server, version string) string {
	return fmt.Sprintf("runs under pfar %s, and pfar is %s: pfar restart %s", s.Launcher, version, s.Name)
}

// unjudged notes which servers' calls wait because nothing is known of their tools.
func unjudged(servers []control.Server) []string {
	var names []string
	for _, s := range servers {
		if s.Unknown != "" && !s.Broken {
			names = append(names, s.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	const words = "nothing is known of the tools of %s, so their calls wait for approval until service, trust or tool " +
		"in the declaration says what they do: pfar explain %s"
	return []string{fmt.Sprintf(words, strings.Join(names, ", "), names[0])}
}

// LeftBehind notes what servers have left that are not declared.
func LeftBehind(r control.Report) []string {
	if len(r.Leftovers) == 0 {
		return nil
	}
	const words = "undeclared servers left something behind: %s; pfar clean NAME shows what, and deletes it"
	return []string{fmt.Sprintf(words, strings.Join(r.Leftovers, ", "))}
}

// Unsent notes which notices their hosts do not take.
func Unsent(all []operator.Notice) (notes []string) {
	for _, n := range all {
		if n.Failed.IsZero() {
			continue
		}
		const words = "the notice %q has not reached %s since %s: %s"
		since := n.Failed.Local().Format("2006-01-02 15:04:05 MST")
		notes = append(notes, fmt.Sprintf(words, n.Name, n.Host, since, n.Why))
	}
	return notes
}
