package setup

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pfar/pfar/units/control"
)

// Event is something that has happened to a flow.
type Event struct {
	Kind   Kind
	Now    time.Time
	Words  string   // why something failed; of NotSignedIn "": the person gave up
	Key    string   // of Arrived; of Value, Skipped, SigningIn: what the person was asked for ("": anything)
	Stored []string // of Begun and Resumed: keys of the flow that are in the vault
	Tools  int      // of Listed
	Tool   string   // of Verified
}

// Kind says what has happened. The list is closed: anything else changes nothing.
type Kind string

const (
	Begun        Kind = "begun"   // somebody asked for it
	Resumed      Kind = "resumed" // another pfard has taken it over
	Confirmed    Kind = "confirmed"
	Value        Kind = "value" // a person gave one for what the flow waits for
	Skipped      Kind = "skipped"
	SigningIn    Kind = "signing in"    // a person has begun a sign-in for what the flow waits for
	NotSignedIn  Kind = "not signed in" // it has ended without a token
	Arrived      Kind = "arrived"       // a value of Key is in the vault, from wherever
	Cancelled    Kind = "cancelled"
	Superseded   Kind = "superseded" // the same principal has begun another one
	PageLost     Kind = "page lost"
	Late         Kind = "late" // the deadline has passed
	Stored       Kind = "stored"
	NotStored    Kind = "not stored"
	Installed    Kind = "installed"
	NotInstalled Kind = "not installed"
	Written      Kind = "written"
	NotWritten   Kind = "not written"
	Listed       Kind = "listed"      // the server runs and has tools
	NoneListed   Kind = "none listed" // it runs and has none
	NotStarted   Kind = "not started"
	Ended        Kind = "ended" // it crashed at its start
	Verified     Kind = "verified"
	Unverified   Kind = "unverified" // there is nothing to verify it by
	Refused      Kind = "refused"    // the service refuses the secrets
	Broken       Kind = "broken"     // pfard cannot go on, such as for a full disk
)

// Action is something to be done. Its outcome is the next event.
type Action struct {
	Do    Do
	Key   string // of Store
	Again bool   // of Start: also if the server runs
}

// Do says what is to be done.
type Do string

const (
	Ask     Do = "ask"   // have a person give what View wants
	Store   Do = "store" // the value that came, under Key
	Install Do = "install"
	Write   Do = "write" // the declaration
	Start   Do = "start"
	Verify  Do = "verify"
	Stop    Do = "stop" // the server
	End     Do = "end"  // tell how it ended, and forget the flow
)

// Errors of what a person does at the wrong time.
var (
	ErrNotWaiting = errors.New("the set-up does not wait for that")
	ErrRequired   = errors.New("the server cannot do without it")
)

// Next returns a flow after an event, and the actions to do then, in this order. An error is for the person who caused
// the event; the flow has not changed then. An event that comes too late changes nothing either.
func Next(f Flow, e Event) (Flow, []Action, error) {
	f.Secrets = slices.Clone(f.Secrets) // leave the caller's flow as it was
	switch e.Kind {
	case Value, Skipped, SigningIn, Confirmed, Cancelled:
		return f.person(e)
	}
	if f.Over() {
		if e.Kind == Resumed {
			return f, f.ending(), nil
		}
		return f, nil, nil
	}
	switch e.Kind {
	case Begun:
		if f.State == control.FlowStart {
			return f.begin(e)
		}
	case Resumed:
		return f.resume(e)
	case Superseded:
		return f.fail(control.FlowSuperseded, "another set-up was begun")
	case Broken:
		return f.fail(control.FlowBroken, e.Words)
	case Arrived:
		return f.arrived(e)
	case NotSignedIn:
		if f.Step == SignIn {
			return f.unsigned(e)
		}
	case PageLost:
		if f.waits() && f.Page {
			return f.fail(control.FlowPageLost, e.Words)
		}
	case Late:
		if !f.Deadline.IsZero() && !e.Now.Before(f.Deadline) {
			return f.late()
		}
	default:
		return f.outcome(e)
	}
	return f, nil, nil
}

