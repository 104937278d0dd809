// Package processes measures what a server costs: a directory like /proc and the pids of its launchers in, the memory,
// the processor time and the number of the processes below them out.
package processes

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Proc is where proc(5) is mounted.
const Proc = "/proc"

// Table has the processes that ran when it was read.
type Table struct {
	proc     string
	children map[int][]int
	used     map[int]time.Duration
	resident map[int]uint64 // bytes
}

// Cost is what some processes cost.
type Cost struct {
	Memory uint64        `json:"memory"` // bytes, with their share of common pages
	Used   time.Duration `json:"used"`   // of all processors together, since the processes began; nanoseconds in JSON
	Count  int           `json:"count"`  // of processes
}

// Tick is what proc(5) counts times in: USER_HZ, which is 100 on every architecture that Go knows.
const Tick = 10 * time.Millisecond

// Read looks at every process of a directory like Proc. One that ends meanwhile is not there. The error is of listing
// the directory.
func Read(proc string) (*Table, error) {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, fmt.Errorf("listing the processes: %w", err)
	}
	t := &Table{proc: proc, children: map[int][]int{}, used: map[int]time.Duration{}, resident: map[int]uint64{}}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if b, err := os.ReadFile(filepath.Join(proc, e.Name(), "stat")); err == nil {
			t.add(pid, b)
		}
	}
	return t, nil
}

// add takes a line of /proc/PID/stat. The second field, the name, is the process's own choice and may hold anything; no
// later field has a parenthesis.
func (t *Table) add(pid int, stat []byte) {
	const parent, user, waitedSystem, resident = 1, 11, 14, 21 // counted from the third field on
	end := bytes.LastIndexByte(stat, ')')
	fields := strings.Fields(string(stat[end+1:]))
	if end < 0 || len(fields) <= resident {
		return
	}
	number := func(i int) int64 {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil || n < 0 {
			return 0
		}
		return n
	}
	above := int(number(parent))
	t.children[above] = append(t.children[above], pid)
	for i := user; i <= waitedSystem; i++ { // utime, stime, and both of children that have ended
		t.used[pid] += time.Duration(number(i)) * Tick
	}
	t.resident[pid] = uint64(number(resident)) * uint64(os.Getpagesize())
}

// Below sums up what the processes below launchers cost. The launchers are pfar's own, and do not count.
func (t *Table) Below(launchers []int) (c Cost) {
	seen := map[int]bool{}
	for _, pid := range launchers {
		seen[pid] = true
	}
	list := launchers
	for len(list) > 0 {
		pid := list[0]
		list = list[1:]
		for _, child := range t.children[pid] {
			if seen[child] { // a pid that was given anew while we looked
				continue
			}
			seen[child] = true
			list = append(list, child)
			c.Memory += t.memory(child)
			c.Used += t.used[child]
			c.Count++
		}
	}
	return c
}

// Share is how many processors were busy on average, if so much of their time was used up meanwhile.
func Share(used, passed time.Duration) float64 {
	if used <= 0 || passed <= 0 {
		return 0
	}
	return used.Seconds() / passed.Seconds()
}

// memory is a process's proportional set size. Where that may not be read it is the resident one, which counts what is
// shared in full.
func (t *Table) memory(pid int) uint64 {
	b, err := os.ReadFile(filepath.Join(t.proc, strconv.Itoa(pid), "smaps_rollup"))
	if err != nil {
		return t.resident[pid]
	}
	for line := range strings.Lines(string(b)) {
		value, ok := strings.CutPrefix(line, "Pss:")
		if !ok {
			continue
		}
		value, ok = strings.CutSuffix(strings.TrimSpace(value), " kB")
		if n, err := strconv.ParseUint(value, 10, 44); ok && err == nil {
			return n << 10
		}
	}
	return t.resident[pid]
}
