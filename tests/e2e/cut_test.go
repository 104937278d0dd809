package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/pfar/pfar/tests/faults"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
)

// cut is something that pfar is asked to do, and that is cut off at one change of a file after the other.
type cut struct {
	name    string
	args    []string
	stdin   string
	own     bool                     // cut off the command, not pfard
	bed     func(t *testing.T) *pfar // a pfar that is up, as it is before
	wrap    []string                 // in which it is up
	file    string                   // that the command changes, below the home
	one     string                   // one of the changes on the way
	short   bool                     // make test has it, cut off at that change
	already string                   // what the same command says if it is done
	old     []string                 // one of them is what it says if all is as it was, and it could not go on
	new     string                   // likewise, if it is done
	after   func(p *pfar)            // what else is to be when it is done
}

const cutToken = "tok-8d41f0aa7c2e4b55-of-the-cut"

// TestCut kills pfar, or has its disk be full, at each change of a file that adding, installing, upgrading, importing
// and undoing make. It wants what was there before or what was to be, words about it, and the same command to come to
// its end. With -short it is three of them, each at one change.
func TestCut(t *testing.T) {
	if os.Getuid() != 0 {
		return // another's process is traced, which has no memory to be read, and the test has run as root
	}
	t.Parallel()
	for _, c := range cuts(t) {
		if testing.Short() && !c.short {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			changes, want := c.run(t, faults.Fault{}, "")
			changes = slices.DeleteFunc(changes, func(name string) bool { return strings.HasPrefix(name, "sync ") })
			if !slices.Contains(changes, c.one) {
				t.Fatalf("no change is %q; there are\n%s", c.one, strings.Join(changes, "\n"))
			}
			if testing.Short() {
				changes = []string{c.one}
			}
			tried, came := 0, 0
			for _, at := range changes {
				for _, f := range []faults.Fault{{At: at}, {At: at, Full: true}} {
					name := "killed at " + at
					if f.Full {
						name = "full at " + at
					}
					if !t.Failed() {
						t.Run(name, func(t *testing.T) {
							tried++
							c.run(t, f, want)
							came++
						})
					}
				}
			}
			if came*2 < tried {
				t.Errorf("only %d of %d faults happened", came, tried)
			}
		})
	}
}

