package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// suite is one installed version of the suite.
type suite struct {
	name string // of its alias in package.json
	dir  string // of what is installed

	alone bool // it runs in a network of its own, and with it the client that it starts
}

// longest is how long the suite may take for one run.
const longest = 15 * time.Minute

// command makes one call of the suite, by a Node that is new enough for it.
func (s suite) command(ctx context.Context, args ...string) *exec.Cmd {
	arch := map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
	node := filepath.Join(s.dir, "node_modules", "node-linux-"+arch, "bin", "node")
	patient, _ := filepath.Abs("patient.cjs") // the directory is there
	program := filepath.Join(s.dir, "node_modules", s.name, "dist", "index.js")
	line := append([]string{node, "--require", patient, program}, args...)
	if s.alone {
		line = append([]string{"unshare", "--net", "sh", "-c", `ip link set lo up && exec "$@"`, "sh"}, line...)
	}
	c := exec.CommandContext(ctx, line[0], line[1:]...)
	c.WaitDelay = time.Second // a client that it has started may hold its output open
	c.Env = append(os.Environ(), "NODE_COMPILE_CACHE="+filepath.Join(scratch(), "compiled"))
	return c
}

// run judges, and adds the checks to r. The suite's exit code says whether checks failed, which is not what matters
// here: that there are checks does. What a client that it has started wrote to stderr comes back.
func (s suite) run(ctx context.Context, r results, role string, env []string, args ...string) (said string, err error) {
	dir, err := os.MkdirTemp(scratch(), role+"-")
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	c := s.command(ctx, append([]string{role, "--output-dir", dir}, args...)...)
	c.Env, c.Dir = append(c.Env, env...), dir
	out, runErr := c.CombinedOutput()
	prefix := ""
	if role == "server" {
		prefix = "server-"
	}
	before := r.total()
	if err := r.read(dir, prefix); err != nil {
		return "", err
	}
	for _, depth := range []string{"*", "*/*"} { // the name of a scenario may have a slash
		files, _ := filepath.Glob(filepath.Join(dir, depth, "stderr.txt"))
		for _, path := range files {
			b, _ := os.ReadFile(path)
			said += string(b)
		}
	}
	if ctx.Err() != nil || r.total() == before {
		return said, fmt.Errorf("%s %q: %w, %d checks:\n%.4000s", s.name, args, errors.Join(runErr, ctx.Err()), r.total()-before, out)
	}
	return said, nil
}

func (r results) total() int {
	n := 0
	for _, checks := range r {
		n += len(checks)
	}
	return n
}

// scenarios lists what the suite has for a role, "server" or "client".
func (s suite) scenarios(t testing.TB, role string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	out, err := s.command(ctx, "list", "--"+role).CombinedOutput()
	if err != nil {
		t.Fatalf("%s list: %v\n%s", s.name, err, out)
	}
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^ +- (\S+)`).FindAllSubmatch(out, -1) {
		names = append(names, string(m[1]))
	}
	if len(names) < 20 {
		t.Fatalf("%s lists %d scenarios for a %s: %s", s.name, len(names), role, out)
	}
	return names
}

// wantAll fails for every scenario that a suite has and that is neither judged nor excused. It has nothing to say of a
// test of which only a part has run.
func wantAll(t testing.TB, dir, role string, verdicts []verdict, excused func(string) bool) {
	t.Helper()
	judged := map[string]map[string]bool{} // by suite
	for _, v := range verdicts {
		if len(v.through) == 0 {
			return
		}
		if judged[v.suite.name] == nil {
			judged[v.suite.name] = map[string]bool{}
		}
		for scenario := range v.through {
			judged[v.suite.name][scenario] = true
		}
	}
	for _, name := range []string{"conformance-stable", "conformance-alpha"} {
		s := suite{name: name, dir: dir}
		for _, scenario := range s.scenarios(t, role) {
			if !judged[name][scenario] && !excused(scenario) {
				t.Errorf("%s has a %s scenario %s that nobody runs", name, role, scenario)
			}
		}
	}
}

// verdict is one line of the table, and what it comes from.
type verdict struct {
	suite           suite
	revision        string
	way             string // of several, by which pfar reaches the server
	direct, through results
	said            map[string]string // by a client of the suite, in a scenario with pfar
	took            [2]time.Duration  // without and with pfar
}

func newVerdict(name, dir, revision string) verdict {
	return verdict{suite: suite{name: name, dir: dir}, revision: revision, direct: results{}, through: results{},
		said: map[string]string{}}
}

func (v verdict) name() string {
	return strings.TrimSpace(v.suite.name + " " + v.revision + " " + v.way)
}

// judge fails for everything that pfar loses, and when there was less to lose than least.
func (v verdict) judge(t testing.TB, least int) {
	t.Helper()
	if n := v.direct.count(passed); n < least {
		t.Errorf("%s: only %d checks pass without pfar, there were %d: %s", v.name(), n, least, failures(slices.Concat(values(v.direct)...)))
	}
	refused := map[[2]string]bool{}
	for _, l := range losses(v.direct, v.through) {
		if key := [2]string{l.scenario, l.id}; refusedChecks[key] != "" {
			refused[key] = true
			continue
		}
		t.Errorf("%s: %v", v.name(), l)
		if said := v.said[l.scenario]; said != "" {
			t.Logf("%s: %s: the client wrote:\n%s", v.name(), l.scenario, said)
			delete(v.said, l.scenario) // once is enough
		}
	}
	for key, why := range refusedChecks {
		if v.through[key[0]] != nil && !refused[key] {
			t.Errorf("%s: %s: %s passes now (%s): take it out of refusedChecks", v.name(), key[0], key[1], why)
		}
	}
}

func values(r results) (all [][]check) {
	for _, key := range sorted(r, nil) {
		all = append(all, r[key])
	}
	return all
}

// header and String make the table that a run prints.
var header = fmt.Sprintf("%-40s %9s %16s %16s %9s %9s", "", "scenarios", "passed without", "passed with pfar",
	"s without", "s with")

func (v verdict) String() string {
	return fmt.Sprintf("%-40s %9d %16d %16d %9.1f %9.1f", v.name(), len(v.through), v.direct.count(passed),
		v.through.count(passed), v.took[0].Seconds(), v.took[1].Seconds())
}

// table prints verdicts and their sum; the figures are the ones in BENCHMARKS.md.
func table(title string, verdicts []verdict) {
	fmt.Printf("%s\n%s\n", title, header)
	sum := [2]int{}
	for _, v := range verdicts {
		fmt.Println(v)
		sum[0] += v.direct.count(passed)
		sum[1] += v.through.count(passed)
	}
	fmt.Printf("%-40s %9s %16d %16d\n", "all", "", sum[0], sum[1])
}
