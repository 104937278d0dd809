package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/desktop"
)

// desktopNotices tells of calls on the desktop. The button of a notice opens the approvals, and answers nothing.
type desktopNotices struct{ *desktop.Desktop }

func (d desktopNotices) untell(id string) error { return d.Withdraw(id) }

// tell shows a notice. It has no arguments of the call: a desktop shows notices over a locked screen too.
func (d desktopNotices) tell(ctx context.Context, w *waitingCall, _ io.Writer) error {
	return d.Show(ctx, noticeOf(w))
}

func noticeOf(w *waitingCall) desktop.Notice {
	body := fmt.Sprintf("%s\npfar approvals show %s", cut(visible.Reveal(w.Decision.Reason), 200), visible.Reveal(w.ID))
	if w.Link != "" {
		body += "\n" + visible.Reveal(w.Link)
	}
	return desktop.Notice{
		ID:     w.ID,
		Title:  fmt.Sprintf("%s wants to call %s", visible.Reveal(w.Client), cut(visible.Reveal(w.what()), 60)),
		Body:   body,
		Button: "Look at it",
		For:    time.Duration(w.Left) * time.Second,
	}
}

// terminalFor opens the approvals in a terminal of the desktop. Below systemd it is a unit of its own, which does not
// end with this one and is not confined as it is.
func terminalFor(getenv func(string) string) func() error {
	return func() error {
		pfar, err := os.Executable()
		if err != nil {
			return err
		}
		line, err := terminalLine(getenv, exec.LookPath)
		if err != nil {
			return err
		}
		line = append(line, pfar, "approvals")
		if getenv("INVOCATION_ID") != "" { // systemd.exec(5)
			run := []string{"systemd-run", "--user", "--collect", "--quiet"}
			for _, name := range []string{"PFAR_RUN_DIR", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY"} {
				if getenv(name) != "" {
					run = append(run, "--setenv="+name)
				}
			}
			line = slices.Concat(run, []string{"--"}, line)
		}
		cmd := exec.Command(line[0], line[1:]...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			return err
		}
		go func() { _ = cmd.Wait() }()
		return nil
	}
}

// terminalLine is the command that runs what follows it in a terminal: xdg-terminal-exec, TERMINAL of the environment,
// or Debian's x-terminal-emulator.
func terminalLine(getenv func(string) string, look func(string) (string, error)) ([]string, error) {
	if path, err := look("xdg-terminal-exec"); err == nil {
		return []string{path}, nil
	}
	path, err := look(cmp.Or(getenv("TERMINAL"), "x-terminal-emulator"))
	if err != nil {
		return nil, errors.New("neither xdg-terminal-exec, nor what TERMINAL names, nor x-terminal-emulator is installed")
	}
	return []string{path, "-e"}, nil
}
