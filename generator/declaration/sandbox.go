package declaration

import (
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/policies/visible"
)

const (
	minMemory, maxMemory = 16 << 20, 1 << 40
	minTasks, maxTasks   = 8, 4096
	minCPU, maxCPU       = 1, 6400
	maxMounts            = 64
)

// serverHome is where a server finds its home. Nothing is bound below it, for it is writable.
const serverHome = "/home/mcp"

var (
	sizePattern  = regexp.MustCompile(`^([1-9][0-9]{0,39})([kmgtKMGT]?)(i?[bB])?$`)
	quotaPattern = regexp.MustCompile(`^([1-9][0-9]{0,5})%$`)
)

func (d *decoder) sandboxBlock(f *field) {
	if n, ok := d.table(f); ok {
		d.section(sandboxKeys(), n)
	}
}

// memoryLimit reads a size. The units are powers of 1024, as systemd's and docker's are.
func (d *decoder) memoryLimit(f *field) {
	if f.val.kind == number {
		d.report(problem(f.val.rng, "Wrong type", "memory_limit takes a size with its unit, in quotes. Write %s.", d.example(f.key)))
		return
	}
	s, ok := d.text(f)
	if !ok {
		return
	}
	m := sizePattern.FindStringSubmatch(s)
	if m == nil {
		d.report(problem(f.val.rng, "Not a size", `%s is not a size: write a whole number with k, m or g, from "16m" to "1024g". Write %s.`, quote(s), d.example(f.key)))
		return
	}
	v, err := strconv.ParseInt(m[1], 10, 64)
	unit := int64(1) << (10 * (strings.Index("kmgt", strings.ToLower(m[2])) + 1))
	if m[2] == "" {
		unit = 1
	}
	if err != nil || v > maxMemory/unit || v*unit < minMemory {
		d.outOfRange(f.val.rng, f.key, `"16m"`, `"1024g"`)
		return
	}
	d.server.Sandbox.Memory = v * unit
}

func (d *decoder) tasksMax(f *field) {
	if v, ok := d.integer(f, minTasks, maxTasks); ok {
		d.server.Sandbox.Tasks = int(v)
	}
}

func (d *decoder) cpuQuota(f *field) {
	if f.val.kind == number {
		d.report(problem(f.val.rng, "Wrong type", "cpu_quota takes a share of one processor, in quotes. Write %s.", d.example(f.key)))
		return
	}
	s, ok := d.text(f)
	if !ok {
		return
	}
	m := quotaPattern.FindStringSubmatch(s)
	if m == nil {
		d.report(problem(f.val.rng, "Not a quota", `%s is not a share of a processor: "50%%" is half of one, "200%%" two whole ones, from "1%%" to "6400%%". Write %s.`, quote(s), d.example(f.key)))
		return
	}
	v, err := strconv.Atoi(m[1])
	if err != nil || v < minCPU || v > maxCPU {
		d.outOfRange(f.val.rng, f.key, `"1%"`, `"6400%"`)
		return
	}
	d.server.Sandbox.CPU = v
}

func (d *decoder) readOnlyFS(f *field) {
	if v, ok := d.truth(f); ok {
		d.server.Sandbox.ReadOnlyFS = v
	}
}

func (d *decoder) allowTmp(f *field) {
	if v, ok := d.truth(f); ok {
		d.server.Sandbox.AllowTmp = v
	}
}

func (d *decoder) state(f *field) {
	if v, ok := d.truth(f); ok {
		d.server.Sandbox.State = v
	}
}

func (d *decoder) readOnly(f *field) {
	d.server.Sandbox.ReadOnly = d.mounts(f, false)
}

func (d *decoder) writable(f *field) {
	d.server.Sandbox.Writable = d.mounts(f, true)
}

// mount is a path of read_only or writable, kept until both are known.
type mount struct {
	path     string
	writable bool
	rng      hcl.Range
}

