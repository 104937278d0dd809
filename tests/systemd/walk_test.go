package systemd

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pfar/pfar/tests/systemd/bed"
	"github.com/pfar/pfar/units/control"
)

// walk is a machine to which things happen, and what is to come of them.
type walk struct {
	*bed.Machine
	t       *testing.T
	random  *rand.Rand
	servers map[string]*walker // by name
	edits   int
	said    []string

	meanwhile sync.WaitGroup // what happens to all while other things happen to servers
}

// walker is one server as it should be.
type walker struct {
	file    string // what is in its file; "": there is none
	variant string // the last good text's; "": there has been none since there is a file
	memory  int    // MiB, that text's memory_limit
	run     bool
	crashed bool // since it was started last: another time its back-off would take too long
}

// neverGood reports whether its file has a mistake and was never without: its unit fails and says so.
func (s *walker) neverGood() bool { return s.file == "broken" && s.variant == "" }

// act is something that happens to one server, or to all when it has no name. It reports false if it cannot happen now.
type act struct {
	name   string
	happen func(w *walk, name string, s *walker) bool
}

var toServers = []act{
	{"put", func(w *walk, name string, s *walker) bool { w.put(name, s, false); return true }},
	{"put a copy", func(w *walk, name string, s *walker) bool { w.put(name, s, true); return true }},
	{"touch", func(w *walk, name string, s *walker) bool {
		if s.file == "" {
			return false
		}
		w.Run(w.t, "touch", path(name))
		return true
	}},
	{"break", func(w *walk, name string, s *walker) bool {
		s.file = "broken"
		w.Put(w.t, path(name), "server {", 0o644)
		return true
	}},
	{"mend", func(w *walk, name string, s *walker) bool {
		if s.file != "broken" || s.variant == "" {
			return false
		}
		s.file = s.variant
		w.Put(w.t, path(name), s.text(), 0o644)
		return true
	}},
	{"change the limits", func(w *walk, name string, s *walker) bool {
		if s.file == "broken" || !s.run { // others start by it
			return false
		}
		s.memory = s.memory%100 + 101
		w.Put(w.t, path(name), s.text(), 0o644)
		return true
	}},
	{"remove", func(w *walk, name string, s *walker) bool {
		if s.file == "" {
			return false
		}
		*s = walker{}
		w.Run(w.t, "rm", path(name))
		return true
	}},
	{"rename", func(w *walk, name string, s *walker) bool {
		for other, o := range w.servers {
			if s.file != "" && s.file != "broken" && o.file == "" && other != name {
				*o = walker{file: s.file, variant: s.file, memory: s.memory, run: true}
				*s = walker{}
				w.Run(w.t, "mv", path(name), path(other))
				return true
			}
		}
		return false
	}},
	{"pfar start", turn("pfar", "start", true)},
	{"pfar stop", turn("pfar", "stop", false)},
	{"pfar restart", turn("pfar", "restart", true)},
	{"systemctl start", turn("systemctl", "start", true)},
	{"systemctl stop", turn("systemctl", "stop", false)},
	{"systemctl restart", turn("systemctl", "restart", true)},
	{"kill the launcher", func(w *walk, name string, s *walker) bool {
		return s.run && w.Try("systemctl", "kill", "--signal=KILL", "pfar-mcp@"+name).Code == 0
	}},
	{"kill the server", func(w *walk, name string, s *walker) bool {
		if !s.run || s.crashed {
			return false
		}
		s.crashed = true
		return w.Try("systemctl", "kill", "--signal=KILL", "pfar-mcp-"+name+".scope").Code == 0
	}},
}

var toAll = []act{
	{"kill pfard", runs("systemctl", "kill", "--signal=KILL", "pfard")},
	{"kill the gateway", runs("systemctl", "kill", "--signal=KILL", "pfar-gateway")},
	{"stop pfard", runs("systemctl", "stop", "pfard")}, // whoever wants it next starts it
	{"restart pfard", runs("systemctl", "restart", "pfard")},
	{"restart the gateway", runs("systemctl", "restart", "pfar-gateway")},
	{"reload pfard", runs("systemctl", "reload", "pfard")},
	{"daemon-reload", runs("systemctl", "daemon-reload")},
	{"daemon-reexec", runs("systemctl", "daemon-reexec")},
	{"restart pfard meanwhile", meanwhile("systemctl restart pfard")},
	{"daemon-reexec meanwhile", meanwhile("for i in 1 2 3; do systemctl daemon-reexec; done")},
	{"lose the bus", func(w *walk, _ string, _ *walker) bool { // and systemd's own socket, on which pfard is
		w.BreakBus(w.t)
		return w.Try("systemctl", "daemon-reexec").Code == 0
	}},
}