// person takes what a person does.
func (f Flow) person(e Event) (Flow, []Action, error) {
	s := f.wants()
	switch {
	case e.Kind == Cancelled && !f.Over():
		return f.fail(control.FlowCancelled, "cancelled")
	case s != nil && e.Key != "" && e.Key != s.Key: // the flow has gone on
		return f, nil, fmt.Errorf("%w: the answer is for %s, and %s; nothing was stored", ErrNotWaiting, f.variable(e.Key),
			f.place())
	case e.Kind == SigningIn && s != nil && f.SignIns >= MaxSignIns:
		return f, nil, fmt.Errorf("%w: %d sign-ins have failed; paste a value, or begin the set-up again", ErrNotWaiting,
			f.SignIns)
	case e.Kind == SigningIn && s != nil:
		f.SignIns++
		f.Step, f.Detail, f.Deadline = SignIn, "waiting for "+s.Variable, e.Now.Add(SignInTime)
		f.Retry = false
		return f, nil, nil
	case e.Kind == Value && s != nil:
		f.State, f.Step, f.Detail, f.Deadline = control.FlowSpawning, Storing, "storing "+s.Key, time.Time{}
		f.Consent, f.Retry = false, false
		return f, []Action{{Do: Store, Key: s.Key}}, nil
	case e.Kind == Skipped && s != nil && !f.skippable():
		return f, nil, fmt.Errorf("%w: %s", ErrRequired, s.Variable)
	case e.Kind == Skipped && s != nil:
		if f.Consent = false; !f.Again {
			f.Secrets[f.At].Fate = Left
		}
		f.At++
		return f.ask(e.Now)
	case e.Kind == Confirmed && f.waits() && f.Step == AwaitingConsent:
		f.Consent = false
		return f.spawn(e.Now)
	}
	return f, nil, fmt.Errorf("%w: %s", ErrNotWaiting, f.place())
}

// outcome takes the outcome of an action.
func (f Flow) outcome(e Event) (Flow, []Action, error) {
	at := func(s Step) bool { return f.State == control.FlowSpawning && f.Step == s }
	verifying := f.State == control.FlowVerifying
	switch {
	case e.Kind == Stored && at(Storing):
		f.Secrets[f.At].Fate = Taken
		f.At++
		return f.ask(e.Now)
	case e.Kind == NotStored && at(Storing):
		next, actions, err := f.ask(e.Now)
		next.Detail, next.Retry = e.Words, true
		return next, actions, err
	case e.Kind == Installed && at(Installing):
		return f.write()
	case e.Kind == Written && at(Writing):
		return f.start(e.Now)
	case e.Kind == Listed && at(Starting):
		f.State, f.Step, f.Tools = control.FlowVerifying, "", e.Tools
		f.Detail, f.Deadline = "calling a tool that only reads", e.Now.Add(VerifyTime)
		return f, []Action{{Do: Verify}}, nil
	case e.Kind == NoneListed && at(Starting):
		return f.fail(control.FlowNoTools, "the server has no tools")
	case e.Kind == NotInstalled && at(Installing):
		return f.fail(control.FlowNotInstalled, e.Words)
	case e.Kind == NotWritten && at(Writing):
		return f.fail(control.FlowNotWritten, e.Words)
	case e.Kind == Ended && at(Starting) && len(f.Taken()) > 0:
		return f.refused(e)
	case (e.Kind == NotStarted || e.Kind == Ended) && at(Starting):
		return f.fail(control.FlowNotStarted, e.Words+f.another())
	case e.Kind == NotStarted && verifying:
		return f.fail(control.FlowNotVerified, e.Words+f.another())
	case (e.Kind == Verified || e.Kind == Unverified) && verifying:
		f.State, f.Detail, f.Deadline, f.Verified = control.FlowComplete, "", time.Time{}, e.Tool
		if e.Kind == Unverified && e.Words != "" {
			f.Detail = "connected, not verified: " + e.Words
		}
		return f, f.ending(), nil
	case e.Kind == Refused && verifying:
		return f.refused(e)
	}
	return f, nil, nil
}

