package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/pfar/pfar/tests/trust"
	"github.com/pfar/pfar/units/control"
)

// patience bounds every wait.
const patience = time.Minute

// pfar is a "pfar up" with directories of its own.
type pfar struct {
	cmd    *exec.Cmd
	client control.Client
	stderr bytes.Buffer
	dirs   []string
	bin    string
	env    []string
}

var errMet = errors.New("condition met")

// up starts pfar with declarations, by server name.
func up(ctx context.Context, dir, bin string, declarations map[string]string) (*pfar, error) {
	home, err := os.MkdirTemp(dir, "home-")
	if err != nil {
		return nil, err
	}
	run, err := os.MkdirTemp("/dev/shm", "pfar-bench-")
	if err != nil {
		return nil, err
	}
	p := &pfar{dirs: []string{home, run}}
	folder := filepath.Join(home, "mcp.d")
	for _, d := range []string{home, run} {
		err = errors.Join(err, os.Chmod(d, 0o755))
	}
	if err := errors.Join(err, os.Mkdir(folder, 0o755)); err != nil {
		return nil, err
	}
	for name, text := range declarations {
		if err := os.WriteFile(filepath.Join(folder, name+".hcl"), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	p.bin, p.env = bin, append(os.Environ(), "PFAR_RUN_DIR="+run, "PFAR_STATE_DIR="+filepath.Join(home, "state"))
	p.client = control.Client{Path: filepath.Join(run, "control.sock")}
	p.cmd = exec.CommandContext(ctx, filepath.Join(bin, "pfar"), "up", folder, "--listen", "127.0.0.1:0", "--json")
	p.cmd.Env, p.cmd.Stderr = p.env, &p.stderr
	// The first line on standard output says that the socket is there.
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		p.down()
		return nil, fmt.Errorf("starting pfar: %w: %s", err, p.stderr.String())
	}
	go drain(out)
	return p, nil
}

// command is the CLI towards this pfar.
func (p *pfar) command(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, filepath.Join(p.bin, "pfar"), args...)
	c.Env = p.env
	return c
}

func drain(r interface{ Read([]byte) (int, error) }) {
	b := make([]byte, 64<<10)
	for {
		if _, err := r.Read(b); err != nil {
			return
		}
	}
}

func (p *pfar) down() {
	p.cmd.Process.Signal(os.Interrupt)
	p.cmd.Wait()
	for _, d := range p.dirs {
		os.RemoveAll(d)
	}
}

// await returns when a report meets a condition.
func (p *pfar) await(ctx context.Context, met func(control.Report) bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var last control.Report
	err := p.client.Watch(ctx, func(r control.Report) error {
		last = r
		if met(r) {
			return errMet
		}
		return nil
	})
	if errors.Is(err, errMet) {
		return nil
	}
	b, _ := json.Marshal(last)
	return fmt.Errorf("waiting for pfar: %v: %s: %s", err, b, p.stderr.String())
}

// start asks for one server that is stopped and returns the time until its tools are listed.
func (p *pfar) start(ctx context.Context, name string) (time.Duration, error) {
	if err := p.await(ctx, inState(name, control.Stopped)); err != nil {
		return 0, err
	}
	running := make(chan error, 1)
	watching := make(chan struct{})
	go func() {
		first := true
		running <- p.await(ctx, func(r control.Report) bool {
			if first {
				close(watching)
				first = false
			}
			return inState(name, control.Running)(r)
		})
	}()
	select {
	case <-watching:
	case err := <-running:
		return 0, err
	}
	begin := time.Now()
	if _, err := p.client.Do(ctx, control.Request{Verb: control.Start, Server: name}); err != nil {
		return 0, err
	}
	if err := <-running; err != nil {
		return 0, err
	}
	took := time.Since(begin)
	_, err := p.client.Do(ctx, control.Request{Verb: control.Stop, Server: name})
	return took, err
}

func inState(name string, state control.State) func(control.Report) bool {
	return func(r control.Report) bool {
		for _, s := range r.Servers {
			if s.Name == name {
				return s.State == state
			}
		}
		return false
	}
}

// declaration of a program; more is further HCL. Of one that is not said to be a stranger's nothing is fenced or asked
// about.
func declaration(argv []string, more string) string {
	quoted := make([]string, len(argv))
	for i, a := range argv {
		b, _ := json.Marshal(a)
		quoted[i] = string(b)
	}
	if !strings.Contains(more, "trust {") {
		more += trust.Honest
	}
	return fmt.Sprintf("%s\nserver {\n  command = %s\n  args = [%s]\n}\n", more, quoted[0], strings.Join(quoted[1:], ", "))
}
