package soak

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pfar/pfar/units/control"
)

const (
	binVariable     = "PFAR_TEST_BIN"     // directory of the programs, if they are built already
	serversVariable = "PFAR_TEST_SERVERS" // directory of the npm servers, if they are installed already
)

// scratch is a directory that every user may enter.
var scratch = sync.OnceValue(func() string {
	dir, err := os.MkdirTemp("", "pfar-soak-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		panic(err)
	}
	return dir
})

// programs returns the directory of pfar's programs. The gateway and pfard have the race detector in them; it writes
// what it finds into their logs.
var programs = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv(binVariable); dir != "" {
		return dir, nil
	}
	dir := filepath.Join(scratch(), "bin")
	for _, build := range []struct {
		cgo  string
		args []string
	}{
		{"CGO_ENABLED=0", []string{
			"./cmd/pfar", "./cmd/pfar-sandbox", "./cmd/pfar-egress", "./cmd/pfar-setup", "./cmd/pfar-console",
			"./cmd/pfar-adapter", "./tests/echo", "./tests/soak/server",
		}},
		{"CGO_ENABLED=1", []string{"-race", "./cmd/pfar-gateway", "./cmd/pfard"}},
	} {
		c := exec.Command("go", append([]string{"build", "-trimpath", "-buildvcs=false", "-o", dir + "/"}, build.args...)...)
		c.Dir, c.Env = filepath.Join("..", ".."), append(os.Environ(), build.cgo)
		if out, err := c.CombinedOutput(); err != nil {
			return "", fmt.Errorf("building: %w\n%s", err, out)
		}
	}
	return dir, nil
})

// npmServers returns the directory in which packaging/servers is installed, "" and a word of it if it is nowhere.
func npmServers(t testing.TB) string {
	for _, dir := range []string{os.Getenv(serversVariable), filepath.Join("..", "..", "build", "servers")} {
		if _, err := os.Stat(filepath.Join(dir, everythingPath)); dir != "" && err == nil {
			dir, err = filepath.Abs(dir)
			check(t.(*testing.T), err)
			return dir
		}
	}
	t.Log("NOT RUN: node server-everything, which is not installed: make build/servers/.installed")
	return ""
}

const everythingPath = "node_modules/@modelcontextprotocol/server-everything/dist/index.js"

// pfar is one "pfar up" with directories of its own.
type pfar struct {
	t                       testing.TB
	declarations, run, home string
	bin, marker             string
	env                     []string
	cmd                     *exec.Cmd
	stderr                  output
	servers                 []*served
	metrics                 string // address

	mu      sync.Mutex
	reports int
	last    control.Report
	changed chan struct{} // closed and replaced at each report
	ended   chan struct{}
	lives   map[string][]span // of each server, when it was not running
	killed  []time.Time       // the gateway, by us
	struck  map[string][]span // processes of single sessions, by us: no report tells of those
	uids    map[int]bool      // that servers ever had
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

// span is a time in which a server was not running; the last one may have no end yet.
type span struct{ from, to time.Time }

// start brings a fleet up.
func start(t *testing.T, fleet func(p *pfar) []*served) *pfar {
	t.Helper()
	bin, err := programs()
	check(t, err)
	p := &pfar{t: t, bin: bin, changed: make(chan struct{}), ended: make(chan struct{}), lives: map[string][]span{}, struck: map[string][]span{}, uids: map[int]bool{},
		marker: fmt.Sprintf("pfar-soak-%d-%d", os.Getpid(), time.Now().UnixNano())}
	p.home, p.run = directory(t, ""), directory(t, "/dev/shm")
	p.declarations = filepath.Join(p.home, "mcp.d")
	check(t, os.Mkdir(p.declarations, 0o755))
	p.env = append(os.Environ(), "PFAR_RUN_DIR="+p.run, "PFAR_STATE_DIR="+filepath.Join(p.home, "state"), "PFAR_CONFIG_DIR="+p.declarations)
	p.servers = fleet(p)
	for _, v := range p.servers {
		p.write(v, v.declare("", ""))
	}
	p.up()
	return p
}

// directory makes a temporary directory that every user may enter, as t.TempDir does not.
func directory(t *testing.T, parent string) string {
	t.Helper()
	dir, err := os.MkdirTemp(parent, "pfar-soak-")
	check(t, err)
	check(t, os.Chmod(dir, 0o755))
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// path is the file of a server's declaration.
func (p *pfar) path(v *served) string { return filepath.Join(p.declarations, v.name+".hcl") }

// write replaces a declaration in one step, as an editor does. Several may write the same one at once.
func (p *pfar) write(v *served, text string) {
	err := func() error {
		f, err := os.CreateTemp(p.home, v.name+"-*.new")
		if err != nil {
			return err
		}
		_, err = f.WriteString(text)
		if err := errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
			return err
		}
		return os.Rename(f.Name(), p.path(v))
	}()
	if err != nil {
		p.t.Errorf("writing a declaration: %v", err)
	}
}

func (p *pfar) up() {
	p.t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		p.t.Fatal(err)
	}
	p.metrics = free.Addr().String()
	free.Close()
	p.cmd = exec.Command(filepath.Join(p.bin, "pfar"), "up", p.declarations, "--listen", "127.0.0.1:0", "--metrics", p.metrics, "--json", "--verbose")
	p.cmd.Env, p.cmd.Stderr = p.env, &p.stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // PDEATHSIG is sent when this thread ends (prctl(2)), which it does with the goroutine
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.read(stdout)
			p.cmd.Wait()
			close(p.ended)
		}
	}()
	if err := <-started; err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		p.stop()
		if p.t.Failed() {
			log := p.stderr.String()
			p.t.Logf("pfar up wrote at the end:\n%s", log[max(0, len(log)-8000):])
		}
	})
}