// arrived goes on with a secret that is in the vault now. The operator's set-up names the secret as a declaration does:
// whoever stores it means this server too. If a client has begun the set-up, storing the secret is no consent, unless a
// person has signed in for it there.
func (f Flow) arrived(e Event) (Flow, []Action, error) {
	s := f.wants()
	if s == nil || s.Key != e.Key {
		return f, nil, nil
	}
	switch {
	case f.Step == SignIn || !f.Consent:
		s.Fate, f.Consent = Taken, false
	case s.Fate == "":
		s.Fate = Had
	}
	f.At++
	return f.ask(e.Now)
}

// unsigned waits for another answer after a sign-in without a token. That does not count as a refused value.
func (f Flow) unsigned(e Event) (Flow, []Action, error) {
	f.Step, f.Deadline = "", e.Now.Add(PersonTime)
	if f.Detail, f.Retry = e.Words, e.Words != ""; !f.Retry {
		f.Detail = "waiting for " + f.Secrets[f.At].Variable
	}
	return f, nil, nil
}

// begin marks the secrets that the vault has, and asks for the others.
func (f Flow) begin(e Event) (Flow, []Action, error) {
	for i, s := range f.Secrets {
		if slices.Contains(e.Stored, s.Key) {
			f.Secrets[i].Fate = Had
		}
	}
	return f.ask(e.Now)
}

// ask waits for the next secret that is missing, or goes on without a person.
func (f Flow) ask(now time.Time) (Flow, []Action, error) {
	f.Retry = false
	for ; f.At < len(f.Secrets); f.At++ {
		fate := f.Secrets[f.At].Fate
		if missing := fate == ""; missing && !f.Again || f.Again && !missing && fate != Left {
			f.State = control.AwaitingCredential
			if f.Again {
				f.State = control.CredentialRefused
			}
			f.Step, f.Deadline = "", now.Add(PersonTime)
			f.Detail = "waiting for " + f.Secrets[f.At].Variable
			return f, []Action{{Do: Ask}}, nil
		}
	}
	if f.Consent {
		f.State, f.Step, f.Deadline = control.AwaitingCredential, AwaitingConsent, now.Add(PersonTime)
		f.Detail = "waiting for a person's consent"
		return f, []Action{{Do: Ask}}, nil
	}
	return f.spawn(now)
}

// spawn begins to install, when the flow waits for no more secrets.
func (f Flow) spawn(now time.Time) (Flow, []Action, error) {
	if f.State = control.FlowSpawning; f.Package == "" {
		return f.write()
	}
	f.Step, f.Detail, f.Deadline = Installing, "installing "+f.Package, now.Add(InstallTime)
	return f, []Action{{Do: Install}}, nil
}

func (f Flow) write() (Flow, []Action, error) {
	f.Step, f.Detail, f.Deadline, f.Touched = Writing, "writing the declaration", time.Time{}, true
	return f, []Action{{Do: Write}}, nil
}

func (f Flow) start(now time.Time) (Flow, []Action, error) {
	f.State, f.Step = control.FlowSpawning, Starting
	f.Detail, f.Deadline = "starting the server", now.Add(StartTime)
	return f, []Action{{Do: Start, Again: f.Again}}, nil
}

// refused asks for other values, if the server has secrets and not too many values were refused. A server that
// crashes as soon as it has a new value may do so because its service refuses the value.
func (f Flow) refused(e Event) (Flow, []Action, error) {
	f.Attempts++
	f.Ended = e.Kind == Ended
	f.At, f.Again, f.Tools = len(f.Secrets), true, 0
	switch {
	case f.others() == 0:
		return f.fail(control.FlowRefused,
			"the service refuses the server, which has no secret to replace: "+e.Words)
	case f.Attempts >= MaxRefused && f.Ended:
		return f.fail(control.FlowNotStarted,
			fmt.Sprintf("no value worked in %d attempts; the last start failed: %s%s", f.Attempts, e.Words, f.another()))
	case f.Attempts >= MaxRefused:
		return f.fail(control.FlowRefused,
			fmt.Sprintf("no value worked in %d attempts; the service refused the last: %s", f.Attempts, e.Words))
	}
	f.At = 0
	next, actions, err := f.ask(e.Now)
	next.Detail, next.Retry = e.Words, true
	return next, actions, err
}

