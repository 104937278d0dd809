package systemd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/pfar/pfar/generator"
	"github.com/pfar/pfar/generator/sandbox"
	"github.com/pfar/pfar/units"
)

// binds are drop-ins for launchers' units (systemd.unit(5)), by which systemd shows them what the plan shows to the server
// and the unit's dynamic user cannot reach: something below a directory that is its owner's alone.
type binds struct {
	dir string // of units that do not outlive the machine's run, "" where nobody can have such a drop-in
	run string // pfar's run directory
}

func (b binds) file(instance string) string {
	return filepath.Join(b.dir, LauncherUnit(instance)+".d", "50-binds.conf")
}

// write makes an instance's drop-in what its plan wants, and reports whether systemd has to read it.
func (b binds) write(instance string, p generator.Plan) (changed bool, err error) {
	if b.dir == "" {
		return false, nil
	}
	text, err := b.text(p.Sandbox.Mounts)
	if err == nil && text == "" {
		return b.remove(instance)
	}
	if err == nil && !sameText(b.file(instance), []byte(text)) {
		changed = true
		if err = os.MkdirAll(filepath.Dir(b.file(instance)), 0o755); err == nil {
			err = Replace(b.file(instance), []byte(text))
		}
	}
	if err != nil {
		return false, fmt.Errorf("showing %q what its user cannot reach: %w", instance, err)
	}
	return changed, nil
}

func (b binds) remove(instance string) (changed bool, err error) {
	if b.dir == "" {
		return false, nil
	}
	dir := filepath.Dir(b.file(instance))
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return true, os.RemoveAll(dir)
}

// text is the drop-in, "" if none is needed. What is missing is the launcher's to complain of.
func (b binds) text(mounts []sandbox.Mount) (string, error) {
	var lines strings.Builder
	for _, m := range Unreachable(mounts) {
		source, err := pathValue(m.Source)
		if err != nil {
			return "", err
		}
		option := "BindPaths"
		if m.Kind == sandbox.ROBind {
			option = "BindReadOnlyPaths"
		}
		fmt.Fprintf(&lines, "%s=-%s:%s\n", option, source, units.Staged(b.run, m.Source))
	}
	if lines.Len() == 0 {
		return "", nil
	}
	return "# Written by pfard.\n[Service]\nTemporaryFileSystem=" + units.StagedDir(b.run) + "\n" + lines.String(), nil
}

// Unreachable are the binds whose sources not every user can reach.
func Unreachable(mounts []sandbox.Mount) (list []sandbox.Mount) {
	for _, m := range mounts {
		if (m.Kind == sandbox.ROBind || m.Kind == sandbox.Bind) && !units.Reachable(m.Source) {
			list = append(list, m)
		}
	}
	return list
}

// pathValue writes a path as systemd reads one of several in a value: systemd.syntax(7), systemd.unit(5) on specifiers,
// and systemd.exec(5) on the colon.
func pathValue(path string) (string, error) {
	if !filepath.IsAbs(path) || strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "", fmt.Errorf("the path %q cannot be written for systemd", path)
	}
	var text strings.Builder
	for _, r := range path {
		switch r {
		case '%':
			text.WriteByte('%')
		case '\\', '"', '\'', ':', ' ':
			text.WriteByte('\\')
		}
		text.WriteRune(r)
	}
	return text.String(), nil
}

// reload has systemd read its files again, some time.
func (r *Runner) reload() {
	err := r.persist(context.Background(), "reading units again", func(ctx context.Context, bus *Bus) error { return bus.Reload(ctx) })
	if err != nil {
		r.cfg.Log.Warn("having systemd read its units again, ignoring", "error", err)
	}
}