func path(name string) string { return "/etc/pfar/mcp.d/" + name + ".hcl" }

// text is the last good one.
func (s *walker) text() string {
	return echo(fmt.Sprintf("env = { VARIANT = %q }\nsandbox {\nmemory_limit = \"%dm\"\n}\n", s.variant, s.memory))
}

// put writes a file, which may be new or as it was.
func (w *walk) put(name string, s *walker, slow bool) {
	w.edits++
	v := strconv.Itoa(w.edits)
	if w.random.IntN(3) == 0 && s.variant != "" {
		v = s.variant
	}
	if v != s.variant {
		s.run, s.crashed = true, false
	}
	s.file, s.variant = v, v
	if s.memory == 0 {
		s.memory = 100
	}
	if slow {
		w.Put(w.t, "/root/new.hcl", s.text(), 0o644)
		w.Run(w.t, "cp", "/root/new.hcl", path(name))
		return
	}
	w.Put(w.t, path(name), s.text(), 0o644)
}

// turn is a word of the operator's.
func turn(program, verb string, on bool) func(w *walk, name string, s *walker) bool {
	return func(w *walk, name string, s *walker) bool {
		what := name
		if program == "systemctl" {
			what = "pfar-mcp@" + name
		}
		if s.variant == "" && verb == "stop" {
			return false
		}
		if program == "systemctl" && verb == "stop" && s.run && !s.crashed { // systemd stops nothing that pfard has still to start
			bed.Eventually(w.t, soon, func() error {
				if r := w.Try("systemctl", "is-active", what); r.Stdout == "inactive\n" {
					return fmt.Errorf("%s is %s", what, r)
				}
				return nil
			})
		}
		bed.Eventually(w.t, soon, func() error { // pfard may have been killed a moment ago
			if r := w.Try(program, verb, what); (s.variant != "") != (r.Code == 0) {
				return fmt.Errorf("%s %s, variant %q: %s", program, verb, s.variant, r)
			}
			return nil
		})
		s.run = s.variant != "" && on
		if verb != "start" {
			s.crashed = false
		}
		return true
	}
}

func runs(argv ...string) func(*walk, string, *walker) bool {
	return func(w *walk, _ string, _ *walker) bool {
		return w.Try(argv[0], argv[1:]...).Code == 0
	}
}

func meanwhile(script string) func(*walk, string, *walker) bool {
	return func(w *walk, _ string, _ *walker) bool {
		w.meanwhile.Go(func() { w.Try("sh", "-c", script) })
		return true
	}
}

// step lets one thing happen to all or nothing, and to some servers one each, in any order and without a pause.
func (w *walk) step() {
	defer w.meanwhile.Wait()
	w.said = nil
	names := slices.Sorted(maps.Keys(w.servers))
	w.random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	names = names[:1+w.random.IntN(len(names)-1)]
	global := w.random.IntN(2 * len(names))
	for i, name := range names {
		if i == global {
			a := toAll[w.random.IntN(len(toAll))]
			w.said = append(w.said, a.name)
			a.happen(w, "", nil)
		}
		for {
			a := toServers[w.random.IntN(len(toServers))]
			if a.happen(w, name, w.servers[name]) {
				w.said = append(w.said, a.name+" "+name)
				break
			}
		}
	}
}

// look describes what there is, a line each, in the order of their words. Those of servers that run say by which plan.
const look = `cd /run/pfar
for f in plan/* applied/* intent/*; do if test -e "$f"; then echo "file $f"; fi; done
systemctl list-units --all --plain --no-legend 'pfar-mcp*' 'pfar-egress@*' 'pfar-egress-monitor@*' | while read unit load active rest; do
  case "$active $unit" in
  "active pfar-mcp@"*) echo "active $unit with $(sed 's/.*VARIANT[^0-9]*\([0-9]*\).*/\1/' /run/credentials/$unit/plan)" ;;
  "active pfar-mcp-"*.scope) echo "active $unit with $(systemctl show -P MemoryMax $unit) bytes" ;;
  "inactive "*) ;;
  *) echo "$active $unit" ;;
  esac
done
for p in /proc/[0-9]*; do
  case "$(readlink $p/exe)" in
  */pfar-sandbox) if ! grep -q enter $p/cmdline; then echo launcher; fi ;;
  */pfar-egress) echo bridge ;;
  */echo) echo server ;;
  esac
done
for d in /run/pfar-mcp/* /run/pfar-egress/* /run/private/pfar-mcp/* /run/private/pfar-egress/*; do if test -e "$d" && ! test -L "$d"; then echo "directory $d"; fi; done
systemctl list-jobs --no-legend`

