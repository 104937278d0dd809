package soak

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// process is one of /proc.
type process struct {
	pid  int
	name string
}

// descendants returns the children of a process, their children and so on, parents first. A zombie counts as gone.
func descendants(pid int) []process {
	children := map[int][]process{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		b, err := os.ReadFile(filepath.Join(dir, "stat"))
		open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
		if err != nil || open < 0 || end < 0 {
			continue
		}
		f := strings.Fields(string(b[end+1:]))
		parent, _ := strconv.Atoi(f[1])
		n, _ := strconv.Atoi(filepath.Base(dir))
		if f[0] != "Z" {
			children[parent] = append(children[parent], process{n, string(b[open+1 : end])})
		}
	}
	var all []process
	for queue := []int{pid}; len(queue) > 0; queue = queue[1:] {
		for _, c := range children[queue[0]] {
			all = append(all, c)
			queue = append(queue, c.pid)
		}
	}
	return all
}

// marked returns the processes of the whole host that have the marker among their arguments.
func (p *pfar) marked() []int {
	var found []int
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		b, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		n, _ := strconv.Atoi(filepath.Base(dir))
		if err == nil && bytes.Contains(b, []byte(p.marker)) && n != os.Getpid() {
			found = append(found, n)
		}
	}
	return found
}

// weight is what a long-running process holds; memory in KiB. What Go's runtime holds of it, what is live, and how many
// goroutines there are, only the gateway says.
type weight struct{ files, threads, resident, held, live, goroutines int }

// weigh looks at the processes that stay.
func (s *soak) weigh() map[string]weight {
	s.t.Helper()
	now := map[string]weight{}
	for _, d := range descendants(s.pfar.cmd.Process.Pid) {
		if d.name == "pfard" || d.name == "pfar-gateway" {
			now[d.name] = measure(d.pid)
		}
	}
	if len(now) != 2 {
		s.t.Fatalf("pfard and the gateway are not both there: %v", now)
	}
	g := now["pfar-gateway"]
	m := s.metrics()
	g.held = (m["go_memstats_sys_bytes"] - m["go_memstats_heap_released_bytes"]) >> 10
	g.live, g.goroutines = m["go_gc_heap_live_bytes"]>>10, m["go_goroutines"]
	now["pfar-gateway"] = g
	return now
}

// metrics are what the gateway says of itself, as far as it is numbers without labels.
func (s *soak) metrics() map[string]int {
	s.t.Helper()
	response, err := http.Get("http://" + s.pfar.metrics + "/metrics")
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	now := map[string]int{}
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if name, value, ok := strings.Cut(lines.Text(), " "); ok {
			n, _ := strconv.ParseFloat(value, 64)
			now[name] = int(n)
		}
	}
	for _, name := range []string{"go_memstats_sys_bytes", "go_memstats_heap_released_bytes", "go_gc_heap_live_bytes", "go_goroutines", "go_gc_duration_seconds_count"} {
		if _, ok := now[name]; !ok {
			s.t.Fatalf("there is no %s among %d metrics: %v", name, len(now), lines.Err())
		}
	}
	return now
}

// collect has the gateway collect its garbage, by calls, until what it says is live is what is now: one collection may
// be under way, and what is pooled goes with the second.
func (s *soak) collect() {
	s.t.Helper()
	c := s.newClient(1001, newer)
	defer c.close()
	begun := s.metrics()["go_gc_duration_seconds_count"]
	for deadline := time.Now().Add(hang); s.metrics()["go_gc_duration_seconds_count"] < begun+3; {
		if o := c.once(request{server: s.pfar.servers[0], own: true, text: strings.Repeat("garbage ", 1<<17)}); o != answered {
			s.t.Fatalf("a call came to %q", o)
		}
		if time.Now().After(deadline) {
			s.t.Fatal("the gateway collects no garbage")
		}
	}
}

func measure(pid int) weight {
	dir := fmt.Sprintf("/proc/%d", pid)
	files, _ := os.ReadDir(filepath.Join(dir, "fd"))
	threads, _ := os.ReadDir(filepath.Join(dir, "task"))
	w := weight{files: len(files), threads: len(threads)}
	status, _ := os.ReadFile(filepath.Join(dir, "status"))
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmRSS:" {
			w.resident, _ = strconv.Atoi(f[1])
		}
	}
	return w
}

// Room that growth has beyond what was there before the chaos: the runtime keeps threads, and memory for a while.
const (
	moreFiles   = 6
	moreThreads = 16
	moreHeld    = 128 << 10

	// These have been let go, or never will be.
	moreLive       = 8 << 10
	moreGoroutines = 32
)

// moreResident is room for what the race detector never gives back of the busiest moment: its shadow of memory, its
// traces of goroutines. The gateway has many.
var moreResident = map[string]int{"pfard": 256 << 10, "pfar-gateway": 1536 << 10}

