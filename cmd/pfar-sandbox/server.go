package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/sandbox"
)

// server is one bwrap and what runs in it.
type server struct {
	cmd       *exec.Cmd
	stdin     *os.File // write end; handed to the gateway
	stdout    *os.File // read end; handed to the gateway
	stderr    *os.File // read end
	report    *os.File // our end of fdReport
	as        ids
	arguments *os.File   // write end of fdArgs
	shared    []string   // once there are sockets: sources without a view of their own, and why
	live      []*os.File // likewise: file system contexts of what is to follow the host
	sandbox   sandbox.Sandbox
	given     sandbox.Options // what bwrap's arguments are made of, with the server's credentials; until sockets
	options   []byte          // those arguments
	set       chan int        // process id of the sandbox's pid 1, once; closed if there will be none
	exited    chan error
}

// start makes the server's namespaces with bwrap waiting in them for its arguments: nothing of the server runs yet. The
// values of the secrets are cleared by sockets: the only copy that stays is among these arguments, until release.
func start(bwrap string, s sandbox.Sandbox, n network, as ids, secrets units.Secrets) (_ *server, err error) {
	var d descriptors
	defer d.close() // bwrap has its own
	defer func() {
		if err != nil {
			wipe(secrets.Values)
		}
	}()
	o := sandbox.Options{Credentials: secrets.Values, Tree: treeDir, EmptyFile: emptyFile, EmptyFolder: emptyFolder}
	filter, err := sandbox.Seccomp(goarch)
	if err != nil {
		return nil, err
	}
	seccomp, err := units.Sealed("seccomp", filter)
	if err != nil {
		return nil, err
	}
	o.SeccompFD = d.add(seccomp)
	statusR, statusW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	o.StatusFD = d.add(statusW)
	if err := d.openMounts(s.Mounts, secrets, &o); err != nil {
		return nil, err
	}
	if err := s.Check(o); err != nil {
		return nil, err
	}
	v := &server{sandbox: s, given: o, as: as, set: make(chan int, 1), exited: make(chan error, 1)}
	if err := v.fork(bwrap, s, n, as, viewsOf(s.Mounts, o), &d); err != nil {
		return nil, err
	}
	go v.readStatus(statusR)
	go func() { v.exited <- v.cmd.Wait() }()
	return v, nil
}

// wipe clears values that are no longer needed. They live as long as their process otherwise, and so as the server.
func wipe(values map[string][]byte) {
	for _, v := range values {
		clear(v)
	}
}

// fork starts this binary again as the first process of a user, a mount and a network namespace (enter.go).
func (v *server) fork(bwrap string, s sandbox.Sandbox, n network, as ids, views []view, d *descriptors) error {
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
	}()
	pipe := func(ours **os.File, read bool) (*os.File, error) {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, fmt.Errorf("making a pipe: %w", err)
		}
		if read {
			r, w = w, r
		}
		*ours = w
		theirs = append(theirs, r)
		return r, nil
	}
	stdin, err := pipe(&v.stdin, false)
	if err != nil {
		return err
	}
	stdout, err := pipe(&v.stdout, true)
	if err != nil {
		return err
	}
	stderr, err := pipe(&v.stderr, true)
	if err != nil {
		return err
	}
	if err := as.openToAll(stdin, stdout, stderr); err != nil {
		return err
	}
	arguments, err := pipe(&v.arguments, false)
	if err != nil {
		return err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("making a socket pair: %w", err)
	}
	v.report = os.NewFile(uintptr(pair[0]), "report")
	report := os.NewFile(uintptr(pair[1]), "report")
	theirs = append(theirs, report)

	network, err := json.Marshal(n)
	if err != nil {
		return err
	}
	text, err := as.MarshalText()
	if err != nil {
		return err
	}
	list, err := json.Marshal(views)
	if err != nil {
		return err
	}
	enter := []string{enterArg, bwrap, strconv.Itoa(s.Limits.Tasks), strconv.Itoa(len(d.files)),
		string(network), string(text), string(list), s.Command}
	v.cmd = exec.Command("/proc/self/exe", append(enter, s.Args...)...)
	v.cmd.Env = []string{} // nothing of ours, not even to bwrap
	v.cmd.Dir = "/"
	v.cmd.Stdin, v.cmd.Stdout, v.cmd.Stderr = stdin, stdout, stderr
	v.cmd.ExtraFiles = append([]*os.File{report, arguments}, d.files...)
	users, groups, capabilities := as.namespace()
	v.cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: users, GidMappings: groups,
		// For the overlays; enter gives it up.
		AmbientCaps: append(capabilities, unix.CAP_SYS_ADMIN),
		Pdeathsig:   unix.SIGKILL, // until bwrap's --die-with-parent takes over
		Setpgid:     true,         // a Ctrl-C in pfar's terminal is for pfar to act on
	}
	if n.own {
		v.cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWNET
		// For the ruleset, for the resolver's port and for boundCounts; enter gives them up.
		v.cmd.SysProcAttr.AmbientCaps = append(v.cmd.SysProcAttr.AmbientCaps,
			unix.CAP_NET_ADMIN, unix.CAP_NET_BIND_SERVICE, unix.CAP_SYS_RESOURCE)
	}
	if err := whileDumpable(v.cmd.Start); err != nil {
		return noNamespaces(err)
	}
	return nil
}

