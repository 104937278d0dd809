package chat

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/pfar/pfar/policies/plural"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/setup"
)

// setupWords say where a set-up is. terminal: nobody keeps what the owner types.
func setupWords(now control.Flow, terminal bool) string {
	switch {
	case now.State == control.FlowComplete && now.Tools > 0:
		return fmt.Sprintf("%s is connected. It has %s.", now.Server, plural.Count(now.Tools, "tool"))
	case now.State == control.FlowComplete:
		return now.Server + " is connected."
	case now.State == control.FlowFailed:
		return fmt.Sprintf("%s is not connected: %s. Stored secrets stay.", now.Server,
			strings.TrimSuffix(cmp.Or(now.Detail, string(now.Reason)), "."))
	case now.Wants != nil:
		return wanted(now, terminal)
	}
	return now.Server + ": the set-up goes on."
}

// wanted say which secret a set-up waits for, why, and how a person gets one.
func wanted(now control.Flow, terminal bool) string {
	w, b := *now.Wants, strings.Builder{}
	if now.State == control.CredentialRefused && now.Attempts > 0 {
		what := "The service refuses the secret"
		if now.Reason == control.FlowNotStarted {
			what = "The server did not start with the secret"
		}
		fmt.Fprintf(&b, "%s (%d of %d)", what, now.Attempts, setup.MaxRefused)
		if now.Detail != "" {
			b.WriteString(": " + strings.TrimSuffix(now.Detail, "."))
		}
		b.WriteString(".\n")
	}
	fmt.Fprintf(&b, "%s needs %s.", now.Server, w.Key)
	if w.Where != "" {
		b.WriteString(" " + strings.TrimSuffix(w.Where, ".") + ".")
	}
	if w.URL != "" {
		b.WriteString("\n" + w.URL)
	}
	if len(w.Scopes) > 0 {
		b.WriteString("\nIt needs these scopes: " + strings.Join(w.Scopes, ", ") + ".")
	}
	if len(w.Prefixes) > 0 {
		b.WriteString("\nIt begins with " + strings.Join(slices.Sorted(slices.Values(w.Prefixes)), " or ") + ".")
	}
	if terminal {
		b.WriteString("\nEnter it alone in a line.")
	} else {
		b.WriteString("\nSend it alone in a message: pfar stores it and deletes the message at once.")
	}
	if len(w.Ways) > 0 {
		fmt.Fprintf(&b, " Or sign in at a terminal: pfar add %s.", now.Server)
	}
	if w.Optional {
		b.WriteString(` "skip" leaves it out.`)
	}
	b.WriteString(` "cancel" ends the set-up.`)
	return b.String()
}
