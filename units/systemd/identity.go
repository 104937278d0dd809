package systemd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Process is the main process of an instance unit, or of the remote console.
type Process struct {
	Instance string
	Bridge   bool // of the egress bridge
	Refresh  bool // of what refreshes a token set
	Login    bool // of what obtains one
	Model    bool // of what asks a model
	Page     bool // of what serves a one-time page
	Console  bool // of what serves a user's console; of the launcher, if it is none of these
	Chat     bool // of what holds the conversation of a chat
	Remote   bool // with Console: of what serves the remote console, which has no instance
	PID      int
}

// ErrStranger is the error of Identify about a process that is not the main one of such a unit. Any other one says
// nothing about the process.
var ErrStranger = errors.New("not the main process of a server's unit")

// Identify finds out which instance's process pid is, which was uid's when it connected: the kernel says which unit it
// is in, and systemd that it is the unit's main one. A server that could reach whoever asks is in another cgroup, and
// not the main process of anything.
func Identify(ctx context.Context, bus *Bus, pid, uid int) (Process, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return Process{}, err
	}
	p, unit, err := unitIn(string(text))
	if err != nil {
		return Process{}, fmt.Errorf("process %d: %w", pid, err)
	}
	p.PID = pid
	main, err := bus.MainPID(ctx, unit)
	if err != nil {
		return Process{}, err
	}
	if main != pid {
		return Process{}, fmt.Errorf("process %d: %w: that of %q is %d", pid, ErrStranger, unit, main)
	}
	return p, ownedBy(pid, uid)
}

// ownedBy returns nil if a process is uid's still. One that has connected may have ended, and another one have its
// number.
func ownedBy(pid, uid int) error {
	var st unix.Stat_t // of the directory itself: the process's effective uid, dumpable or not (proc(5))
	if err := unix.Stat("/proc/"+strconv.Itoa(pid), &st); err != nil {
		return fmt.Errorf("looking for process %d: %w", pid, err)
	}
	if int(st.Uid) != uid {
		return fmt.Errorf("process %d: %w: it is one of user %d by now, and of user %d has connected", pid, ErrStranger, st.Uid, uid)
	}
	return nil
}

// unitIn reads cgroups(7), "/proc/[pid]/cgroup": the last element of the path is the unit. Which hierarchy systemd uses
// depends on the host and, in a container, on what it was given; the others say nothing of units.
func unitIn(text string) (p Process, unit string, err error) {
	for line := range strings.Lines(text) {
		_, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		controllers, group, ok := strings.Cut(rest, ":")
		if !ok || controllers != "" && controllers != "name=systemd" {
			continue
		}
		unit := path.Base(group)
		if name, ok := InstanceOf(unit); ok {
			return Process{Instance: name}, unit, nil
		}
		if name, ok := instanceIn(unit, bridge); ok {
			return Process{Instance: name, Bridge: true}, unit, nil
		}
		if name, ok := instanceIn(unit, refresh); ok {
			return Process{Instance: name, Refresh: true}, unit, nil
		}
		if name, ok := instanceIn(unit, login); ok {
			return Process{Instance: name, Login: true}, unit, nil
		}
		if name, ok := ModelOf(unit); ok {
			return Process{Instance: name, Model: true}, unit, nil
		}
		if name, ok := instanceIn(unit, page); ok {
			return Process{Instance: name, Page: true}, unit, nil
		}
		if name, ok := instanceIn(unit, console); ok {
			return Process{Instance: name, Console: true}, unit, nil
		}
		if name, ok := instanceIn(unit, chat); ok {
			return Process{Instance: name, Chat: true}, unit, nil
		}
		if unit == remote {
			return Process{Console: true, Remote: true}, unit, nil
		}
	}
	return Process{}, "", fmt.Errorf("%w: its cgroup is %q", ErrStranger, text)
}
