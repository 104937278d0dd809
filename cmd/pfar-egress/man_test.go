package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/broker"
)

// TestManualKnowsTheLimits: what a server has of its bridge stands in the manual.
func TestManualKnowsTheLimits(t *testing.T) {
	b, err := os.ReadFile("../../packaging/man/pfar-declaration.5")
	if err != nil {
		t.Fatal(err)
	}
	manual, l := strings.ReplaceAll(string(b), "\n", " "), defaultLimits
	for _, says := range []string{
		fmt.Sprintf("%d at once through the bridge, and %.0f new ones a second;", l.conns, float64(l.rate)),
		fmt.Sprintf("%d at once to hosts of brokered secrets;", l.opened),
		fmt.Sprintf("The bridge closes a connection after %s without data.",
			map[time.Duration]string{time.Hour: "an hour"}[l.idle]),
		fmt.Sprintf("one word of %d to %d visible ASCII characters", broker.MinSecret, broker.MaxSecret),
	} {
		if !strings.Contains(manual, says) {
			t.Errorf("the manual does not say %q", says)
		}
	}
}

// TestManualKnowsTheRefresh compares the times of a refresh that pfard(8) gives.
func TestManualKnowsTheRefresh(t *testing.T) {
	b, err := os.ReadFile("../../packaging/man/pfard.8")
	if err != nil {
		t.Fatal(err)
	}
	says := fmt.Sprintf("for at most %.0f seconds after the unit's own start", refreshTime.Seconds())
	if !strings.Contains(string(b), says) || lastTime.Seconds() > 30 {
		t.Errorf("the manual does not say %q, or that it ends within 30 seconds of SIGTERM", says)
	}
}
