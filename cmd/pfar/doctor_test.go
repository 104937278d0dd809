package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
)

// soundHost is a machine on which everything is right, for root.
func soundHost() host {
	return host{
		fs: fstest.MapFS{
			"proc/sys/user/max_user_namespaces": {Data: []byte("15000\n")},
			"usr/lib64":                         {Mode: fs.ModeDir},
			"sys/fs/cgroup/cgroup.controllers":  {Data: []byte("cpuset cpu io memory pids\n")},
		},
		lookPath: func(name string) (string, error) { return "/usr/bin/" + name, nil },
		program:  func(name string) (string, error) { return "/usr/lib/pfar/" + name, nil },
		run: says(map[string]string{
			"bwrap --version": "bubblewrap 0.11.0\n", "bwrap --help": "    --ro-bind-fd FD DEST  Bind\n    --disable-userns   Disable\n",
			"pfar-sandbox probe":  emptyProbe.Line() + "\n",
			"bwrap --unshare-all": "", "nft list": "", "node --version": "v22.1.0\n",
		}),
		fsType: func(path string) (int64, error) {
			if path == "/sys/fs/cgroup" {
				return unix.CGROUP2_SUPER_MAGIC, nil
			}
			return unix.TMPFS_MAGIC, nil
		},
		writable: func(string) bool { return true },
		records:  func(string) []string { return nil },
		sealed:   func(string) (bool, error) { return true, nil },
		listen:   func(string) error { return nil },
		now:      time.Now,
	}
}

const userControllers = "sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/cgroup.controllers"

// ordinary makes it somebody who is not root, and has all that is to be had.
func ordinary(h *host) {
	h.uid, h.user = 1000, "somebody"
	file(h, userControllers, "cpu memory pids\n")
	file(h, "run/systemd/system/x", "")
	file(h, "var/lib/systemd/linger/somebody", "")
}

// says runs programs by their words; an output that begins with "!" is a failure.
func says(outputs map[string]string) func(context.Context, bool, string, ...string) (string, error) {
	return func(_ context.Context, _ bool, program string, args ...string) (string, error) {
		key := path.Base(program) + " " + args[0]
		out, ok := outputs[key]
		if !ok {
			return "", fmt.Errorf("not expected: %s", key)
		}
		if text, failed := strings.CutPrefix(out, "!"); failed {
			return text, errors.New("exit status 1")
		}
		return out, nil
	}
}

func without(h *host, program string) {
	found := h.lookPath
	h.lookPath = func(name string) (string, error) {
		if name == program {
			return "", exec.ErrNotFound
		}
		return found(name)
	}
}

func saying(h *host, key, output string) {
	before := h.run
	h.run = func(ctx context.Context, ns bool, program string, args ...string) (string, error) {
		if strings.HasSuffix(program, "/"+strings.Fields(key)[0]) && args[0] == strings.Fields(key)[1] {
			return says(map[string]string{key: output})(ctx, ns, program, args...)
		}
		return before(ctx, ns, program, args...)
	}
}

// What a probe finds: a sandbox with views of its own, and one that shares a directory.
var (
	emptyProbe   = units.Probe{Took: 12300 * time.Microsecond}
	sharingProbe = units.Probe{Took: emptyProbe.Took, Shared: []string{`"/usr": something is mounted below it`}}
)

// asUnits has servers be units of systemd, whose probe has this status text. With "!" before it, it fails.
func asUnits(h *host, status string) {
	file(h, "run/systemd/system/x", "")
	file(h, "usr/lib/systemd/system/pfar-probe.service", "")
	text, failed := strings.CutPrefix(status, "!")
	h.systemctl = func(_ context.Context, args ...string) (string, error) {
		switch {
		case args[0] == "show":
			return text + "\n", nil
		case args[0] == "restart" && failed:
			return "Job for pfar-probe.service failed because the control process exited with error code.\n", errors.New("exit status 1")
		}
		return "", nil
	}
}

