package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pfar/pfar/units/control"
)

// The limits of starts and of a fleet. BENCHMARKS.md has what others need for the same.
const (
	limitAdded  = 25 * time.Millisecond // start to tools listed, above the plain program
	limitFleet  = 1500 * time.Millisecond
	limitMemory = 12 << 20 // bytes of ours per server, proportional
	fleetRuns   = 3
)

// result is one line of the table. A result without a limit is there to compare with.
type result struct {
	What            string
	Plain, In       string
	Added           string
	Limit           string
	Within, Limited bool
}

// program is a server and, in HCL, what else its declaration says.
type program struct {
	argv []string
	more string
}

// keys is how many secrets of the vault a server with credentials has.
const keys = 10

// keyed declares them.
func keyed() string {
	var b strings.Builder
	b.WriteString("auth = {\n")
	for i := range keys {
		fmt.Fprintf(&b, "  TOKEN_%d = \"vault:key_%d\"\n", i, i)
	}
	return b.String() + "}"
}

// storeKeys puts them into the vault.
func (p *pfar) storeKeys(ctx context.Context) error {
	for i := range keys {
		if _, err := p.client.Do(ctx, control.Request{Verb: control.Store, Key: fmt.Sprintf("key_%d", i), Secret: rand.Text()}); err != nil {
			return err
		}
	}
	return nil
}

// starts measures each program plain and in pfar, one after the other, so that what else the machine does hits both.
func starts(ctx context.Context, dir, bin string, rounds int, programs map[string]program) ([]result, error) {
	declarations := map[string]string{}
	var names []string
	for name, server := range programs {
		names = append(names, name)
		declarations[serverName(name)] = declaration(server.argv, server.more)
	}
	slices.Sort(names)
	p, err := up(ctx, dir, bin, declarations)
	if err != nil {
		return nil, err
	}
	defer p.down()
	if err := p.storeKeys(ctx); err != nil {
		return nil, err
	}
	for _, name := range names {
		if _, err := p.client.Do(ctx, control.Request{Verb: control.Stop, Server: serverName(name)}); err != nil {
			return nil, err
		}
	}
	plain, in, added := map[string][]time.Duration{}, map[string][]time.Duration{}, map[string][]time.Duration{}
	for round := range rounds + 1 {
		for _, name := range names {
			a, err := listTools(ctx, programs[name].argv)
			if err != nil {
				return nil, fmt.Errorf("plain %s: %w", name, err)
			}
			b, err := p.start(ctx, serverName(name))
			if err != nil {
				return nil, fmt.Errorf("%s in pfar: %w", name, err)
			}
			if round == 0 { // fills the caches
				continue
			}
			plain[name], in[name], added[name] = append(plain[name], a), append(in[name], b), append(added[name], b-a)
		}
	}
	var results []result
	for _, name := range names {
		d := median(added[name])
		results = append(results, result{
			What: fmt.Sprintf("%s: start to tools listed, p50 of %d", name, rounds), Plain: milliseconds(median(plain[name])), In: milliseconds(median(in[name])),
			Added: milliseconds(d), Limit: milliseconds(limitAdded), Within: d <= limitAdded, Limited: true,
		})
	}
	return results, nil
}

func serverName(name string) string {
	return strings.ToLower(strings.NewReplacer(" ", "-", ",", "").Replace(name))
}

// fleet measures many servers at once: from the start of pfar itself until all tools are listed.
func fleet(ctx context.Context, dir, bin string, n int) ([]result, error) {
	argv := []string{filepath.Join(bin, "echo")}
	var plain, in []time.Duration
	for range fleetRuns {
		a, err := listAll(ctx, argv, n)
		if err != nil {
			return nil, err
		}
		begin := time.Now()
		p, err := up(ctx, dir, bin, fleetOf(n, argv, ""))
		if err != nil {
			return nil, err
		}
		err = p.await(ctx, allRunning(n))
		plain, in = append(plain, a), append(in, time.Since(begin))
		p.down()
		if err != nil {
			return nil, err
		}
	}
	all := median(in)
	return []result{{
		What:  fmt.Sprintf("%d Go echo servers: start of pfar to all tools listed, p50 of %d", n, fleetRuns),
		Plain: milliseconds(median(plain)), In: milliseconds(all), Added: milliseconds(all - median(plain)),
		Limit: milliseconds(limitFleet) + " in all", Within: all <= limitFleet, Limited: true,
	}}, nil
}