// compare fails if a process holds more than before the chaos.
func (s *soak) compare(before, after map[string]weight) {
	s.t.Helper()
	deadline := time.Now().Add(hang)
	for grown(before, after) != "" && time.Now().Before(deadline) {
		time.Sleep(100 * time.Millisecond) // nobody says when the last connection has gone
		after = s.weigh()
	}
	for name := range before {
		s.t.Logf("%-16s before %+v, after %+v", name, before[name], after[name])
	}
	if text := grown(before, after); text != "" {
		s.t.Error(text)
	}
}

func grown(before, after map[string]weight) string {
	for name, b := range before {
		a := after[name]
		if a.files > b.files+moreFiles || a.threads > b.threads+moreThreads || a.resident > b.resident+moreResident[name] ||
			a.held > b.held+moreHeld || a.live > b.live+moreLive || a.goroutines > b.goroutines+moreGoroutines {
			return fmt.Sprintf("%s has grown from %+v to %+v", name, b, a)
		}
	}
	return ""
}

// inspect counts what runs when everything serves again: of each kind as many as there are servers, and none beside.
func (s *soak) inspect() {
	s.t.Helper()
	want := map[string]int{"pfard": 1, "pfar-gateway": 1, "pfar-sandbox": len(s.pfar.servers)}
	marks := 0
	for _, v := range s.pfar.servers {
		if v.marks {
			marks++
		}
	}
	var text string
	for deadline := time.Now().Add(hang); ; time.Sleep(100 * time.Millisecond) { // of a bridge of the network nobody tells
		counted := map[string]int{}
		below := descendants(s.pfar.cmd.Process.Pid)
		var servers []int
		for _, d := range below {
			counted[d.name]++
			if d.name == "server" || d.name == "echo" {
				servers = append(servers, d.pid)
			}
		}
		text = ""
		for name, n := range want {
			if counted[name] != n {
				text = fmt.Sprintf("%d processes of %s, want %d", counted[name], name, n)
			}
		}
		if len(servers) != marks || counted["pfar-egress"] > len(s.pfar.servers) || counted["bwrap"] > 2*len(s.pfar.servers) {
			text = fmt.Sprintf("%d servers with the marker, want %d: %v", len(servers), marks, counted)
		}
		for _, pid := range s.pfar.marked() {
			if !slices.ContainsFunc(below, func(d process) bool { return d.pid == pid }) {
				text = fmt.Sprintf("process %d has the marker and is not pfar's any more", pid)
			}
		}
		if text == "" || time.Now().After(deadline) {
			break
		}
	}
	if text != "" {
		s.t.Error(text)
	}
}

// leftovers looks for what pfar should have taken with it.
func (s *soak) leftovers() {
	s.t.Helper()
	if found := s.pfar.marked(); len(found) > 0 {
		s.t.Errorf("still there after pfar's end: processes %v", found)
	}
	filepath.WalkDir(s.pfar.run, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type()&fs.ModeSocket != 0 && filepath.Base(path) != "control.sock" {
			s.t.Errorf("a socket is left: %s", path)
		}
		return nil
	})
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	if bytes.Contains(mounts, []byte(s.pfar.run)) {
		s.t.Errorf("a mount of %s is left", s.pfar.run)
	}
	prefix, _, _ := strings.Cut(s.pfar.servers[0].name, "-")
	filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.Contains(filepath.Base(path), prefix+"-") {
			s.t.Errorf("a cgroup is left: %s", path)
		}
		return nil
	})
	for uid := range s.pfar.uids {
		if !held(uid) {
			s.t.Errorf("user id %d is taken, and by nobody", uid)
		}
	}
}

// held reports whether a user id is free, or another pfar's: its lock, which is systemd's too, is not there or held.
func held(uid int) bool {
	path := fmt.Sprintf("/run/systemd/dynamic-uid/%d", uid)
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return true
	}
	defer unix.Close(fd)
	if unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) != nil {
		return true
	}
	_, err = os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// watchLogs reads the logs of the processes that have the race detector in them, as long as the soak lasts: logs are
// rotated.
func (s *soak) watchLogs() {
	for {
		logs, _ := filepath.Glob(filepath.Join(s.pfar.home, "state", "log", "pfar-gateway.service.log*"))
		texts := map[string]string{"pfard": s.pfar.stderr.String()}
		for _, path := range logs {
			b, _ := os.ReadFile(path)
			texts[path] = string(b)
		}
		for path, text := range texts {
			for _, word := range []string{"WARNING: DATA RACE", "panic: ", "fatal error: "} {
				if i := strings.Index(text, word); i >= 0 {
					s.tally.violation("%s: %s", path, text[i:min(len(text), i+4000)])
					return
				}
			}
		}
		select {
		case <-s.stop:
			return
		case <-time.After(2 * time.Second):
		}
	}
}
