package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfard/watch"
	"github.com/pfar/pfar/policies/audit/trail"
	"github.com/pfar/pfar/units/backoff"
	"github.com/pfar/pfar/units/control"
)

// TestManualKnowsTheTimes: how soon a change counts, when a crashed server is tried again, and what is kept and left
// free, stand in the manual of declarations as they are.
func TestManualKnowsTheTimes(t *testing.T) {
	b, err := os.ReadFile("../../packaging/man/pfar-declaration.5")
	if err != nil {
		t.Fatal(err)
	}
	manual := strings.ReplaceAll(string(b), "\n", " ")
	part := map[int]string{20: "a twentieth"}[diskShare]
	for _, says := range []string{
		fmt.Sprintf("pfard waits until nothing happens in it for %d ms, at most %.0f s.",
			watch.Quiet.Milliseconds(), watch.AtMost.Seconds()),
		fmt.Sprintf("the bridge knows the last %d placeholders", maxStood),
		fmt.Sprintf("less than %s of its disk is free, or less than %d GiB,", part, diskMost>>30),
	} {
		if !strings.Contains(manual, says) {
			t.Errorf("the manual does not say %q", says)
		}
	}
}

// TestManualKnowsTheBounds compares the times, sizes and operations that pfard(8) gives with the program's.
func TestManualKnowsTheBounds(t *testing.T) {
	b, err := os.ReadFile("../../packaging/man/pfard.8")
	if err != nil {
		t.Fatal(err)
	}
	manual := strings.Join(strings.Fields(string(b)), " ")
	var operations []string
	pauses, offline := pauses(), backoff.Offline()
	for _, v := range []control.Verb{control.Store, control.Rotate, control.Remove, control.Secrets, control.Rekey, control.Export, control.Import, control.Give} {
		operations = append(operations, string(v))
	}
	for _, want := range []string{
		fmt.Sprintf("starts such a server again after %d minutes, then after an hour, then every %d hours", pauses[0]/time.Minute, pauses[2]/time.Hour),
		fmt.Sprintf("Another file begins after %d MiB or a day.", trail.MaxSize>>20),
		fmt.Sprintf("nothing has been written for %d days are deleted", auditKept/(24*time.Hour)),
		fmt.Sprintf("more than %d GiB", auditMost>>30),
		fmt.Sprintf("for each server at most %d a second, and the number of the others", recordedPerSecond),
		fmt.Sprintf("after %d s and doubles the wait each time, up to %d minutes", firstRetry/time.Second, lastRetry/time.Minute),
		fmt.Sprintf("for %d s, then for %d s, %d s, %d minute and then %d minutes each time", offline[0]/time.Second,
			offline[1]/time.Second, offline[2]/time.Second, offline[3]/time.Minute, offline[4]/time.Minute),
		fmt.Sprintf("at most %d operators with %d passkeys each, and %d open invitations", maxOperators, maxPasskeys,
			maxInvitations),
		"(" + strings.Join(operations, ", ") + ";",
	} {
		if !strings.Contains(manual, want) {
			t.Errorf("the manual does not say %q", want)
		}
	}
	b, err = os.ReadFile("../../packaging/man/pfar.1")
	if err != nil {
		t.Fatal(err)
	}
	manual = strings.Join(strings.Fields(string(b)), " ")
	for _, want := range []string{
		fmt.Sprintf("It waits at most %.0f seconds for all bridges", wireTime.Seconds()),
		fmt.Sprintf("one line of at most %d bytes", maxReason),
	} {
		if !strings.Contains(manual, want) {
			t.Errorf("pfar(1) does not say %q", want)
		}
	}
	if pauses[1] != time.Hour || trail.MaxAge != 24*time.Hour || auditShare != 10 || probeTime != 5*time.Second ||
		hookLimit != 30*time.Second || patience != 2*time.Minute || invitationLife != time.Hour {
		t.Error("the manual says these in words: pauses[1], trail.MaxAge, auditShare, probeTime, hookLimit, patience, " +
			"invitationLife")
	}
}
