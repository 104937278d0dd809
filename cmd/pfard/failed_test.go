package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/journal/journaltest"
)

// TestMain is also the process of TestTellFailed.
func TestMain(m *testing.M) {
	if os.Getenv("PFARD_UNDER_TEST") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// place is a directory, short enough for sockets, with the daemon's directories in it.
func place(t *testing.T) control.Dirs {
	t.Helper()
	dir, err := os.MkdirTemp("", "pfard")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return control.Dirs{Run: dir, State: filepath.Join(dir, "state"), Config: filepath.Join(dir, "mcp.d")}
}

func program(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil { // whatever the umask
		t.Fatal(err)
	}
}

// reporting answers on the control socket with these reports, and then says nothing more.
func reporting(t *testing.T, dirs control.Dirs, reports ...control.Report) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: dirs.Control(), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- control.Serve(ctx, l, func(ctx context.Context, _ control.Peer, _ control.Request, send func(control.Response) error) error {
			for _, r := range reports {
				if err := send(control.Response{Status: &r}); err != nil {
					return err
				}
			}
			<-ctx.Done()
			return nil
		})
	}()
	t.Cleanup(func() { cancel(); <-ended })
}

func report(name string, state control.State, detail string) control.Report {
	return control.Report{Servers: []control.Server{
		{Name: "other", State: control.Failed, Detail: "not this one"}, {Name: name, State: state, Detail: detail},
	}}
}

// sessionsOf has servers of which each session has a process.
func sessionsOf(names ...string) (r control.Report) {
	for _, name := range names {
		r.Servers = append(r.Servers, control.Server{Name: name, State: control.Running, SessionsMax: 4})
	}
	return r
}

func TestTellFailed(t *testing.T) {
	const crashed = "disabled after 3 crashes in a row: exit status 1: no \"such\" file"
	for name, c := range map[string]struct {
		instance string
		reports  []control.Report // nil: no pfard
		monitor  []string
		priority string
		reason   string
		hook     bool
	}{
		"pfard knows why": {"notion", []control.Report{report("notion", control.Failed, crashed)},
			[]string{"MONITOR_SERVICE_RESULT=exit-code"}, "2", crashed, true},
		"pfard will know": {"notion", []control.Report{report("notion", control.BackOff, "x"), report("notion", control.Failed, crashed)},
			nil, "2", crashed, true},
		"pfard knows otherwise": {"notion", []control.Report{report("notion", control.Running, "3 tools")},
			[]string{"MONITOR_SERVICE_RESULT=oom-kill"}, "2", "killed by the kernel: out of memory", true},
		"no pfard": {"notion", nil, []string{"MONITOR_SERVICE_RESULT=exit-code", "MONITOR_EXIT_STATUS=78"},
			"2", "crashed too often, or cannot start on this machine", true},
		"a signal": {"notion", nil, []string{"MONITOR_SERVICE_RESULT=signal", "MONITOR_EXIT_STATUS=KILL"},
			"2", "signal, status KILL", true},
		"nobody knows": {"notion", nil, nil, "2", "unknown", true},
		"a session's process": {"notion_abcdefg2", nil, []string{"MONITOR_SERVICE_RESULT=signal", "MONITOR_EXIT_STATUS=SEGV"},
			"4", "signal, status SEGV", false},
		"of a long name": {"notion-workspa_abcdefg2", []control.Report{sessionsOf("notion-workspace-two", "notion")},
			[]string{"MONITOR_SERVICE_RESULT=timeout"}, "4", "it did not start in time", false},
		"of one of two": {"notion-workspa_abcdefg2", []control.Report{sessionsOf("notion-workspace-two", "notion-workspace-one")},
			[]string{"MONITOR_SERVICE_RESULT=timeout"}, "4", "it did not start in time", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dirs := place(t)
			program(t, dirs.OnFailure(), "#!/bin/sh\necho \"told of $PFAR_SERVER: $PFAR_REASON\"\n", 0o755)
			if c.reports != nil {
				reporting(t, dirs, c.reports...)
			}
			j := journaltest.New(t)
			cmd := exec.Command(os.Args[0], "--failed", c.instance)
			cmd.Env = append([]string{
				"PFARD_UNDER_TEST=1", "PATH=" + os.Getenv("PATH"), "PFAR_RUN_DIR=" + dirs.Run,
				"PFAR_CONFIG_DIR=" + dirs.Config, "PFAR_STATE_DIR=" + dirs.State,
			}, c.monitor...)
			j.Wrap(cmd)
			if err := cmd.Run(); err != nil {
				t.Fatal(err)
			}
			e := j.Next()
			server := map[string]string{"of a long name": "notion-workspace-two", "of one of two": "notion-workspa"}[name]
			if e["PRIORITY"] != c.priority || e["PFAR_SERVER"] != cmp.Or(server, "notion") || e["PFAR_REASON"] != c.reason {
				t.Errorf("entry %q", e)
			}
			if !c.hook {
				if rest := j.Rest(); len(rest) > 0 {
					t.Errorf("further entries %q", rest)
				}
				return
			}
			if !strings.Contains(e["MESSAGE"], "pfar logs notion says more, pfar enable notion starts it again") {
				t.Errorf("it does not say what to do: %q", e["MESSAGE"])
			}
			if e := j.Next(); e["PFAR_OUTPUT"] != "told of notion: "+c.reason || e["PFAR_SERVER"] != "notion" || e["PRIORITY"] != "6" {
				t.Errorf("the owner's program: %q", e)
			}
		})
	}
}