func directory(h *host, name string, perm fs.FileMode, owner uint32) {
	file(h, name, "")
	h.fs.(fstest.MapFS)[name] = &fstest.MapFile{Mode: fs.ModeDir | perm, Sys: &syscall.Stat_t{Uid: owner}}
}

func file(h *host, name, text string) {
	files := fstest.MapFS{}
	for k, v := range h.fs.(fstest.MapFS) {
		files[k] = v
	}
	files[name] = &fstest.MapFile{Data: []byte(text)}
	h.fs = files
}

func TestDoctor(t *testing.T) {
	const (
		apparmor = "proc/sys/kernel/apparmor_restrict_unprivileged_userns"
		oneUser  = "users of their own warn: run as you, uid 1000|"
		unheld   = "host firewall warn: by their own rules alone|systemctl enable --now pfar.target"
	)
	example, err := os.ReadFile("../../packaging/apparmor")
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name   string
		change func(*host)
		want   []string // check outcome: detail | remedy, each a part; the checks not named pass
	}{
		{"all is well", func(*host) {}, nil},
		{"no bubblewrap", func(h *host) { without(h, "bwrap") }, []string{
			"bubblewrap fail: not installed|apt install bubblewrap", "bind by descriptor fail: not installed|", "nested user namespaces fail: not installed|", "empty sandbox fail: not installed|apt install"}},
		{"old bubblewrap", func(h *host) { saying(h, "bwrap --version", "bubblewrap 0.4.1") }, []string{"bubblewrap fail: older than 0.8.0|0.10.0"}},
		{"not bubblewrap", func(h *host) { saying(h, "bwrap --version", "hello") }, []string{"bubblewrap fail: does not say its version|"}},
		{"no bind-fd", func(h *host) { saying(h, "bwrap --help", " --ro-bind SRC DEST\n --disable-userns \n") }, []string{"bind by descriptor fail: no --ro-bind-fd|0.8.0-2+deb12u1"}},
		{"no disable-userns", func(h *host) { saying(h, "bwrap --help", " --ro-bind-fd FD\n") }, []string{"nested user namespaces fail: no --disable-userns|0.10.0"}},
		{"limit 0", func(h *host) { file(h, "proc/sys/user/max_user_namespaces", "0\n") }, []string{"user namespace limit fail: is 0|sysctl -w user.max_user_namespaces"}},
		{"switched off", func(h *host) { file(h, "proc/sys/kernel/unprivileged_userns_clone", "0\n") }, []string{"unprivileged user namespaces fail: is 0|sysctl -w kernel.unprivileged_userns_clone=1"}},
		{"switched on", func(h *host) { file(h, "proc/sys/kernel/unprivileged_userns_clone", "1\n") }, nil},
		{"Ubuntu 24.04", func(h *host) {
			file(h, apparmor, "1\n")
			saying(h, "pfar-sandbox probe", "!pfar-sandbox: making a user namespace: permission denied\n")
		}, []string{
			"AppArmor and namespaces warn: is 1, and no profile in /etc/apparmor.d allows /usr/lib/pfar/pfar-sandbox and /usr/bin/bwrap|/etc/sysctl.d/60-pfar.conf",
			"empty sandbox fail: pfar-sandbox: making a user namespace: permission denied|profile \"/usr/lib/pfar/pfar-sandbox\" flags=(unconfined) {\n    userns,\n"}},
		{"Ubuntu with a profile for bwrap only", func(h *host) {
			file(h, apparmor, "1\n")
			file(h, "etc/apparmor.d/bwrap", "profile bwrap /usr/bin/bwrap flags=(unconfined) { userns, }")
		}, []string{"AppArmor and namespaces warn: allows /usr/lib/pfar/pfar-sandbox|profile \"/usr/lib/pfar/pfar-sandbox\""}},
		{"Ubuntu with profiles without namespaces", func(h *host) {
			file(h, apparmor, "1\n")
			file(h, "etc/apparmor.d/a", "profile /usr/bin/bwrap { }\nprofile /usr/lib/pfar/pfar-sandbox {}")
			file(h, "etc/apparmor.d/b", "profile /usr/bin/bwrap-other { userns, }\nprofile /opt/usr/lib/pfar/pfar-sandbox { userns, }")
		}, []string{"AppArmor and namespaces warn: allows /usr/lib/pfar/pfar-sandbox and /usr/bin/bwrap|/usr/bin/bwrap"}},
		{"Ubuntu with both profiles", func(h *host) {
			file(h, apparmor, "1\n")
			file(h, "etc/apparmor.d/pfar", host{fs: fstest.MapFS{}}.apparmorRemedy([]string{"/usr/lib/pfar/pfar-sandbox", "/usr/bin/bwrap"}))
		}, nil},
		{"Ubuntu with the example", func(h *host) {
			file(h, apparmor, "1\n")
			file(h, apparmorExample[1:], string(example))
		}, []string{"AppArmor and namespaces warn: is 1|cp /usr/share/doc/pfar/apparmor /etc/apparmor.d/pfar\n  apparmor_parser -r /etc/apparmor.d/pfar"}},
		{"Ubuntu with the example and a profile for bwrap", func(h *host) {
			file(h, apparmor, "1\n")
			file(h, apparmorExample[1:], string(example))
			file(h, "etc/apparmor.d/bwrap", "profile bwrap /usr/bin/bwrap flags=(unconfined) { userns, }")
		}, []string{"AppArmor and namespaces warn: allows /usr/lib/pfar/pfar-sandbox|profile \"/usr/lib/pfar/pfar-sandbox\""}},
		{"Ubuntu with the example in use", func(h *host) {
			file(h, apparmor, "1\n")
			file(h, "etc/apparmor.d/pfar", string(example))
		}, nil},
		{"Ubuntu with the restriction lifted", func(h *host) { file(h, apparmor, "0\n") }, nil},
		{"a container", func(h *host) {
			saying(h, "pfar-sandbox probe", "!bwrap: No permissions to create new namespace\n\nmore")
		}, []string{"empty sandbox fail: No permissions to create new namespace more|docker run --security-opt"}},
		{"something mounted below /usr", func(h *host) {
			saying(h, "pfar-sandbox probe", sharingProbe.Line()+"\n")
		}, []string{"files of the machine warn: shared as they are: \"/usr\": something is mounted below it|Linux 5.11"}},
		{"pfar-sandbox of another version", func(h *host) { saying(h, "pfar-sandbox probe", "usage") }, []string{"empty sandbox fail: says \"usage\"|"}},
		{"bwrap alone fails", func(h *host) {
			h.program = func(name string) (string, error) {
				if name == "pfar-sandbox" {
					return "", errors.New("pfar-sandbox is nowhere")
				}
				return "/usr/lib/pfar/" + name, nil
			}
			saying(h, "bwrap --unshare-all", "!bwrap: setting up uid map: Permission denied\n")
		}, []string{"empty sandbox fail: bwrap: setting up uid map: Permission denied|docker"}},
		{"units that cannot start sandboxes", func(h *host) {
			asUnits(h, "!starting an empty sandbox: exit status 1: bwrap: Can't mkdir parents for /: Function not implemented")
		}, []string{"empty sandbox fail: as a unit (pfar-probe.service): starting an empty sandbox: exit status 1: bwrap: Can't mkdir parents|journalctl -u pfar-probe.service"}},
		{"a unit that systemd does not start", func(h *host) { asUnits(h, "!") }, []string{"empty sandbox fail: as a unit (pfar-probe.service): Job for pfar-probe.service failed|"}},
		{"units that can, where nothing else can", func(h *host) {
			asUnits(h, emptyProbe.Line())
			saying(h, "pfar-sandbox probe", "!Read-only file system")
		}, nil},
		{"units that share files", func(h *host) { asUnits(h, sharingProbe.Line()) }, []string{
			"files of the machine warn: shared as they are: \"/usr\": something is mounted below it|Linux 5.11"}},
		{"units of another version", func(h *host) { asUnits(h, "") }, []string{"empty sandbox fail: says \"\", not how long|"}},
		{"no nft", func(h *host) { without(h, "nft") }, []string{"nftables warn: nft is not installed|apt install nftables"}},
		{"no nf_tables", func(h *host) { saying(h, "nft list", "!Error: Could not process rule: Operation not supported") }, []string{"nftables warn: Operation not supported|modprobe nf_tables"}},
		{"cgroup v1", func(h *host) { h.fsType = func(string) (int64, error) { return unix.TMPFS_MAGIC, nil } }, []string{"cgroup limits warn: not cgroup v2|unified_cgroup_hierarchy"}},
		{"an ordinary user", ordinary, []string{oneUser, unheld}},
		{"ids of one's own", func(h *host) {
			ordinary(h)
			file(h, "etc/subuid", "somebody:100000:65536\n")
			file(h, "etc/subgid", "somebody:100000:65536\n")
		}, []string{"users of their own warn: servers have ids of /etc/subuid; bridges, units, and servers that need files only you may read or write run as you, uid 1000|", unheld}},
		{"too few ids", func(h *host) {
			ordinary(h)
			file(h, "etc/subuid", "somebody:100000:65536\n")
			file(h, "etc/subgid", "somebody:100000:10\n")
		}, []string{"users of their own warn: epoll watches, pages of pipes, descriptors in flight|usermod --add-subuids", unheld}},
		{"no newuidmap", func(h *host) { ordinary(h); without(h, "newuidmap") }, []string{"users of their own warn: run as you, uid 1000|apt install uidmap", unheld}},
		{"not delegated", func(h *host) { ordinary(h); h.writable = func(string) bool { return false } }, []string{"cgroup limits warn: no cgroup is delegated|loginctl", oneUser, unheld}},
		{"a machine without", func(h *host) { file(h, "sys/fs/cgroup/cgroup.controllers", "cpuset io\n") }, []string{"cgroup limits warn: this machine's cgroups have no controller memory, pids, cpu|cgroup_disable="}},
		{"delegated in part", func(h *host) { ordinary(h); file(h, userControllers, "memory pids\n") }, []string{"cgroup limits warn: not delegated to this user: cpu|Delegate=cpu memory pids", oneUser, unheld}},
		{"not lingering", func(h *host) { ordinary(h); h.user = "other" }, []string{oneUser, unheld, "lingering warn: end when you log out|loginctl enable-linger"}},
		{"no name to linger by", func(h *host) { ordinary(h); h.user = "" }, []string{oneUser, unheld, "lingering warn: end when you log out|"}},
		{"no systemd", func(h *host) { h.uid = 1000; file(h, userControllers, "cpu memory pids\n") }, []string{oneUser, unheld}},
		{"no node", func(h *host) { without(h, "node") }, []string{"node warn: not in PATH|nodejs"}},
		{"old node", func(h *host) { saying(h, "node --version", "v12.22.0\n") }, []string{"node warn: older than 18|"}},
		{"no npm", func(h *host) { without(h, "npm") }, []string{"node warn: npm is not in PATH|"}},
		{"run directory on a disk", func(h *host) {
			h.fsType = func(path string) (int64, error) {
				if path == "/sys/fs/cgroup" {
					return unix.CGROUP2_SUPER_MAGIC, nil
				}
				return unix.EXT4_SUPER_MAGIC, nil
			}
		}, []string{"run directory warn: not in memory|PFAR_RUN_DIR"}},
		{"another's run directory", func(h *host) {
			directory(h, "run/pfar", 0o700, 1001)
		}, []string{"run directory fail: /run/pfar belongs to uid 1001, not to you, uid 0|Have its owner remove /run/pfar, or set PFAR_RUN_DIR"}},
		{"a run directory that others may write to", func(h *host) {
			directory(h, "run/pfar", 0o777, 0)
		}, []string{"run directory fail: others may write to /run/pfar|PFAR_RUN_DIR"}},
		{"a run directory that is a file", func(h *host) { file(h, "run/pfar", "") }, []string{"run directory fail: /run/pfar is not a directory|PFAR_RUN_DIR"}},
		{"one's own run directory", func(h *host) { directory(h, "run/pfar", 0o711, 0) }, nil},
		{"a key in the clear", func(h *host) {
			file(h, "var/lib/pfar/vault/key.txt", "AGE-SECRET-KEY-1X\n")
			file(h, "run/systemd/system/x", "")
		}, []string{"vault key warn: in /var/lib/pfar/vault/key.txt in the clear|systemctl restart pfard"}},
		{"a key in the clear without systemd", func(h *host) { file(h, "var/lib/pfar/vault/key.txt", "AGE-SECRET-KEY-1X\n") }, nil},
		{"a sealed key", func(h *host) {
			file(h, "etc/credstore.encrypted/pfar-vault-key", "x")
			file(h, "run/systemd/system/x", "")
		}, nil},
		{"records that are append-only", func(h *host) {
			file(h, "run/systemd/system/x", "")
			h.records = func(dir string) []string { return []string{dir + "/gateway-000001.jsonl"} }
		}, nil},
		{"records that can be changed", func(h *host) {
			file(h, "run/systemd/system/x", "")
			h.records = func(dir string) []string { return []string{dir + "/a.jsonl", dir + "/b.jsonl"} }
			h.sealed = func(path string) (bool, error) { return strings.HasSuffix(path, "a.jsonl"), nil }
		}, []string{"audit warn: /var/lib/pfar/audit/b.jsonl is not append-only|Put /var/lib/pfar on a file system"}},
		{"port taken", func(h *host) { h.listen = func(string) error { return syscall.EADDRINUSE } }, []string{
			"endpoint warn: another program|--listen",
			"one-time pages fail: no port of 127.0.0.1 from 19275 to 19338|ss -ltnp"}},
		{"port forbidden", func(h *host) { h.listen = func(string) error { return syscall.EACCES } }, []string{
			"endpoint fail: permission denied|", "one-time pages fail: no port|ss -ltnp"}},
		{"a page is open", func(h *host) {
			h.listen = func(at string) error {
				if at == "127.0.0.1:19275" {
					return syscall.EADDRINUSE
				}
				return nil
			}
		}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := soundHost()
			tt.change(&h)
			b := newBench(t, "")
			b.own.State, b.own.Run = "/var/lib/pfar", "/run/pfar"
			var got []string
			for _, f := range (doctorVerb{b.pfar}).diagnose(t.Context(), h, "127.0.0.1:7417", 0) {
				if f.Outcome != pass && f.Outcome != none {
					got = append(got, fmt.Sprintf("%s %s: %s|%s", f.Check, f.Outcome, f.Detail, f.Remedy))
				} else if f.Remedy != "" {
					t.Errorf("%s passes and has a remedy", f.Check)
				}
			}
			if len(got) != len(tt.want) {
				t.Fatalf("got  %q\nwant %q", got, tt.want)
			}
			for i, want := range tt.want {
				start, rest, _ := strings.Cut(want, ": ")
				detail, remedy, _ := strings.Cut(rest, "|")
				if !strings.HasPrefix(got[i], start+": ") || !strings.Contains(got[i], detail) || !strings.Contains(got[i], remedy) {
					t.Errorf("got  %q\nwant %q", got[i], want)
				}
			}
		})
	}
}

