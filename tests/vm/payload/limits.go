package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units/local"
	"github.com/pfar/pfar/units/sandbox"
)

// limit is what every held program gets.
var limit = sandbox.Limits{Memory: 48 << 20, Tasks: 40, CPU: 50}

// bench is one way of holding limits under test.
type bench struct {
	way     string // part of the cgroup's path that shows which way it is
	limiter local.Limiter
	report  func(name string, err error, detail string)
}

// limits checks the limiter that this process gets: `payload limits NAME scope|mcp- [log]`.
func limits(args []string) error {
	if len(args) != 2 {
		return errors.New("want NAME WAY")
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	start := time.Now()
	l, note := local.NewLimiter(context.Background(), log)
	b := &bench{way: args[1], limiter: l, report: func(name string, err error, detail string) { report(args[0]+"/"+name, err, detail) }}
	took := time.Since(start).Round(time.Millisecond).String()
	if args[1] == "none" {
		b.report("note", b.none(note), note)
		return nil
	}
	var err error
	if note != "" {
		err = fmt.Errorf("limits do not hold: %s", note)
	}
	b.report("all limits hold", err, took)
	for _, check := range []struct {
		name string
		run  func() (string, error)
	}{
		{"memory hog is killed and known", b.memory},
		{"fork bomb is held and goes", b.tasks},
		{"limits are in the kernel", b.settings},
		{"a process with children is refused", b.parent},
		{"the same name again at once", b.again},
		{"another pfard's server is left alone", b.neighbour},
		{"what a killed pfard left goes", b.stale},
	} {
		detail, err := check.run()
		b.report(check.name, err, detail)
	}
	if c, ok := l.(io.Closer); ok {
		b.report("close", c.Close(), "")
	}
	b.report("nothing is left", b.nothingLeft(), "")
	return nil
}

func (b *bench) place(l local.Limiter, name string, p *program) (string, error) {
	how, err := l.Place(context.Background(), name, p.cmd.Process.Pid, limit)
	if err != nil {
		p.stdin.Close()
		return "", errors.Join(err, p.wait())
	}
	if !strings.Contains(how, b.way) || strings.Contains(how, "NOT") {
		err = fmt.Errorf("held as %q, want a cgroup with %q", how, b.way)
	}
	return how, err
}

func (b *bench) memory() (string, error) {
	var how string
	const rounds = 3 // systemd removes the group of a dead server at a time of its own
	for range rounds {
		p, err := start("hog", "200")
		if err != nil {
			return "", err
		}
		if how, err = b.place(b.limiter, "hog", p); err != nil {
			return how, err
		}
		if b.limiter.OOMKilled("hog") {
			return how, errors.New("OOMKilled before anything happened")
		}
		p.stdin.Write([]byte{1})
		err = p.wait()
		if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !status.Signaled() || status.Signal() != unix.SIGKILL {
			return how, fmt.Errorf("the hog ended with %v and said %q, want SIGKILL", err, p.output())
		}
		if !b.limiter.OOMKilled("hog") {
			return how, errors.New("OOMKilled does not report it")
		}
		if err := b.limiter.Remove("hog"); err != nil {
			return how, err
		}
		if b.limiter.OOMKilled("hog") {
			return how, errors.New("OOMKilled after Remove")
		}
	}
	return how, nil
}

func (b *bench) tasks() (string, error) {
	p, err := start("bomb", "1000")
	if err != nil {
		return "", err
	}
	if _, err := b.place(b.limiter, "bomb", p); err != nil {
		return "", err
	}
	dir, err := groupDir(p.cmd.Process.Pid)
	if err != nil {
		return "", err
	}
	p.stdin.Write([]byte{1})
	err = p.wait()
	n, nerr := strconv.Atoi(p.output())
	if err != nil || nerr != nil || n < 1 || n >= limit.Tasks {
		return "", errors.Join(err, nerr, fmt.Errorf("the bomb forked %d times under a limit of %d tasks", n, limit.Tasks))
	}
	left, err := pidsIn(dir)
	if err != nil || len(left) != n {
		return "", errors.Join(err, fmt.Errorf("%d processes are left in %s, want the bomb's %d", len(left), dir, n))
	}
	events, err := os.ReadFile(filepath.Join(dir, "pids.events"))
	if err != nil || strings.TrimSpace(string(events)) == "max 0" {
		return "", errors.Join(err, fmt.Errorf("pids.events says %q: something else held the bomb", events))
	}
	if b.limiter.OOMKilled("bomb") {
		return "", errors.New("OOMKilled for a fork bomb")
	}
	if err := b.limiter.Remove("bomb"); err != nil {
		return "", err
	}
	for _, pid := range left {
		if alive(pid) {
			return "", fmt.Errorf("process %d survived Remove", pid)
		}
	}
	return fmt.Sprintf("%d forks, %s", n, strings.TrimSpace(string(events))), nil
}

func (b *bench) settings() (string, error) {
	p, err := start("idle")
	if err != nil {
		return "", err
	}
	how, err := b.place(b.limiter, "set", p)
	if err != nil {
		return how, err
	}
	dir, err := groupDir(p.cmd.Process.Pid)
	if err != nil {
		return how, err
	}
	var errs []error
	for file, want := range map[string]string{
		"memory.max": fmt.Sprint(limit.Memory), "memory.swap.max": "0", "pids.max": fmt.Sprint(limit.Tasks), "cpu.max": "50000 100000",
	} {
		got, err := os.ReadFile(filepath.Join(dir, file))
		if errors.Is(err, os.ErrNotExist) && file == "memory.swap.max" {
			continue // a kernel without swap accounting
		}
		if err != nil || strings.TrimSpace(string(got)) != want {
			errs = append(errs, fmt.Errorf("%s is %q, want %q (%v)", file, strings.TrimSpace(string(got)), want, err))
		}
	}
	errs = append(errs, b.limiter.Remove("set"), gone(p))
	return how, errors.Join(errs...)
}

func (b *bench) parent() (string, error) {
	p, err := start("idle", "1")
	if err != nil {
		return "", err
	}
	var child int
	for child == 0 && err == nil { // no event tells of another process's fork
		child, err = childOf(p.cmd.Process.Pid)
	}
	if err != nil {
		return "", errors.Join(err, p.wait())
	}
	_, err = b.limiter.Place(context.Background(), "parent", p.cmd.Process.Pid, limit)
	unix.Kill(child, unix.SIGKILL)
	p.stdin.Close()
	p.wait()
	if err == nil {
		return "", errors.New("it was placed")
	}
	return err.Error(), nil
}

func (b *bench) again() (string, error) {
	const rounds = 4
	begin := time.Now()
	for range rounds {
		p, err := start("idle")
		if err != nil {
			return "", err
		}
		if how, err := b.place(b.limiter, "again", p); err != nil {
			return how, err
		}
		if err := errors.Join(b.limiter.Remove("again"), gone(p)); err != nil {
			return "", err
		}
	}
	// Without a Remove: Place removes the old group itself.
	var last *program
	for range 2 {
		p, err := start("idle")
		if err != nil {
			return "", err
		}
		if how, err := b.place(b.limiter, "again", p); err != nil {
			return how, err
		}
		if last != nil {
			if err := gone(last); err != nil {
				return "", err
			}
		}
		last = p
	}
	took := time.Since(begin) / (rounds + 2)
	return "start, place, remove: " + took.Round(time.Millisecond).String(), errors.Join(b.limiter.Remove("again"), gone(last))
}

// neighbour has a second limiter, which is another pfard as far as locks can tell, meet a name that is in use.
func (b *bench) neighbour() (string, error) {
	mine, err := start("idle")
	if err != nil {
		return "", err
	}
	if how, err := b.place(b.limiter, "shared", mine); err != nil {
		return how, err
	}
	other, note := local.NewLimiter(context.Background(), slog.New(slog.DiscardHandler))
	if note != "" {
		return "", errors.New(note)
	}
	if !alive(mine.cmd.Process.Pid) {
		return "", errors.New("the second limiter killed the first one's server as stale")
	}
	theirs, err := start("idle")
	if err != nil {
		return "", err
	}
	how, err := b.place(other, "shared", theirs)
	if err != nil {
		return how, err
	}
	if !alive(mine.cmd.Process.Pid) {
		return "", errors.New("the second limiter took the name from a living server")
	}
	if err := errors.Join(other.Remove("shared"), gone(theirs)); err != nil {
		return "", err
	}
	if !alive(mine.cmd.Process.Pid) {
		return "", errors.New("the second limiter's Remove killed the first one's server")
	}
	if c, ok := other.(io.Closer); ok {
		err = c.Close()
	}
	return how, errors.Join(err, b.limiter.Remove("shared"), gone(mine))
}

// leave places a bomb and waits to be killed, as a pfard that gets SIGKILL. The bomb's children are what it leaves.
func leave([]string) error {
	l, note := local.NewLimiter(context.Background(), slog.New(slog.DiscardHandler))
	if note != "" {
		return errors.New(note)
	}
	p, err := start("bomb", "3")
	if err != nil {
		return err
	}
	if _, err := l.Place(context.Background(), "left", p.cmd.Process.Pid, limit); err != nil {
		return err
	}
	dir, err := groupDir(p.cmd.Process.Pid)
	if err != nil {
		return err
	}
	p.stdin.Write([]byte{1})
	if err := p.wait(); err != nil {
		return err
	}
	p.output()
	fmt.Println(dir)
	return idle(nil)
}

func (b *bench) stale() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := command(ctx, "/proc/self/exe", "leave")
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil {
		return "", err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return "", errors.Join(err, cmd.Wait())
	}
	cmd.Process.Kill()
	cmd.Wait()
	dir := strings.TrimSpace(line)
	pids, err := pidsIn(dir)
	if err != nil || len(pids) != 3 {
		return dir, errors.Join(err, fmt.Errorf("%d processes are left, want 3", len(pids)))
	}
	l, note := local.NewLimiter(context.Background(), slog.New(slog.DiscardHandler))
	if note != "" {
		return dir, errors.New(note)
	}
	if c, ok := l.(io.Closer); ok {
		defer c.Close()
	}
	for _, pid := range pids {
		if alive(pid) {
			return dir, fmt.Errorf("process %d survived the next start", pid)
		}
	}
	if _, err := os.Stat(dir); err == nil {
		return dir, errors.New("the group survived the next start")
	}
	return dir, nil
}

// none checks the words of a limiter that can hold nothing, and that it says so.
func (b *bench) none(note string) error {
	p, err := start("idle")
	if err != nil {
		return err
	}
	how, err := b.limiter.Place(context.Background(), "none", p.cmd.Process.Pid, limit)
	p.stdin.Close()
	err = errors.Join(err, p.wait())
	if err == nil && (!strings.Contains(note, "memory and CPU limits are not held") || !strings.Contains(how, "NOT held: memory 48 MiB")) {
		err = fmt.Errorf("note %q, how %q", note, how)
	}
	return err
}

func (b *bench) nothingLeft() error {
	var left []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.Contains(filepath.Base(path), "mcp-") {
			left = append(left, path)
		}
		return nil
	})
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("groups are left: %q", left)
	}
	return err
}
