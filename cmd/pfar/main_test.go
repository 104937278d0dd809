package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/pfar/pfar/units/control"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"pfar": main, "pfard": scriptedPfard, "gateway": scriptedGateway})
}

var update = flag.Bool("update", false, "rewrite the expected output in testdata/script")

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: *update,
		Setup: func(e *testscript.Env) error {
			run, err := os.MkdirTemp("", "pfar") // the work directory is too long for a socket's path
			if err != nil {
				return err
			}
			e.Defer(func() { os.RemoveAll(run) })
			e.Setenv("PFAR_RUN_DIR", run)
			e.Setenv("PFAR_STATE_DIR", filepath.Join(e.WorkDir, "state"))
			e.Setenv("PFAR_CONFIG_DIR", filepath.Join(e.WorkDir, "mcp.d"))
			e.Setenv("NO_COLOR", "1")
			return nil
		},
	})
}

// scriptedPfard stands in for pfard: it shows each report of reports.json in the declarations and exits with 7 at
// SIGTERM, unless a file there says otherwise: refuse, die, hang. The script interrupts pfar by the pid in the run
// directory.
func scriptedPfard() {
	if err := runScriptedPfard(); err != nil {
		fmt.Fprintln(os.Stderr, "pfard:", err)
		os.Exit(1)
	}
}

func runScriptedPfard() error {
	flags := flag.NewFlagSet("pfard", flag.ContinueOnError)
	dir := flags.String("declarations", "", "")
	flags.Bool("local", false, "")
	flags.String("servers", "", "")
	flags.String("listen", "", "")
	flags.String("page-port", "", "")
	metrics := flags.String("metrics", "", "")
	console := flags.String("console", "", "")
	certificate := flags.String("console-cert", "", "")
	key := flags.String("console-key", "", "")
	if err := flags.Parse(os.Args[1:]); err != nil {
		return err
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	if *metrics != "" {
		return fmt.Errorf("asked for metrics on %s", *metrics)
	}
	if *console != "" {
		return fmt.Errorf("asked for a console at %s with %s and %s", *console, *certificate, *key)
	}
	if b, err := os.ReadFile(filepath.Join(*dir, "refuse")); err == nil {
		return fmt.Errorf("%s", b)
	}
	b, err := os.ReadFile(filepath.Join(*dir, "reports.json"))
	if err != nil {
		return err
	}
	var reports []control.Report
	if err := json.Unmarshal(b, &reports); err != nil {
		return err
	}
	dirs := control.DefaultDirs(os.Getenv, os.Getuid())
	if err := os.WriteFile(filepath.Join(dirs.Run, "pid"), fmt.Append(nil, os.Getppid()), 0o600); err != nil {
		return err
	}
	path := dirs.Control()
	os.Remove(path)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return err
	}
	shown := make(chan struct{})
	go control.Serve(context.Background(), l, func(ctx context.Context, _ control.Peer, r control.Request, send func(control.Response) error) error {
		for _, report := range reports {
			if err := send(control.Response{Status: &report}); err != nil {
				return err
			}
		}
		close(shown)
		<-ctx.Done()
		return nil
	})
	fmt.Fprintln(os.Stderr, "time=now level=INFO msg=ready")
	fmt.Fprintln(os.Stderr, "time=now level=WARN msg=\"odd \x1b[2J\"")
	notify, err := net.Dial("unixgram", os.Getenv("NOTIFY_SOCKET"))
	if err != nil {
		return err
	}
	fmt.Fprint(notify, "STATUS=up\nREADY=1\n")
	<-shown
	if _, err := os.Stat(filepath.Join(*dir, "die")); err == nil {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	<-signals
	if _, err := os.Stat(filepath.Join(*dir, "hang")); err == nil {
		syscall.Kill(os.Getppid(), syscall.SIGINT)
		select {}
	}
	os.Exit(7)
	return nil
}
