package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// UID and GID are what every server finds itself to be; on the host it is another user.
const (
	UID = 1000
	GID = 1000
)

// DataPerms is the mode of a synthetic file: everybody may read it, nobody may change it. FolderPerms is that of a
// folder or a tmpfs.
const (
	DataPerms   = 0o444
	FolderPerms = 0o755
)

// Options are what only the moment of the start knows: descriptors and secrets.
type Options struct {
	BindFD      map[int]int       // index in Mounts -> descriptor of a bind's source, opened with O_PATH without following links
	DataFD      map[int]int       // index in Mounts -> descriptor to read a synthetic file from
	SeccompFD   int               // the filter that Seccomp made
	StatusFD    int               // bwrap's --json-status-fd
	Tree        string            // where the launcher has made a part of the file system; "": it has not
	Made        map[int]bool      // index in Mounts -> it is in Tree
	EmptyFile   string            // with Tree: read-only
	EmptyFolder string            // likewise
	Credentials map[string][]byte // value of each Env.Credential
}

// Arguments returns the options as bwrap's --args reads them, each ended by a NUL. They hold the server's secrets, so
// they travel by descriptor and never in argv, and no other copy of those is made, so that the caller can clear them.
// What runs, Command and Args, is not among them: bwrap takes that from argv only, and it is to follow "--" there.
func (s Sandbox) Arguments(o Options) ([]byte, error) {
	if err := s.Check(o); err != nil {
		return nil, err
	}
	args, err := s.confinement(o)
	if err != nil {
		return nil, err
	}
	if o.Tree != "" {
		// By name, as nobody but the launcher has put anything there. Of its mounts, only those below /dev allow devices.
		args = append(args, "--dev-bind", o.Tree, "/")
	}
	for i, m := range s.Mounts {
		switch {
		case o.Tree == "":
		case o.Made[i]:
			continue
		case m.Blank():
			args = append(args, "--ro-bind", o.EmptyFile, m.Dest)
			continue
		case s.void(m.Dest) && m.Kind == Tmpfs:
			args = append(args, "--ro-bind", o.EmptyFolder, m.Dest)
			continue
		case s.void(m.Dest):
			continue // it cannot be written to
		}
		if args, err = m.appendTo(args, i, o); err != nil {
			return nil, err
		}
	}
	// The declaration's word, never the directory that pfar happens to run in.
	args = append(args, "--chdir", s.Dir)
	return s.encode(args, o.Credentials), nil
}

// void reports whether the folder at dest is empty and stays so.
func (s Sandbox) void(dest string) bool {
	empty, sealed := false, false
	for _, m := range s.Mounts {
		switch {
		case m.Dest == dest && m.Kind == Tmpfs && m.Perms == 0:
			empty = true
		case m.Dest == dest && m.Kind == Remount:
			sealed = true
		case Below(m.Dest, dest):
			return false
		}
	}
	return empty && sealed
}

// Check reports what is wrong with s or with its credentials, before anything is made.
func (s Sandbox) Check(o Options) error {
	if err := s.Validate(); err != nil {
		return err
	}
	for _, e := range s.Env {
		value := o.Credentials[e.Credential]
		switch {
		case e.Credential == "":
		case len(value) == 0:
			return fmt.Errorf("credential %q is missing", e.Credential)
		case bytes.IndexByte(value, 0) >= 0:
			return fmt.Errorf("credential %q holds a NUL, and no variable can: write deliver = \"file\" for it", e.Credential)
		case len(e.Name)+len(value)+2 > maxVariable:
			return fmt.Errorf("credential %q has %d bytes, more than a variable can: write deliver = \"file\" for it", e.Credential, len(value))
		}
	}
	return nil
}

