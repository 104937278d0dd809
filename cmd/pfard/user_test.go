package main

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/plan"
	"github.com/pfar/pfar/units/systemd"
)

// TestAllotted gives a unit an id of its own and what systemd has made for it, and nothing to what nobody has declared.
func TestAllotted(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("NOT RUN as an ordinary user: files are given to users")
	}
	dir := t.TempDir()
	dirs := control.Dirs{Run: filepath.Join(dir, "run/pfar"), State: filepath.Join(dir, "state")}
	a, err := openUsers(dirs)
	if err != nil {
		t.Fatal(err)
	}
	a.plan = func(instance string) (plan.Plan, error) {
		switch instance {
		case "notion":
			return plan.Plan{Name: "notion"}, nil
		case "notion_abcdefgh":
			return plan.Plan{Name: "notion", Gateway: handover.Server{Session: "abcdefgh"}}, nil
		}
		return plan.Plan{}, errors.New("no plan")
	}
	for _, d := range []string{"run/pfar-mcp/notion", "run/pfar-mcp/notion_abcdefgh", "run/pfar/inspect"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(units.InspectDir(dirs.Run), "look.json"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(dir, "outside")
	if err := os.WriteFile(outside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "run/pfar-mcp/notion/link")); err != nil {
		t.Fatal(err)
	}
	seen := map[int]string{0: "root"}
	for _, unit := range []string{"pfar-mcp@notion.service", "pfar-mcp@notion_abcdefgh.service", "pfar-inspect@look.service"} {
		id, err := a.of(unit)
		if again, _ := a.of(unit); err != nil || seen[id] != "" || again != id {
			t.Errorf("%s has %d, then %d, as has %q: %v", unit, id, again, seen[id], err)
		}
		seen[id] = unit
	}
	for _, unit := range []string{"pfar-mcp@nobody.service", "pfar-inspect@nobody.service"} {
		if id, err := a.of(unit); err == nil {
			t.Errorf("%s, which nobody has declared, has %d", unit, id)
		}
	}
	id, _ := a.of("pfar-mcp@notion.service")
	for path, want := range map[string]int{"run/pfar-mcp/notion": id, "run/pfar-mcp/notion/link": id, "outside": 0, "run/pfar-mcp": 0} {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(dir, path), &st); err != nil || int(st.Uid) != want {
			t.Errorf("%s is of %d, want %d: %v", path, st.Uid, want, err)
		}
	}
	a.prune(slog.New(slog.DiscardHandler), []systemd.Found{{Plan: plan.Plan{Name: "other"}}})
	if _, ok := a.registry.Known("pfar-m-notion_abcdefgh"); ok {
		t.Error("a session's id outlives it")
	}
	if now, _ := a.of("pfar-mcp@notion.service"); now != id {
		t.Errorf("a server that does not run loses its id: %d, then %d", id, now)
	}
}
