package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units/control"
)

// about says in a log what has failed.
func (f failure) about() slog.Attr {
	if f.secret != "" {
		return slog.String("key", f.secret)
	}
	return slog.String("server", f.server)
}

// hook is the owner's program that is run when a server is disabled because it failed, or a token set is refused.
type hook struct {
	path  string
	log   *slog.Logger
	limit time.Duration // that it may run; 0: hookLimit
}

const (
	hookLimit     = 30 * time.Second
	maxReason     = 1000 // bytes
	maxHookOutput = 100  // lines
	maxHookLine   = 1000 // bytes
)

// tell runs the program, if there is one, and logs what it writes.
func (h hook) tell(ctx context.Context, f failure) {
	there, err := h.usable()
	if err == nil && there {
		err = h.run(ctx, f)
	}
	if err != nil {
		h.log.Warn("running the owner's program, ignoring", f.about(), "error", err)
	}
}

// telling is an owner who is told by a program.
type telling struct {
	ctx  context.Context
	hook hook
	all  sync.WaitGroup
}

func (t *telling) tell(f failure) { t.all.Go(func() { t.hook.tell(t.ctx, f) }) }

func (t *telling) wait() { t.all.Wait() }

// usable reports whether there is a program that only root or the user of this process can have put there.
func (h hook) usable() (bool, error) {
	if !filepath.IsAbs(h.path) {
		return false, nil
	}
	path, err := filepath.EvalSymlinks(h.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, p := range []string{filepath.Dir(h.path), filepath.Dir(path), path} {
		if err := control.CheckOurs(p); err != nil {
			return false, err
		}
		st, err := os.Stat(p)
		if err != nil {
			return false, err
		}
		if p == path && (!st.Mode().IsRegular() || st.Mode().Perm()&0o111 == 0) {
			return false, fmt.Errorf("%q is not executable: chmod +x it, or remove it", p)
		}
	}
	return true, nil
}

func (h hook) run(ctx context.Context, f failure) error {
	limit := h.limit
	if limit == 0 {
		limit = hookLimit
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the program still ran after %s", limit))
	defer cancel()
	cmd := exec.CommandContext(ctx, h.path)
	cmd.Dir = "/"
	cmd.Env = append(hookEnvironment(os.Environ()), "PFAR_SERVER="+f.server, "PFAR_KEY="+f.secret, "PFAR_REASON="+printable(f.reason))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = time.Second // what it leaves running may hold its output open
	out := &hookOutput{log: h.log.With(f.about())}
	cmd.Stdout, cmd.Stderr = out, out
	err := cmd.Run()
	out.end()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("killing %q: %w", h.path, context.Cause(ctx))
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		return fmt.Errorf("%q: %w", h.path, err)
	}
	return nil
}

// hookEnvironment is what of this process's environment the owner's program gets: what it needs to reach a desktop, and
// not the secrets that may stand there for servers.
func hookEnvironment(all []string) []string {
	pass := []string{"PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS",
		"DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY"}
	return slices.DeleteFunc(slices.Clone(all), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return !slices.Contains(pass, name)
	})
}

// hookOutput logs what the owner's program writes, line by line.
type hookOutput struct {
	log   *slog.Logger
	part  []byte
	lines int
}

func (o *hookOutput) Write(b []byte) (int, error) {
	o.part = append(o.part, b...)
	for {
		line, rest, whole := bytes.Cut(o.part, []byte("\n"))
		if !whole && len(line) < maxHookLine {
			return len(b), nil
		}
		if len(line) > maxHookLine {
			line, rest = o.part[:maxHookLine], o.part[maxHookLine:]
		}
		o.say(line)
		o.part = rest
	}
}

func (o *hookOutput) say(line []byte) {
	switch o.lines++; {
	case o.lines <= maxHookOutput:
		o.log.Info("on-failure", "output", string(line))
	case o.lines == maxHookOutput+1:
		o.log.Info("on-failure writes more than is logged")
	}
}

func (o *hookOutput) end() {
	if len(o.part) > 0 {
		o.say(o.part)
	}
}

// failure is what the owner is told: of a server that is disabled because it failed, or of a secret that cannot be
// refreshed.
type failure struct{ server, secret, reason string }
