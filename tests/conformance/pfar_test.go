package conformance

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/pfar/pfar/tests/trust"
	"github.com/pfar/pfar/units/control"
)

// soon is how long anything may take that should not take long, on a machine that is busy.
const soon = 5 * time.Minute

// pfar is one "pfar up" with directories of its own, all of whose servers run.
type pfar struct {
	report control.Report
	token  string

	dir, run string
	env      []string
	cmd      *exec.Cmd
	reports  *bufio.Reader
	ended    chan struct{}
	stderr   lockedBuffer
}

// lockedBuffer collects what a process writes while it runs.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// up brings declarations up, named by server, and returns when all of them run.
func up(programs string, declarations map[string]string) (*pfar, error) {
	p := &pfar{}
	if err := p.prepare(declarations); err != nil {
		return nil, errors.Join(err, p.down())
	}
	stdout, err := p.start(programs)
	if err == nil {
		err = p.await(func(r control.Report) (bool, error) { return allRun(r, len(declarations)) })
	}
	if err != nil {
		log := p.log() // down removes it
		return nil, errors.Join(err, p.down(), errors.New(log))
	}
	stdout.SetReadDeadline(time.Time{})
	go func() {
		io.Copy(io.Discard, stdout)
		stdout.Close()
	}()
	token, err := os.ReadFile(p.report.TokenFile)
	if err != nil {
		return nil, errors.Join(err, p.down())
	}
	p.token = strings.TrimSpace(string(token))
	return p, nil
}

// start starts pfar as the last argument of a command, if there is one. Whatever it returns, down is to be called.
func (p *pfar) start(programs string, wrap ...string) (stdout *os.File, err error) {
	config := filepath.Join(p.dir, "mcp.d")
	args := append(wrap, filepath.Join(programs, "pfar"), "up", config, "--listen", "127.0.0.1:0", "--json", "--verbose")
	p.cmd = exec.Command(args[0], args[1:]...)
	p.env = append(os.Environ(), "PFAR_RUN_DIR="+p.run, "PFAR_STATE_DIR="+filepath.Join(p.dir, "state"),
		"PFAR_CONFIG_DIR="+config, "TMPDIR="+p.dir)
	p.cmd.Env, p.cmd.Stderr = p.env, &p.stderr
	stdout, writer, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.cmd.Stdout = writer
	p.ended, err = spawn(p.cmd)
	writer.Close()
	if err != nil {
		stdout.Close()
		return nil, err
	}
	p.reports = bufio.NewReader(stdout)
	stdout.SetReadDeadline(time.Now().Add(soon))
	return stdout, nil
}

func (p *pfar) prepare(declarations map[string]string) (err error) {
	if p.dir, err = os.MkdirTemp("", "pfar-conformance-"); err != nil {
		return err
	}
	if p.run, err = os.MkdirTemp("/dev/shm", "pfar-conformance-"); err != nil { // a socket's path is short (unix(7))
		return err
	}
	for _, dir := range []string{p.dir, p.run} {
		if err := os.Chmod(dir, 0o755); err != nil {
			return err
		}
	}
	if err := os.Mkdir(filepath.Join(p.dir, "mcp.d"), 0o755); err != nil {
		return err
	}
	for name, text := range declarations {
		if err := os.WriteFile(filepath.Join(p.dir, "mcp.d", name+".hcl"), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// await reads reports until one is good.
func (p *pfar) await(good func(control.Report) (bool, error)) error {
	for {
		line, err := p.reports.ReadBytes('\n')
		if err != nil {
			return fmt.Errorf("waiting for servers, now %+v: %w", p.report.Servers, err)
		}
		p.report = control.Report{}
		if err := json.Unmarshal(line, &p.report); err != nil {
			return fmt.Errorf("a report of pfar up: %w: %q", err, line)
		}
		if len(p.report.Diagnostics) > 0 {
			return fmt.Errorf("the declaration is not accepted: %+v", p.report.Diagnostics)
		}
		if ok, err := good(p.report); ok || err != nil {
			return err
		}
	}
}

// allRun reports whether so many servers run.
func allRun(r control.Report, servers int) (bool, error) {
	running := 0
	for _, s := range r.Servers {
		switch s.State {
		case control.Running:
			running++
		case control.Failed:
			return false, fmt.Errorf("%s has failed: %q", s.Name, s.Detail)
		}
	}
	return running == servers, nil
}

// down ends pfar as Ctrl-C does, and removes its directories.
func (p *pfar) down() error {
	defer func() {
		for _, dir := range []string{p.dir, p.run} {
			if dir != "" {
				os.RemoveAll(dir)
			}
		}
	}()
	if p.cmd == nil || p.cmd.Process == nil {
		return nil
	}
	p.cmd.Process.Signal(os.Interrupt)
	select {
	case <-p.ended:
		return nil
	case <-time.After(soon):
		p.cmd.Process.Kill()
		<-p.ended
		return fmt.Errorf("pfar up has not ended %v after SIGINT", soon)
	}
}

// log is the end of what pfar and its servers have written.
func (p *pfar) log() string {
	const most = 4000
	all := p.stderr.String()
	text := fmt.Sprintf("pfar up wrote:\n%s", all[max(0, len(all)-most):])
	logs, _ := filepath.Glob(filepath.Join(p.dir, "state", "log", "*.log"))
	for _, path := range logs {
		b, _ := os.ReadFile(path)
		text += fmt.Sprintf("\n%s:\n%s", filepath.Base(path), b[max(0, len(b)-most):])
	}
	return text
}

// quote writes an HCL string: JSON's escapes are HCL's, but for the two that begin a template.
func quote(s string) string {
	b, _ := json.Marshal(s)
	return strings.NewReplacer("${", "$${", "%{", "%%{").Replace(string(b))
}

// declare writes the declaration of a server that may ask everything of its clients; more is further HCL.
func declare(command string, args []string, more string) string {
	quoted := make([]string, len(args))
	for i, a := range args {
		quoted[i] = quote(a)
	}
	return fmt.Sprintf("server {\n  command = %s\n  args    = [%s]\n}\n%s\n%s\n", quote(command), strings.Join(quoted, ", "), asksAll, more+trust.Honest)
}
