package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// processes are those that run, as proc(5) shows them.
type processes struct {
	proc     string
	children map[int][]int
	used     map[int]time.Duration
	resident map[int]uint64 // bytes
}

// clockTick is what proc(5) counts times in: USER_HZ, which is 100 on every architecture that Go knows.
const clockTick = 10 * time.Millisecond

// readProcesses looks at every process. One that ends meanwhile is not there.
func readProcesses(proc string) (*processes, error) {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, fmt.Errorf("listing the processes: %w", err)
	}
	p := &processes{proc: proc, children: map[int][]int{}, used: map[int]time.Duration{}, resident: map[int]uint64{}}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if b, err := os.ReadFile(filepath.Join(proc, e.Name(), "stat")); err == nil {
			p.add(pid, b)
		}
	}
	return p, nil
}

// add takes a line of /proc/PID/stat. The second field, the name, is the process's own choice and may hold anything; no
// later field has a parenthesis.
func (p *processes) add(pid int, stat []byte) {
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
	p.children[above] = append(p.children[above], pid)
	for i := user; i <= waitedSystem; i++ { // utime, stime, and both of children that have ended
		p.used[pid] += time.Duration(number(i)) * clockTick
	}
	p.resident[pid] = uint64(number(resident)) * uint64(os.Getpagesize())
}

// cost sums up what is below the launchers, which are pfar's own: memory in bytes, and the time that processors have
// spent.
func (p *processes) cost(launchers []int) (memory uint64, used time.Duration) {
	seen := map[int]bool{}
	for _, pid := range launchers {
		seen[pid] = true
	}
	list := launchers
	for len(list) > 0 {
		pid := list[0]
		list = list[1:]
		for _, child := range p.children[pid] {
			if seen[child] { // a pid that was given anew while we looked
				continue
			}
			seen[child] = true
			list = append(list, child)
			memory += p.memory(child)
			used += p.used[child]
		}
	}
	return memory, used
}

// memory is a process's proportional set size. Where that may not be read it is the resident one, which counts what is
// shared in full.
func (p *processes) memory(pid int) uint64 {
	b, err := os.ReadFile(filepath.Join(p.proc, strconv.Itoa(pid), "smaps_rollup"))
	if err != nil {
		return p.resident[pid]
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
	return p.resident[pid]
}