func (d *decoder) mounts(f *field, writable bool) []string {
	var paths []string
	for i, n := range d.texts(f) {
		if i == maxMounts {
			d.report(problem(n.rng, "Too many paths", "%s has room for %d entries. Name the folder above.", f.key, maxMounts))
			break
		}
		if !d.absolute(n, n.text) {
			continue
		}
		if why := refusedMount(n.text, writable); why != "" {
			d.report(problem(n.rng, "Refused path", "%s cannot be in %s: %s. Name the folder that the server works on, such as %s.", quote(n.text), f.key, why, d.example(f.key)))
			continue
		}
		d.paths = append(d.paths, mount{n.text, writable, n.rng})
		d.placedEntry(sandboxSection+"."+f.key, len(paths), n.rng)
		paths = append(paths, n.text)
	}
	return paths
}

// absolute judges the form of a path. What it leads to on the host is the compiler's to find out.
func (d *decoder) absolute(n *node, s string) bool {
	at := n.rng
	switch {
	case s == "":
		d.report(problem(at, "Empty value", `The path is empty. Write an absolute one, such as "/srv/data".`))
	case strings.ContainsFunc(s, visible.Deceptive):
		d.report(problem(at, "Invisible character", "The path holds a control character or one that cannot be seen: %s. Remove it.", quote(s)))
	case s[0] == '~':
		d.report(problem(at, "Path not absolute", `"~" is expanded only by a shell, and the user is unknown. Write the path from "/" on.`))
	case s[0] == '$':
		d.report(problem(at, "Path not absolute", `Variables are not expanded in paths. Write the path from "/" on, or ${servers}.`))
	case s[0] != '/':
		d.report(problem(at, "Path not absolute", `%s is relative to an unknown directory. Write the path from "/" on.`, quote(s)))
	case path.Clean(s) != s:
		d.report(problem(at, "Path not clean", `%s has "//", "." or ".." in it, or ends in "/". Write %s.`, quote(s), quote(path.Clean(s))))
	default:
		return true
	}
	return false
}

const (
	whyKernel  = "it belongs to the kernel or the system, and the sandbox has its own or none"
	whyPfar    = "pfar's own files are there, with every server's secrets"
	whyWhole   = "it holds more than any one server needs"
	whyHome    = "the sandbox has its own there"
	whyInstall = "it is part of the system's installation, which no server may change"
)

// refusedMount says why a folder of the host is given to no server, or "".
func refusedMount(s string, writable bool) string {
	for _, p := range []string{"/var/lib/pfar", "/etc/pfar", "/var/log/pfar", "/var/cache/pfar"} {
		if below(s, p) {
			return whyPfar
		}
	}
	for _, p := range []string{"/proc", "/sys", "/dev", "/run", "/boot", "/var/run", "/var/lock", "/efi"} {
		if below(s, p) {
			return whyKernel
		}
	}
	switch s {
	case "/", "/etc", "/var", "/var/lib", "/var/log", "/var/cache", "/var/spool", "/home", "/root", "/usr", "/opt", "/srv", "/mnt", "/media":
		return whyWhole
	}
	if s == "/tmp" || s == "/var/tmp" || below(s, serverHome) {
		return whyHome
	}
	for _, p := range []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc"} {
		if writable && below(s, p) {
			return whyInstall
		}
	}
	return ""
}

// below reports whether a clean path is p or lies within it.
func below(s, p string) bool {
	return s == p || strings.HasPrefix(s, p+"/")
}

// checkMounts refuses binds below a writable one: the server could put a symlink where the next start binds.
func (d *decoder) checkMounts() {
	for i, m := range d.paths {
		for j, other := range d.paths {
			switch {
			case i == j:
			case m.path == other.path && i > j:
				d.report(problem(m.rng, "Duplicate path", "%s is listed already in line %d. Keep one: writable includes reading.", quote(m.path), other.rng.Start.Line))
			case m.path != other.path && other.writable && below(m.path, other.path):
				d.report(problem(m.rng, "Path within a writable one", "%s lies within %s of line %d, where the server could replace it. Remove it, or make folders beside each other.", quote(m.path), quote(other.path), other.rng.Start.Line))
			}
		}
	}
}