// TestEmptySandboxSaysHow: a measurement that is not of what servers take is not passed off as one.
func TestEmptySandboxSaysHow(t *testing.T) {
	h := soundHost()
	h.uid = 1000
	if f := h.emptySandbox(t.Context()); f.Outcome != pass || f.Detail != "starts and ends in 12.3 ms as this user, the best of 5, started by pfar-sandbox" {
		t.Errorf("got %+v", f)
	}
	h.uid = 0
	before := h.run
	h.run = func(ctx context.Context, ns bool, program string, args ...string) (string, error) {
		if args[0] == "probe" {
			return "", &fs.PathError{Op: "fork/exec", Path: program, Err: syscall.EACCES}
		}
		return before(ctx, ns, program, args...)
	}
	want := fmt.Sprintf("as uid %[1]d, the best of 5, started by bwrap alone, because uid %[1]d cannot run /usr/lib/pfar/pfar-sandbox", probeUID)
	if f := h.emptySandbox(t.Context()); f.Outcome != pass || !strings.HasSuffix(f.Detail, want) {
		t.Errorf("got %+v, want %q", f, want)
	}
	h.program = func(string) (string, error) { return "", errors.New("pfar-sandbox is nowhere") }
	if f := h.emptySandbox(t.Context()); f.Outcome != pass || !strings.HasSuffix(f.Detail, "started by bwrap alone, because pfar-sandbox is nowhere") {
		t.Errorf("got %+v", f)
	}
}

