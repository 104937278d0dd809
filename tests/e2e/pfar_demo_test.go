package e2e

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// TestPfarDemo runs pfar demo to its end and, interrupted, to where it shows its first call. It leaves nothing behind,
// and touches no other pfar's directories.
func TestPfarDemo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args      []string
		interrupt string // at this in its output; "": never
		code      int
		says      []string
	}{
		"approved": {[]string{"--yes"}, "", 0, []string{
			"\nhello\n", "pfar refuses example.net:80", "(owner: demo.hcl)", "\napproved\n", "published: hello", "That was all, and it is removed.",
		}},
		"without a terminal": {nil, "", 0, []string{
			"At a terminal you would be asked now:\nLet default call demo.publish once? [y/N]", "\ndenied\n", "demo.publish has not run: the operator denied it",
		}},
		"interrupted": {nil, "2. A call", 130, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			home := directory(t, "")
			cmd := exec.Command(program(t, "pfar"), append([]string{"demo"}, c.args...)...)
			cmd.Env = append(os.Environ(), "HOME="+home, "TMPDIR="+home, "PFAR_RUN_DIR="+home+"/run", "PFAR_STATE_DIR="+home+"/state", "PFAR_CONFIG_DIR="+home+"/mcp.d")
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			errs := &output{}
			cmd.Stderr = errs
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var said strings.Builder
			for lines := bufio.NewReader(stdout); ; {
				line, err := lines.ReadString('\n')
				said.WriteString(line)
				if c.interrupt != "" && strings.Contains(line, c.interrupt) {
					_ = cmd.Process.Signal(syscall.SIGINT)
				}
				if err != nil {
					if !errors.Is(err, io.EOF) {
						t.Error(err)
					}
					break
				}
			}
			_ = cmd.Wait()
			all := said.String() + errs.String()
			if code := cmd.ProcessState.ExitCode(); code != c.code {
				t.Errorf("exit code %d, want %d:\n%s", code, c.code, all)
			}
			for _, want := range c.says {
				if !strings.Contains(all, want) {
					t.Errorf("it does not say %q:\n%s", want, all)
				}
			}
			dir := regexp.MustCompile(`/dev/shm/pfar-demo-\d+`).FindString(all)
			if _, err := os.Lstat(dir); dir == "" || !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%q is left: %v", dir, err)
			}
			if left, err := filepath.Glob(filepath.Join(home, "*")); err != nil || len(left) > 0 {
				t.Errorf("it has made %q, %v", left, err)
			}
		})
	}
}
