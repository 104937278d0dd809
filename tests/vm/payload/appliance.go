package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/pfar/pfar/units/control"
)

// Where the machine has the tests' own servers, and the declarations.
const (
	programs     = "/usr/local/lib/pfar-tests"
	declarations = "/etc/pfar/mcp.d"
)

// soon is enough for whatever has to happen: emulation is slow, and the host's processors are others' as well.
const soon = 10 * time.Minute

// check is one thing that the installed pfar has to do, in words, and what shows it.
type check struct {
	name string
	run  func() (detail string, err error)
}

// reportAll reports checks one after the other. The first of them that fails has the journal shown on the console.
func reportAll(prefix string, checks []check) {
	failed := false
	for _, c := range checks {
		begin := time.Now()
		detail, err := c.run()
		report(prefix+"/"+c.name, err, strings.TrimPrefix(detail+"; "+time.Since(begin).Round(time.Millisecond).String(), "; "))
		if err != nil && !failed {
			failed = true
			out, _ := output("journalctl", "--boot", "--no-pager", "--output=short-monotonic", "--lines=300")
			fmt.Fprintf(os.Stderr, "%s/%s failed; the journal:\n%s", prefix, c.name, out)
		}
	}
}

// appliance installs pfar from the directory tree, has it hold what wants more than it may, and writes until the power
// is cut.
func appliance([]string) error {
	if out, err := shell(`cp -a tree/. /
systemd-sysusers && systemd-tmpfiles --create
systemctl restart systemd-modules-load
systemctl daemon-reload
systemctl enable --quiet pfar.target pfard.service pfar-gateway.socket
` + world); err != nil {
		return fmt.Errorf("installing: %w: %s", err, out)
	}
	for name, text := range map[string]string{
		"calm": echoServer("", ""),
		"hog":  echoServer("", `memory_limit = "48m"`),
		"bomb": fmt.Sprintf("label = \"internal\"\nserver {\n  command = %q\n}\nsandbox {\n  tasks_max = 40\n}\n", programs+"/hostile"),
		"out":  echoServer(`allowed_domains = ["declared.test:8080"]`, ""),
	} {
		if err := declare(name, text); err != nil {
			return err
		}
	}
	if out, err := shell("systemctl start pfar.target"); err != nil {
		return fmt.Errorf("starting pfar.target: %w: %s", err, out)
	}
	reportAll("limits", []check{
		{"all servers run", func() (string, error) { return "", allRun("calm", "hog", "bomb", "out") }},
		{"memory_limit ends a server and says so", memoryLimit},
		{"memory_limit changes under a running server", liveLimit},
		{"tasks_max holds a fork bomb", tasksLimit},
		{"cpu_quota slows a server down", cpuLimit},
	})
	reportAll("egress", []check{
		{"what is declared is reached, and nothing else", declaredOnly},
		{"the host's table holds the bridge itself", bridgeHeld},
	})
	reportAll("clock", []check{
		{"a year ahead and back changes nothing that runs", clockJumps},
		{"back-off keeps to its step", clockInBackOff},
		{"a flow waits a day for its approval, and not longer than seven", flowWaits},
	})
	return writeUntilPowerOff()
}

// echoServer declares the small server of the tests.
func echoServer(more, sandbox string) string {
	return fmt.Sprintf("label = \"internal\"\n%s\nserver {\n  command = %q\n}\nsandbox {\n  %s\n}\n", more, programs+"/echo", sandbox)
}

// declare writes a declaration in one step, as editors do.
func declare(name, text string) error {
	path := filepath.Join(declarations, name+".hcl")
	if err := os.WriteFile(path+".new", []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func shell(script string) (string, error) { return output("sh", "-euc", script) }

// output returns what a program writes, stderr included.
func output(name string, args ...string) (string, error) {
	out, err := tool(name, args...).CombinedOutput()
	return string(out), err
}

// tool is a program of the system, which asks nobody and writes for programs.
func tool(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8",
		"SYSTEMD_PAGER=", "SYSTEMD_COLORS=0", "TERM=dumb", "DEBIAN_FRONTEND=noninteractive")
	return cmd
}

// show is a property of a unit, as systemctl show has it. On a busy machine systemd may answer later than systemctl
// waits.
func show(unit, property string) string {
	var out string
	if err := eventually(func() (err error) {
		out, err = output("systemctl", "show", "--property="+property, "--value", unit)
		return err
	}); err != nil {
		return fmt.Sprintf("%v: %s", err, out)
	}
	return strings.TrimSpace(out)
}

// status is what `pfar status` says.
func status() (control.Report, error) {
	var r control.Report
	cmd := exec.Command("pfar", "status", "--json")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) { // 1: something is not as it should be
		return r, fmt.Errorf("pfar status: %w: %s", err, &stderr)
	}
	return r, json.Unmarshal(out, &r)
}

// server is what `pfar status` says of a server.
func server(name string) (control.Server, error) {
	r, err := status()
	for _, s := range r.Servers {
		if s.Name == name {
			return s, nil
		}
	}
	if err == nil {
		err = fmt.Errorf("pfar status has no %q", name)
	}
	return control.Server{}, err
}

// reported waits until what pfard reports has f content. f's last complaint is the error.
func reported(f func(control.Report) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	content := errors.New("content")
	var last error
	for pfard := (control.Client{Path: "/run/pfar/control.sock"}); ; time.Sleep(pause) { // at boot it may not be there yet
		err := pfard.Watch(ctx, func(r control.Report) error {
			if last = f(r); last == nil {
				return content
			}
			return nil
		})
		switch {
		case errors.Is(err, content):
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("after %s: %w", soon, cmp.Or(last, err))
		}
	}
}

// becomes waits until a server has f content.
func becomes(name string, f func(control.Server) error) error {
	return reported(func(r control.Report) error {
		for _, s := range r.Servers {
			if s.Name == name {
				return f(s)
			}
		}
		return fmt.Errorf("pfard has no %q", name)
	})
}

// logged waits until the journal of a server has texts. A watcher of its states may miss some.
func logged(server string, texts ...string) error {
	return eventually(func() error {
		out, err := output("journalctl", "--unit=pfar-mcp@"+server, "--output=cat")
		return errors.Join(err, contains(out, texts...))
	})
}

// allRun waits until servers run.
func allRun(names ...string) error {
	return reported(func(r control.Report) error {
		running := map[string]bool{}
		for _, s := range r.Servers {
			running[s.Name] = s.State == control.Running && s.Tools > 0
		}
		for _, name := range names {
			if !running[name] {
				return fmt.Errorf("%q does not run: %+v", name, r.Servers)
			}
		}
		return nil
	})
}

const pause = 200 * time.Millisecond

// eventually waits until f is content. Its last complaint is the error.
func eventually(f func() error) error {
	for deadline := time.Now().Add(soon); ; time.Sleep(pause) {
		err := f()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("after %s: %w", soon, err)
		}
	}
}

// launchers are the main processes of servers' units, and how often systemd has restarted each.
func launchers(names ...string) (all string) {
	for _, name := range names {
		unit := "pfar-mcp@" + name
		all += fmt.Sprintf("%s: process %s, restarts %s\n", name, show(unit, "MainPID"), show(unit, "NRestarts"))
	}
	return all
}

// contains reports an error unless text has every one of words.
func contains(text string, words ...string) error {
	for _, w := range words {
		if !strings.Contains(text, w) {
			return fmt.Errorf("there is no %q in %s", w, text)
		}
	}
	return nil
}