// cuts are those that pfar promises to withstand.
func cuts(t *testing.T) []cut {
	const name = "@example/mcp-cut"
	r := newRegistries(t)
	for _, version := range []string{"1.0.0", "1.1.0"} {
		r.npm(t, name, version, "")
	}
	wrap := inHosts(r)
	up := func(t *testing.T, declarations map[string]string, installed ...string) *pfar {
		p := prepare(t, declarations)
		p.env = append(p.env, "npm_config_registry="+r.url("/npm/"), "npm_config_cafile="+r.roots,
			"NPM_CONFIG_REGISTRY=")
		p.reads("cutting", "label")
		p.up(wrap...)
		for _, version := range installed {
			p.succeeds("install", "npm:"+name+"@"+version)
		}
		return p
	}
	declared := map[string]string{"cut.hcl": fmt.Sprintf("package = %q\n", "npm:"+name+"@1.0.0")}
	runs := func(server string) func(*pfar) { return func(p *pfar) { p.awaitRunning(server) } }
	verified := func(p *pfar) {
		p.await("cutting verified", soon, func(r control.Report) bool {
			return server(r, "cutting").Verification.Result == units.Verified
		})
	}
	client := func(p *pfar) *pfar {
		p.clientHome(map[string]string{cursorFile: fmt.Sprintf(
			`{"mcpServers": {"cut": {"command": %q, "env": {"CUT_TOKEN": %q}}}}`, program(t, "echo"), cutToken)})
		return p
	}
	imported := func(t *testing.T) *pfar {
		p := client(up(t, nil))
		p.succeeds("import", "--from", "cursor", "--yes")
		return p
	}
	gone := func(p *pfar) {
		p.await("cut to be gone", soon, func(r control.Report) bool { return len(r.Servers) == 0 })
		if got := p.vaultKeys(); got != "[]" {
			p.t.Errorf("the vault has %s", got)
		}
	}
	fresh := func(t *testing.T) *pfar { return up(t, nil) }
	asked := func(t *testing.T) *pfar { return client(up(t, nil)) }
	unchanged := []string{"was not changed", "nothing was changed: cut goes on"}
	return []cut{
		{name: "add", args: []string{"add", "cutting", "--yes"}, stdin: cutToken, wrap: wrap, file: "mcp.d/cutting.hcl",
			bed: func(t *testing.T) *pfar {
				p := up(t, nil, "1.0.0")
				check(t, os.Mkdir(filepath.Join(p.home, "services.d"), 0o755))
				put(t, filepath.Join(p.home, "services.d/cutting.hcl"), fmt.Sprintf(cuttingService, name))
				return p
			},
			after: verified, one: "rename to state/vault/cutting_token.age",
			old: []string{"was not written", "the set-up waits"}, new: "was written"},
		{name: "add unknown",
			args:  []string{"add", "npm:" + name, "--yes", "--secret", "CUT_TOKEN", "--learn", "100ms"},
			stdin: cutToken, wrap: wrap, file: "mcp.d/cut.hcl",
			bed:   func(t *testing.T) *pfar { return up(t, nil, "1.1.0") },
			after: runs("cut"), one: "rename to mcp.d/cut.hcl", old: []string{"was not written", "nothing is declared"},
			new: "was written", short: true},
		{name: "install", args: []string{"install", "npm:" + name + "@1.0.0"}, wrap: wrap,
			file: "state/packages/npm/" + name + "/1.0.0/record.json", bed: fresh, already: "is there already",
			after: func(*pfar) {}, one: "rename to state/packages/npm/" + name + "/1.0.0",
			old: []string{"was not installed"}, new: "was installed"},
		{name: "upgrade", args: []string{"upgrade", "cut", "1.1.0", "--yes"}, wrap: wrap, file: "mcp.d/cut.hcl",
			bed: func(t *testing.T) *pfar {
				p := up(t, declared, "1.1.0")
				p.awaitRunning("cut")
				return p
			},
			after: runs("cut"), one: "rename to state/upgrades/cut.json", old: unchanged, new: "was changed",
			short: true},
		{name: "back", args: []string{"upgrade", "cut", "--back", "--yes"}, wrap: wrap, file: "mcp.d/cut.hcl",
			bed: func(t *testing.T) *pfar {
				p := up(t, declared, "1.1.0")
				p.awaitRunning("cut")
				p.succeeds("upgrade", "cut", "1.1.0", "--yes")
				return p
			},
			after: func(p *pfar) {
				p.awaitRunning("cut")
				if out := p.succeeds("upgrade", "cut", "--back", "--yes"); !strings.Contains(out, "cut is back already") {
					p.t.Errorf("back once more: %s", out)
				}
			},
			one: "rename to mcp.d/cut.hcl", old: unchanged, new: "was changed"},
		{name: "import", args: []string{"import", "--from", "cursor", "--yes"}, wrap: wrap, file: "mcp.d/cut.hcl",
			bed: asked, already: "nothing to import", after: runs("cut"), one: "rename to mcp.d/cut.hcl",
			old: []string{"was not written", "cut  not imported"}, new: "was written"},
		{name: "import, the command", args: []string{"import", "--from", "cursor", "--yes"}, wrap: wrap, own: true,
			file: "mcp.d/cut.hcl", bed: asked, already: "nothing to import", after: runs("cut"),
			one: "rename to state/imports/*.json (3)", old: []string{"cut  imported"}, new: "the server cut exists already"},
		{name: "undo", args: []string{"import", "--undo", "--yes"}, wrap: wrap, file: "mcp.d/cut.hcl", bed: imported,
			already: "no import to undo", after: gone, one: "remove mcp.d/cut.hcl",
			old: []string{"was not removed"}, new: "was removed"},
		{name: "undo, the command", args: []string{"import", "--undo", "--yes"}, wrap: wrap, own: true,
			file: "mcp.d/cut.hcl", bed: imported, already: "no import to undo", after: gone,
			one: "rename to state/imports/*.json", old: []string{"cut  removed"}, new: "cut  was not declared",
			short: true},
	}
}

// cuttingService is a known service with a secret and a call that shows whether it is right.
const cuttingService = `service "cutting" {
  setup {
    title   = "Cutting"
    summary = "Cut off"
    package = "npm:%s@1.0.0"

    secret "CUTTING_TOKEN" {
      key     = "cutting_token"
      deliver = "env"
      where   = "Invent one."
    }

    test "label" {
      arguments = {}
    }
  }
}
`

// text is what the file of a cut has, "" if it is not there.
func (c cut) text(p *pfar) string {
	p.t.Helper()
	b, err := os.ReadFile(filepath.Join(p.home, c.file))
	if err != nil && !os.IsNotExist(err) {
		p.t.Fatal(err)
	}
	return faults.Plain(string(b)) // folders have other names each time
}