// memory measures what pfar itself holds for each of many servers, when the bridge of every one has been used.
func memory(ctx context.Context, dir, bin string, n int) ([]result, error) {
	p, err := up(ctx, dir, bin, fleetOf(n, []string{filepath.Join(bin, "echo"), "-use-proxy"}, `allowed_domains = ["declared.example"]`))
	if err != nil {
		return nil, err
	}
	defer p.down()
	if err := p.await(ctx, allRunning(n)); err != nil {
		return nil, err
	}
	// A bridge starts with the first connection, of which nobody tells.
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		total, counted, err := ours(p.cmd.Process.Pid)
		if err != nil {
			return nil, err
		}
		if counted["pfar-egress"] < n {
			if time.Now().After(deadline) {
				return nil, fmt.Errorf("counting memory: %v, want %d bridges", counted, n)
			}
			continue
		}
		if counted["pfar-sandbox"] < n || counted["bwrap"] < n || counted["pfard"] != 1 || counted["pfar-gateway"] != 1 {
			return nil, fmt.Errorf("counting memory: %v", counted)
		}
		each := total / n
		return []result{{
			What:  fmt.Sprintf("memory of ours per server, bridge running (PSS, %d servers, pfard and gateway shared out)", n),
			Plain: mebibytes(0), In: mebibytes(each), Added: mebibytes(each), Limit: mebibytes(limitMemory), Within: each <= limitMemory, Limited: true,
		}}, nil
	}
}

func fleetOf(n int, argv []string, more string) map[string]string {
	declarations := map[string]string{}
	for i := range n {
		declarations[fmt.Sprintf("echo-%02d", i)] = declaration(argv, more)
	}
	return declarations
}

func allRunning(n int) func(control.Report) bool {
	return func(r control.Report) bool {
		running := 0
		for _, s := range r.Servers {
			if s.State == control.Running {
				running++
			}
		}
		return running == n
	}
}

// ours is the proportional set size of pfar's own processes below pid, in bytes: everything but the servers. counted is
// how many there are of each.
func ours(pid int) (total int, counted map[string]int, err error) {
	counted = map[string]int{}
	for _, p := range descendants(pid) {
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p))
		if err != nil {
			return 0, nil, err
		}
		comm := strings.TrimSpace(string(name))
		if comm == "echo" {
			continue
		}
		pss, err := proportional(p)
		if err != nil {
			return 0, nil, err
		}
		counted[comm]++
		total += pss
	}
	return total, counted, nil
}

func proportional(pid int) (int, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "Pss:" {
			kb, err := strconv.Atoi(f[1])
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("no Pss in smaps_rollup of %d", pid)
}

func descendants(pid int) []int {
	children := map[int][]int{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		b, err := os.ReadFile(filepath.Join(dir, "stat"))
		end := bytes.LastIndexByte(b, ')')
		if err != nil || end < 0 {
			continue
		}
		parent, _ := strconv.Atoi(strings.Fields(string(b[end+1:]))[1])
		child, _ := strconv.Atoi(filepath.Base(dir))
		children[parent] = append(children[parent], child)
	}
	var all []int
	for queue := []int{pid}; len(queue) > 0; queue = queue[1:] {
		all = append(all, children[queue[0]]...)
		queue = append(queue, children[queue[0]]...)
	}
	return all
}

// pageResult is how long the operator's page took.
func pageResult(took []time.Duration) []result {
	if len(took) == 0 {
		return nil
	}
	d := median(took)
	return []result{{
		What: fmt.Sprintf("page of %d waiting calls", waitingCalls), Plain: milliseconds(0), In: milliseconds(d),
		Added: milliseconds(d), Limit: milliseconds(limitPage), Within: d <= limitPage, Limited: true,
	}}
}

func median(list []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[len(sorted)/2]
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
}

func mebibytes(n int) string { return fmt.Sprintf("%.1f MB", float64(n)/(1<<20)) }

func printTable(w io.Writer, results []result) error {
	fmt.Fprintln(w, "| what | plain | in pfar | added | limit | |")
	fmt.Fprintln(w, "| --- | --- | --- | --- | --- | --- |")
	var err error
	for _, r := range results {
		verdict := ""
		if r.Limited {
			verdict = "within"
			if !r.Within {
				verdict, err = "EXCEEDED", errLimit
			}
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s |\n", r.What, r.Plain, r.In, r.Added, r.Limit, verdict)
	}
	return err
}

// describeMachine says what a reader needs to compare, in general terms.
func describeMachine(w io.Writer) {
	output := func(name string, args ...string) string {
		b, _ := exec.Command(name, args...).Output()
		first, _, _ := strings.Cut(strings.TrimSpace(string(b)), "\n")
		return first
	}
	memory := "?"
	b, _ := os.ReadFile("/proc/meminfo")
	if f := strings.Fields(string(b)); len(f) > 1 {
		if kb, err := strconv.Atoi(f[1]); err == nil {
			memory = fmt.Sprintf("%d GiB", (kb+1<<19)>>20)
		}
	}
	fmt.Fprintf(w, "\n%s: %d cores, %s of memory, Linux %s, %s, node %s, %s, uid %d\n\n", time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), memory,
		output("uname", "-r"), runtime.Version(), output("node", "--version"), output("bwrap", "--version"), os.Getuid())
}
