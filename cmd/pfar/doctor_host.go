package main

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/audit/trail"
)

// host is the outermost edge of the machine that doctor looks at.
type host struct {
	fs       fs.FS // of /
	uid      int
	user     string // the name of uid, "" if it has none
	lookPath func(string) (string, error)
	program  func(name string) (string, error) // finds one of pfar's own
	// run runs a program as the user that servers run as and returns all that it wrote.
	run func(ctx context.Context, namespaces bool, program string, args ...string) (string, error)
	// systemctl runs systemctl as the user of this process.
	systemctl func(ctx context.Context, args ...string) (string, error)
	// fsType is statfs(2)'s f_type of the nearest directory above the path that exists.
	fsType   func(path string) (int64, error)
	writable func(path string) bool
	records  func(dir string) []string       // the newest file of each chain of an audit
	sealed   func(path string) (bool, error) // whether it is append-only
	listen   func(address string) error
	now      func() time.Time
}

// probeUID is the unprivileged user of doctor's sandboxes when it is root: in the range of systemd's DynamicUser=, like
// the servers' own, and not "nobody", whom some hosts treat as nobody else.
const probeUID = 65519

const (
	probeTimeout = 10 * time.Second
	unitTimeout  = 30 * time.Second // more than probeUnit gives itself
)

func (c doctorVerb) thisHost() host {
	return host{
		fs: os.DirFS("/"), uid: c.uid, user: userName(c.uid), lookPath: lookPath, program: c.findProgram,
		fsType: fsType, now: time.Now,
		run: func(ctx context.Context, namespaces bool, program string, args ...string) (string, error) {
			return runProbe(ctx, c.uid, namespaces, program, args...)
		},
		systemctl: systemctl,
		writable:  func(path string) bool { return unix.Access(path, unix.W_OK) == nil },
		records:   newestRecords, sealed: trail.Sealed,
		listen: func(address string) error {
			l, err := net.Listen("tcp", address)
			if err != nil {
				return err
			}
			return l.Close()
		},
	}
}

// newestRecords returns the newest file of each chain in a directory.
func newestRecords(dir string) []string {
	d := trail.Dir{Path: dir, Group: -1}
	chains, _ := d.Chains()
	var newest []string
	for _, chain := range chains {
		if paths, err := d.Files(chain); err == nil && len(paths) > 0 {
			newest = append(newest, paths[len(paths)-1])
		}
	}
	return newest
}

func userName(uid int) string {
	u, err := user.LookupId(strconv.Itoa(uid))
	if err != nil {
		return ""
	}
	return u.Username
}

// lookPath also looks where administrators' programs are, which are not in everybody's PATH.
func lookPath(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if p := filepath.Join(dir, name); unix.Access(p, unix.X_OK) == nil {
			return p, nil
		}
	}
	return "", err
}

// runProbe runs a program as an unprivileged user, and, if namespaces is set, as root of a fresh user and network
// namespace of that user's, where nothing it does touches the host.
func runProbe(ctx context.Context, uid int, namespaces bool, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL=C"}
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	switch {
	case namespaces:
		gid := os.Getgid()
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}}
	case uid == 0:
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: probeUID, Gid: probeUID}
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func systemctl(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, unitTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "systemctl", append([]string{"--no-ask-password"}, args...)...)
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL=C",
		fmt.Sprintf("XDG_RUNTIME_DIR=/run/user/%d", os.Getuid())}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func fsType(path string) (int64, error) {
	for {
		var st unix.Statfs_t
		err := unix.Statfs(path, &st)
		if err == nil {
			return int64(st.Type), nil
		}
		parent := filepath.Dir(path)
		if parent == path {
			return 0, err
		}
		path = parent
	}
}
