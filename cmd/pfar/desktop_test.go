package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/units/desktop"
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
