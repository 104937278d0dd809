package health

import (
	"strings"
	"testing"

	"github.com/pfar/pfar/units/control"
)

// TestBrokenServersAreNotJudged: a server with a broken file gets no note about its tools.
func TestBrokenServersAreNotJudged(t *testing.T) {
	notes := unjudged([]control.Server{
		{Name: "unknown", Unknown: "x"}, {Name: "broken", Unknown: "x", Broken: true}, {Name: "known"},
	})
	if len(notes) != 1 || !strings.Contains(notes[0], "the tools of unknown, so") {
		t.Errorf("got %q", notes)
	}
}

// TestOutlived: a server that an earlier pfar has started is named, with what to do.
func TestOutlived(t *testing.T) {
	r := control.Report{Version: "0.1.1", Servers: []control.Server{{Name: "new"}, {Name: "old", Launcher: "0.1.0"}}}
	const want = "old runs under pfar 0.1.0, and pfar is 0.1.1: pfar restart old"
	if got := outlived(r); len(got) != 1 || got[0] != want {
		t.Errorf("got %q", got)
	}
}