// TestUserUnitSandbox: a user's servers may be units as well, which the local path says nothing about.
func TestUserUnitSandbox(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*host)
		outcome outcome
		detail  string
	}{
		"root":       {func(h *host) { h.uid = 0 }, none, "for root see above"},
		"no units":   {func(h *host) { delete(h.fs.(fstest.MapFS), "usr/lib/systemd/user/pfar-probe.service") }, none, "pfar's units for users are not installed"},
		"no systemd": {func(h *host) { delete(h.fs.(fstest.MapFS), "run/user/1000/systemd/private") }, none, "no systemd runs for this user"},
		"starts":     {func(*host) {}, pass, "starts and ends in 12.3 ms with the settings of your servers' units (pfar-probe.service)"},
		"does not":   {func(h *host) { asUnits(h, "!bwrap: no") }, warn, "in a unit of yours (pfar-probe.service) no sandbox starts: bwrap: no"},
	} {
		t.Run(name, func(t *testing.T) {
			h := soundHost()
			ordinary(&h)
			asUnits(&h, emptyProbe.Line())
			file(&h, "usr/lib/systemd/user/pfar-probe.service", "")
			file(&h, "run/user/1000/systemd/private", "")
			c.change(&h)
			ask := h.systemctl
			h.systemctl = func(ctx context.Context, args ...string) (string, error) {
				if !slices.Contains(args, "--user") {
					t.Errorf("the machine's systemd is asked: %q", args)
				}
				return ask(ctx, args...)
			}
			if f := h.userUnitSandbox(t.Context()); f.Outcome != c.outcome || f.Detail != c.detail || (f.Remedy != "") != (c.outcome == warn) {
				t.Errorf("got %+v", f)
			}
		})
	}
}

