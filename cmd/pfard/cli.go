package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// cli runs pfar's own program as a child process, with the directories of this pfard. It has no terminal, and nothing
// of this process's environment but the home and the path of programs. The zero value runs nothing.
type cli struct {
	program     string
	environment []string
}

// newCLI finds pfar beside pfard, or in bin where pfard is in lib/pfar.
func newCLI(o options) cli {
	self, err := os.Executable()
	if err != nil {
		return cli{}
	}
	dir := filepath.Dir(self)
	for _, program := range []string{filepath.Join(dir, "pfar"), filepath.Join(dir, "../../bin/pfar")} {
		if info, err := os.Stat(program); err == nil && info.Mode().IsRegular() {
			return cli{program, environmentOf(o)}
		}
	}
	return cli{}
}

// environmentOf has a pfar find this pfard, the user's home, and programs.
func environmentOf(o options) []string {
	folders := append([]string{o.dirs.Config}, o.dirs.Below...)
	return []string{
		"HOME=" + os.Getenv("HOME"), "PATH=" + os.Getenv("PATH"),
		"PFAR_CONFIG_DIR=" + strings.Join(folders, string(filepath.ListSeparator)),
		"PFAR_RUN_DIR=" + o.dirs.Run, "PFAR_STATE_DIR=" + o.dirs.State, "PFAR_SERVERS_DIR=" + o.dirs.Servers,
	}
}

// Bounds of what a child may write, in bytes. Of its standard error the end is kept.
const (
	maxPrinted    = 4 << 20
	maxComplained = 64 << 10
)

// cliEnd is how long a child has to end by itself when it is told to.
const cliEnd = 5 * time.Second

// run runs pfar until it ends and returns its output, which may not be empty if there is an error.
func (c cli) run(ctx context.Context, limit time.Duration, args ...string) ([]byte, error) {
	if c.program == "" {
		return nil, errors.New("the program pfar is not beside pfard, where it belongs")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("pfar %s still ran after %s", args[0], limit))
	defer cancel()
	cmd := exec.CommandContext(ctx, c.program, args...)
	cmd.Dir, cmd.Env = "/", c.environment
	// Without a session of its own it would have the terminal of "pfar up". It does not outlive pfard: the signal is sent
	// when the thread that forked ends, PR_SET_PDEATHSIG(2const).
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGTERM}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGTERM) } // and what it runs, such as a check
	cmd.WaitDelay = cliEnd
	printed, complained := &bounded{most: maxPrinted}, &ending{most: maxComplained}
	cmd.Stdout, cmd.Stderr = printed, complained
	err := cmd.Run()
	if ctx.Err() != nil {
		return printed.text, context.Cause(ctx)
	}
	if err == nil || printed.full {
		return printed.text, printed.fault()
	}
	_, exited := errors.AsType[*exec.ExitError](err)
	switch words := complaint(complained.text); {
	case words != "":
		err = errors.New(words)
	case exited && len(printed.text) > 0: // the output says what has failed
		err = nil
	default:
		err = fmt.Errorf("running pfar %s: %w", args[0], err)
	}
	return printed.text, err
}

// complaint is the error that pfar --json prints last; "": there is none.
func complaint(text []byte) string {
	last := text[bytes.LastIndexByte(bytes.TrimRight(text, "\n"), '\n')+1:]
	var e struct{ Error, Hint string }
	if json.Unmarshal(last, &e) != nil {
		return ""
	}
	if e.Error != "" && e.Hint != "" {
		return e.Error + "; " + e.Hint
	}
	return e.Error
}

// bounded keeps its input, and refuses more than most bytes.
type bounded struct {
	text []byte
	most int
	full bool
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.full = b.full || len(b.text)+len(p) > b.most; b.full {
		return 0, b.fault()
	}
	b.text = append(b.text, p...)
	return len(p), nil
}

func (b *bounded) fault() error {
	if b.full {
		return fmt.Errorf("the program printed more than %d bytes", b.most)
	}
	return nil
}

// ending keeps the end of what is written.
type ending struct {
	text []byte
	most int
}

func (e *ending) Write(p []byte) (int, error) {
	e.text = append(e.text, p...)
	e.text = e.text[max(0, len(e.text)-e.most):]
	return len(p), nil
}
