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

// cost adds up what processes used while they were called: of each side its gateway and its server.
type cost struct {
	pids  map[string][]int
	calls map[string]int
	used  map[string][]time.Duration
}

func newCost(pids map[string][]int) *cost {
	return &cost{pids, map[string]int{}, map[string][]time.Duration{}}
}

// during counts a round in.
func (c *cost) during(name string, calls int, run func() error) error {
	before, err := c.now(name)
	if err != nil {
		return err
	}
	if err := run(); err != nil {
		return err
	}
	after, err := c.now(name)
	if err != nil {
		return err
	}
	if c.used[name] == nil {
		c.used[name] = make([]time.Duration, len(after))
	}
	for i := range after {
		c.used[name][i] += after[i] - before[i]
	}
	c.calls[name] += calls
	return nil
}

func (c *cost) now(name string) ([]time.Duration, error) {
	var list []time.Duration
	for _, pid := range c.pids[name] {
		used, err := cpu(pid)
		if err != nil {
			return nil, err
		}
		list = append(list, used)
	}
	return list, nil
}

// results are what 10,000 calls cost each process, and what the gateway holds afterwards.
func (c *cost) results(plain, in string) ([]result, error) {
	var results []result
	for _, row := range []struct {
		what, plain string
		process     int
	}{{"gateway", plain, 0}, {"server", plain, 1}, {"server (plain: in no sandbox)", bareName, 1}} {
		each := func(name string) float64 {
			return c.used[name][row.process].Seconds() / float64(c.calls[name]) * 10_000
		}
		a, b := each(row.plain), each(in)
		results = append(results, result{
			What: "processor time for 10,000 calls, " + row.what, Plain: fmt.Sprintf("%.2f s", a), In: fmt.Sprintf("%.2f s", b), Added: fmt.Sprintf("x %.2f", b/a),
		})
	}
	a, err := resident(c.pids[plain][0])
	if err != nil {
		return nil, err
	}
	b, err := resident(c.pids[in][0])
	return append(results, result{What: "memory of the gateway afterwards (RSS)", Plain: mebibytes(a), In: mebibytes(b), Added: mebibytes(b - a)}), err
}
