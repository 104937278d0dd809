package bed

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Descriptors that the guardian and the keeper are started with.
const (
	lifelineFD = 3 + iota // the guardian's: ends with the test
	controlFD             // the keeper's: requests and answers
	consoleFD             // the keeper's: what systemd-nspawn prints
)

// roleVariable says in the environment what this program is to be, if not the test.
const (
	roleVariable = "PFAR_TEST_BED_ROLE"
	roleGuardian = "guardian"
	roleKeeper   = "keeper"
)

// Play is the first thing that a test's main function calls: the program is run again as a machine's guardian and
// keeper.
func Play() {
	role := os.Getenv(roleVariable)
	if role == "" {
		return
	}
	runtime.LockOSThread() // the children get a signal when the thread ends that forked them
	os.Unsetenv(roleVariable)
	err := fmt.Errorf("no role %q", role)
	switch role {
	case roleGuardian:
		err = guard(os.Args[1:])
	case roleKeeper:
		err = keep(os.Args[1:])
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "bed's %s: %v\n", role, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// guard makes the machine's cgroup, starts the keeper in it and waits for the end of either the test or the keeper.
// args are the path of its cgroup without the PID at its end, and the layers of the root.
func guard(args []string) error {
	dir := args[0] + strconv.Itoa(os.Getpid())
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("making a cgroup: %w", err)
	}
	return errors.Join(guardKeeper(dir, args), removeCgroup(dir))
}

func guardKeeper(dir string, args []string) error {
	group, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer group.Close()
	cmd := exec.Command("/proc/self/exe", args[1:]...)
	cmd.Env = append(os.Environ(), roleVariable+"="+roleKeeper, gorace)
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{nil, os.NewFile(controlFD, "control"), os.NewFile(consoleFD, "console")}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:   unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		Unshareflags: unix.CLONE_NEWCGROUP, // by then it is in its cgroup
		UseCgroupFD:  true, CgroupFD: int(group.Fd()),
		Pdeathsig: syscall.SIGKILL,
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the keeper: %w", err)
	}
	for _, f := range cmd.ExtraFiles[1:] {
		f.Close()
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.NewFile(lifelineFD, "lifeline"))
		_ = cmd.Process.Kill() // all others of its PID namespace go with it, and their mounts and links with them
	}()
	err = cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signaled() {
		return nil
	}
	return err
}

// request is what the test wants of the keeper, and answer what comes of it.
type request struct {
	Boot bool // start the machine, and wait until it has booted
	Kill bool // end all its processes at once
	Wait bool // wait until the machine is off
}

type answer struct{ Error string }

// keeper runs systemd-nspawn, as often as it is told to.
type keeper struct {
	nspawn  *exec.Cmd
	off     chan struct{} // closed when nspawn has ended
	console *os.File
	notify  *net.UnixConn
}

// Where the keeper has its own things, in its own /run and /sys.
const (
	rootDir      = "/run/bed/root"
	notifySocket = "/run/bed/notify"
	groupDir     = "/sys/fs/cgroup"
	machineGroup = "machine"
)

func keep(args []string) error {
	syscall.CloseOnExec(controlFD)
	syscall.CloseOnExec(consoleFD)
	if err := arrange(args[0]); err != nil {
		return err
	}
	notify, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: notifySocket, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("listening for the machine's readiness: %w", err)
	}
	k := &keeper{console: os.NewFile(consoleFD, "console"), notify: notify}
	control := os.NewFile(controlFD, "control")
	in, out := json.NewDecoder(control), json.NewEncoder(control)
	for {
		var r request
		if err := in.Decode(&r); err != nil {
			return nil // the test has gone
		}
		var a answer
		if err := k.do(r); err != nil {
			a.Error = err.Error()
		}
		if err := out.Encode(a); err != nil {
			return nil
		}
	}
}