func TestDoctorExitCode(t *testing.T) {
	b := newBench(t, "")
	if err := (doctorVerb{b.pfar}).printFindings([]finding{{Check: "a", Outcome: pass}, {Check: "b", Outcome: warn, Remedy: "do\nthis"}}); err != nil {
		t.Error(err)
	}
	if want := "pass  a\nwarn  b\n\nb:\n  do\n  this\n"; b.out.String() != want {
		t.Errorf("got %q, want %q", b.out, want)
	}
	err := doctorVerb{b.pfar}.printFindings([]finding{{Check: "a", Outcome: fault}})
	if code, _ := classify(err); code != exitFailed {
		t.Errorf("got %v", err)
	}
}

func TestPortInUseByPfarIsFine(t *testing.T) {
	h := soundHost()
	h.listen = func(string) error { return syscall.EADDRINUSE }
	running := func() (control.Report, error) { return control.Report{}, nil }
	if f := h.port("127.0.0.1:1", running); f.Outcome != pass {
		t.Errorf("got %+v", f)
	}
	taken := func() (control.Report, error) {
		return control.Report{PortFault: "another program has the port 127.0.0.1:1"}, nil
	}
	if f := h.port("127.0.0.1:1", taken); f.Outcome == pass || !strings.Contains(f.Detail, "another program") || !strings.Contains(f.Remedy, "systemctl edit pfar-gateway-http.socket") {
		t.Errorf("a port that pfar could not take: %+v", f)
	}
}

