package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/units/control"
)

// script is a program in place of pfar.
func script(t *testing.T, text string) cli {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pfar")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return cli{program: path, environment: []string{"HOME=/nowhere"}}
}

// TestCLI runs pfar without a terminal and without this process's environment, and tells why it has failed.
func TestCLI(t *testing.T) {
	t.Setenv("SECRET", "hunter2")
	for name, test := range map[string]struct{ program, out, err string }{
		"prints":      {`echo "$@"`, "learn x\n", ""},
		"environment": {`echo "$HOME $SECRET"; pwd`, "/nowhere \n/\n", ""},
		"no terminal": {`if true </dev/tty; then echo yes; else echo no; fi 2>/dev/null; cat`, "no\n", ""},
		"an error": {
			`echo partly; echo "x wants y" >&2; echo '{"error":"no","hint":"do z"}' >&2; exit 1`, "partly\n", "no; do z",
		},
		"output tells": {`echo '{"failed":1}'; exit 1`, "{\"failed\":1}\n", ""},
		"says nothing": {`exit 3`, "", "running pfar learn: exit status 3"},
		"no JSON":      {`echo '{"error' >&2; exit 3`, "", "exit status 3"},
		"a warning":    {`echo '{"error":"ignored"}' >&2; echo fine`, "fine\n", ""},
		"is killed":    {`kill -9 $$`, "", "signal: killed"},
		"a long error": {
			`i=0; while [ $i -lt 9000 ]; do echo 0123456789 >&2; i=$((i+1)); done; echo '{"error":"end"}' >&2; exit 1`,
			"", "end",
		},
		"a long output": {`head -c 5000000 /dev/zero; echo "$?" >&2`, "", "more than 4194304 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := script(t, test.program).run(t.Context(), time.Minute, "learn", "x")
			if err == nil && test.err != "" || err != nil && (test.err == "" || !strings.Contains(err.Error(), test.err)) {
				t.Errorf("%v, want %q", err, test.err)
			}
			if string(out) != test.out && !strings.Contains(test.err, "bytes") {
				t.Errorf("it prints %q, want %q", out, test.out)
			}
		})
	}
	if _, err := (cli{}).run(t.Context(), time.Minute, "learn"); err == nil {
		t.Error("the zero value runs something")
	}
}

// TestCLIEnds ends pfar when its time is over, and when pfard ends.
func TestCLIEnds(t *testing.T) {
	endless := script(t, "exec sleep 1000000")
	if _, err := endless.run(t.Context(), time.Millisecond, "learn"); err == nil ||
		!strings.Contains(err.Error(), "pfar learn still ran after 1ms") {
		t.Errorf("its time is over: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := endless.run(ctx, time.Minute, "learn"); err == nil {
		t.Error("it goes on")
	}
}

// TestCLIIsOfThisPfard: pfar finds this pfard, and its files.
func TestCLIIsOfThisPfard(t *testing.T) {
	o := options{dirs: control.Dirs{
		Run: "/run/x", State: "/state/x", Config: "/etc/x/mcp.d", Below: []string{"/usr/x"}, Servers: "/srv/x",
	}}
	if c := newCLI(o); c.program != "" { // there is none beside a test
		t.Errorf("it finds %s", c.program)
	}
	t.Setenv("PATH", "/x/bin")
	env := strings.Join(environmentOf(o), "\n")
	for _, want := range []string{
		"HOME=", "PATH=/x/bin", "PFAR_RUN_DIR=/run/x", "PFAR_STATE_DIR=/state/x", "PFAR_CONFIG_DIR=/etc/x/mcp.d:/usr/x",
		"PFAR_SERVERS_DIR=/srv/x",
	} {
		if !strings.Contains(env, want) {
			t.Errorf("the environment has no %s: %s", want, env)
		}
	}
}