// confinement is the part that is the same for every server.
func (s Sandbox) confinement(o Options) ([]string, error) {
	if o.SeccompFD < 3 || o.StatusFD < 3 {
		return nil, fmt.Errorf("descriptors %d of the filter and %d of the status: the first three are the server's own", o.SeccompFD, o.StatusFD)
	}
	args := []string{
		// No right in any namespace of the host, and ids that are nobody there.
		"--unshare-user", "--uid", strconv.Itoa(UID), "--gid", strconv.Itoa(GID),
		// No System V or POSIX queue and segment of others.
		"--unshare-ipc",
		// No process of others to see, signal or trace, and none of the server's that outlives its pid 1.
		"--unshare-pid",
		// The host's name stays its own.
		"--unshare-uts",
		// No path of the host in /proc/self/cgroup.
		"--unshare-cgroup",
		// There is no --unshare-net: the launcher has made the network namespace before bwrap runs, for the bridge's
		// listener has to be inside before the server is.

		// A namespace made inside would give its maker all capabilities there, the way to most kernel bugs.
		"--disable-userns",
		// Nothing survives the launcher, whatever ends it.
		"--die-with-parent",
		// No terminal to push characters into; the filter stands behind it.
		"--new-session",
		// bwrap drops them for an ordinary user by itself; said here so that it holds for every caller.
		"--cap-drop", "ALL",
		// Only what is set below.
		"--clearenv",
		// System calls that no server needs.
		"--seccomp", strconv.Itoa(o.SeccompFD),
		// The launcher has to know pid 1 of the sandbox to end it.
		"--json-status-fd", strconv.Itoa(o.StatusFD),
	}
	if s.Hostname != "" {
		args = append(args, "--hostname", s.Hostname) // the host's own tells where the server runs
	}
	return args, nil
}

// appendTo adds one step of the file system.
func (m Mount) appendTo(args []string, i int, o Options) ([]string, error) {
	switch m.Kind {
	case ROBind, ROOverlay, Bind:
		// By descriptor: a name could have become a link since it was resolved. Behind that of an overlay lies
		// what the launcher has mounted: bubblewrap has --ro-overlay only since 0.11, and by name.
		fd, ok := o.BindFD[i]
		if !ok || fd < 3 {
			return nil, fmt.Errorf("no descriptor for the source of %q", m.Dest)
		}
		option := "--ro-bind-fd"
		if m.Kind == Bind {
			option = "--bind-fd"
		}
		return append(args, option, strconv.Itoa(fd), m.Dest), nil
	case Data:
		fd, ok := o.DataFD[i]
		if !ok || fd < 3 {
			return nil, fmt.Errorf("no descriptor for the content of %q", m.Dest)
		}
		// bwrap's own default, 0600, is unreadable for a server that changes its uid.
		return append(args, "--perms", octal(m.Perms, DataPerms), "--ro-bind-data", strconv.Itoa(fd), m.Dest), nil
	case Tmpfs:
		if fd, ok := o.BindFD[i]; ok && m.Scratch() {
			return append(args, "--bind-fd", strconv.Itoa(fd), m.Dest), nil
		}
		if m.Size > 0 { // without one, half of the host's memory
			args = append(args, "--size", strconv.FormatInt(m.Size, 10))
		}
		return append(args, "--perms", octal(m.Perms, FolderPerms), "--tmpfs", m.Dest), nil
	case Dir:
		return append(args, "--perms", octal(m.Perms, FolderPerms), "--dir", m.Dest), nil
	case Symlink:
		return append(args, "--symlink", m.Source, m.Dest), nil
	case Dev, Proc, Remount:
		return append(args, "--"+string(m.Kind), m.Dest), nil
	}
	return nil, fmt.Errorf("mount of unknown kind %q at %q", m.Kind, m.Dest)
}

// maxVariable is MAX_ARG_STRLEN of execve(2), which holds for a variable with its name, "=" and NUL.
const maxVariable = 128 << 10

// encode writes the arguments and then the environment, into memory that is not moved meanwhile.
func (s Sandbox) encode(args []string, credentials map[string][]byte) []byte {
	size := 0
	for _, a := range args {
		size += len(a) + 1
	}
	for _, e := range s.Env {
		size += len("--setenv") + len(e.Name) + len(e.Value) + len(credentials[e.Credential]) + 3
	}
	b := make([]byte, 0, size)
	for _, a := range args {
		b = append(append(b, a...), 0)
	}
	for _, e := range s.Env {
		b = append(append(b, "--setenv\x00"+e.Name+"\x00"+e.Value...), credentials[e.Credential]...) // one of the two is empty
		b = append(b, 0)
	}
	return b
}

func octal(perms, otherwise uint32) string {
	if perms == 0 {
		perms = otherwise
	}
	return fmt.Sprintf("%04o", perms)
}

// noNUL refuses the one byte that separates the arguments of --args: what follows it would be read as an option.
func noNUL(what string, values ...string) error {
	for _, v := range values {
		if strings.ContainsRune(v, 0) {
			return fmt.Errorf("%s %q holds a NUL", what, v)
		}
	}
	return nil
}

var errNoLimit = errors.New("memory and tasks must be limited")