// arrange mounts the machine's root, and hides of the host what systemd-nspawn would write to.
func arrange(layers string) error {
	mounts := []struct{ source, target, kind, data string }{
		{"proc", "/proc", "proc", ""},
		{"tmpfs", "/run", "tmpfs", "mode=0755"},
		{"cgroup2", groupDir, "cgroup2", ""},
		{"overlay", rootDir, "overlay", "lowerdir=" + layers + ",upperdir=/run/bed/upper,workdir=/run/bed/work"},
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	if err := unix.Unmount(groupDir, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("hiding the host's cgroups: %w", err)
	}
	for _, m := range mounts {
		if m.kind == "overlay" {
			for _, dir := range []string{rootDir, "/run/bed/upper", "/run/bed/work"} {
				if err := os.MkdirAll(dir, 0o755); err != nil {
					return err
				}
			}
		}
		if err := unix.Mount(m.source, m.target, m.kind, 0, m.data); err != nil {
			return fmt.Errorf("mounting %s on %q: %w", m.kind, m.target, err)
		}
	}
	// A cgroup with controllers below it must have no process itself.
	own := filepath.Join(groupDir, "keeper")
	if err := os.Mkdir(own, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(own, "cgroup.procs"), []byte("0"), 0); err != nil {
		return fmt.Errorf("leaving the cgroup's root: %w", err)
	}
	controllers, err := os.ReadFile(filepath.Join(groupDir, "cgroup.controllers"))
	if err != nil {
		return err
	}
	for _, c := range strings.Fields(string(controllers)) {
		if err := os.WriteFile(filepath.Join(groupDir, "cgroup.subtree_control"), []byte("+"+c), 0); err != nil {
			return fmt.Errorf("passing on the controller %q: %w", c, err)
		}
	}
	return nil
}

func (k *keeper) do(r request) error {
	switch {
	case r.Boot:
		return k.boot()
	case r.Kill && k.nspawn != nil:
		if err := os.WriteFile(filepath.Join(groupDir, machineGroup, "cgroup.kill"), []byte("1"), 0); err != nil {
			return fmt.Errorf("killing the machine: %w", err)
		}
		fallthrough
	case r.Wait && k.nspawn != nil:
		<-k.off
	}
	return nil
}

// boot starts the machine and returns when its systemd says that it has nothing left to start.
func (k *keeper) boot() error {
	if k.nspawn != nil {
		select {
		case <-k.off:
		default:
			return errors.New("booting: the machine is on")
		}
	}
	dir := filepath.Join(groupDir, machineGroup)
	if err := removeCgroup(dir); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	group, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer group.Close()
	cmd := exec.Command("systemd-nspawn", "--directory="+rootDir, "--machine=pfar-bed", "--boot", "--notify-ready=yes",
		"--register=no", "--keep-unit", "--private-network", "--console=read-only", "--quiet",
		"--resolv-conf=off", "--timezone=off", "--link-journal=no",
		// Without these IPAddressDeny= is silently without effect.
		"--system-call-filter=bpf", "--capability=CAP_BPF,CAP_PERFMON", "--", "--show-status=auto", "--log-color=no")
	// Writable: otherwise parts of /proc are mounted over, and systemd 257 has each unit's /proc so, where bubblewrap can
	// make no other (mount_namespaces(7), locked mounts). On a real machine nothing is mounted there but by the unit.
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "NOTIFY_SOCKET=" + notifySocket,
		"SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1", "SYSTEMD_NSPAWN_API_VFS_WRITABLE=yes"}
	cmd.Stdout, cmd.Stderr = k.console, k.console
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd()), Setsid: true, Pdeathsig: syscall.SIGKILL}
	if err := k.notify.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting systemd-nspawn: %w", err)
	}
	k.nspawn, k.off = cmd, make(chan struct{})
	ready, heard, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(heard)
		k.listen(ready)
	}()
	go func(off chan struct{}) {
		err := cmd.Wait()
		_ = k.notify.SetReadDeadline(time.Unix(1, 0))
		<-heard
		ended <- err
		close(off)
	}(k.off)
	const limit = 5 * time.Minute
	select {
	case <-ready:
		return nil
	case err := <-ended:
		return fmt.Errorf("booting: systemd-nspawn ended: %v", err)
	case <-time.After(limit):
		return fmt.Errorf("waiting for the machine to have booted: it has not within %s", limit)
	}
}

// listen closes ready when the machine is, and reads on until the deadline: systemd says so each time that it executes
// itself anew, and would wait for a reader after a dozen.
func (k *keeper) listen(ready chan<- struct{}) {
	buffer := make([]byte, 4096)
	for told := false; ; {
		n, err := k.notify.Read(buffer)
		if err != nil {
			return
		}
		for line := range strings.Lines(string(buffer[:n])) {
			if strings.TrimSpace(line) == "READY=1" && !told {
				told = true
				close(ready)
			}
		}
	}
}
