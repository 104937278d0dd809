package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/health"
)

// minimumBubblewrap has --disable-userns; --bind-fd came with 0.10.0, and distributions carry it back as a security
// fix.
const minimumBubblewrap = "0.8.0"

const bubblewrapRemedy = "Install bubblewrap 0.10.0 or later, or your distribution's 0.8 with the fix of CVE-2024-42472:\n" +
	"Debian 12 has it in 0.8.0-2+deb12u1. Debian, Ubuntu: apt install bubblewrap; Fedora: dnf install bubblewrap."

func (h host) bubblewrap(ctx context.Context) finding {
	f := finding{Check: "bubblewrap", Remedy: bubblewrapRemedy}
	path, err := h.lookPath("bwrap")
	if err != nil {
		f.Detail = "bwrap is not installed"
		return f
	}
	out, err := h.run(ctx, false, path, "--version")
	version := regexp.MustCompile(`\d+(\.\d+)+`).FindString(out)
	switch {
	case err != nil:
		f.Detail = fmt.Sprintf("%s --version: %s", path, outputOr(out, err))
	case version == "":
		f.Detail = fmt.Sprintf("%s does not say its version: %q", path, strings.TrimSpace(out))
	case older(version, minimumBubblewrap):
		f.Detail = fmt.Sprintf("%s is %s, older than %s", path, version, minimumBubblewrap)
	default:
		return finding{f.Check, pass, path + ", " + version, ""}
	}
	return f
}

func (h host) bindFD(ctx context.Context) finding {
	return h.option(ctx, "bind by descriptor", "--ro-bind-fd", "a bind source could be swapped for a link")
}

func (h host) nestedNamespaces(ctx context.Context) finding {
	return h.option(ctx, "nested user namespaces", "--disable-userns", "a server could make namespaces of its own")
}

func (h host) option(ctx context.Context, name, option, without string) finding {
	f := finding{Check: name, Remedy: bubblewrapRemedy}
	path, err := h.lookPath("bwrap")
	if err != nil {
		f.Detail = "bwrap is not installed"
		return f
	}
	out, err := h.run(ctx, false, path, "--help")
	switch {
	case err != nil:
		f.Detail = fmt.Sprintf("%s --help: %s", path, outputOr(out, err))
	case !strings.Contains(out, option+" "):
		f.Detail = fmt.Sprintf("bwrap has no %s: %s", option, without)
	default:
		return finding{name, pass, "bwrap has " + option, ""}
	}
	return f
}

