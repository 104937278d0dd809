package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/pfar/pfar/units/sandbox"
)

// Limiter holds one server's processes to limits, in a group of their own. One that also is an io.Closer removes all
// its groups when it is closed.
type Limiter interface {
	// Place moves pid, which has no children yet, into a fresh group for name, held to l, and says how in words for
	// `pfar status`: what holds and where, then what does not. An error means that pid must not run.
	Place(ctx context.Context, name string, pid int, l sandbox.Limits) (how string, err error)
	// OOMKilled reports whether the kernel killed something in name's group for memory since Place.
	OOMKilled(name string) bool
	// Remove kills whatever is left in name's group and removes it. Without a group it does nothing.
	Remove(name string) error
}

// NewLimiter finds the strongest way that this process has: a cgroup that is delegated to it, else scopes asked of the
// systemd that runs its user, else none. note says in words what does not hold, "" if all does. ctx bounds the search.
func NewLimiter(ctx context.Context, log *slog.Logger) (l Limiter, note string) {
	k := newKernel()
	k.delegate = func(g group, path string) bool { return g.marked() || userDelegated(ctx, path) }
	tree, treeErr := openSubtree(k, log)
	if treeErr == nil && tree.has.memory {
		return tree, missingNote(tree.has, treeLacks)
	}
	scopes, has, scopesErr := openScopes(ctx, k, log)
	if scopesErr == nil && (treeErr != nil || has.memory) {
		return scopes, missingNote(has, "systemd's cgroups have no such controller here")
	}
	if scopesErr == nil {
		scopes.link.Close()
	}
	if treeErr == nil {
		return tree, missingNote(tree.has, treeLacks)
	}
	why := fmt.Sprintf("%v; %v", treeErr, scopesErr)
	return unlimited{why}, missingNote(controllers{}, why)
}

const treeLacks = "the cgroup that is delegated to pfar has no such controller"

// controllers are those of cgroups(7) that limits need.
type controllers struct {
	memory, pids, cpu bool
}

// missingNote says which limits do not hold. Tasks are never among them: the launcher sets RLIMIT_NPROC inside the
// server's user namespace, where since Linux 5.14 only the server's own processes count.
func missingNote(has controllers, why string) string {
	var list []string
	if !has.memory {
		list = append(list, "memory")
	}
	if !has.cpu {
		list = append(list, "CPU")
	}
	if len(list) == 0 {
		return ""
	}
	return strings.Join(list, " and ") + " limits are not held: " + why
}

// describe says what of l holds, by what the kernel says of the group, and what does not.
func describe(l sandbox.Limits, held controllers, where string) string {
	var yes, no []string
	add := func(ok bool, text string) {
		if ok {
			yes = append(yes, text)
		} else {
			no = append(no, text)
		}
	}
	add(held.memory, "memory "+mebibytes(l.Memory))
	if l.CPU > 0 {
		add(held.cpu, fmt.Sprintf("CPU %d %%", l.CPU))
	}
	tasks := fmt.Sprintf("%d tasks", l.Tasks)
	if !held.pids {
		tasks += " by RLIMIT_NPROC"
	}
	how := strings.Join(append(yes, tasks), ", ")
	if where != "" {
		how += " (cgroup " + where + ")"
	}
	if len(no) > 0 {
		how += "; NOT held: " + strings.Join(no, ", ")
	}
	return how
}

func mebibytes(n int64) string {
	if n%(1<<20) == 0 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d bytes", n)
}

// unlimited is the Limiter of a process that may set no limits.
type unlimited struct {
	why string
}

func (u unlimited) Place(_ context.Context, _ string, _ int, l sandbox.Limits) (string, error) {
	return describe(l, controllers{}, "") + ": " + u.why, nil
}

func (unlimited) OOMKilled(string) bool { return false }
func (unlimited) Remove(string) error   { return nil }

// checkPlace refuses what would make a group hold less than it seems to.
func checkPlace(k kernel, name string, pid int, l sandbox.Limits) error {
	if err := checkGroupName(name); err != nil {
		return err
	}
	if l.Memory <= 0 || l.Tasks <= 0 {
		return fmt.Errorf("limits of %d bytes and %d tasks: both must be set", l.Memory, l.Tasks)
	}
	has, err := k.hasChildren(pid)
	if err != nil {
		return err
	}
	if has {
		return fmt.Errorf("process %d has children, which would stay outside the group", pid)
	}
	return nil
}

// checkGroupName keeps a name one path element and one part of a unit's name.
func checkGroupName(name string) error {
	if name == "" || name[0] == '.' {
		return fmt.Errorf("%q cannot name a group", name)
	}
	for _, c := range name {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' {
			return errors.New("a group's name has only a-z, 0-9, dash, underscore and dot")
		}
	}
	return nil
}