// TestDoctorPages: whether a page can be served is one line, also of a port that somebody has chosen.
func TestDoctorPages(t *testing.T) {
	busy := func(string) error { return syscall.EADDRINUSE }
	gone := func(string) (string, error) { return "", errors.New("cannot find pfar-setup") }
	for _, c := range []struct {
		port    uint16
		change  func(*host)
		outcome outcome
		detail  string
	}{
		{0, func(*host) {}, pass, "/usr/lib/pfar/pfar-setup, on a free port of 127.0.0.1 from 19275 to 19338"},
		{19280, func(*host) {}, pass, "/usr/lib/pfar/pfar-setup, on port 19280, which is free"},
		{19280, func(h *host) { h.listen = busy }, warn, "port 19280 is not free: address already in use"},
		{80, func(*host) {}, "", "port 80 is not from 19275 to 19338"},
		{0, func(h *host) { h.listen = busy }, "", "no port of 127.0.0.1 from 19275 to 19338 is free"},
		{0, func(h *host) { h.program = gone }, "", "cannot find pfar-setup"},
	} {
		h := soundHost()
		c.change(&h)
		f := pages(h, c.port)
		if f.Outcome != c.outcome || f.Detail != c.detail || (f.Remedy == "") != (c.outcome == pass) {
			t.Errorf("port %d: %+v, want %q", c.port, f, c.detail)
		}
	}
}