// sockets returns the sockets from inside the server's network namespace, none from one that was there before, once the
// namespaces are ready. With that it is known what bwrap is left to do.
func (v *server) sockets() (_ []*os.File, err error) {
	defer func() {
		wipe(v.given.Credentials)
		v.given = sandbox.Options{}
	}()
	b, oob := make([]byte, maxReport), make([]byte, unix.CmsgSpace(4*maxDescriptors))
	n, oobn, _, _, err := unix.Recvmsg(int(v.report.Fd()), b, oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("receiving the sockets of the namespace: %w", err)
	}
	files, err := received(oob[:oobn])
	if err != nil {
		return nil, err
	}
	if err := readComplaint(b[:n]); err != nil {
		attach.CloseAll(files)
		return nil, err
	}
	numbers, shared, _ := strings.Cut(string(b[1:n]), "\n")
	count, mounts, _ := strings.Cut(numbers, " ")
	live, err := strconv.Atoi(count)
	if err == nil && (live < 0 || live > len(files)) {
		err = fmt.Errorf("%d descriptors and %d views", len(files), live)
	}
	if err == nil {
		v.options, err = v.rest(mounts)
	}
	if err != nil {
		attach.CloseAll(files)
		return nil, fmt.Errorf("receiving the sockets of the namespace: %w", err)
	}
	if shared != "" {
		v.shared = strings.Split(shared, "\n")
	}
	v.live = files[len(files)-live:]
	return files[:len(files)-live], nil
}

// rest returns bwrap's arguments, but for those mounts of the plan, by number, that are made.
func (v *server) rest(mounts string) ([]byte, error) {
	v.given.Made = map[int]bool{}
	for text := range strings.FieldsSeq(mounts) {
		i, err := strconv.Atoi(text)
		if err != nil || i < 0 || i >= len(v.sandbox.Mounts) {
			return nil, fmt.Errorf("%q is not the number of a mount", text)
		}
		v.given.Made[i] = true
	}
	return v.sandbox.Arguments(v.given)
}

// received takes the descriptors out of a control message.
func received(oob []byte) ([]*os.File, error) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("receiving the sockets of the namespace: %w", err)
	}
	var files []*os.File
	for _, m := range msgs {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return nil, fmt.Errorf("receiving the sockets of the namespace: %w", err)
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), units.FDEgress))
		}
	}
	return files, nil
}

// maxDescriptors is how many the namespaces may send: six sockets, and one for each of 64 paths. maxReport is how many
// bytes come with them.
const (
	maxDescriptors = 128
	maxReport      = 32 << 10
)

// release lets bwrap go on: it reads its arguments to the end before it forks anything.
func (v *server) release() error {
	_, err := v.arguments.Write(v.options)
	clear(v.options)
	v.options = nil
	if err = errors.Join(err, v.arguments.Close()); err != nil {
		return fmt.Errorf("writing bwrap's arguments: %w", err)
	}
	return nil
}

