package systemd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/durable"
	"github.com/pfar/pfar/units/plan"
	"github.com/pfar/pfar/units/sandbox"
)

// binds are drop-ins for launchers' units (systemd.unit(5)), by which systemd shows them what the plan shows to the
// server and the unit's dynamic user cannot have otherwise: something below a directory that is its owner's alone, and
// whatever the server may write, for all is read-only to a dynamic user.
type binds struct {
	dir string // of units that do not outlive the machine's run, "" where nobody can have such a drop-in
	run string // pfar's run directory
}

func (b binds) file(instance string) string {
	return filepath.Join(b.dir, LauncherUnit(instance)+".d", "50-binds.conf")
}

// write makes an instance's drop-in what its plan wants, and reports whether systemd has to read it.
func (b binds) write(instance string, p plan.Plan) (changed bool, err error) {
	if b.dir == "" {
		return false, nil
	}
	text, err := b.text(p)
	if err == nil && text == "" {
		return b.remove(instance)
	}
	if err == nil && !sameText(b.file(instance), []byte(text)) {
		changed = true
		err = writeDropIn(b.file(instance), []byte(text))
	}
	if err != nil {
		return false, fmt.Errorf("showing %q what its user cannot reach: %w", instance, err)
	}
	return changed, nil
}

// writeDropIn leaves a drop-in that everybody may read, for systemctl cat, whatever the umask is. There is no secret in
// it.
func writeDropIn(path string, text []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := durable.Replace(path, text); err != nil {
		return err
	}
	return errors.Join(os.Chmod(path, 0o644), os.Chmod(dir, 0o755))
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
func (b binds) text(p plan.Plan) (string, error) {
	var lines strings.Builder
	for _, m := range Staged(p) {
		source, err := pathValue(m.Source)
		if err != nil {
			return "", err
		}
		option := "BindPaths"
		if m.ReadOnly() {
			option = "BindReadOnlyPaths"
		}
		fmt.Fprintf(&lines, "%s=-%s:%s\n", option, source, units.Staged(b.run, m.Source))
	}
	if lines.Len() == 0 {
		return "", nil
	}
	return "# Written by pfard.\n[Service]\nTemporaryFileSystem=" + units.StagedDir(b.run) + "\n" + lines.String(), nil
}

// Staged are the binds of a plan that the launcher of a unit finds staged. Its private home is not among them: the unit
// says itself that it may be written.
func Staged(p plan.Plan) (list []sandbox.Mount) {
	home := p.PrivateHome()
	for _, m := range p.Sandbox.Mounts {
		unseen := m.ReadOnly() && (!units.Reachable(m.Source) || m.Door != nil && units.Unseen(m.Source))
		if unseen || m.Kind == sandbox.Bind && m.Source != home {
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

// reloads has systemd read its unit files again. It does nothing else meanwhile, so that whoever asks while one is
// under way shares the next.
type reloads struct {
	asks   patient
	one    sync.Mutex // held while systemd is asked
	mu     sync.Mutex
	queued chan struct{} // closed when the next has been made; nil: there is none
	all    sync.WaitGroup
}

// reload returns a channel that is closed when systemd has read what is there now.
func (q *reloads) reload() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.queued != nil {
		return q.queued
	}
	done := make(chan struct{})
	q.queued = done
	q.all.Go(func() {
		defer close(done)
		q.one.Lock()
		defer q.one.Unlock()
		q.mu.Lock()
		q.queued = nil
		q.mu.Unlock()
		err := q.asks.persist(context.Background(), "reading units again", func(ctx context.Context, bus *Bus) error {
			return bus.Reload(ctx)
		})
		if err != nil {
			q.asks.log.Warn("having systemd read its units again, ignoring", "error", err)
		}
	})
	return done
}
