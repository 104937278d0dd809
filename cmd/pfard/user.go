package main

import (
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/pfar/pfar/cmd/pfard/users"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/plan"
	"github.com/pfar/pfar/units/systemd"
)

// allotted gives the units that start bubblewrap user ids of their own: no two servers, sessions or inspectors share
// one, with which they could signal and read each other, and none has root's.
type allotted struct {
	registry *users.Registry
	run      string // run directory; systemd makes the units' runtime directories beside it
	plan     func(instance string) (plan.Plan, error)
}

// openUsers reads which ids were allotted before. Whoever calls it sets plan.
func openUsers(dirs control.Dirs) (allotted, error) {
	r, err := users.Open(users.Config{
		Kept: filepath.Join(dirs.State, "users"), Brief: filepath.Join(dirs.Run, "users"), Homes: dirs.Homes(), FS: os.DirFS("/"),
	})
	return allotted{registry: r, run: dirs.Run}, err
}

// of returns the id that a unit, which is about to be started, is to have. systemd has made its runtime directory by
// then, for the user that the unit begins as: it becomes the new one's.
func (a allotted) of(unit string) (int, error) {
	if name, ok := systemd.ProgramOf(unit); ok {
		if _, err := os.Stat(filepath.Join(units.InspectDir(a.run), name+".json")); err != nil {
			return 0, err
		}
		return a.registry.Of("pfar-i-"+name, false)
	}
	instance, _ := systemd.InstanceOf(unit)
	p, err := a.plan(instance)
	if err != nil {
		return 0, err
	}
	id, err := a.registry.Of(serverUser(instance), p.Gateway.Session != "")
	if err != nil {
		return 0, err
	}
	if err := give(filepath.Join(filepath.Dir(a.run), "pfar-mcp", instance), id); err != nil {
		return 0, fmt.Errorf("giving the runtime directory of %q to user %d: %w", instance, id, err)
	}
	return id, nil
}

// released is told that nothing of an instance is left. A session's never comes again, and has no home.
func (a allotted) released(log *slog.Logger, instance string) {
	if !strings.Contains(instance, "_") { // units.Instance
		return
	}
	if err := a.registry.Release(serverUser(instance)); err != nil {
		log.Warn("giving up a user id, ignoring", "instance", instance, "error", err)
	}
}

// prune releases the ids of sessions that ended while no pfard was there.
func (a allotted) prune(log *slog.Logger, found []systemd.Found) {
	runs := map[string]bool{}
	for _, f := range found {
		runs[units.Instance(f.Plan.Name, f.Plan.Gateway.Session)] = true
	}
	for _, name := range a.registry.Names() {
		if instance, ok := strings.CutPrefix(name, serverUser("")); ok && !runs[instance] {
			a.released(log, instance)
		}
	}
}

// serverUser is what the user of a server's instance is called. No account of the machine has that name.
func serverUser(instance string) string { return "pfar-m-" + instance }

// give makes all below dir a user's own, links as such.
func give(dir string, id int) error {
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, id, id)
	})
}