// run does it once, and returns the changes on the way. want is what the file has in the end.
func (c cut) run(t *testing.T, f faults.Fault, want string) (changes []string, now string) {
	p := c.bed(t)
	before := c.text(p)
	p.stdin = c.stdin
	f.Root = p.home
	trace, said, code := c.faulted(p, f)
	if f.At == "" {
		if now = c.text(p); code != 0 || now == before {
			t.Fatalf("pfar %q: %d %s; there is %s", c.args, code, said, now)
		}
		c.after(p)
		return trace.Changes(), now
	}
	if !trace.Reached() {
		t.Skipf("it did not come there this time")
	}
	if now = c.text(p); now != before && now != want {
		t.Errorf("there is neither what was there nor what was to be: %s", now)
	}
	told := strings.Contains(said, "no space left") || strings.Contains(said, "disk is full")
	if f.Full && code != 0 && !told || !f.Full && code == 0 && now == before {
		t.Errorf("%d: %s", code, said)
	}
	trace.Room()
	old := now == before
	if f.Full && code != 0 && !c.own {
		c.says(t, said, old)
	}
	if !f.Full && !c.own {
		if code != 0 || old { // else it had ended before pfard was killed
			c.says(t, said, old)
		}
		p.again(c.wrap...)
	}
	out, stderr, code := p.command(c.args...)
	if !f.Full && c.own { // it could not say anything itself
		c.says(t, out+stderr, old)
	}
	if done := c.already != "" && strings.Contains(out+stderr, c.already); code != 0 && !done {
		t.Errorf("the same command: %d %s %s", code, out, stderr)
	}
	c.after(p)
	if now = c.text(p); now != want {
		t.Errorf("there is %s, want %s", now, want)
	}
	c.litter(p)
	return nil, now
}

// says wants a command to name what is there, and not the other thing.
func (c cut) says(t *testing.T, said string, old bool) {
	t.Helper()
	is := func(words string) bool { return words != "" && strings.Contains(said, words) }
	const nothing = "nothing was changed"
	saysOld := slices.ContainsFunc(append(c.old, nothing+"; the same"), is) ||
		strings.HasPrefix(said, "pfar: pfar is not running: nothing answers") // so it has done nothing
	said = strings.ReplaceAll(said, nothing, "")
	if saysNew := is(c.new) || c.own && is(c.already); saysOld != old || saysNew == old {
		t.Errorf("old: %t, and it says that it is old: %t, new: %t: %s", old, saysOld, saysNew, said)
	}
}

// litter wants nothing to be left half written.
func (c cut) litter(p *pfar) {
	p.t.Helper()
	for _, dir := range []string{"mcp.d", "state/vault", "state/packages/.staged", "state/set-ups", "state/upgrades"} {
		left, err := os.ReadDir(filepath.Join(p.home, dir))
		if err != nil && !os.IsNotExist(err) {
			p.t.Error(err)
		}
		for _, e := range left {
			if strings.HasPrefix(e.Name(), ".new-") || dir == "state/packages/.staged" || dir == "state/set-ups" {
				p.t.Errorf("%s is left in %s", e.Name(), dir)
			}
		}
	}
}

// faulted runs the command with a fault. All of pfar is killed with pfard.
func (c cut) faulted(p *pfar, f faults.Fault) (trace *faults.Trace, said string, code int) {
	p.t.Helper()
	if c.own {
		log, err := os.Create(filepath.Join(p.t.TempDir(), "said"))
		check(p.t, err)
		defer log.Close()
		cmd := exec.Command(program(p.t, "pfar"), c.args...)
		cmd.Env, cmd.Stdout, cmd.Stderr = p.env, log, log
		trace, err = faults.Start(cmd, f)
		check(p.t, err)
		code = trace.Wait()
		b, err := os.ReadFile(log.Name())
		check(p.t, err)
		return trace, string(b), code
	}
	var all []process
	f.Come = func() { all = descendants(p.cmd.Process.Pid) }
	trace, err := faults.Attach(p.daemon(), f)
	check(p.t, err)
	out, stderr, code := p.command(c.args...)
	if trace.Reached() && !f.Full {
		trace.Wait()
		for _, d := range append(all, process{pid: p.cmd.Process.Pid}) {
			_ = syscall.Kill(d.pid, syscall.SIGKILL)
		}
		<-p.ended
	}
	return trace, out + stderr, code
}
