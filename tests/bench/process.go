package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of the times in /proc/PID/stat: USER_HZ is 100 on every Linux that Go runs on (proc(5)).
const tick = 10 * time.Millisecond

// cpu returns the processor time that a process has used, user and system, to a tick.
func cpu(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat is %q", pid, b)
	}
	user, err := strconv.Atoi(f[11])
	if err != nil {
		return 0, err
	}
	system, err := strconv.Atoi(f[12])
	return time.Duration(user+system) * tick, err
}

// resident returns the resident set size of a process, in bytes.
func resident(pid int) (int, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmRSS:" {
			kb, err := strconv.Atoi(f[1])
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("no VmRSS in the status of %d", pid)
}

// cost adds up what processes used while they were called.
type cost struct {
	pids  map[string]int
	calls map[string]int
	used  map[string]time.Duration
}

func newCost(pids map[string]int) *cost {
	return &cost{pids, map[string]int{}, map[string]time.Duration{}}
}

// during counts a round in.
func (c *cost) during(name string, calls int, run func() error) error {
	before, err := cpu(c.pids[name])
	if err != nil {
		return err
	}
	if err := run(); err != nil {
		return err
	}
	after, err := cpu(c.pids[name])
	c.used[name] += after - before
	c.calls[name] += calls
	return err
}

// results are what 10,000 calls cost each process, and what it holds afterwards.
func (c *cost) results() []result {
	each := func(name string) float64 { return c.used[name].Seconds() / float64(c.calls[name]) * 10_000 }
	held := func(name string) int {
		n, _ := resident(c.pids[name]) // 0 shows in the table
		return n
	}
	a, b := each(floorName), each("/mcp")
	return []result{
		{What: "processor time of the gateway alone for 10,000 calls", Plain: fmt.Sprintf("%.2f s", a), In: fmt.Sprintf("%.2f s", b), Added: fmt.Sprintf("x %.2f", b/a)},
		{What: "memory of the gateway afterwards (RSS)", Plain: mebibytes(held(floorName)), In: mebibytes(held("/mcp")), Added: mebibytes(held("/mcp") - held(floorName))},
	}
}