// read follows the reports.
func (p *pfar) read(r io.Reader) {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		var report control.Report
		if json.Unmarshal(line, &report) == nil {
			p.take(report)
		}
		if err != nil {
			return
		}
	}
}

func (p *pfar) take(r control.Report) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for _, s := range r.Servers {
		p.uids[s.UID] = true
	}
	for _, v := range p.servers {
		spans, s := p.lives[v.name], server(r, v.name)
		running, down := s.State == control.Running, len(spans) > 0 && spans[len(spans)-1].to.IsZero()
		switch {
		case !running && !down:
			p.lives[v.name] = append(spans, span{from: now})
		case running && down:
			spans[len(spans)-1].to = now
		case running && s.PID != server(p.last, v.name).PID: // a report leaves out what is over when it is made
			p.lives[v.name] = append(spans, span{now, now})
		}
	}
	p.last = r
	p.reports++
	close(p.changed)
	p.changed = make(chan struct{})
}

// slack is how far the report of what happened to a server may lag behind what its callers saw of it, or run ahead.
const slack = 10 * time.Second

// away reports whether the server was not running at some moment between two, or near.
func (p *pfar) away(name string, from, to time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(append(slices.Clone(p.lives[name]), p.struck[name]...), func(s span) bool {
		return s.from.Before(to.Add(slack)) && (s.to.IsZero() || s.to.After(from.Add(-slack)))
	})
}

// gatewayKilled reports whether the gateway was killed between two moments.
func (p *pfar) gatewayKilled(from, to time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.killed, func(at time.Time) bool { return at.After(from.Add(-time.Second)) && at.Before(to.Add(time.Second)) })
}

// sees remembers a server's user id.
func (p *pfar) sees(uid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.uids[uid] = true
}

// report returns the newest report and how many there have been.
func (p *pfar) report() (control.Report, int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last, p.reports
}

// server finds one in a report; the zero server stands for one that is not there.
func server(r control.Report, name string) control.Server {
	if i := slices.IndexFunc(r.Servers, func(s control.Server) bool { return s.Name == name }); i >= 0 {
		return r.Servers[i]
	}
	return control.Server{}
}

// await returns the first report from now on, the present one included, that meets a condition.
func (p *pfar) await(what string, within time.Duration, met func(control.Report) bool) control.Report {
	p.t.Helper()
	timeout := time.NewTimer(within)
	defer timeout.Stop()
	for {
		p.mu.Lock()
		r, n, changed := p.last, p.reports, p.changed
		p.mu.Unlock()
		if n > 0 && met(r) {
			return r
		}
		select {
		case <-changed:
		case <-p.ended:
			p.t.Fatalf("waiting for %s: pfar has ended: %s", what, p.stderr.String())
		case <-timeout.C:
			p.t.Fatalf("waiting for %s: not within %v; now %s", what, within, describe(r))
		}
	}
}

func describe(r control.Report) string {
	var b strings.Builder
	for _, s := range r.Servers {
		fmt.Fprintf(&b, "%s is %s (%s); ", s.Name, s.State, s.Detail)
	}
	for _, d := range r.Diagnostics {
		fmt.Fprintf(&b, "%s:%d: %s %s; ", d.File, d.Line, d.Summary, d.Detail)
	}
	return b.String() + strings.Join(r.Notes, "; ")
}

// endpoint returns the gateway's host and port, and the token.
func (p *pfar) endpoint() (host, token string) {
	r, _ := p.report()
	u, err := url.Parse(r.Endpoint)
	if err != nil {
		p.t.Fatal(err)
	}
	b, err := os.ReadFile(r.TokenFile)
	if err != nil {
		p.t.Fatal(err)
	}
	return u.Host, string(bytes.TrimSpace(b))
}

// command runs another pfar command beside "pfar up". One that does not end has lost its way.
func (p *pfar) command(args ...string) (string, error) {
	const longest = 2 * time.Minute // its own limit is less
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	c := exec.CommandContext(ctx, filepath.Join(p.bin, "pfar"), args...)
	c.Env = p.env
	out, err := c.CombinedOutput()
	if ctx.Err() != nil {
		p.t.Errorf("pfar %q did not end within %v", args, longest)
	}
	return string(out), err
}

// stop ends pfar as Ctrl-C does.
func (p *pfar) stop() {
	select {
	case <-p.ended:
		return
	default:
	}
	p.cmd.Process.Signal(os.Interrupt)
	select {
	case <-p.ended:
	case <-time.After(recovery):
		p.t.Errorf("pfar up has not ended %v after SIGINT", recovery)
		for _, d := range descendants(p.cmd.Process.Pid) {
			syscall.Kill(d.pid, syscall.SIGKILL)
		}
		p.cmd.Process.Kill()
		<-p.ended
	}
}
