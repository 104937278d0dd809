package journaltest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Waits is the exit code of a stand-in that does not end by itself.
const Waits = 99

// Journalctl puts a stand-in for journalctl first in PATH. It notes its arguments, writes a text and ends with a code.
// arguments returns them with spaces between.
func Journalctl(t *testing.T, output string, code int) (arguments func() string) {
	t.Helper()
	dir := t.TempDir()
	const format = "#!/bin/sh\nprintf '%%s\\n' \"$@\" >%[1]s/args\ncat %[1]s/output\n" +
		"[ %[2]d != %[3]d ] || exec sleep 600\nexit %[2]d\n"
	script := fmt.Sprintf(format, dir, code, Waits)
	for name, text := range map[string]string{"journalctl": script, "output": output} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return func() string {
		b, err := os.ReadFile(filepath.Join(dir, "args"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.ReplaceAll(strings.TrimSpace(string(b)), "\n", " ")
	}
}
