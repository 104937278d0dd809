package main

import (
	"os"

	"github.com/pfar/pfar/units"
)

// takeStaged takes the sources of binds that this user could not reach from where systemd shows them to this unit
// alone.
func (l *launcher) takeStaged(run string) {
	for i, m := range l.plan.Sandbox.Mounts {
		staged := units.Staged(run, m.Source)
		l.staged = l.staged || m.Door != nil && units.Unseen(m.Source)
		if _, err := os.Lstat(staged); m.Source != "" && err == nil {
			l.plan.Sandbox.Mounts[i].Source = staged
		}
	}
}
