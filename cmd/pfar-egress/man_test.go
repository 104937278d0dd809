package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

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
		fmt.Sprintf("one word of %d to %d visible ASCII characters", broker.MinSecret, broker.MaxSecret),
	} {
		if !strings.Contains(manual, says) {
			t.Errorf("the manual does not say %q", says)
		}
	}
}
