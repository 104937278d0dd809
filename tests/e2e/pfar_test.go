package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pfar/pfar/tests/trust"
	"github.com/pfar/pfar/units/control"
)

// soon is how long anything may take that should not take long, on a machine that is busy.
const soon = 6 * time.Minute

// pfar is one "pfar up" with directories of its own.
type pfar struct {
	t                       testing.TB
	declarations, run, home string // home holds the state, and whatever else a test puts there
	env                     []string
	stdin                   string   // of command
	flags                   []string // of pfar up
	cmd                     *exec.Cmd
	stderr                  *output

	mu      sync.Mutex
	reports []control.Report
	changed chan struct{} // closed and replaced at each report
	ended   chan struct{}
}

// output collects what a process writes while it runs.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// prepare makes the directories for a pfar and writes declarations, named by file, into one of them.
func prepare(t testing.TB, declarations map[string]string) *pfar {
	t.Helper()
	p := &pfar{t: t, stderr: &output{}, changed: make(chan struct{}), ended: make(chan struct{})}
	p.home = directory(t, "")
	p.run = directory(t, "/dev/shm")
	p.declarations = filepath.Join(p.home, "mcp.d")
	if err := os.Mkdir(p.declarations, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range declarations {
		p.write(name, text)
	}
	p.env = append(os.Environ(), "PFAR_RUN_DIR="+p.run, "PFAR_STATE_DIR="+p.state(), "PFAR_CONFIG_DIR="+p.declarations,
		"TMPDIR="+p.home) // what a pfar that is killed leaves behind
	return p
}

// start brings declarations up.
func start(t testing.TB, declarations map[string]string) *pfar {
	t.Helper()
	p := prepare(t, declarations)
	p.up()
	return p
}

// directoryPattern names the process, so that what one run of the tests leaves behind is not taken for another's.
var directoryPattern = fmt.Sprintf("pfar-e2e-%d-", os.Getpid())

// directory makes a temporary directory that every user may enter, as t.TempDir does not.
func directory(t testing.TB, parent string) string {
	t.Helper()
	dir, err := os.MkdirTemp(parent, directoryPattern)
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func (p *pfar) state() string { return filepath.Join(p.home, "state") }

func (p *pfar) path(name string) string { return filepath.Join(p.declarations, name) }

func (p *pfar) write(name, text string) {
	p.t.Helper()
	if err := os.WriteFile(p.path(name), []byte(text), 0o644); err != nil {
		p.t.Fatal(err)
	}
}

// up starts pfar, inside of the command wrap if there is one, and returns when it has reported once.
func (p *pfar) up(wrap ...string) {
	p.t.Helper()
	args := append(wrap, program(p.t, "pfar"), "up", p.declarations, "--listen", "127.0.0.1:0", "--json", "--verbose")
	args = append(args, p.flags...)
	p.cmd = exec.Command(args[0], args[1:]...)
	p.cmd.Env, p.cmd.Stderr = p.env, p.stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	started, cmd, ended := make(chan error), p.cmd, p.ended
	go func() {
		runtime.LockOSThread() // PDEATHSIG is sent when this thread ends (prctl(2)), which it does with the goroutine
		err := cmd.Start()
		started <- err
		if err == nil {
			p.read(stdout)
			cmd.Wait()
			close(ended)
		}
	}()
	if err := <-started; err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		p.stop()
		if p.t.Failed() {
			p.t.Logf("pfar up wrote:\n%s", p.stderr)
			p.logServers()
		}
	})
	p.await("a first report", soon, func(control.Report) bool { return true })
}

// logServers shows what the servers wrote.
func (p *pfar) logServers() {
	logs, _ := filepath.Glob(filepath.Join(p.state(), "log", "*.log"))
	for _, path := range logs[:min(len(logs), 5)] {
		b, _ := os.ReadFile(path)
		p.t.Logf("%s:\n%s", filepath.Base(path), b[max(0, len(b)-2000):])
	}
}

