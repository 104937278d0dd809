package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/sandbox"
)

// session makes the plan that begin wrote one for a single session.
func session(t *testing.T) func(runtime string) {
	return func(runtime string) {
		path := filepath.Join(filepath.Dir(runtime), "credentials", "plan")
		plan, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		changed := bytes.Replace(plan, []byte(`"gateway":{`), []byte(`"gateway":{"session":"abcdefg2",`), 1)
		if bytes.Equal(changed, plan) {
			t.Fatalf("no gateway in the plan %s", plan)
		}
		if err := os.WriteFile(path, changed, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestASessionsProcessEnds: it will not be started again, so nothing may say or count as if it were, and what it wrote
// to the server's log is known as its own.
func TestASessionsProcessEnds(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		act    func(*run)
		code   int
		status string
		log    []string
	}{
		"by itself": {"echo last words >&2; exit 7", func(*run) {}, units.ExitCrashed, "exit status 7: last words",
			[]string{"Z | [abcdefg2] last words\n", "Z [abcdefg2] pfar-sandbox: the session is over: exit status 7: last words\n"}},
		"without MCP": {"cat", func(r *run) {
			r.say(handover.Message{Failed: "no answer to initialize"})
			r.stdin.Close()
		}, units.ExitCrashed, "no answer to initialize", []string{"the session is over: no answer to initialize"}},
		"with the gateway": {"cat", func(r *run) { r.gateway.Close(); r.stdin.Close() }, units.ExitGateway, "the gateway went away", nil},
		"as it forges another's mark": {`echo "[bbbbbbbb] mine" >&2; exit 1`, func(*run) {}, units.ExitCrashed, "exit status 1",
			[]string{"Z | [abcdefg2] [bbbbbbbb] mine\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := begin(t, script(c.script), session(t))
			m, files, err := r.gateway.Receive()
			if err != nil || m.Hello == nil || m.Hello.Session != "abcdefg2" || m.Hello.Name != "x" || len(files) != 2 {
				t.Fatalf("hello %+v, %d files, %v", m.Hello, len(files), err)
			}
			r.stdin, r.stdout = files[0], files[1]
			defer r.stdin.Close()
			defer r.stdout.Close()
			c.act(r)
			if code := r.exit(2 * time.Minute); code != c.code {
				t.Errorf("exit code %d, want %d\n%s", code, c.code, r.logged())
			}
			eventually(t, r, func() bool { return strings.Contains(r.noted("STATUS"), c.status) })
			for _, want := range c.log {
				if !strings.Contains(r.logged(), want) {
					t.Errorf("the log has no %q:\n%s", want, r.logged())
				}
			}
			if said := r.noted("STATUS") + r.logged(); strings.Contains(said, "back-off") || strings.Contains(said, "of 3") {
				t.Errorf("it speaks of another start: %s", said)
			}
			if _, err := os.Stat(historyFile(r.runtime)); !os.IsNotExist(err) {
				t.Errorf("it left a history: %v", err)
			}
		})
	}
}

func TestASessionThatCannotStart(t *testing.T) {
	s := script("exit 0")
	s.Mounts = append(s.Mounts, sandbox.Mount{Kind: sandbox.ROBind, Source: "/none", Dest: "/none"})
	r := begin(t, s, session(t))
	if code := r.exit(2 * time.Minute); code != units.ExitDisabled {
		t.Errorf("exit code %d\n%s", code, r.logged())
	}
	if !strings.Contains(r.logged(), `pfar-sandbox: [abcdefg2] opening "/none"`) {
		t.Errorf("the log does not say whose it is: %s", r.logged())
	}
}