// readStatus follows bwrap's --json-status-fd.
func (v *server) readStatus(r *os.File) {
	defer r.Close()
	defer close(v.set)
	dec := json.NewDecoder(io.LimitReader(r, 64<<10))
	for {
		var s struct {
			ChildPID int `json:"child-pid"`
		}
		if err := dec.Decode(&s); err != nil {
			return
		}
		if s.ChildPID > 0 {
			v.set <- s.ChildPID
		}
	}
}

// stop closes stdin, waits 5 s, sends SIGTERM, waits 3 s, and sends SIGKILL. It returns when no process of the server
// is left.
func (v *server) stop(closeStdin func()) {
	closeStdin()
	if v.wait(5 * time.Second) {
		return
	}
	// bwrap forks while it sets up; a signal in that moment could leave the half-made sandbox behind,
	// so first hear that it is done.
	var initPID int
	select {
	case initPID = <-v.set:
	case <-time.After(2 * time.Second):
	}
	for _, pid := range children(initPID) {
		_ = unix.Kill(pid, unix.SIGTERM) // pid 1 of a namespace does not get signals that it does not handle
	}
	if initPID > 0 && v.wait(3*time.Second) {
		return
	}
	if initPID > 0 {
		_ = unix.Kill(initPID, unix.SIGKILL) // and with it all of its namespace, pid_namespaces(7)
	}
	_ = v.cmd.Process.Kill()
	<-v.exited
}

// endedKilled reports, after stop, whether it had been killed by somebody else: what stop has killed leaves no word.
func (v *server) endedKilled() bool {
	select {
	case err := <-v.exited:
		return wasKilled(err)
	default:
		return false
	}
}

// wait reports whether the server ended within d.
func (v *server) wait(d time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	select {
	case err := <-v.exited:
		v.exited <- err // for whoever asks again
		return true
	case <-ctx.Done():
		return false
	}
}

// children lists the direct children of pid (proc_pid_task_tid_children(5)).
func children(pid int) []int {
	if pid <= 0 {
		return nil
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return nil
	}
	var pids []int
	for _, f := range strings.Fields(string(b)) {
		if n, err := strconv.Atoi(f); err == nil {
			pids = append(pids, n)
		}
	}
	return pids
}

// exitCode is bwrap's, and so the server's, as a shell has it: 128 and the signal for one that was killed. -1: it has
// none.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	var e *exec.ExitError
	if !errors.As(err, &e) {
		return -1
	}
	if s, ok := e.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return 128 + int(s.Signal())
	}
	return e.ExitCode()
}

// wasKilled reports whether the server ended by SIGKILL, as by the kernel for want of memory.
func wasKilled(err error) bool { return exitCode(err) == 128+int(unix.SIGKILL) }

// exitWords says how bwrap, and so the server, ended.
func exitWords(err error) string {
	switch code := exitCode(err); {
	case code == 0:
		return "it ended by itself with status 0"
	case code < 0:
		return err.Error()
	case code > 128 && code < 128+65:
		return fmt.Sprintf("killed by %s", unix.SignalName(syscall.Signal(code-128)))
	default:
		return fmt.Sprintf("exit status %d", code)
	}
}

// noNamespaces adds the remedy to an error from making or using a user namespace.
func noNamespaces(err error) error {
	if b, rerr := os.ReadFile("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"); rerr == nil && len(b) > 0 && b[0] == '1' {
		return fmt.Errorf("making a user namespace: %w; AppArmor restricts them here (Ubuntu 24.04 and later): sysctl kernel.apparmor_restrict_unprivileged_userns=0, or give this program and bwrap an AppArmor profile with \"userns,\"; `pfar doctor` says more", err)
	}
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EUSERS) {
		return fmt.Errorf("making a user namespace: %w; allow them: sysctl user.max_user_namespaces=15000, and kernel.unprivileged_userns_clone=1 where it exists; `pfar doctor` says more", err)
	}
	return fmt.Errorf("entering the namespaces: %w", err)
}
