package pins

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/audit"
)

// TestIsRecorded: what the owner does is recorded before it is done, old to new, and not done without.
func TestIsRecorded(t *testing.T) {
	s := fresh(t)
	by := By{"uid 7", "ann", "cli"}
	var list []string
	failing := errors.New("the disk is full")
	var fail error
	s.Record(func(records ...audit.Record) error {
		if fail != nil {
			return fail
		}
		for _, r := range records {
			list = append(list, fmt.Sprintf("%s %s %s %s %.8s>%.8s by %s, %s, %s", r.Kind, r.Method, r.Server, r.Tool, r.Old, r.New, r.User, r.Approver, r.Channel))
		}
		return nil
	})
	s.Review(offered(tool("a", "one")))
	r := s.Review(offered(tool("a", "two"), prompt("b", "new")))
	old, _ := digest(tool("a", "one").Raw)
	fail = failing
	if done, err := s.Accept(by, "s"); !errors.Is(err, failing) || len(done) != 0 {
		t.Errorf("without a record it accepts %v, %v", done, err)
	}
	if err := s.Forget(by, "s"); !errors.Is(err, failing) {
		t.Errorf("without a record it forgets: %v", err)
	}
	if again := s.Review(offered(tool("a", "two"), prompt("b", "new"))); words(again) != words(r) || words(r) != "a changed, b new" {
		t.Errorf("after what was not done: %s", words(again))
	}
	fail = nil
	if _, err := s.Accept(by, "s"); err != nil {
		t.Fatal(err)
	}
	next := offered(tool("a", "two"), prompt("b", "new"))
	next.Version = "x 2"
	s.Review(next)
	if err := s.Settle(by, "s"); err != nil {
		t.Fatal(err)
	}
	if err := s.Forget(by, "s"); err != nil {
		t.Fatal(err)
	}
	want := []string{
		fmt.Sprintf("pin accept s prompt:b >%.8s by uid 7, ann, cli", r.Verdicts[1].Digest), fmt.Sprintf("pin accept s a %.8s>%.8s by uid 7, ann, cli", old, r.Verdicts[0].Digest),
		"pin settle s  x 1.2.0 >x 2 p by uid 7, ann, cli", "pin forget s  > by uid 7, ann, cli",
	}
	if strings.Join(list, "\n") != strings.Join(want, "\n") {
		t.Errorf("recorded\n%s\nwant\n%s", strings.Join(list, "\n"), strings.Join(want, "\n"))
	}
}
