package local

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/pfar/pfar/units/sandbox"
)

// fakeHost is a directory with a /proc and a cgroup file system of plain files, and a kernel that works on it.
type fakeHost struct {
	kernel kernel
	dir    string
	mount  string // the cgroup file system
	killed []int
}

const allControllers = "cpuset cpu io memory pids"

// layout is what one kind of host looks like to a process.
type layout struct {
	cgroup      string // /proc/self/cgroup
	mountRoot   string // of the cgroup2 mount; "": none is mounted
	own         string // directory of the process's group below the mount
	realRoot    bool   // the mount shows the hierarchy's root
	controllers string
	booted      bool // by systemd
	delegated   bool
	readOnly    bool
	uid         int
}

func newFakeHost(t *testing.T, l layout) *fakeHost {
	t.Helper()
	h := &fakeHost{dir: t.TempDir()}
	h.mount = filepath.Join(h.dir, "cgroup fs") // mountinfo escapes the blank
	h.file(t, "proc/self/cgroup", l.cgroup)
	mounts := "31 23 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
	if l.mountRoot != "" {
		mounts += "41 31 0:38 " + l.mountRoot + " " + strings.ReplaceAll(h.mount, " ", `\040`) + " rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
	}
	h.file(t, "proc/self/mountinfo", mounts)
	h.process(t, 100, "")
	booted := filepath.Join(h.dir, "booted")
	if l.booted {
		h.file(t, "booted", "")
	}
	h.kernel = kernel{
		proc: filepath.Join(h.dir, "proc"), booted: booted, uid: l.uid,
		mkdir: func(dir string) error {
			if err := os.Mkdir(dir, 0o755); err != nil {
				return err
			}
			above, err := os.ReadFile(filepath.Join(filepath.Dir(dir), "cgroup.subtree_control"))
			if err != nil {
				return err
			}
			h.cgroup(t, dir, strings.ReplaceAll(string(above), "+", ""))
			return nil
		},
		rmdir:    os.RemoveAll,
		kill:     func(pid int) error { h.killed = append(h.killed, pid); return nil },
		writable: func(string) bool { return !l.readOnly },
		delegate: func(group, string) bool { return l.delegated },
	}
	for dir := filepath.Join(h.mount, l.own); ; dir = filepath.Dir(dir) {
		h.cgroup(t, dir, l.controllers)
		if dir == h.mount {
			break
		}
	}
	if l.realRoot {
		if err := os.Remove(filepath.Join(h.mount, "cgroup.events")); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

func (h *fakeHost) file(t *testing.T, name, text string) {
	t.Helper()
	if !filepath.IsAbs(name) {
		name = filepath.Join(h.dir, name)
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// cgroup fills dir with the files that the kernel would.
func (h *fakeHost) cgroup(t *testing.T, dir, controllers string) {
	t.Helper()
	files := map[string]string{
		"cgroup.controllers": controllers, "cgroup.subtree_control": "", "cgroup.procs": "",
		"cgroup.events": "populated 0\nfrozen 0\n", "cgroup.kill": "",
	}
	for name, more := range map[string]map[string]string{
		"memory": {"memory.max": "max", "memory.oom.group": "0", "memory.events": "low 0\noom 0\noom_kill 0\n"},
		"pids":   {"pids.max": "max"},
		"cpu":    {"cpu.max": "max 100000"},
	} {
		if strings.Contains(" "+controllers+" ", " "+name+" ") {
			for file, text := range more {
				files[file] = text
			}
		}
	}
	for name, text := range files {
		h.file(t, filepath.Join(dir, name), text)
	}
}

// process makes pid's files; the fake kernel does not move processes, so cgroup is where it will be.
func (h *fakeHost) process(t *testing.T, pid int, cgroup string) {
	t.Helper()
	n := strconv.Itoa(pid)
	h.file(t, "proc/"+n+"/cgroup", "0::"+cgroup+"\n")
	h.file(t, "proc/"+n+"/task/"+n+"/children", "")
}

func (h *fakeHost) read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(h.mount, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var (
	hybrid     = "9:name=systemd:/\n8:pids:/\n4:memory:/user\n0::/\n"
	testLimits = sandbox.Limits{Memory: 256 << 20, Tasks: 256, CPU: 50}
)

// TestFindSubtreeRefuses has every host on which the groups are not pfar's to divide. None may change anything.
func TestFindSubtreeRefuses(t *testing.T) {
	for _, c := range []struct {
		name, want string
		layout     layout
	}{
		{"v1 only", "only cgroup v1", layout{cgroup: "4:memory:/\n1:cpu:/\n", mountRoot: "/", realRoot: true}},
		{"v2 not mounted", "not mounted", layout{cgroup: "0::/\n"}},
		{"hybrid, controllers on v1", "hybrid or v1", layout{cgroup: hybrid, mountRoot: "/", realRoot: true}},
		{"hybrid, user", "not writable", layout{cgroup: hybrid, mountRoot: "/", realRoot: true, uid: 1000, readOnly: true}},
		{"session of a user", "without Delegate", layout{
			cgroup: "0::/user.slice/user-1000.slice/session-3.scope\n", own: "user.slice/user-1000.slice/session-3.scope",
			mountRoot: "/", realRoot: true, controllers: allControllers, booted: true, uid: 1000,
		}},
		{"root under systemd", "without Delegate", layout{
			cgroup: "0::/system.slice/cron.service\n", own: "system.slice/cron.service",
			mountRoot: "/", realRoot: true, controllers: allControllers, booted: true,
		}},
		{"container, read-only", "not writable", layout{cgroup: "0::/\n", mountRoot: "/", controllers: allControllers, readOnly: true}},
		{"container, delegated but read-only", "not writable", layout{
			cgroup: "0::/a.scope\n", own: "a.scope", mountRoot: "/", controllers: allControllers, booted: true, delegated: true, readOnly: true,
		}},
		{"outside of the mount", "outside", layout{cgroup: "0::/../x\n", mountRoot: "/", controllers: allControllers}},
		{"beside the mount", "outside", layout{cgroup: "0::/b\n", mountRoot: "/a", controllers: allControllers}},
		{"another's group without systemd", "not delegated", layout{
			cgroup: "0::/openrc.sshd\n", own: "openrc.sshd", mountRoot: "/", realRoot: true, controllers: allControllers, uid: 4_000_000,
		}},
		{"no useful controllers", "none of the controllers", layout{cgroup: "0::/\n", mountRoot: "/", controllers: "cpuset io"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newFakeHost(t, c.layout)
			before := listing(t, h.dir)
			tree, err := openSubtree(h.kernel, slog.New(slog.DiscardHandler))
			if err == nil {
				t.Fatalf("got %q, want a refusal with %q", tree.root, c.want)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %q, want %q in it", err, c.want)
			}
			if after := listing(t, h.dir); after != before {
				t.Errorf("the refusal changed the host:\n%s\nwas\n%s", after, before)
			}
		})
	}
}

func listing(t *testing.T, dir string) string {
	t.Helper()
	var b bytes.Buffer
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			b.WriteString(path + "\n")
			return err
		}
		text, err := os.ReadFile(path)
		b.WriteString(path + ": " + string(text) + "\n")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestSubtreePlace(t *testing.T) {
	for _, c := range []struct {
		name   string
		layout layout
		group  string // of the server, below the mount
		leaf   string // where the own process goes
		how    string
	}{
		{
			"delegated scope",
			layout{cgroup: "0::/u/a.scope\n", own: "u/a.scope", mountRoot: "/", realRoot: true, controllers: allControllers, booted: true, delegated: true, uid: 1000},
			"u/a.scope/mcp-notion", "u/a.scope/pfard", "memory 256 MiB, CPU 50 %, 256 tasks (cgroup /u/a.scope/mcp-notion)",
		},
		{
			"delegated scope, second pfard of a shell",
			layout{cgroup: "0::/u/a.scope/pfard\n", own: "u/a.scope/pfard", mountRoot: "/", realRoot: true, controllers: allControllers, booted: true, delegated: true, uid: 1000},
			"u/a.scope/mcp-notion", "u/a.scope/pfard", "memory 256 MiB, CPU 50 %, 256 tasks (cgroup /u/a.scope/mcp-notion)",
		},
		{
			"container of its own",
			layout{cgroup: "0::/\n", mountRoot: "/", controllers: allControllers},
			"mcp-notion", "pfard", "memory 256 MiB, CPU 50 %, 256 tasks (cgroup /mcp-notion)",
		},
		{
			"container without a cgroup namespace",
			layout{cgroup: "0::/docker/1\n", mountRoot: "/docker/1", controllers: allControllers},
			"mcp-notion", "pfard", "memory 256 MiB, CPU 50 %, 256 tasks (cgroup /docker/1/mcp-notion)",
		},
		{
			"root without systemd",
			layout{cgroup: "0::/openrc.sshd\n", own: "openrc.sshd", mountRoot: "/", realRoot: true, controllers: allControllers},
			"pfar/mcp-notion", "", "memory 256 MiB, CPU 50 %, 256 tasks (cgroup /pfar/mcp-notion)",
		},
		{
			"only pids",
			layout{cgroup: "0::/\n", mountRoot: "/", controllers: "pids"},
			"mcp-notion", "pfard", "256 tasks (cgroup /mcp-notion); NOT held: memory 256 MiB, CPU 50 %",
		},
		{
			"only memory",
			layout{cgroup: "0::/\n", mountRoot: "/", controllers: "memory"},
			"mcp-notion", "pfard", "memory 256 MiB, 256 tasks by RLIMIT_NPROC (cgroup /mcp-notion); NOT held: CPU 50 %",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newFakeHost(t, c.layout)
			tree := h.open(t)
			_, path, _ := strings.Cut(c.how, "(cgroup ")
			path, _, _ = strings.Cut(path, ")")
			h.process(t, 100, path)
			how, err := tree.Place(t.Context(), "notion", 100, testLimits)
			if err != nil {
				t.Fatal(err)
			}
			if how != c.how {
				t.Errorf("got  %q\nwant %q", how, c.how)
			}
			if got := h.read(t, c.group+"/cgroup.procs"); got != "100" {
				t.Errorf("cgroup.procs is %q, want the process", got)
			}
			if c.leaf != "" {
				h.read(t, c.leaf+"/cgroup.procs")
			}
			if err := tree.Close(); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(filepath.Join(h.mount, c.group)); err == nil {
				t.Error("the group is left after Close")
			}
		})
	}
}

// open opens the subtree of a fake host, whose own group is empty: plain files do not move processes.
func (h *fakeHost) open(t *testing.T) *subtree {
	t.Helper()
	k := h.kernel
	k.mkdir = func(dir string) error { // what a kernel would have enabled by then
		err := h.kernel.mkdir(dir)
		if err == nil {
			above, rerr := os.ReadFile(filepath.Join(filepath.Dir(dir), "cgroup.controllers"))
			if rerr != nil {
				return rerr
			}
			h.cgroup(t, dir, string(above))
		}
		return err
	}
	tree, err := openSubtree(k, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func container() layout { return layout{cgroup: "0::/\n", mountRoot: "/", controllers: allControllers} }

func TestSubtreePlaceRefuses(t *testing.T) {
	for _, c := range []struct {
		name, server, want string
		pid                int
		limits             sandbox.Limits
		change             func(t *testing.T, h *fakeHost)
	}{
		{"path as name", "../x", "cannot name a group", 100, testLimits, nil},
		{"slash in name", "a/b", "only a-z", 100, testLimits, nil},
		{"no name", "", "cannot name a group", 100, testLimits, nil},
		{"no memory limit", "a", "must be set", 100, sandbox.Limits{Tasks: 1}, nil},
		{"no task limit", "a", "must be set", 100, sandbox.Limits{Memory: 1}, nil},
		{"negative memory", "a", "must be set", 100, sandbox.Limits{Memory: -1, Tasks: 1}, nil},
		{"no such process", "a", "looking for process", 4242, testLimits, nil},
		{"has children", "a", "has children", 100, testLimits, func(t *testing.T, h *fakeHost) { h.file(t, "proc/100/task/100/children", "101 ") }},
		{"child of a thread", "a", "has children", 100, testLimits, func(t *testing.T, h *fakeHost) { h.file(t, "proc/100/task/102/children", "101 ") }},
		{"did not move", "a", `want "`, 100, testLimits, func(t *testing.T, h *fakeHost) { h.process(t, 100, "/elsewhere") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newFakeHost(t, container())
			tree := h.open(t)
			h.process(t, 100, "/mcp-a")
			if c.change != nil {
				c.change(t, h)
			}
			how, err := tree.Place(context.Background(), c.server, c.pid, c.limits)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %q, %v, want an error with %q", how, err, c.want)
			}
			if left, _ := filepath.Glob(filepath.Join(h.mount, "mcp-*")); len(left) > 0 {
				t.Errorf("groups are left: %q", left)
			}
		})
	}
}

func TestSubtreeSettings(t *testing.T) {
	h := newFakeHost(t, container())
	tree := h.open(t)
	h.process(t, 100, "/mcp-a")
	if _, err := tree.Place(t.Context(), "a", 100, testLimits); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"memory.max": "268435456", "memory.oom.group": "1", "pids.max": "256", "cpu.max": "50000 100000",
	} {
		if got := h.read(t, "mcp-a/"+file); got != want {
			t.Errorf("%s is %q, want %q", file, got, want)
		}
	}
	if tree.OOMKilled("a") || tree.OOMKilled("b") {
		t.Error("OOMKilled before anything happened")
	}
	h.file(t, filepath.Join(h.mount, "mcp-a/memory.events"), "low 0\noom 3\noom_kill 0\noom_group_kill 0\n")
	if tree.OOMKilled("a") {
		t.Error("OOMKilled without a kill")
	}
	h.file(t, filepath.Join(h.mount, "mcp-a/memory.events"), "low 0\noom 3\noom_kill 2\noom_group_kill 1\n")
	if !tree.OOMKilled("a") {
		t.Error("OOMKilled does not report two kills")
	}
	if err := tree.Remove("a"); err != nil {
		t.Error(err)
	}
	if err := tree.Remove("a"); err != nil {
		t.Errorf("removing twice: %v", err)
	}
}

// TestRemoveStale has an earlier pfard's group go, and that of a living one stay.
func TestRemoveStale(t *testing.T) {
	h := newFakeHost(t, container())
	for _, name := range []string{"mcp-dead", "mcp-living"} {
		h.cgroup(t, filepath.Join(h.mount, name), allControllers)
	}
	lock, err := group(filepath.Join(h.mount, "mcp-living")).lock()
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	tree := h.open(t)
	if group(filepath.Join(h.mount, "mcp-dead")).exists() {
		t.Error("the stale group is left")
	}
	if h.read(t, "mcp-living/cgroup.kill") != "" {
		t.Error("another pfard's server was killed")
	}
	h.process(t, 100, "/mcp-living."+strconv.Itoa(os.Getpid()))
	if _, err := tree.Place(t.Context(), "living", 100, testLimits); err != nil {
		t.Errorf("placing beside another pfard's server: %v", err)
	}
	if h.read(t, "mcp-living/memory.max") != "max" || h.read(t, "mcp-living/cgroup.procs") != "" {
		t.Error("another pfard's group was used")
	}
}

// TestKillEach is Linux before 5.14, which has no cgroup.kill.
func TestKillEach(t *testing.T) {
	h := newFakeHost(t, container())
	g := group(filepath.Join(h.mount, "mcp-a"))
	h.cgroup(t, string(g), allControllers)
	if err := os.Remove(filepath.Join(string(g), "cgroup.kill")); err != nil {
		t.Fatal(err)
	}
	h.file(t, string(g)+"/cgroup.procs", "7\n8\n")
	h.file(t, string(g)+"/cgroup.events", "populated 1\n")
	k := h.kernel
	k.kill = func(pid int) error {
		h.killed = append(h.killed, pid)
		switch pid {
		case 8: // had just forked
			h.file(t, string(g)+"/cgroup.procs", "8\n9\n")
		case 9:
			h.file(t, string(g)+"/cgroup.procs", "")
			h.file(t, string(g)+"/cgroup.events", "populated 0\n")
		}
		return nil
	}
	if err := g.remove(k); err != nil {
		t.Fatal(err)
	}
	if want := []int{7, 8, 9}; len(h.killed) != 3 || h.killed[2] != want[2] {
		t.Errorf("killed %v, want %v, each once", h.killed, want)
	}
	if g.exists() {
		t.Error("the group is left")
	}
}

func TestNoLimits(t *testing.T) {
	note := missingNote(controllers{}, "no cgroup")
	if want := "memory and CPU limits are not held: no cgroup"; note != want {
		t.Errorf("got %q, want %q", note, want)
	}
	if note := missingNote(controllers{memory: true, cpu: true}, "x"); note != "" {
		t.Errorf("got %q, want nothing: RLIMIT_NPROC holds tasks", note)
	}
	how, err := unlimited{"no cgroup"}.Place(t.Context(), "a", 100, testLimits)
	if want := "256 tasks by RLIMIT_NPROC; NOT held: memory 256 MiB, CPU 50 %: no cgroup"; how != want || err != nil {
		t.Errorf("got %q, %v, want %q", how, err, want)
	}
}

// TestHeld reads what the kernel says, whoever set it: systemd makes scopes also where it can set nothing.
func TestHeld(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		want  controllers
	}{
		{"all", map[string]string{"memory.max": "268435456", "pids.max": "256", "cpu.max": "50000 100000"}, controllers{true, true, true}},
		{"tighter", map[string]string{"memory.max": "4096", "pids.max": "1", "cpu.max": "1000 100000"}, controllers{true, true, true}},
		{"none set", map[string]string{"memory.max": "max", "pids.max": "max", "cpu.max": "max 100000"}, controllers{}},
		{"no files", nil, controllers{}},
		{"looser", map[string]string{"memory.max": "268435457", "pids.max": "257", "cpu.max": "50001 100000"}, controllers{}},
		{"garbage", map[string]string{"memory.max": "", "pids.max": "x", "cpu.max": "50000"}, controllers{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range c.files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if got := held(group(dir), testLimits); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}
