package label

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/gate"
)

// tasked are tasks of the sessions in a directory, and the handles that were recorded.
func tasked(t *testing.T, dir string) (*Tasks, *[]string) {
	t.Helper()
	s, _ := opened(t, dir)
	var recorded []string
	now := time.Now()
	s.Now = func() time.Time { return now }
	return &Tasks{Sessions: s, Record: func(client, handle string) error {
		recorded = append(recorded, client+"/"+handle)
		return nil
	}}, &recorded
}

// TestTaskStays: a task begins once, however often and from wherever it is named, and keeps its label, also for the
// next gateway, after its client was away, and while it is frozen.
func TestTaskStays(t *testing.T) {
	dir := t.TempDir()
	tasks, recorded := tasked(t, dir)
	s := tasks.Sessions
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := tasks.Begin("laptop", "task-1"); err != nil {
				t.Error(err)
			}
			raw := of(gate.Sensitive, gate.Raw)
			if _, _, err := s.Raise("laptop", "task-1", raw, Source{Server: "web"}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	holds := func(s *Sessions, when string) {
		t.Helper()
		if l, err := s.Label("laptop", "task-1"); err != nil || l != of(gate.Sensitive, gate.Raw) {
			t.Errorf("%s: %s, %v", when, l, err)
		}
	}
	holds(s, "at once")
	if len(*recorded) != 1 {
		t.Errorf("recorded: %q", *recorded)
	}
	if err := s.New("laptop", "task-1"); err == nil {
		t.Error("it is made again")
	}
	holds(s, "made again")
	s.Declare([]string{"phone"})
	if err := tasks.Begin("laptop", "task-1"); err == nil {
		t.Error("a client that is not declared begins a task")
	}
	s.Declare([]string{"laptop", "phone"})
	holds(s, "declared again")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s.db.Close()
	next, _ := tasked(t, dir)
	if err := next.Begin("laptop", "task-1"); err != nil {
		t.Error(err)
	}
	holds(next.Sessions, "the next gateway")
	for range maxDenials {
		if _, err := next.Sessions.Answered("laptop", "task-1", false); err != nil {
			t.Fatal(err)
		}
	}
	if err := next.Begin("laptop", "task-1"); err != nil {
		t.Error(err)
	}
	if _, err := next.Sessions.Label("laptop", "task-1"); !errors.Is(err, ErrFrozen) {
		t.Errorf("a frozen task goes on: %v", err)
	}
}

// TestTasksAreBounded: no client begins many at once, nor more than there may be, and none begins without a record.
func TestTasksAreBounded(t *testing.T) {
	tasks, recorded := tasked(t, t.TempDir())
	s := tasks.Sessions
	begins := func(client string) (n int) {
		for i := range 2 * tasksAtOnce {
			switch err := tasks.Begin(client, fmt.Sprintf("task-%d-%d", s.Now().UnixNano(), i)); {
			case err == nil:
				n++
			case !errors.Is(err, ErrBusy):
				t.Fatal(err)
			}
		}
		return n
	}
	if n := begins("laptop"); n != tasksAtOnce {
		t.Errorf("%d at once", n)
	}
	if n := begins("phone"); n != tasksAtOnce {
		t.Errorf("of another client %d at once", n)
	}
	later := s.Now().Add(3 * taskEvery)
	s.Now = func() time.Time { return later }
	if n := begins("laptop"); n != 3 {
		t.Errorf("%d after a while", n)
	}
	if len(*recorded) != 2*tasksAtOnce+3 {
		t.Errorf("%d recorded", len(*recorded))
	}
	tasks.Record = func(string, string) error { return errors.New("the disk is full") }
	later = later.Add(time.Hour)
	if err := tasks.Begin("laptop", "task-x"); err == nil || s.Known("laptop", "task-x") {
		t.Errorf("it begins without a record: %v", err)
	}
	tasks.Record = func(string, string) error { return nil }
	for i := range maxTasks {
		s.sessions[key{"phone", fmt.Sprint("full-", i)}] = s.fresh()
	}
	if err := tasks.Begin("phone", "task-x"); !errors.Is(err, ErrFull) {
		t.Errorf("one too many: %v", err)
	}
	if err := tasks.Begin("laptop", "task-x"); err != nil {
		t.Errorf("of another client: %v", err)
	}
}
