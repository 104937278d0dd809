package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestManualKnowsTheTimes: how soon a change counts, when a crashed server is tried again, and what is kept and left free, stand in
// the manual of declarations as they are.
func TestManualKnowsTheTimes(t *testing.T) {
	b, err := os.ReadFile("../../packaging/man/pfar-declaration.5")
	if err != nil {
		t.Fatal(err)
	}
	manual := strings.ReplaceAll(string(b), "\n", " ")
	part := map[int]string{20: "a twentieth"}[diskShare]
	for _, says := range []string{
		fmt.Sprintf("when nothing has happened in it for %d ms, after %.0f s at the latest", settle.Milliseconds(), atMost.Seconds()),
		fmt.Sprintf("starts it again, %.0f minutes later at first.", pauses[0].Minutes()),
		fmt.Sprintf("the last %d of these are known", maxStood),
		fmt.Sprintf("less than %s of its disk is free, or less than %d GiB,", part, diskMost>>30),
	} {
		if !strings.Contains(manual, says) {
			t.Errorf("the manual does not say %q", says)
		}
	}
}
