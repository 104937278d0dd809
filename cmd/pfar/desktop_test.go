package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
	"github.com/pfar/pfar/units/desktop"
	"github.com/pfar/pfar/units/desktop/desktoptest"
)

// TestNotice: what a desktop shows of a call is text, without the call's arguments.
func TestNotice(t *testing.T) {
	w := sendsMail()
	w.Left, w.Decision.Reason, w.Arguments = 9, "<b>&\x1b", []byte(`{"to":"someone"}`)
	want := desktop.Notice{
		ID: "id", Title: "laptop wants to call mail.send", Body: "<b>&\\x1b\npfar approvals show id",
		Button: "Look at it", For: 9 * time.Second,
	}
	if got := noticeOf(w); got != want {
		t.Errorf("%+v", got)
	}
	w.Link = "https://pfar.test:7443/call/id"
	if got := noticeOf(w).Body; got != want.Body+"\n"+w.Link {
		t.Errorf("with a link: %q", got)
	}
}

func TestTerminalLine(t *testing.T) {
	for _, c := range []struct {
		terminal, installed string
		want                string
	}{
		{"", "xdg-terminal-exec x-terminal-emulator", "/bin/xdg-terminal-exec"},
		{"foot", "foot xdg-terminal-exec", "/bin/xdg-terminal-exec"},
		{"foot", "foot x-terminal-emulator", "/bin/foot -e"},
		{"", "x-terminal-emulator", "/bin/x-terminal-emulator -e"},
		{"gone", "x-terminal-emulator", ""}, {"", "", ""},
	} {
		line, err := terminalLine(func(string) string { return c.terminal }, func(name string) (string, error) {
			if slices.Contains(strings.Fields(c.installed), name) {
				return "/bin/" + name, nil
			}
			return "", exec.ErrNotFound
		})
		if got := strings.Join(line, " "); got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%+v: %q, %v", c, got, err)
		}
	}
}

// TestNoticesButton: "approvals watch --notify" shows a notice on a real bus, and its button opens the approvals in a
// terminal: below systemd in a unit of its own, else as a child. The notice goes when the call is answered.
func TestNoticesButton(t *testing.T) {
	pfar, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		environment map[string]string
		want        func(dir string) []string
	}{
		"in a terminal": {nil, func(dir string) []string {
			return []string{dir + "/xdg-terminal-exec", pfar, "approvals"}
		}},
		"below systemd": {map[string]string{"INVOCATION_ID": "4f1e", "DISPLAY": ":7"}, func(dir string) []string {
			return []string{dir + "/systemd-run", "--user", "--collect", "--quiet", "--setenv=PFAR_RUN_DIR", "--setenv=DISPLAY",
				"--", dir + "/xdg-terminal-exec", pfar, "approvals"}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b, board := newDesk(t), desktoptest.New(t, "actions")
			dir, told := commandsThatTell(t, "xdg-terminal-exec", "systemd-run")
			id := b.sent(t, `{"to":"someone"}`)
			environment := map[string]string{"DBUS_SESSION_BUS_ADDRESS": board.Address}
			for k, v := range c.environment {
				environment[k] = v
			}
			n := b.again("")
			n.pfar.getenv = variables(n.pfar.getenv, environment)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan int)
			go func() { done <- n.run(ctx, []string{"approvals", "watch", "--notify"}) }()
			shown := <-board.Shown
			if !strings.Contains(shown.Title, "laptop") || !strings.Contains(shown.Body, id) ||
				strings.Contains(fmt.Sprint(shown), "someone") || !slices.Contains(shown.Actions, "open") {
				t.Errorf("shown %+v", shown)
			}
			board.Press(shown, "open")
			for _, want := range c.want(dir) {
				if got, err := told.ReadString('\n'); err != nil || got != want+"\n" {
					t.Fatalf("told %q, %v, want %q", got, err, want)
				}
			}
			if err := b.approvals.Answer(id, approval.Answer{}, approval.Approver{Name: "x"}); err != nil {
				t.Fatal(err)
			}
			if got := <-board.Closed; got != shown.Number {
				t.Errorf("notice %d is taken back", got)
			}
			cancel()
			if code := <-done; code != exitInterrupted {
				t.Errorf("exit %d, %s", code, n.err)
			}
		})
	}
}

// commandsThatTell puts commands into PATH that write their name and arguments, a line each, to what is read from told.
func commandsThatTell(t *testing.T, names ...string) (dir string, told *bufio.Reader) {
	t.Helper()
	dir = t.TempDir()
	fifo := filepath.Join(dir, "told")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		script := "#!/bin/sh\nprintf '%s\\n' \"$0\" \"$@\" >'" + fifo + "'\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	f, err := os.OpenFile(fifo, os.O_RDWR, 0) // who writes does not wait for who reads
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return dir, bufio.NewReader(f)
}
