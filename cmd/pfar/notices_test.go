package main

import (
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/units/health"
	"github.com/pfar/pfar/units/operator"
)

// TestNoticesAreShown: a notice that its host does not take is a note of the status and a warning of doctor.
func TestNoticesAreShown(t *testing.T) {
	at := time.Date(2026, 11, 28, 10, 4, 0, 0, time.UTC)
	good := operator.Notice{Name: "phone", Host: "ntfy.example.com", Sent: at}
	fresh := operator.Notice{Name: "chat", Host: "chat.example.com"}
	bad := operator.Notice{Name: "hook", Host: "hooks.example.com", Sent: at, Failed: at, Why: "the host answers 401"}
	if notes := health.Unsent([]operator.Notice{good, fresh, bad}); len(notes) != 1 ||
		notes[0] != `the notice "hook" has not reached hooks.example.com since `+stamp(at)+": the host answers 401" {
		t.Errorf("%q", notes)
	}
	for _, c := range []struct {
		all    []operator.Notice
		want   outcome
		detail string
	}{
		{nil, none, "none is declared"},
		{[]operator.Notice{good, fresh}, pass,
			"phone to ntfy.example.com: last sent " + stamp(at) + "; chat to chat.example.com: nothing sent yet"},
		{[]operator.Notice{good, bad}, warn, "the host answers 401"},
	} {
		f := noticesCheck(c.all)
		if f.Outcome != c.want || !strings.Contains(f.Detail, c.detail) || (f.Remedy != "") != (c.want == warn) {
			t.Errorf("%+v, want %s, %q", f, c.want, c.detail)
		}
	}
}
