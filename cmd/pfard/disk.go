package main

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units/control"
)

const (
	diskLook  = time.Second      // the least time between two looks at how much is free
	diskRest  = 30 * time.Second // the most
	diskIdle  = 10 * time.Minute // while no server with a private home runs: one that starts has it look
	diskSpeed = 1 << 30          // bytes a second that servers may write: the next look is before they can fill the disk
	diskShare = 20               // one part in so many of the disk stays free of what servers write
	diskMost  = 1 << 30          // bytes; more than that does not
	leastFill = 16 << 20         // bytes that a home has to have grown by for its server to be stopped
)

// diskGuard keeps servers with a private home from filling the disk on which the audit lies: without records nothing is
// called. No quota for a directory is to be had on every file system, and none without root. So the guard watches what
// is free, and stops the server whose home has grown most when that is little.
type diskGuard struct {
	inbox
	around around
	fleet  *fleet
	homes  string
	free   func(dir string) (free, all uint64, err error)
	tick   <-chan time.Time
	again  func(time.Duration) // has it tick after that time

	began map[string]uint64 // by server that runs: how large its home was when it was first seen to
}

func newDiskGuard(f *fleet, homes string, tick <-chan time.Time, again func(time.Duration)) *diskGuard {
	return &diskGuard{
		inbox: f.inbox, around: f.around, fleet: f, homes: homes, free: freeOn, tick: tick, again: again,
		began: map[string]uint64{},
	}
}

// inUse has it look soon: a server with a private home has started.
func (g *diskGuard) inUse() { g.again(diskLook) }

// rest is how long the guard may wait after a look: until servers could have written what is free. pfard is not to wake
// up for nothing.
func (g *diskGuard) rest() time.Duration {
	if len(g.began) == 0 {
		return diskIdle
	}
	free, all, err := g.free(g.homes)
	floor := min(all/diskShare, diskMost)
	if err != nil || all == 0 {
		return diskRest
	}
	seconds := (free - min(free, floor)) / diskSpeed
	return min(max(time.Duration(seconds)*time.Second, diskLook), diskRest)
}

// freeOn says how much of a file system an ordinary user may still write, and how large it is; of one that does not
// say, 0.
func freeOn(dir string) (free, all uint64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, 0, err
	}
	return s.Bavail * uint64(s.Frsize), s.Blocks * uint64(s.Frsize), nil
}

// guardHomes guards the disk of the servers' private homes until the function that it returns is called.
func guardHomes(ctx context.Context, f *fleet) (stop func()) {
	t := time.NewTimer(diskLook)
	g := newDiskGuard(f, f.dirs.Homes(), t.C, func(after time.Duration) { t.Reset(after) })
	f.post(func() { f.homes = g })
	ctx, cancel := context.WithCancel(ctx)
	go g.guard(ctx)
	return func() { cancel(); t.Stop() }
}

// guard looks until ctx ends.
func (g *diskGuard) guard(ctx context.Context) {
	for {
		select {
		case <-g.tick:
			g.look()
			g.again(g.rest())
		case <-ctx.Done():
			return
		}
	}
}

// look stops at most one server: the next look shows whether that was enough.
func (g *diskGuard) look() {
	free, all, err := g.free(g.homes)
	if err != nil || all == 0 {
		return
	}
	var running []string
	if g.do(func() error { running = g.running(); return nil }) != nil {
		return
	}
	now := map[string]uint64{}
	floor := min(all/diskShare, diskMost)
	worst, most := "", uint64(leastFill)
	for _, name := range running {
		before, seen := g.began[name]
		if seen && free >= floor { // to look at a home takes long
			now[name] = before
			continue
		}
		size := sizeOf(filepath.Join(g.homes, name))
		if !seen {
			before = size
		}
		now[name] = before
		if grown := size - min(before, size); free < floor && grown >= most {
			worst, most = name, grown
		}
	}
	g.began = now
	if worst == "" {
		return
	}
	why := fmt.Sprintf("stopped: its private home %s has grown by %d MiB since it started, and %d MiB are left of the "+
		"disk that holds the audit; "+
		"free some of it, then pfar start %s", filepath.Join(g.homes, worst), most>>20, free>>20, worst)
	g.post(func() { g.stop(worst, why) })
}

// running lists the servers that run and have a private home.
func (g *diskGuard) running() (names []string) {
	for name, s := range g.fleet.servers {
		if s.has.Started != nil && s.has.Started.State && !s.has.Stopping {
			names = append(names, name)
		}
	}
	return names
}

// stop stops a server that fills the disk, until somebody starts it.
func (g *diskGuard) stop(name, why string) {
	s := g.fleet.servers[name]
	if s == nil || s.has.Started == nil || s.has.Stopping {
		return
	}
	g.fleet.log.Error("stopping a server that fills the disk", "server", name, "why", why)
	s.run, s.asleep, s.full = false, false, why
	s.dismiss(fmt.Errorf("%w: it fills the disk", control.ErrStopped))
	before := s.status.State
	g.fleet.converge(s)
	s.status.Detail = why
	g.around.tell()
	if g.fleet.owner != nil && before != control.Failed {
		g.fleet.owner.tell(failure{server: name, reason: why})
	}
}

// sizeOf is how much of the disk lies below a directory. What cannot be read counts for nothing.
func sizeOf(dir string) (size uint64) {
	_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil && unix.Lstat(path, &st) == nil {
			size += uint64(st.Blocks) * 512
		}
		return nil
	})
	return size
}