// resume goes on where another pfard has ended. It repeats the action that was under way: every action may be repeated.
func (f Flow) resume(e Event) (Flow, []Action, error) {
	if !f.Deadline.IsZero() && !e.Now.Before(f.Deadline) {
		return f.late()
	}
	switch {
	case f.State == control.FlowStart:
		return f.begin(e)
	case f.State == control.FlowSpawning && f.Step == Storing: // the value is gone with that pfard, or in the vault
		if !f.Again && slices.Contains(e.Stored, f.Secrets[f.At].Key) {
			f.Secrets[f.At].Fate = Taken
			f.At++
		}
		return f.ask(e.Now)
	case f.waits() && f.wants() != nil && !f.Again && slices.Contains(e.Stored, f.wants().Key):
		f.Secrets[f.At].Fate = Had
		f.At++
		return f.ask(e.Now)
	case f.waits():
		if f.Step == SignIn { // it ended with that pfard
			f.Step, f.Detail = "", "waiting for "+f.wants().Variable
		}
		return f, []Action{{Do: Ask}}, nil
	case f.Step == Installing:
		return f.spawn(e.Now)
	case f.Step == Writing:
		return f.write()
	}
	next, actions, err := f.start(e.Now) // also of FlowVerifying: where pfard runs the servers, they ended with it
	next.Tools = 0
	return next, actions, err
}

// fail ends a flow. What a person has stored stays.
func (f Flow) fail(why control.FlowReason, words string) (Flow, []Action, error) {
	f.State, f.Step, f.Detail, f.Deadline = control.FlowFailed, "", words, time.Time{}
	f.Retry = false
	f.Result = Result{Reason: why}
	return f, f.ending(), nil
}

// another says how to replace the secrets that a person has just given: one of them may be why the server does not
// start.
func (f Flow) another() (words string) {
	for _, s := range f.Secrets {
		switch {
		case s.Fate != Taken:
		case len(s.Ways) > 0:
			words += "; to get another " + s.Key + ", run: pfar login " + s.Key
		default:
			words += "; to store another " + s.Key + ", run: pfar vault rotate " + s.Key
		}
	}
	return words
}

// ending is what is to be done when a flow is over.
func (f Flow) ending() []Action {
	if f.State == control.FlowFailed && f.Touched {
		return []Action{{Do: Stop}, {Do: End}}
	}
	return []Action{{Do: End}}
}

// late ends a flow whose deadline has passed.
func (f Flow) late() (Flow, []Action, error) {
	switch {
	case f.Step == Installing:
		return f.fail(control.FlowNotInstalled,
			fmt.Sprintf("%s was not installed within %s", f.Package, minutes(InstallTime)))
	case f.Step == Starting:
		return f.fail(control.FlowNotStarted, "the server did not start within "+minutes(StartTime))
	case f.State == control.FlowVerifying:
		return f.fail(control.FlowNotVerified, "the server's answer was not there within "+minutes(VerifyTime))
	case f.Step == SignIn:
		return f.fail(control.FlowUnanswered, "nobody signed in within "+minutes(SignInTime))
	case f.Step == AwaitingConsent:
		return f.fail(control.FlowUnanswered, "nobody consented within "+minutes(PersonTime))
	}
	return f.fail(control.FlowUnanswered,
		fmt.Sprintf("nobody gave %s within %s", f.Secrets[f.At].Variable, minutes(PersonTime)))
}

func minutes(d time.Duration) string { return fmt.Sprintf("%d minutes", d/time.Minute) }