func (p *pfar) read(r io.Reader) {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		var report control.Report
		if json.Unmarshal(line, &report) == nil {
			p.mu.Lock()
			p.reports = append(p.reports, report)
			close(p.changed)
			p.changed = make(chan struct{})
			p.mu.Unlock()
		}
		if err != nil {
			return
		}
	}
}

// await returns the first report from now on, the present one included, that meets a condition.
func (p *pfar) await(what string, within time.Duration, met func(control.Report) bool) control.Report {
	p.t.Helper()
	p.mu.Lock()
	seen := max(0, len(p.reports)-1)
	p.mu.Unlock()
	return p.awaitFrom(seen, what, within, met)
}

// mark remembers a moment, for awaitFrom: no report after it is missed.
func (p *pfar) mark() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.reports)
}

func (p *pfar) awaitFrom(seen int, what string, within time.Duration, met func(control.Report) bool) control.Report {
	p.t.Helper()
	timeout := time.NewTimer(within)
	defer timeout.Stop()
	for {
		p.mu.Lock()
		for ; seen < len(p.reports); seen++ {
			if r := p.reports[seen]; met(r) {
				p.mu.Unlock()
				return r
			}
		}
		changed := p.changed
		p.mu.Unlock()
		select {
		case <-changed:
		case <-p.ended:
			p.t.Fatalf("waiting for %s: pfar has ended: %s", what, p.stderr)
		case <-timeout.C:
			p.t.Fatalf("waiting for %s: not within %v; now %s", what, within, p.describe())
		}
	}
}

// last is the newest report.
func (p *pfar) last() control.Report {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.reports) == 0 {
		return control.Report{}
	}
	return p.reports[len(p.reports)-1]
}

func (p *pfar) describe() string {
	var b strings.Builder
	r := p.last()
	for _, s := range r.Servers {
		fmt.Fprintf(&b, "%s is %s (%s, %d tools) ", s.Name, s.State, s.Detail, s.Tools)
	}
	fmt.Fprintf(&b, "%d diagnostics", len(r.Diagnostics))
	return b.String()
}

// awaitRunning returns when all the named servers run.
func (p *pfar) awaitRunning(names ...string) control.Report {
	p.t.Helper()
	return p.await(strings.Join(names, ", ")+" running", soon, func(r control.Report) bool {
		for _, name := range names {
			if server(r, name).State != control.Running {
				return false
			}
		}
		return true
	})
}

// server finds one in a report; the zero server stands for one that is not there.
func server(r control.Report, name string) control.Server {
	if i := slices.IndexFunc(r.Servers, func(s control.Server) bool { return s.Name == name }); i >= 0 {
		return r.Servers[i]
	}
	return control.Server{}
}

// command runs another pfar command beside "pfar up".
func (p *pfar) command(args ...string) (stdout, stderr string, code int) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	c := exec.CommandContext(ctx, program(p.t, "pfar"), args...)
	var out, errs bytes.Buffer
	c.Env, c.Stdout, c.Stderr = p.env, &out, &errs
	c.Stdin = strings.NewReader(p.stdin)
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.t.Fatalf("pfar %q: %v", args, err)
	}
	return out.String(), errs.String(), c.ProcessState.ExitCode()
}

// reads has the operator say that a tool of a server only reads.
func (p *pfar) reads(server string, tools ...string) {
	p.t.Helper()
	check(p.t, os.Mkdir(filepath.Join(p.home, "policies.d"), 0o755))
	put(p.t, filepath.Join(p.home, "policies.d", server+".hcl"),
		fmt.Sprintf("server %q {\n  reads = [%s]\n  relax = \"a test\"\n}\n", server, `"`+strings.Join(tools, `", "`)+`"`))
}

// succeeds runs a command that has to.
func (p *pfar) succeeds(args ...string) string {
	p.t.Helper()
	out, stderr, code := p.command(args...)
	if code != 0 {
		p.t.Fatalf("pfar %q: %d %s %s", args, code, out, stderr)
	}
	return out + stderr
}