func TestOlder(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want bool
	}{{"0.8.0", "0.8.0", false}, {"0.10", "0.8.0", false}, {"0.4.1", "0.8.0", true}, {"0.8", "0.8.0", false}, {"9.0", "18.0", true}, {"x", "1", true}, {"20.20.2", "18.0", false}} {
		if got := older(tt.a, tt.b); got != tt.want {
			t.Errorf("older(%q, %q) = %t", tt.a, tt.b, got)
		}
	}
}

// TestNotApplicable: a check that does not concern the host does not pass.
func TestNotApplicable(t *testing.T) {
	root := host{uid: 0, fs: fstest.MapFS{}}
	for _, f := range []finding{root.lingering(t.Context()), root.vaultKey("/var/lib/pfar"), {Check: "", Outcome: none}} {
		if f.Outcome != "n/a" {
			t.Errorf("%s: %s (%s)", f.Check, f.Outcome, f.Detail)
		}
	}
}

func TestDoctorNamesWhatOthersMayWrite(t *testing.T) {
	dir := t.TempDir()
	if f := obeyed(dir, dir+"/none"); f.Outcome != pass {
		t.Errorf("got %+v", f)
	}
	if err := os.WriteFile(dir+"/a.hcl", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir+"/a.hcl", 0o620); err != nil {
		t.Fatal(err)
	}
	if f := obeyed(dir); f.Outcome == pass || !strings.Contains(f.Detail, dir+"/a.hcl") || !strings.Contains(f.Remedy, "chmod go-w") {
		t.Errorf("got %+v", f)
	}
	if err := os.Remove(dir + "/a.hcl"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/null", dir+"/a.hcl"); err != nil { // which anybody may write
		t.Fatal(err)
	}
	drop := dir + "/b.hcl.d"
	if err := os.Mkdir(drop, 0o755); err != nil {
		t.Fatal(err)
	}
	if f := obeyed(dir); f.Outcome != pass {
		t.Errorf("got %+v", f)
	}
	if err := os.WriteFile(drop+"/x.hcl", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(drop+"/x.hcl", 0o622); err != nil {
		t.Fatal(err)
	}
	if f := obeyed(dir); f.Outcome == pass || !strings.Contains(f.Detail, drop+"/x.hcl") {
		t.Errorf("got %+v", f)
	}
}
