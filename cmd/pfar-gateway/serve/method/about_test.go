package method

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
)

// TestTalkativeServers: what servers say at length leaves room for what their owner says, and all of it is bounded.
func TestTalkativeServers(t *testing.T) {
	var all []registry.Named
	var about []registry.About
	for i := range 20 {
		n := registry.Named{Server: fmt.Sprintf("s%d", i)}
		about = append(about, registry.About{Instructions: strings.Repeat("me ", 10_000)})
		if i == 19 {
			n.Description = "the last"
		}
		all = append(all, n)
	}
	got := together(all, about, false)
	if !strings.Contains(got, "\n\nServer s19, as its owner describes it:\n> the last\n") || !strings.HasSuffix(got, "is left out.)") || len(got) > allInstructions+1<<10 {
		t.Errorf("%d bytes: %.500s", len(got), got)
	}
	if n := strings.Count(got, "says about itself"); n < 5 || n > 8 {
		t.Errorf("%d servers say something", n)
	}
}
