package local

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
)

// consoleScript stands in for pfar-console: it says what it got, and fails.
const consoleScript = `#!/bin/sh
echo "$LISTEN_FDNAMES: $*"
exit 7
`

// withConsole is a runner whose consoles are the script.
func withConsole(t *testing.T) *runnerFixture {
	t.Helper()
	r := newRunner(t, nil)
	if err := putProgram(filepath.Join(r.cfg.Bin, "pfar-console"), []byte(consoleScript)); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestConsole: the console of a user gets the gateway's socket for the operator, and whoever runs it learns that it has
// failed.
func TestConsole(t *testing.T) {
	r := withConsole(t)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	err = r.Console(t.Context(), "1000", "/o", null)
	if err == nil || !strings.Contains(err.Error(), "the process ended with 7; its log is ") {
		t.Errorf("it returns %v", err)
	}
	if b, err := os.ReadFile(r.Log(units.ConsoleLog)); string(b) != "page: --operator /o\n" {
		t.Errorf("the process says %q; %v", b, err)
	}
}

// TestKeepConsole: the remote console gets another socket of the gateway's and where it listens, and is
// started again with a connection of its own. Close ends it.
func TestKeepConsole(t *testing.T) {
	r := withConsole(t)
	hungUp := make(chan error, 99)
	r.KeepConsole("/p", []string{"--listen", "127.0.0.1:7443"}, func(c *attach.Conn) {
		defer c.Close()
		_, _, err := c.Receive()
		hungUp <- err
	})
	for range 2 {
		if err := <-hungUp; err == nil {
			t.Error("the process has said something")
		}
	}
	r.Close()
	b, err := os.ReadFile(r.Log(units.ConsoleLog))
	const line = "page: --remote --operator /p --listen 127.0.0.1:7443\n"
	if text := string(b); !strings.HasPrefix(text, line+line) || strings.ReplaceAll(text, line, "") != "" {
		t.Errorf("the processes say %q; %v", text, err)
	}
}
