package declaration

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/policies/block"
)

const (
	minMemory, maxMemory = 16 << 20, 1 << 40
	minTasks, maxTasks   = 8, 4096
	minCPU, maxCPU       = 1, 6400
	maxMounts            = 64
	minUndo, maxUndo     = 1 << 20, 1 << 40
	minUndoTime          = time.Hour
	maxUndoTime          = 365 * 24 * time.Hour
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
		key("memory_limit", `"256m"`, `"256m"`, d.size(&b.Memory, minMemory, maxMemory)),
		key("tasks_max", `256`, `256`, d.setInteger(&b.Tasks, minTasks, maxTasks)),
		key("cpu_quota", `"50%"`, "", d.cpuQuota),
		key("read_only_fs", `true`, `true`, d.SetTruth(&b.ReadOnlyFS)),
		key("allow_tmp", `true`, `true`, d.SetTruth(&b.AllowTmp)),
		key("read_only", `["/srv/data"]`, `[]`, d.mounts(&b.ReadOnly, false)),
		key("writable", `["/srv/data"]`, `[]`, d.mounts(&b.Writable, true)),
		key("state", `true`, `false`, d.SetTruth(&b.State)),
		key("undo", `false`, `true`, d.SetTruth(&b.Undo.On)),
		key("undo_size", `"4g"`, `"1g"`, d.size(&b.Undo.Size, minUndo, maxUndo)),
		key("undo_time", `"72h"`, `"168h"`, d.setDuration(&b.Undo.Time, minUndoTime, maxUndoTime, false)),
	}
}

// size reads a size. The units are powers of 1024, as systemd's and docker's are.
func (d *box) size(to *int64, least, most int64) block.Value {
	return func(f *block.Field) {
		s, ok := d.measure(f, "a size with its unit")
		if !ok {
			return
		}
		shortest, longest := block.Quote(Size(least)), block.Quote(Size(most))
		m := sizePattern.FindStringSubmatch(s)
		if m == nil {
			const words = "%s is not a size: write a whole number with k, m or g, from %s to %s. Write %s."
			d.Problem(f.Val.At, "Not a size", words, block.Quote(s), shortest, longest, f.Example)
			return
		}
		v, err := strconv.ParseInt(m[1], 10, 64)
		unit := int64(1) << (10 * (strings.Index("kmgt", strings.ToLower(m[2])) + 1))
		if m[2] == "" {
			unit = 1
		}
		if err != nil || v > most/unit || v*unit < least {
			d.outOfRange(f, f.Val.At, shortest, longest)
			return
		}
		*to = v * unit
	}
}

// Size writes a size as a declaration does: "256m".
func Size(v int64) string {
	for _, unit := range []struct {
		bytes int64
		name  string
	}{{1 << 30, "g"}, {1 << 20, "m"}, {1 << 10, "k"}} {
		if v%unit.bytes == 0 {
			return strconv.FormatInt(v/unit.bytes, 10) + unit.name
		}
	}
	return strconv.FormatInt(v, 10)
}

func (d *box) cpuQuota(f *block.Field) {
	s, ok := d.measure(f, "a share of one processor")
	if !ok {
		return
	}
	m := quotaPattern.FindStringSubmatch(s)
	if m == nil {
		d.Problem(f.Val.At, "Not a quota",
			`%s is not a share of a processor: "50%%" is half of one, "200%%" two whole ones, from "1%%" to "6400%%". Write %s.`,
			block.Quote(s), f.Example)
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
				d.Problem(n.At, "Too many paths", "%s has room for %d entries. Name the directory above.", f.Key, maxMounts)
				break
			}
			if !d.absolute(n) {
				continue
			}
			if why := refusedMount(n.Text, writable); why != "" {
				d.Problem(n.At, "Refused path", "%s cannot be in %s: %s. Name the directory that the server works on, such as %s.",
					block.Quote(n.Text), f.Key, why, f.Example)
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
	if !d.sandbox.Undo.On {
		for _, name := range []string{"undo_size", "undo_time"} {
			if at, ok := d.Places[sandboxSection+"."+name]; ok {
				d.Problem(at, "Keys that belong together",
					"%s bounds what undo keeps, and undo = false keeps nothing. Remove one of the two.", name)
			}
		}
	}
	for i, m := range d.paths {
		for j, other := range d.paths {
			switch {
			case i == j:
			case m.path == other.path && i > j:
				d.Problem(m.at, "Duplicate path", "%s is listed already in line %d. Keep one: writable includes reading.",
					block.Quote(m.path), other.at.Start.Line)
			case m.path != other.path && other.writable && below(m.path, other.path):
				d.Problem(m.at, "Path within a writable one", "%s lies within %s of line %d, where the server could replace it. "+
					"Remove it, or make directories beside each other.", block.Quote(m.path), block.Quote(other.path),
					other.at.Start.Line)
			}
		}
	}
}
