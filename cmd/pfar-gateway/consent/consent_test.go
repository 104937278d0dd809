package consent

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/state"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/gate/fold"
	"github.com/pfar/pfar/units/operator"
)

func opened(t *testing.T, dir string) Store {
	t.Helper()
	db, err := state.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return Store{DB: db, Now: time.Now, Recent: new(Recent)}
}

func yes() Yes {
	by := operator.Approver{Name: "ann", Channel: "passkey"}
	return Yes{Plan: "p", Call: "c", Approval: "a", By: by, Steps: map[string]fold.Shown{
		"post": {Verdict: gate.Ask, Before: gate.Start, Facts: gate.Worst, Server: "slack", Name: "post", Pin: "x",
			Arguments: map[string]json.RawMessage{"channel": json.RawMessage(`"dev"`)}, From: []string{"text"}},
	}}
}

// TestOnceForEachStep: a yes covers one call of each step, whoever comes first, also in the next process.
func TestOnceForEachStep(t *testing.T) {
	dir := t.TempDir()
	s := opened(t, dir)
	if err := s.Use("run", "post", "c"); !errors.Is(err, ErrNone) {
		t.Errorf("without a yes: %v", err)
	}
	if err := s.Put("run", yes()); err != nil {
		t.Fatal(err)
	}
	var won sync.Map
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			if err := s.Use("run", "post", fmt.Sprint(n)); err == nil {
				won.Store(n, true)
			} else if !errors.Is(err, ErrUsed) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	n := 0
	won.Range(func(any, any) bool { n++; return true })
	if n != 1 {
		t.Errorf("%d calls are covered", n)
	}
	s.DB.Close()
	s = opened(t, dir)
	got, err := s.Get("run")
	if err != nil || !reflect.DeepEqual(got, yes()) {
		t.Errorf("%+v, %v", got, err)
	}
	if err := s.Use("run", "post", "again"); !errors.Is(err, ErrUsed) {
		t.Errorf("in the next process: %v", err)
	}
	if err := s.Use("run", "other", "again"); err != nil {
		t.Errorf("another step: %v", err)
	}
	if err := s.Forget("run"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get("run"); !errors.Is(err, ErrNone) {
		t.Errorf("forgotten: %v", err)
	}
}

// TestRecent: what is in memory is what is on the disk, and there is little of it.
func TestRecent(t *testing.T) {
	s := opened(t, t.TempDir())
	for n := range 2 {
		y := yes()
		y.Call = fmt.Sprint(n)
		if err := s.Put("run", y); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if got, err := s.Get("run"); err != nil || got.Call != y.Call {
				t.Errorf("%+v, %v", got, err)
			}
		}
	}
	for n := range mostRecent + 2 {
		s.Recent.put(fmt.Sprint(n), yes())
	}
	if n := len(s.Recent.of); n > mostRecent {
		t.Errorf("%d are in memory", n)
	}
	long := yes()
	long.Plan = strings.Repeat("x", largeRecent)
	if err := s.Put("long", long); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Get("long"); err != nil || got.Plan != long.Plan {
		t.Errorf("%v", err)
	}
	if _, ok := s.Recent.get("long"); ok {
		t.Error("a large one is in memory")
	}
}

// TestBounded: what is kept is bounded by age and by bytes.
func TestBounded(t *testing.T) {
	s := opened(t, t.TempDir())
	begun := time.Now()
	s.Now = func() time.Time { return begun }
	if err := s.Put("old", yes()); err != nil {
		t.Fatal(err)
	}
	s.Now = func() time.Time { return begun.Add(keptFor + time.Second) }
	if err := s.Put("new", yes()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get("old"); !errors.Is(err, ErrNone) {
		t.Errorf("old: %v", err)
	}
	if _, err := s.Get("new"); err != nil {
		t.Errorf("new: %v", err)
	}
	long := yes()
	long.Plan = strings.Repeat("x", MaxYes)
	if err := s.Put("long", long); err == nil {
		t.Error("a plan without a bound is kept")
	}
}

// TestUnreadable: what cannot be read covers nothing.
func TestUnreadable(t *testing.T) {
	s := opened(t, t.TempDir())
	if err := s.Put("run", yes()); err != nil {
		t.Fatal(err)
	}
	s.Recent = nil
	if _, err := s.DB.Exec("UPDATE consents SET yes = '{\"steps\":3}'"); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Get("run"); err == nil || len(got.Steps) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}