// wanted is what look is to say.
func (w *walk) wanted() []string {
	var list []string
	for name, s := range w.servers {
		if s.file != "" {
			list = append(list, "file plan/"+name+".json", "file intent/"+name+".json")
		}
		if s.neverGood() {
			list = append(list, "file applied/"+name, "failed pfar-mcp@"+name+".service",
				"active pfar-egress@"+name+".socket", "active pfar-egress-monitor@"+name+".socket")
		}
		if s.run {
			list = append(list, "file applied/"+name, "active pfar-mcp@"+name+".service with "+s.variant, fmt.Sprintf("active pfar-mcp-%s.scope with %d bytes", name, s.memory<<20),
				"active pfar-egress@"+name+".socket", "active pfar-egress-monitor@"+name+".socket", "launcher", "server")
		}
	}
	slices.Sort(list)
	return list
}

// check compares what there is with what should be.
func (w *walk) check() error {
	r := w.Try("sh", "-euc", look)
	if r.Code != 0 {
		return fmt.Errorf("looking: %s", r)
	}
	var got []string
	for line := range strings.Lines(r.Stdout) {
		line = strings.TrimSuffix(line, "\n")
		if name := line[strings.LastIndex(line, "/")+1:]; strings.HasPrefix(line, "directory ") && w.servers[name].file != "" {
			continue // it stays, or not, while its server is declared
		}
		got = append(got, line)
	}
	slices.Sort(got)
	if want := w.wanted(); !slices.Equal(got, want) {
		return fmt.Errorf("there is\n\t%s\nand should be\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
	for name, s := range w.servers {
		state, err := server(w.Machine, name)
		switch {
		case s.file == "" && err == nil:
			return fmt.Errorf("pfar status has %s, which is not declared", name)
		case s.file == "":
		case err != nil:
			return err
		case s.neverGood():
			if state.State != control.Failed || !state.Broken {
				return fmt.Errorf("pfar status: %s was never good, but %+v", name, state)
			}
		case s.run != (state.State == control.Running) || s.run != (state.Tools > 0) || s.run != (state.PID != 0):
			return fmt.Errorf("pfar status: to run %t, but %+v", s.run, state)
		case !s.run && state.State != control.Stopped:
			return fmt.Errorf("pfar status: %s is %s (%s), want stopped", name, state.State, state.Detail)
		case state.Stale != (s.file == "broken"):
			return fmt.Errorf("pfar status: %s is stale: %t", name, state.Stale)
		}
	}
	return nil
}

// number is that of an environment variable, or the other one.
func number(t *testing.T, variable string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestWalk lets things happen at random, and checks after each step that all is as it should be. PFAR_TEST_SEED repeats
// a walk, PFAR_TEST_STEPS makes it longer. In short mode the walk is always the same: make test-all looks for new ones.
func TestWalk(t *testing.T) {
	t.Parallel()
	chance := uint64(732333) // of a walk that has once found a fault
	if !testing.Short() {
		chance = uint64(time.Now().UnixNano() % 1_000_000)
	}
	seed := number(t, "PFAR_TEST_SEED", chance)
	fmt.Printf("TestWalk: PFAR_TEST_SEED=%d\n", seed)
	w := &walk{Machine: appliance(t), t: t, random: rand.New(rand.NewPCG(seed, 0)), servers: map[string]*walker{}}
	for _, name := range []string{"a", "b", "c"} {
		w.servers[name] = &walker{}
		w.put(name, w.servers[name], false)
	}
	steps := uint64(20)
	if testing.Short() {
		steps = 4
	}
	for i := range number(t, "PFAR_TEST_STEPS", steps) {
		begin := time.Now()
		bed.Eventually(t, soon, func() error {
			if err := w.check(); err != nil {
				return fmt.Errorf("step %d of seed %d: %s: %w", i, seed, strings.Join(w.said, ", "), err)
			}
			return nil
		})
		t.Logf("step %d: %s (%s)", i, strings.Join(w.said, ", "), time.Since(begin).Round(time.Millisecond))
		w.MendBus(t)
		w.step()
	}
}