// tell runs a hook and returns what it logged.
func tell(t *testing.T, h hook, f failure) string {
	t.Helper()
	var out strings.Builder
	h.log = slog.New(slog.NewTextHandler(&out, nil))
	h.tell(t.Context(), f)
	return out.String()
}

// TestHooksOfOthers: whoever could write the program that root runs would be root.
func TestHooksOfOthers(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(t *testing.T, dir, path string)
		want    string // in the log; "": it says nothing
	}{
		"none":             {func(t *testing.T, dir, path string) {}, ""},
		"not executable":   {func(t *testing.T, dir, path string) { program(t, path, "#!/bin/sh\necho ran\n", 0o644) }, "chmod +x"},
		"group may write":  {func(t *testing.T, dir, path string) { program(t, path, "#!/bin/sh\necho ran\n", 0o775) }, "another user's"},
		"others may write": {func(t *testing.T, dir, path string) { program(t, path, "#!/bin/sh\necho ran\n", 0o757) }, "another user's"},
		"a directory":      {func(t *testing.T, dir, path string) { os.Mkdir(path, 0o755) }, "not executable"},
		"in an open directory": {func(t *testing.T, dir, path string) {
			program(t, path, "#!/bin/sh\necho ran\n", 0o755)
			os.Chmod(dir, 0o777)
		}, "another user's"},
		"a link to one that others may write": {func(t *testing.T, dir, path string) {
			program(t, dir+"/target", "#!/bin/sh\necho ran\n", 0o757)
			os.Symlink("target", path)
		}, "another user's"},
		"a link into an open directory": {func(t *testing.T, dir, path string) {
			os.Mkdir(dir+"/open", 0o755)
			os.Chmod(dir+"/open", 0o777)
			program(t, dir+"/open/target", "#!/bin/sh\necho ran\n", 0o755)
			os.Symlink("open/target", path)
		}, "another user's"},
		"a link to nothing": {func(t *testing.T, dir, path string) { os.Symlink("nothing", path) }, ""},
		"another's": {func(t *testing.T, dir, path string) {
			program(t, path, "#!/bin/sh\necho ran\n", 0o755)
			if os.Getuid() == 0 {
				os.Chown(path, 65534, 65534)
			} else {
				os.Chmod(path, 0o775) // an ordinary user has no other to give it to
			}
		}, "another user's"},
		"one that fails": {func(t *testing.T, dir, path string) { program(t, path, "#!/bin/sh\nexit 3\n", 0o755) }, "exit status 3"},
		"no interpreter": {func(t *testing.T, dir, path string) { program(t, path, "#!/nowhere\n", 0o755) }, "no such file"},
		"a link to a good one": {func(t *testing.T, dir, path string) {
			program(t, dir+"/target", "#!/bin/sh\necho good\n", 0o755)
			os.Symlink("target", path)
		}, "output=good"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "on-failure")
			c.prepare(t, dir, path)
			got := tell(t, hook{path: path}, failure{server: "a", reason: "b"})
			if strings.Contains(got, "output=ran") || !strings.Contains(got, c.want) || c.want == "" && got != "" {
				t.Errorf("logged %q, want %q", got, c.want)
			}
		})
	}
	if got := tell(t, hook{path: "on-failure"}, failure{server: "a", reason: "b"}); got != "" {
		t.Errorf("a program in whatever directory this is: %q", got)
	}
}

