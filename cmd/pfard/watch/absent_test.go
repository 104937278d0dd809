package watch

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/fsnotify/fsnotify"
)

// TestAbsentWatchesNoMoreThanItHasTo: the nearest directories alone, not all of what one could declare, and of them the
// paths alone.
func TestAbsentWatchesNoMoreThanItHasTo(t *testing.T) {
	base := t.TempDir()
	see, err := fsnotify.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	defer see.Close()
	a := new(absent)
	watched := func(want ...string) {
		t.Helper()
		if err := a.add(see); err != nil {
			t.Fatal(err)
		}
		if got := see.WatchList(); !maps.Equal(setOf(got), setOf(want)) {
			t.Errorf("it watches %q, want %q", got, want)
		}
	}
	watched()
	deep := filepath.Join(base, "a", "b", "tool")
	a.paths = []string{deep, filepath.Join(base, "a", "other")}
	watched(base)
	for path, want := range map[string]bool{filepath.Join(base, "a"): true, deep: true, filepath.Join(base, "ab"): false, filepath.Join(base, "b"): false, deep + "x": false} {
		if a.concerns(path) != want {
			t.Errorf("%s concerns it: %t", path, !want)
		}
	}
	if err := os.MkdirAll(filepath.Join(base, "a", "b"), 0o755); err != nil {
		t.Fatal(err)
	}
	watched(filepath.Join(base, "a"), filepath.Join(base, "a", "b"))
	a.paths = nil
	for i := range 2 * maxAbsent {
		dir := filepath.Join(base, fmt.Sprint(i))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		a.paths = append(a.paths, filepath.Join(dir, "tool"))
	}
	if err := a.add(see); err != nil || len(see.WatchList()) != maxAbsent {
		t.Errorf("it watches %d directories, %v", len(see.WatchList()), err)
	}
	a.paths = nil
	watched()
}

func setOf(list []string) map[string]bool {
	set := map[string]bool{}
	for _, one := range list {
		set[one] = true
	}
	return set
}
