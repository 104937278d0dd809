package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestConsoleOpensBrowser: at a terminal on a desktop, pfar console has xdg-open open a file, from which a real browser
// comes to the pages and is signed in. While the link is good no process has it among its arguments. Then the file is
// gone and the command has ended; so it is if the person ends it before.
func TestConsoleOpensBrowser(t *testing.T) {
	if os.Getuid() == 0 {
		return // root has no console: TestAsOrdinaryUser
	}
	t.Parallel()
	s := newStage(t, "strict")
	runtime, bin := directory(t, ""), directory(t, "")
	check(t, os.Chmod(runtime, 0o700))
	told := filepath.Join(bin, "told")
	check(t, unix.Mkfifo(told, 0o600))
	script := fmt.Sprintf("#!/bin/sh\nfor each; do echo \"$each\"; done >%s\n", told)
	check(t, os.WriteFile(filepath.Join(bin, "xdg-open"), []byte(script), 0o755))
	opened := func() (p *person, link, path string) {
		p = s.atDesktop(80, []string{
			"DISPLAY=:0", "XDG_RUNTIME_DIR=" + runtime, "PATH=" + bin + ":" + os.Getenv("PATH"),
		}, "console")
		path = strings.TrimSuffix(string(mustRead(t, told)), "\n")
		p.await(1, "Opening it in your browser")
		link = regexp.MustCompile(`http://127\.0\.0\.1:\d+/[A-Z2-7]+`).FindString(p.text())
		if link == "" || filepath.Dir(filepath.Dir(path)) != runtime || strings.Contains(path, "\n") {
			t.Fatalf("the browser is given %q, the terminal shows %s", path, p.text())
		}
		if found := inArguments(t, strings.Split(link, "/")[3]); len(found) > 0 {
			t.Errorf("the link is among the arguments of %q", found)
		}
		return p, link, path
	}
	ended := func(p *person) {
		t.Helper()
		if code := p.ended(); code != 0 {
			t.Errorf("exit code %d: %s", code, p.text())
		}
		if left, err := os.ReadDir(runtime); err != nil || len(left) > 0 {
			t.Errorf("it leaves %v, %v", left, err)
		}
	}
	p, link, path := opened()
	b := surf(t, 0)
	now := b.looks(`
await page.goto("file://" + args.path);
await page.waitForSelector("text=No call waits for you", { timeout: args.soon });`,
		map[string]any{"path": path, "soon": soon.Milliseconds()})
	if strings.Contains(now.URL, strings.Split(link, "/")[3]) || !strings.Contains(now.URL, "/c/") {
		t.Errorf("the browser is at %s", now.URL)
	}
	ended(p)
	if !strings.Contains(p.text(), "The link has been used.") {
		t.Errorf("the terminal shows %s", p.text())
	}
	b.looks(`await page.click("nav >> text=Servers"); await page.waitForSelector("text=State: running");`, nil)

	p, _, _ = opened()
	check(t, p.cmd.Process.Signal(os.Interrupt))
	ended(p)
}