// stop ends pfar as Ctrl-C does.
func (p *pfar) stop() {
	if p.cmd == nil || p.cmd.Process == nil {
		return
	}
	select {
	case <-p.ended:
		return
	default:
	}
	p.cmd.Process.Signal(os.Interrupt)
	select {
	case <-p.ended:
	case <-time.After(soon):
		p.t.Errorf("pfar up has not ended %v after SIGINT", soon)
		for _, pid := range descendants(p.cmd.Process.Pid) {
			syscall.Kill(pid.pid, syscall.SIGKILL)
		}
		p.cmd.Process.Kill()
		<-p.ended
	}
}

// again brings pfar up a second time with the same directories, inside of the command wrap if there is one.
func (p *pfar) again(wrap ...string) {
	p.t.Helper()
	p.stop()
	p.mu.Lock()
	p.reports = nil
	p.mu.Unlock()
	p.ended = make(chan struct{})
	p.up(wrap...)
}

// process is a process that is not taken for another one with its number.
type process struct {
	pid     int
	name    string
	started string
}

// alive reports whether the process still runs.
func (p process) alive() bool {
	now, _, ok := stat(p.pid)
	return ok && now.started == p.started
}

// stat reads /proc/PID/stat (proc(5)); a zombie counts as gone.
func stat(pid int) (p process, parent int, ok bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if err != nil || open < 0 || end < 0 {
		return process{}, 0, false
	}
	f := strings.Fields(string(b[end+1:]))
	parent, _ = strconv.Atoi(f[1])
	return process{pid, string(b[open+1 : end]), f[19]}, parent, f[0] != "Z"
}

// descendants returns the children of a process, their children and so on.
func descendants(pid int) []process {
	children := map[int][]process{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		n, _ := strconv.Atoi(filepath.Base(dir))
		if p, parent, ok := stat(n); ok {
			children[parent] = append(children[parent], p)
		}
	}
	var all []process
	for queue := []int{pid}; len(queue) > 0; queue = queue[1:] {
		for _, c := range children[queue[0]] {
			all = append(all, c)
			queue = append(queue, c.pid)
		}
	}
	return all
}

// awaitGone fails if one of the processes is alive after a while. Nobody says when a stranger's process ends, so this
// looks again and again.
func awaitGone(t testing.TB, within time.Duration, processes []process) {
	t.Helper()
	deadline := time.Now().Add(within)
	for {
		alive := slices.DeleteFunc(slices.Clone(processes), func(p process) bool { return !p.alive() })
		if len(alive) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("still there after %v: %v", within, alive)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// find returns the processes of the whole host whose arguments contain text.
func find(text string) []process {
	var found []process
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		n, _ := strconv.Atoi(filepath.Base(dir))
		b, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || n == os.Getpid() || !bytes.Contains(b, []byte(text)) {
			continue
		}
		if p, _, ok := stat(n); ok {
			found = append(found, p)
		}
	}
	return found
}

// quote writes an HCL string: JSON's escapes are HCL's, but for the two that begin a template.
func quote(s string) string {
	b, _ := json.Marshal(s)
	return strings.NewReplacer("${", "$${", "%{", "%%{").Replace(string(b))
}

func quoteAll(list []string) string {
	quoted := make([]string, len(list))
	for i, s := range list {
		quoted[i] = quote(s)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// declare writes a declaration; more is further HCL. A server of which that says nothing else is an honest one.
func declare(command string, args []string, more string) string {
	if !strings.Contains(more, "trust {") {
		more += trust.Honest
	}
	return fmt.Sprintf("server {\n  command = %s\n  args    = %s\n}\n%s\n", quote(command), quoteAll(args), more)
}

// echo declares tests/echo.
func echo(t testing.TB, args ...string) string {
	t.Helper()
	return declare(program(t, "echo"), args, "")
}
