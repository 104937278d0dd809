package sandbox

import "slices"

// makers are what makes a sandbox: bwrap and the launcher before it need them.
var makers = []string{
	"unshare", "setns", "mount", "umount2", "pivot_root", "chroot", "open_tree", "move_mount", "fsopen", "fsconfig", "fsmount",
	"fspick", "mount_setattr", "openat2", "clone",
}

// Process returns the filter for a process of pfar's own, in the form of Seccomp: what it never does, somebody who has
// taken it over does not do either. makes says that it makes sandboxes; their servers get the filter of Seccomp as
// well.
func Process(goarch string, makes bool) ([]byte, error) {
	spared := func(c systemCall) bool { return makes && slices.Contains(makers, c.name) }
	calls := slices.DeleteFunc(refused(), spared)
	looks := slices.DeleteFunc(inspected(), func(i inspection) bool {
		return i.name != "clone" && i.name != "personality" || spared(i.systemCall)
	})
	return assemble(goarch, calls, looks)
}
