package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units/control"
)

// group is a file of the cgroup that a server's sandbox is in.
func group(server, file string) string {
	return filepath.Join("/sys/fs/cgroup/pfar.slice/pfar-mcp-"+server+".scope", file)
}

func read(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(b))
}

// counter is a value of a file like memory.events or cpu.stat, -1 if it is not there.
func counter(path, name string) int {
	for line := range strings.Lines(read(path)) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			if n, err := strconv.Atoi(strings.TrimSpace(rest)); err == nil {
				return n
			}
		}
	}
	return -1
}

const others = "calm bomb out"

// memoryLimit has a server take more than it may until it is disabled, which is long enough to look at.
func memoryLimit() (string, error) {
	const why = "killed by the kernel: out of its memory_limit"
	before := launchers(strings.Fields(others)...)
	if max := read(group("hog", "memory.max")); max != fmt.Sprint(48<<20) {
		return "", fmt.Errorf("memory.max is %s", max)
	}
	s, err := server("hog")
	if err != nil {
		return "", err
	}
	for crashes := range 3 {
		if err := becomes("hog", func(s control.Server) error {
			if s.State != control.Running || s.Tools == 0 || s.Crashes != crashes {
				return fmt.Errorf("%+v", s)
			}
			return nil
		}); err != nil {
			return "", err
		}
		if out, err := output("pfar", "call", "hog.allocate", "--bytes", fmt.Sprint(200<<20)); err == nil {
			return "", fmt.Errorf("it had it all: %s", out)
		}
	}
	if err := becomes("hog", func(s control.Server) error {
		return contains(s.Detail, "disabled after 3 crashes in a row: "+why)
	}); err != nil {
		return "", err
	}
	for _, args := range [][]string{{"systemctl", "status", "pfar-mcp@hog"}, {"pfar", "status", "hog"}} {
		out, _ := output(args[0], args[1:]...) // it does not run, says the status
		if err := contains(out, "disabled after 3 crashes in a row: "+why); err != nil {
			return "", fmt.Errorf("%q: %w", args, err)
		}
	}
	err = logged("hog", "crashed: back-off 1s after crash 1 of 3: "+why, "crashed: back-off 5s after crash 2 of 3: "+why)
	if after := launchers(strings.Fields(others)...); after != before {
		err = errors.Join(err, fmt.Errorf("others were %s and are %s", before, after))
	}
	out, eerr := output("pfar", "enable", "hog")
	if eerr != nil {
		eerr = fmt.Errorf("pfar enable: %w: %s", eerr, out)
	}
	return s.Limits, errors.Join(err, eerr, allRun("hog"))
}

// liveLimit raises a limit while the server runs, and has it use what it got.
func liveLimit() (string, error) {
	before := launchers("hog") + read(group("hog", "cgroup.procs"))
	if err := declare("hog", echoServer("", `memory_limit = "256m"`)); err != nil {
		return "", err
	}
	if err := becomes("hog", func(s control.Server) error { return contains(s.Limits, "memory 256 MiB") }); err != nil {
		return "", err
	}
	if max := read(group("hog", "memory.max")); max != fmt.Sprint(256<<20) {
		return "", fmt.Errorf("memory.max is %s", max)
	}
	out, err := output("pfar", "call", "hog.allocate", "--bytes", fmt.Sprint(100<<20))
	if err != nil {
		return "", fmt.Errorf("pfar call: %w: %s", err, out)
	}
	if after := launchers("hog") + read(group("hog", "cgroup.procs")); after != before {
		return "", fmt.Errorf("it was %s and is %s", before, after)
	}
	return "", contains(out, "104857600 bytes held")
}

// tasksLimit has a server fork without end, which its own RLIMIT_NPROC stops, and then a program of root's beside it,
// which only the scope can.
func tasksLimit() (string, error) {
	before := launchers("calm", "bomb")
	out, err := output("pfar", "call", "bomb.attack", "--name", "fork-bomb", "--target", "1000")
	if err != nil {
		return "", fmt.Errorf("pfar call: %w: %s", err, out)
	}
	if err := contains(strings.ReplaceAll(out, " ", ""), `"blocked":true`); err != nil {
		return "", err
	}
	forked, err := bombInScope("bomb")
	if err != nil || forked < 1 || forked >= 40 || counter(group("bomb", "pids.events"), "max") < 1 {
		return "", fmt.Errorf("in the scope a program of root's forks %d times, %w; pids.max is %s, pids.events %s", forked, err,
			read(group("bomb", "pids.max")), read(group("bomb", "pids.events")))
	}
	if after := launchers("calm", "bomb"); after != before {
		return "", fmt.Errorf("they were %s and are %s", before, after)
	}
	return fmt.Sprintf("%s; root in the scope: %d forks", strings.TrimSpace(out), forked), allRun("calm", "bomb")
}

// bombInScope forks without end in a server's scope and says how often it could.
func bombInScope(server string) (int, error) {
	const said = "/run/bomb"
	// Its children would hold a pipe open.
	script := `echo $$ >"$1"; exec ./payload bomb 1000 </etc/hostname >"$2" 2>&1`
	if out, err := output("sh", "-euc", script, "sh", group(server, "cgroup.procs"), said); err != nil {
		return 0, fmt.Errorf("%w: %s%s", err, out, read(said))
	}
	pids, err := pidsIn(filepath.Dir(group(server, "cgroup.procs")))
	if err != nil {
		return 0, err
	}
	for _, pid := range pids {
		if read(fmt.Sprintf("/proc/%d/comm", pid)) == "payload" {
			err = errors.Join(err, unix.Kill(pid, unix.SIGKILL))
		}
	}
	n, nerr := strconv.Atoi(read(said))
	return n, errors.Join(err, nerr)
}

// cpuLimit looks at a server that never rests. It is declared here, since it slows all other servers down.
func cpuLimit() (detail string, err error) {
	const loop = `while :; do :; done & exec ` + programs + `/echo`
	text := fmt.Sprintf("label = \"internal\"\nserver {\n  command = \"bash\"\n  args = [\"-c\", %q]\n}\n", loop)
	// It costs the rest of the checks their time.
	defer func() { err = errors.Join(err, os.Remove(filepath.Join(declarations, "busy.hcl"))) }()
	if err := errors.Join(declare("busy", text+"sandbox {\n  cpu_quota = \"20%\"\n}\n"), allRun("busy")); err != nil {
		return "", err
	}
	if got := strings.TrimSpace(read(group("busy", "cpu.max"))); got != "20000 100000" {
		return "", fmt.Errorf("cpu.max is %q, want 20 ms of each 100 ms", got)
	}
	// The time that it has used says less: a machine that has to wait counts the wait.
	count := func(name string) int { return counter(group("busy", "cpu.stat"), name) }
	periods, throttled := count("nr_periods"), count("nr_throttled")
	if err := eventually(func() error {
		if n := count("nr_periods") - periods; n < 10 {
			return fmt.Errorf("it ran in %d periods of the quota", n)
		}
		return nil
	}); err != nil {
		return "", err
	}
	n, ran := count("nr_throttled")-throttled, count("nr_periods")-periods
	detail = fmt.Sprintf("throttled in %d of %d periods", n, ran)
	if 2*n < ran {
		return detail, errors.New("the quota is to stop it in most periods")
	}
	s, err := server("busy")
	if err == nil && s.State != control.Running {
		err = fmt.Errorf("%+v", s)
	}
	return detail, err
}