// sysctl reads a number below /proc/sys; a host that does not have it is not held back by it.
func (h host) sysctl(name string) (int, bool) {
	b, err := fs.ReadFile(h.fs, "proc/sys/"+strings.ReplaceAll(name, ".", "/"))
	if err != nil {
		return 0, false
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	return n, err == nil
}

func (h host) namespaceLimit(context.Context) finding {
	const name, key = "user namespace limit", "user.max_user_namespaces"
	n, ok := h.sysctl(key)
	if ok && n == 0 {
		return finding{name, fault, key + " is 0: nobody may make user namespaces",
			"sysctl -w user.max_user_namespaces=15000, and the same in /etc/sysctl.d/ to keep it"}
	}
	if !ok {
		return finding{name, pass, "no limit", ""}
	}
	return finding{name, pass, fmt.Sprintf("%s is %d", key, n), ""}
}

func (h host) namespaceSwitch(context.Context) finding {
	const name, key = "unprivileged user namespaces", "kernel.unprivileged_userns_clone"
	if n, ok := h.sysctl(key); ok && n == 0 {
		return finding{name, fault, key + " is 0: only root may make user namespaces",
			"sysctl -w kernel.unprivileged_userns_clone=1, and the same in /etc/sysctl.d/ to keep it"}
	}
	return finding{name, pass, "allowed", ""}
}

func (h host) nftables(ctx context.Context) finding {
	f := finding{Check: "nftables", Outcome: warn}
	path, err := h.lookPath("nft")
	if err != nil {
		f.Detail = "nft is not installed; pfar speaks to the kernel itself, people look with nft"
		f.Remedy = "Debian, Ubuntu: apt install nftables; Fedora: dnf install nftables."
		return f
	}
	out, err := h.run(ctx, true, path, "list", "tables")
	if err != nil {
		f.Detail = fmt.Sprintf("the kernel refuses nftables in a namespace of its own: %s", outputOr(out, err))
		f.Remedy = "Load the module (modprobe nf_tables), or use a kernel with CONFIG_NF_TABLES. Without it a server still " +
			"has\nno network but the bridge; programs that ignore HTTP_PROXY reach nothing."
		return f
	}
	return finding{f.Check, pass, path + ", and the kernel takes rules in a fresh namespace", ""}
}

// cgroups finds the controllers that this user may use.
func (h host) cgroups(context.Context) finding {
	f := finding{Check: "cgroup limits", Outcome: warn}
	if t, err := h.fsType("/sys/fs/cgroup"); err != nil || t != unix.CGROUP2_SUPER_MAGIC {
		f.Detail = "/sys/fs/cgroup is not cgroup v2: memory and CPU of a server are not limited"
		f.Remedy = "Boot with systemd.unified_cgroup_hierarchy=1; every distribution since 2021 does."
		return f
	}
	dir := "sys/fs/cgroup"
	if h.uid != 0 {
		dir = fmt.Sprintf("sys/fs/cgroup/user.slice/user-%d.slice/user@%d.service", h.uid, h.uid)
	}
	b, err := fs.ReadFile(h.fs, dir+"/cgroup.controllers")
	if err != nil || !h.writable("/"+dir) {
		f.Detail = "no cgroup is delegated to this user: memory, processes and CPU of a server are not limited"
		f.Remedy = "Log in through systemd (sudo loginctl enable-linger $USER keeps its manager running), or run pfar as root."
		return f
	}
	has := strings.Fields(string(b))
	var missing []string
	for _, want := range []string{"memory", "pids", "cpu"} {
		if !slices.Contains(has, want) {
			missing = append(missing, want)
		}
	}
	if len(missing) > 0 && h.uid == 0 {
		f.Detail = "this machine's cgroups have no controller " + strings.Join(missing, ", ")
		f.Remedy = "Boot without cgroup_disable=. In a container, have its manager delegate them (systemd.resource-control(5), Delegate=)."
		return f
	}
	if len(missing) > 0 {
		f.Detail = "not delegated to this user: " + strings.Join(missing, ", ")
		f.Remedy = "mkdir -p /etc/systemd/system/user@.service.d, write \"[Service]\\nDelegate=cpu memory pids\" into a " +
			".conf there,\nthen systemctl daemon-reload and log in again."
		return f
	}
	return finding{f.Check, pass, "cgroup v2 with memory, pids and cpu", ""}
}

// oneUser tells whom servers run as.
func (h host) oneUser(context.Context) finding {
	const name = "users of their own"
	if h.uid == 0 {
		return finding{name, pass, "each server and each bridge has one", ""}
	}
	const shared = "share with you what the kernel counts by user: epoll watches, pages of pipes, descriptors in flight"
	why := h.subordinates()
	if why == "" {
		return finding{name, warn, fmt.Sprintf("under pfar up, servers have ids of /etc/subuid; bridges, units, and servers that need files "+
			"only you may read or write run as you, uid %d, and %s", h.uid, shared), ""}
	}
	return finding{name, warn, fmt.Sprintf("servers and bridges run as you, uid %d: one that got out of its sandbox "+
		"would be you; all of them %s", h.uid, shared),
		why + "; then pfar up gives servers ids of their own."}
}

// subordinates says what to do so that servers get ids of their own; "": nothing.
func (h host) subordinates() string {
	for _, program := range []string{"newuidmap", "newgidmap"} {
		if _, err := h.lookPath(program); err != nil {
			return program + " is not installed: apt install uidmap"
		}
	}
	for _, file := range []string{"etc/subuid", "etc/subgid"} {
		text, err := fs.ReadFile(h.fs, file)
		if err != nil || units.Subordinate(text, h.user, h.uid).Count < units.LeastSubordinates {
			return fmt.Sprintf("/%s gives you no ids: usermod --add-subuids 100000-165535 --add-subgids 100000-165535 %s (ids "+
				"that nobody has)", file, cmp.Or(h.user, "NAME"))
		}
	}
	return ""
}

// hostFirewall tells what holds a bridge beside its own rules.
func (h host) hostFirewall(context.Context) finding {
	const name = "host firewall"
	if h.uid == 0 {
		return finding{name, pass, "holds bridges that are units to what is declared", ""}
	}
	return finding{name, warn, "does not hold the bridges of an ordinary user, nor does systemd (IPAddressDeny= has no " +
		"effect in user units): they go by their own rules alone",
		"Where that is not enough, have root run pfar for the whole machine: systemctl enable --now pfar.target, with " +
			"the\ndeclarations in /etc/pfar/mcp.d. Servers then have users of their own, too."}
}

func (h host) exists(path string) bool {
	_, err := fs.Stat(h.fs, strings.TrimPrefix(path, "/"))
	return err == nil
}

// lingering tells whether a user's units stay when the user leaves.
func (h host) lingering(context.Context) finding {
	const name = "lingering"
	switch {
	case h.uid == 0:
		return finding{name, none, "not needed by root", ""}
	case !h.exists("run/systemd/system"):
		return finding{name, none, "this machine does not run systemd: there are no user units", ""}
	case h.user != "" && h.exists("var/lib/systemd/linger/"+h.user):
		return finding{name, pass, "user units start with the machine, and stay when you log out", ""}
	}
	return finding{name, warn, "user units start when you log in, and end when you log out", "sudo loginctl enable-linger $USER"}
}

// vaultKey tells where the vault's key is.
func (h host) vaultKey(state string) finding {
	const name, sealed = "vault key", "etc/credstore.encrypted/pfar-vault-key"
	file := filepath.Join(state, "vault", "key.txt")
	switch {
	case h.uid != 0:
		return finding{name, pass, "in " + file + ", which only you can read: systemd seals that of root's pfar alone", ""}
	case h.exists(file) && h.exists("run/systemd/system"):
		return finding{name, warn, "in " + file + " in the clear: whoever gets the disk or a backup of it has the secrets",
			"systemctl restart pfard, which seals it to this machine with systemd-creds (systemd 252 or later);\njournalctl " +
				"-u pfar-vault-key says why it does not."}
	case h.exists(file):
		return finding{name, pass, "in " + file + ": without systemd nothing seals it", ""}
	case h.exists(sealed):
		return finding{name, pass, "sealed to this machine, in /" + sealed, ""}
	}
	return finding{name, none, "there is none yet: the first start makes it", ""}
}

// auditFiles tells whether what was recorded can be changed.
func (h host) auditFiles(dir string) finding {
	const name = "audit"
	if h.uid != 0 || !h.exists("run/systemd/system") {
		return finding{name, pass, "in " + dir + ", where whoever runs pfar can change it: root's pfar under systemd makes it append-only", ""}
	}
	files := h.records(dir)
	if len(files) == 0 {
		return finding{name, none, "there is none yet: pfard makes its files append-only", ""}
	}
	for _, path := range files {
		if sealed, err := h.sealed(path); err != nil || !sealed {
			return finding{name, warn, path + " is not append-only: a gateway that is taken over can change what it has recorded",
				"Put " + filepath.Dir(dir) + " on a file system that has the attribute (ext4, xfs, btrfs; chattr +a), and " +
					"restart pfard and pfar-gateway.\npfar audit verify finds what was changed in any case."}
		}
	}
	return finding{name, pass, "append-only, in " + dir, ""}
}

// minimumNode is what the servers of the MCP project want.
const minimumNode = "18.0"

func (h host) node(ctx context.Context) finding {
	f := finding{Check: "node", Outcome: warn, Remedy: "Servers from npm need Node.js 18 or later. Debian, Ubuntu: apt " +
		"install nodejs npm; or nodejs.org. Others do not."}
	node, err := h.lookPath("node")
	if err != nil {
		f.Detail = "node is not in PATH"
		return f
	}
	out, err := h.run(ctx, false, node, "--version")
	version := strings.TrimPrefix(strings.TrimSpace(out), "v")
	switch {
	case err != nil:
		f.Detail = fmt.Sprintf("%s --version: %s", node, outputOr(out, err))
		if h.uid == 0 && errors.Is(err, syscall.EACCES) {
			f.Remedy = "Servers run as users of their own and cannot enter that directory. Install Node.js where everybody may read it."
		}
		return f
	case older(version, minimumNode):
		f.Detail = fmt.Sprintf("%s is %s, older than %s", node, version, minimumNode)
		return f
	}
	npm, err := h.lookPath("npm")
	if err != nil {
		f.Detail = fmt.Sprintf("%s, %s; npm is not in PATH", node, version)
		return f
	}
	return finding{f.Check, pass, fmt.Sprintf("%s, %s; npm is %s", node, version, npm), ""}
}

func (h host) runDirectory(dir string) finding {
	f := finding{Check: "run directory"}
	t, err := h.fsType(dir)
	strange := h.strange(dir)
	switch {
	case err != nil:
		f.Detail = err.Error()
	case strange != "":
		f.Detail = strange
		f.Remedy = fmt.Sprintf("Have its owner remove %s, or set PFAR_RUN_DIR to another directory on a tmpfs. Until then "+
			"pfar does not start.", dir)
	case t != unix.TMPFS_MAGIC && t != unix.RAMFS_MAGIC:
		f.Outcome = warn
		f.Detail = dir + " is not in memory, and credentials pass through it"
		f.Remedy = "Set PFAR_RUN_DIR to a directory on a tmpfs, for example below /run or /dev/shm."
	default:
		return finding{f.Check, pass, dir + " is in memory", ""}
	}
	return f
}

// strange says why pfard refuses a run directory that is there already; "" if it does not, or there is none.
func (h host) strange(dir string) string {
	st, err := fs.Lstat(h.fs, strings.TrimPrefix(dir, "/"))
	if err != nil {
		return ""
	}
	if !st.IsDir() {
		return fmt.Sprintf("%s is not a directory (%v)", dir, st.Mode())
	}
	if owner, ok := st.Sys().(*syscall.Stat_t); ok && int(owner.Uid) != h.uid {
		return fmt.Sprintf("%s belongs to uid %d, not to you, uid %d", dir, owner.Uid, h.uid)
	}
	if st.Mode().Perm()&0o022 != 0 {
		return fmt.Sprintf("others may write to %s (%v)", dir, st.Mode())
	}
	return ""
}

func (h host) port(address string, running func() (control.Report, error)) finding {
	f := finding{Check: "endpoint"}
	report, away := running()
	err := h.listen(address)
	switch {
	case away == nil && report.PortFault != "":
		f.Detail = report.PortFault
		f.Remedy = "ss -ltnp says which program has it. End that one, or give pfar another port: systemctl edit " +
			"pfar-gateway-http.socket, then systemctl restart pfar-gateway-http.socket."
	case err == nil:
		return finding{f.Check, pass, address + " is free", ""}
	case errors.Is(err, syscall.EADDRINUSE) && away == nil:
		return finding{f.Check, pass, address + " is in use, and pfar is running", ""}
	case errors.Is(err, syscall.EADDRINUSE):
		f.Outcome, f.Detail = warn, address+" is in use by another program"
		f.Remedy = "Choose another with pfar up --listen, for example 127.0.0.1:0 for any free port."
	default:
		f.Detail = err.Error()
	}
	return f
}

// pages tells whether one-time pages of set-ups can be served: on a port, or with 0 on one that is free.
func pages(h host, port uint16) finding {
	f := finding{Check: "one-time pages"}
	path, err := h.program("pfar-setup")
	if err != nil {
		f.Detail = err.Error()
		f.Remedy = "Install pfar whole: pfar-setup belongs beside pfard. Until then pfar add works in a terminal."
		return f
	}
	if port != 0 {
		if !egress.IsPagePort(port) {
			f.Detail = fmt.Sprintf("port %d is not from %d to %d", port, egress.FirstPagePort, egress.LastPagePort)
			f.Remedy = "Give pfard or pfar up a --page-port in that range, which no server reaches."
			return f
		}
		if err := h.listen(fmt.Sprintf("127.0.0.1:%d", port)); err != nil {
			f.Outcome, f.Detail = warn, fmt.Sprintf("port %d is not free: %v", port, err)
			f.Remedy = "If no page is open now, choose another --page-port. Without one, each page takes a free port."
			return f
		}
		return finding{f.Check, pass, fmt.Sprintf("%s, on port %d, which is free", path, port), ""}
	}
	for n := egress.FirstPagePort; n <= egress.LastPagePort; n++ {
		if h.listen(fmt.Sprintf("127.0.0.1:%d", n)) == nil {
			const format = "%s, on a free port of 127.0.0.1 from %d to %d"
			return finding{f.Check, pass, fmt.Sprintf(format, path, egress.FirstPagePort, egress.LastPagePort), ""}
		}
	}
	f.Detail = fmt.Sprintf("no port of 127.0.0.1 from %d to %d is free", egress.FirstPagePort, egress.LastPagePort)
	f.Remedy = "ss -ltnp says which programs have them. End one of those."
	return f
}

// outputOr is what a program said, on one line, or how it ended.
func outputOr(out string, err error) string {
	if out = strings.Join(strings.Fields(out), " "); out != "" {
		return out
	}
	return err.Error()
}

// older compares dotted versions number by number.
func older(version, minimum string) bool {
	v, m := strings.Split(version, "."), strings.Split(minimum, ".")
	for i := range max(len(v), len(m)) {
		var a, b int
		if i < len(v) {
			a, _ = strconv.Atoi(v[i])
		}
		if i < len(m) {
			b, _ = strconv.Atoi(m[i])
		}
		if a != b {
			return a < b
		}
	}
	return false
}

// obeyed looks for what others may write in the directories that pfar obeys: pfard does not read it.
func obeyed(dirs ...string) finding {
	f := finding{Check: "files obeyed"}
	var wrong, below []string
	for len(dirs) > 0 {
		dir := dirs[0]
		dirs = dirs[1:]
		fsys := control.OurDir(dir)
		entries, err := fs.ReadDir(fsys, ".")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			wrong = append(wrong, err.Error())
		}
		for _, e := range entries {
			if to, err := fs.ReadLink(fsys, e.Name()); err == nil && to == os.DevNull {
				continue // it declares that there is nothing
			}
			if _, ok := declaration.DropInsOf(e.Name()); ok && e.IsDir() {
				below = append(below, filepath.Join(dir, e.Name()))
			}
			if _, err := fs.Stat(fsys, e.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
				wrong = append(wrong, err.Error())
			}
		}
		if len(dirs) == 0 {
			dirs, below = below, nil
		}
	}
	if len(wrong) > 0 {
		f.Detail = strings.Join(wrong, "; ")
		f.Remedy = "Look at what stands there, for others may have written it, and then chmod go-w it, or chown it to root."
		return f
	}
	return finding{f.Check, pass, "only you and root may write them", ""}
}

// leftoverCheck tells of the same.
func leftoverCheck(running func() (control.Report, error)) finding {
	const name = "leftovers"
	report, err := running()
	switch notes := health.LeftBehind(report); {
	case err != nil:
		return finding{name, none, "pfar is not running", ""}
	case len(notes) > 0:
		return finding{name, warn, strings.Join(notes, "; "), ""}
	}
	return finding{name, pass, "none: every server with files is declared", ""}
}

// chatCheck tells at which declared chats nobody can talk.
func chatCheck(running func() (control.Report, error)) finding {
	const name = "chats"
	report, err := running()
	switch {
	case err != nil:
		return finding{name, none, "pfar is not running", ""}
	case len(report.Chats) > 0:
		return finding{name, warn, strings.Join(report.Chats, "; "), ""}
	}
	return finding{name, pass, "every chat that is declared runs", ""}
}
