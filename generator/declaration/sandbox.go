package declaration

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/policies/block"
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

// box reads the sandbox block.
type box struct {
	*reader
	sandbox *Sandbox
	paths   []mount
}

func (d *box) keys() []block.Key {
	b := d.sandbox
	return []block.Key{
		key("memory_limit", `"256m"`, `"256m"`, d.memoryLimit),
		key("tasks_max", `256`, `256`, d.setInteger(&b.Tasks, minTasks, maxTasks)),
		key("cpu_quota", `"50%"`, "", d.cpuQuota),
		key("read_only_fs", `true`, `true`, d.SetTruth(&b.ReadOnlyFS)),
		key("allow_tmp", `true`, `true`, d.SetTruth(&b.AllowTmp)),
		key("read_only", `["/srv/data"]`, `[]`, d.mounts(&b.ReadOnly, false)),
		key("writable", `["/srv/data"]`, `[]`, d.mounts(&b.Writable, true)),
		key("state", `true`, `false`, d.SetTruth(&b.State)),
	}
}

// memoryLimit reads a size. The units are powers of 1024, as systemd's and docker's are.
func (d *box) memoryLimit(f *block.Field) {
	s, ok := d.measure(f, "a size with its unit")
	if !ok {
		return
	}
	m := sizePattern.FindStringSubmatch(s)
	if m == nil {
		d.Problem(f.Val.At, "Not a size", `%s is not a size: write a whole number with k, m or g, from "16m" to "1024g". Write %s.`, block.Quote(s), f.Example)
		return
	}
	v, err := strconv.ParseInt(m[1], 10, 64)
	unit := int64(1) << (10 * (strings.Index("kmgt", strings.ToLower(m[2])) + 1))
	if m[2] == "" {
		unit = 1
	}
	if err != nil || v > maxMemory/unit || v*unit < minMemory {
		d.outOfRange(f, f.Val.At, `"16m"`, `"1024g"`)
		return
	}
	d.sandbox.Memory = v * unit
}

func (d *box) cpuQuota(f *block.Field) {
	s, ok := d.measure(f, "a share of one processor")
	if !ok {
		return
	}
	m := quotaPattern.FindStringSubmatch(s)
	if m == nil {
		d.Problem(f.Val.At, "Not a quota", `%s is not a share of a processor: "50%%" is half of one, "200%%" two whole ones, from "1%%" to "6400%%". Write %s.`, block.Quote(s), f.Example)
		return
	}
	v, err := strconv.Atoi(m[1])
	if err != nil || v < minCPU || v > maxCPU {
		d.outOfRange(f, f.Val.At, `"1%"`, `"6400%"`)
		return
	}
	d.sandbox.CPU = v
}

// mount is a path of read_only or writable, kept until both are known.
type mount struct {
	path     string
	writable bool
	at       hcl.Range
}

func (d *box) mounts(to *[]string, writable bool) block.Value {
	return func(f *block.Field) {
		for i, n := range d.Texts(f) {
			if i == maxMounts {
				d.Problem(n.At, "Too many paths", "%s has room for %d entries. Name the folder above.", f.Key, maxMounts)
				break
			}
			if !d.absolute(n) {
				continue
			}
			if why := refusedMount(n.Text, writable); why != "" {
				d.Problem(n.At, "Refused path", "%s cannot be in %s: %s. Name the folder that the server works on, such as %s.", block.Quote(n.Text), f.Key, why, f.Example)
				continue
			}
			d.paths = append(d.paths, mount{n.Text, writable, n.At})
			d.PlaceEntry(sandboxSection+"."+f.Key, len(*to), n.At)
			*to = append(*to, n.Text)
		}
	}
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

// check refuses binds below a writable one: the server could put a symlink where the next start binds.
func (d *box) check() {
	for i, m := range d.paths {
		for j, other := range d.paths {
			switch {
			case i == j:
			case m.path == other.path && i > j:
				d.Problem(m.at, "Duplicate path", "%s is listed already in line %d. Keep one: writable includes reading.", block.Quote(m.path), other.at.Start.Line)
			case m.path != other.path && other.writable && below(m.path, other.path):
				d.Problem(m.at, "Path within a writable one", "%s lies within %s of line %d, where the server could replace it. Remove it, or make folders beside each other.", block.Quote(m.path), block.Quote(other.path), other.at.Start.Line)
			}
		}
	}
}