func TestHookIsBounded(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "on-failure")
	program(t, path, "#!/bin/sh\nsleep 600 & echo $! >"+dir+"/child\nsleep 600\n", 0o755)
	got := tell(t, hook{path: path, limit: 5 * time.Second}, failure{server: "a", reason: "b"})
	if !strings.Contains(got, "the program still ran after 5s") {
		t.Errorf("logged %q", got)
	}
	child, err := os.ReadFile(dir + "/child")
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Millisecond) {
		state, err := os.ReadFile("/proc/" + strings.TrimSpace(string(child)) + "/stat")
		if err != nil || strings.Contains(string(state), ") Z ") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("what it started still runs: %s", state)
		}
	}

	program(t, path, "#!/bin/sh\nprintf '%2500s\\n' x\nseq 500\nprintf unended\n", 0o755)
	got = tell(t, hook{path: path}, failure{server: "a", reason: "b"})
	if n := strings.Count(got, "output="); n != maxHookOutput ||
		!strings.Contains(got, "more than is logged") || strings.Contains(got, strings.Repeat(" ", maxHookLine+1)) {
		t.Errorf("%d lines of output in %.200q", n, got)
	}
	program(t, path, "#!/bin/sh\nprintf unended\n", 0o755)
	if got = tell(t, hook{path: path}, failure{server: "a", reason: "b"}); !strings.Contains(got, "output=unended") {
		t.Errorf("logged %q", got)
	}
}

func TestHookEnvironment(t *testing.T) {
	t.Setenv("NOTION_TOKEN", "hunter2")
	t.Setenv("LANG", "xx")
	path := filepath.Join(t.TempDir(), "on-failure")
	program(t, path, "#!/bin/sh\nenv | sort; pwd\n", 0o755)
	got := tell(t, hook{path: path}, failure{server: "a", reason: "one\x00two\nPFAR_X=3 \xff" + strings.Repeat("é", maxReason)})
	for _, want := range []string{"output=\"LANG=xx\"", "PFAR_SERVER=a", "PFAR_REASON=one two PFAR_X=3 \uFFFDéé", `éé...`, "output=/\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %s", want, got)
		}
	}
	if strings.Contains(got, "hunter2") {
		t.Errorf("it is given this process's secrets: %s", got)
	}
	if n := len(printable(strings.Repeat("x", maxReason+1))); n != maxReason {
		t.Errorf("a reason of %d bytes, want %d", n, maxReason)
	}
}

// TestTheOwnerIsToldOnce of each server that is disabled, and again only when it was started and failed anew.
func TestTheOwnerIsToldOnce(t *testing.T) {
	d, m, changed := fixture(t)
	var told []string
	if err := d.do(func() error {
		d.fleet.owner = ownerFunc(func(f failure) { told = append(told, f.server+": "+f.reason) })
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	d.put(t, "a.hcl", fmt.Sprintf(good, "x"))
	d.put(t, "b.hcl", fmt.Sprintf(good, "x"))
	changed <- struct{}{}
	d.state(t)
	is := func(want ...string) {
		t.Helper()
		d.state(t)
		if strings.Join(told, "\n") != strings.Join(want, "\n") {
			t.Fatalf("told %q, want %q", told, want)
		}
	}
	for _, state := range []string{"running", "back-off", "starting", "running", "back-off"} {
		d.fleet.changed(units.Update{Server: "a", State: state, Crashes: 2})
	}
	d.fleet.changed(units.Update{Server: "a", Session: "abcdefg2", State: "failed", Ended: true})
	is()
	for range 3 {
		d.fleet.changed(units.Update{Server: "a", State: "failed", Detail: "disabled after 3 crashes in a row", Crashes: 3})
	}
	changed <- struct{}{}
	is("a: disabled after 3 crashes in a row")
	ask(t, d, control.Request{Verb: control.Start, Server: "a"})
	d.fleet.changed(units.Update{Server: "a", State: "running"})
	is("a: disabled after 3 crashes in a row")
	d.state(t)
	d.fleet.changed(units.Update{Server: "a", State: "failed", Detail: "again"})
	is("a: disabled after 3 crashes in a row", "a: again")
	m.mu.Lock()
	m.refuse = fmt.Errorf("no bwrap")
	m.mu.Unlock()
	ask(t, d, control.Request{Verb: control.Restart, Server: "b"})
	is("a: disabled after 3 crashes in a row", "a: again", "b: no bwrap")
	ask(t, d, control.Request{Verb: control.Start, Server: "b"})
	is("a: disabled after 3 crashes in a row", "a: again", "b: no bwrap")
}
