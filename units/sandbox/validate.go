package sandbox

import (
	"fmt"
	"path"
	"strings"
)

// Validate reports why s cannot be built safely. It is asked again at every start, for the plan has been a file
// meanwhile.
func (s Sandbox) Validate() error {
	if s.Limits.Memory <= 0 || s.Limits.Tasks <= 0 || s.Limits.CPU < 0 || s.Limits.File < 0 {
		return errNoLimit
	}
	if !clean(s.Command) || s.Command == "/" {
		return fmt.Errorf("command %q is not an absolute path", s.Command)
	}
	if !clean(s.Dir) {
		return fmt.Errorf("working directory %q is not an absolute path", s.Dir)
	}
	if strings.HasPrefix(s.Hostname, "-") || strings.ContainsAny(s.Hostname, " /\n") {
		return fmt.Errorf("%q is not a host name", s.Hostname)
	}
	if err := noNUL("argument", append([]string{s.Command, s.Dir, s.Hostname}, s.Args...)...); err != nil {
		return err
	}
	if err := s.validateEnv(); err != nil {
		return err
	}
	return s.validateMounts()
}

func (s Sandbox) validateEnv() error {
	seen := map[string]bool{}
	for _, e := range s.Env {
		switch {
		case e.Name == "" || strings.Contains(e.Name, "="):
			return fmt.Errorf("%q is not the name of a variable", e.Name)
		case seen[e.Name]:
			return fmt.Errorf("variable %q is set twice", e.Name)
		case e.Value != "" && e.Credential != "":
			return fmt.Errorf("variable %q has both a value and a credential", e.Name)
		}
		seen[e.Name] = true
		if err := noNUL("variable", e.Name, e.Value, e.Credential); err != nil {
			return err
		}
	}
	return nil
}

func (s Sandbox) validateMounts() error {
	remounting := false
	for i, m := range s.Mounts {
		if err := m.validate(i); err != nil {
			return err
		}
		if remounting && m.Kind != Remount {
			return fmt.Errorf("mount at %q comes after a remount, which has to be last", m.Dest)
		}
		remounting = m.Kind == Remount
		for _, earlier := range s.Mounts[:i] {
			if err := m.conflict(earlier); err != nil {
				return err
			}
		}
	}
	return nil
}

// validate judges a mount by itself.
func (m Mount) validate(i int) error {
	if !clean(m.Dest) {
		return fmt.Errorf("mount at %q: not a clean absolute path", m.Dest)
	}
	if err := noNUL("mount", m.Dest, m.Source, m.Credential); err != nil {
		return err
	}
	if m.Dest == "/" && !(m.Kind == Tmpfs && i == 0 || m.Kind == Remount) {
		return fmt.Errorf("mount %s at /: only the first tmpfs may be there", m.Kind)
	}
	if m.Perms > 0o7777 || m.Size < 0 {
		return fmt.Errorf("mount at %q: mode %o, size %d", m.Dest, m.Perms, m.Size)
	}
	if m.Size > 0 && m.Kind != Tmpfs {
		return fmt.Errorf("mount at %q: only a tmpfs has a size", m.Dest)
	}
	if contents := m.contents(); contents > 1 || contents > 0 && m.Kind != Data {
		return fmt.Errorf("mount %s at %q has %d contents: a synthetic file has one, and nothing else any", m.Kind, m.Dest, contents)
	}
	if m.Door != nil && (m.Kind != ROBind || len(m.Door.Owners) == 0) {
		return fmt.Errorf("mount %s at %q: a socket or FIFO is bound read-only, and has an owner", m.Kind, m.Dest)
	}
	switch m.Kind {
	case ROBind, ROOverlay, Bind:
		if !clean(m.Source) || m.Source == "/" {
			return fmt.Errorf("mount at %q: source %q is not a clean absolute path, or it is the whole host", m.Dest, m.Source)
		}
	case Symlink:
		if m.Source == "" {
			return fmt.Errorf("symlink at %q has no text", m.Dest)
		}
	case Tmpfs, Proc, Dev, Dir, Data, Remount:
		if m.Kind == Data && m.Authority && (m.Source == "" || clean(m.Source)) {
			break
		}
		if m.Source != "" {
			return fmt.Errorf("mount %s at %q has a source, %q", m.Kind, m.Dest, m.Source)
		}
	default:
		return fmt.Errorf("mount of unknown kind %q at %q", m.Kind, m.Dest)
	}
	return nil
}

// contents is how many kinds of content a synthetic file is said to have. None makes it empty.
func (m Mount) contents() (n int) {
	for _, given := range []bool{m.Text != "", m.Credential != "", m.Authority} {
		if given {
			n++
		}
	}
	return n
}

// conflict judges a mount beside an earlier one.
func (m Mount) conflict(earlier Mount) error {
	switch {
	case m.Kind == Remount && earlier.Kind == Remount && m.Dest == earlier.Dest:
		return fmt.Errorf("%q is remounted twice", m.Dest)
	case m.Kind == Remount && earlier.Kind == Bind && Below(m.Dest, earlier.Dest):
		return fmt.Errorf("remount of %q touches the writable %q", m.Dest, earlier.Dest)
	case m.Kind == Remount:
	case m.Dest == earlier.Dest:
		return fmt.Errorf("two mounts at %q", m.Dest)
	case Below(m.Dest, earlier.Dest) && earlier.Kind == Bind:
		// Making the mount point would follow a link that the server has left there.
		return fmt.Errorf("mount at %q lies below the writable %q", m.Dest, earlier.Dest)
	case Below(m.Dest, earlier.Dest) && (earlier.Kind == Symlink || earlier.Kind == Data):
		// It would land elsewhere; newer versions of bwrap refuse it.
		return fmt.Errorf("mount at %q lies below %q, which is not a directory", m.Dest, earlier.Dest)
	case Below(earlier.Dest, m.Dest):
		return fmt.Errorf("mount at %q hides the earlier one at %q", m.Dest, earlier.Dest)
	}
	return nil
}

// clean reports whether p is absolute and has no part that could lead elsewhere.
func clean(p string) bool { return path.IsAbs(p) && path.Clean(p) == p }

// Below reports whether the clean path p is dir or lies within it.
func Below(p, dir string) bool {
	return p == dir || dir == "/" || strings.HasPrefix(p, dir+"/")
}
