package chat

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pfar/pfar/policies/plural"
	"github.com/pfar/pfar/units/chat/meaning"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/flows/wording"
	"github.com/pfar/pfar/units/setup"
)

// setupWords say where a set-up is. terminal: nobody keeps what the owner types, and nobody else reads the answer.
// Words of a server or a service are quoted there, and go to no other place.
func setupWords(now control.Flow, terminal bool) string {
	switch {
	case now.State == control.FlowComplete && now.Tools > 0:
		return fmt.Sprintf("%s is connected. It has %s.", now.Server, plural.Count(now.Tools, "tool"))
	case now.State == control.FlowComplete:
		return now.Server + " is connected."
	case now.State == control.FlowFailed:
		return fmt.Sprintf("%s is not connected: %s. Stored secrets stay.%s", now.Server, reason(now.Reason),
			details(now, terminal))
	case now.Wants != nil:
		return wanted(now, terminal)
	}
	return now.Server + ": the set-up goes on."
}

// seeWhy shows why a set-up has failed, or asks once more.
const seeWhy = "pfar audit --kind set-up"

// reason is why a set-up has failed.
func reason(r control.FlowReason) string {
	switch r {
	case control.FlowCancelled:
		return "cancelled"
	case control.FlowSuperseded:
		return "another set-up was begun"
	case control.FlowPageLost:
		return "its page has closed"
	case control.FlowUnanswered:
		return "nobody answered in time"
	case control.FlowNotInstalled:
		return "its package was not installed"
	case control.FlowNotWritten:
		return "its declaration was not written"
	case control.FlowNotStarted:
		return "the server did not start"
	case control.FlowNoTools:
		return "the server has no tools"
	case control.FlowNotVerified:
		return "the server did not answer a test call"
	case control.FlowRefused:
		return "the service refuses its secrets"
	case control.FlowBroken:
		return "pfard could not go on"
	}
	return "the set-up failed"
}

// details quote at a terminal why a set-up has failed or asks once more. Elsewhere they name the command that does.
func details(now control.Flow, terminal bool) string {
	switch {
	case now.Detail == "" || now.Detail == reason(now.Reason):
		return ""
	case terminal:
		return "\n" + strings.TrimRight(wording.Quote(now.Detail), "\n")
	}
	return " To see why: " + seeWhy
}

// wanted say which secret a set-up waits for, why, and how a person gets one.
func wanted(now control.Flow, terminal bool) string {
	w, b := *now.Wants, strings.Builder{}
	if now.State == control.CredentialRefused && now.Attempts > 0 {
		what := "The service refuses the secret"
		if now.Reason == control.FlowNotStarted {
			what = "The server did not start with the secret"
		}
		fmt.Fprintf(&b, "%s (%d of %d).%s\n", what, now.Attempts, setup.MaxRefused, details(now, terminal))
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
		b.WriteString("\nIt begins with " + prefixes(w) + ".")
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

// withheld says what a message was taken for, and what the owner can do.
type withheld struct{ what, remedy string }

// why says why a message goes nowhere.
func why(s meaning.Situation, under *control.Flow, failed error, text string) withheld {
	const may = "Your message may hold a secret."
	switch {
	case s.Unknown:
		return withheld{may, "pfar cannot tell whether a set-up waits for one: " + clean(failed, text)}
	case s.Wanted == nil && s.Hidden:
		return withheld{may, "The set-up no longer waits for it."}
	case s.Wanted != nil && setup.Formed(*s.Wanted):
		return withheld{may, fmt.Sprintf("If it was %s, send it again, alone in a message and in one line%s. At a terminal "+
			"pfar add %s takes it in any form. If it was a question, ask it in other words, or cancel the set-up first.",
			s.Wanted.Key, form(*s.Wanted), under.Server)}
	case s.Wanted != nil:
		return withheld{may, fmt.Sprintf(`If it was %s, send it alone in a message, as one word. If it has blanks, use `+
			`pfar add %s at a terminal. To say anything else, send "cancel" first.`, s.Wanted.Key, under.Server)}
	case s.UnderWay:
		return withheld{may, fmt.Sprintf("The set-up of %s is under way, or has ended less than a minute ago. Send a secret "+
			"when pfar asks for it, and ask a question in other words or a minute after the end.", under.Server)}
	}
	return withheld{"Your message looks as if it held a secret.",
		`No set-up waits for one: begin with "connect NAME", such as "connect notion", and send it when pfar asks. ` +
			"If it was no secret, say it in other words."}
}

// form says how a secret begins, if that is known.
func form(w control.Wanted) string {
	if len(w.Prefixes) == 0 {
		return ""
	}
	return ". It begins with " + prefixes(w)
}

func prefixes(w control.Wanted) string {
	return strings.Join(slices.Sorted(slices.Values(w.Prefixes)), " or ")
}
