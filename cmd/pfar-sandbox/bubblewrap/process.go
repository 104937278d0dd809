// Package bubblewrap starts bwrap(1), and in it one program, in namespaces that it prepares: with the file system, the
// network and the user that the plan says. This binary is started again for that, with EnterArg.
package bubblewrap

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/cmd/pfar-sandbox/rootfs"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/sandbox"
)

// Process is one bwrap and what runs in it.
type Process struct {
	cmd       *exec.Cmd
	Stdin     *os.File // write end
	Stdout    *os.File // read end
	Stderr    *os.File // read end
	report    *os.File // our end of fdReport
	as        IDs
	arguments *os.File   // write end of fdArgs
	Shared    []string   // once there are sockets: sources without a view of their own, and why
	Live      []*os.File // likewise: file system contexts of what is to follow the host
	sandbox   sandbox.Sandbox
	given     sandbox.Options // what bwrap's arguments are made of, with the server's credentials; until Sockets
	options   []byte          // those arguments
	set       chan int        // process id of the sandbox's pid 1, once; closed if there will be none
	exited    chan error
}

// Start makes the server's namespaces with bwrap waiting in them for its arguments: nothing of the server runs yet. The
// values of the secrets are cleared by Sockets: the only copy that stays is among these arguments, until Release.
func Start(bwrap string, s sandbox.Sandbox, n Network, as IDs, secrets units.Secrets) (_ *Process, err error) {
	var d descriptors
	defer func() { attach.CloseAll(d.files) }() // bwrap has its own
	defer func() {
		if err != nil {
			Wipe(secrets.Values)
		}
	}()
	o := sandbox.Options{
		Credentials: secrets.Values, Tree: rootfs.Dir, EmptyFile: rootfs.EmptyFile, EmptyFolder: rootfs.EmptyFolder,
	}
	filter, err := sandbox.Seccomp(runtime.GOARCH)
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
	v := &Process{sandbox: s, given: o, as: as, set: make(chan int, 1), exited: make(chan error, 1)}
	if err := v.fork(bwrap, s, n, as, rootfs.Views(s.Mounts, o), &d); err != nil {
		return nil, err
	}
	go v.readStatus(statusR)
	go func() { v.exited <- v.cmd.Wait() }()
	return v, nil
}

// Find returns the path of bwrap.
func Find() (string, error) {
	path, err := exec.LookPath("bwrap")
	if err != nil {
		err = fmt.Errorf("bubblewrap is not installed (apt install bubblewrap): %w", err)
	}
	return path, err
}

// PID is the process, which becomes bwrap.
func (v *Process) PID() int { return v.cmd.Process.Pid }

// Exited takes how it has ended, once.
func (v *Process) Exited() <-chan error { return v.exited }

// Close closes what is left open of one that has ended.
func (v *Process) Close() {
	attach.CloseAll(append([]*os.File{v.Stdin, v.Stdout, v.Stderr, v.report}, v.Live...))
}

// Wipe clears values that are no longer needed. They live as long as their process otherwise, and so as the server.
func Wipe(values map[string][]byte) {
	for _, v := range values {
		clear(v)
	}
}

// fork starts this binary again as the first process of a user, a mount and a network namespace (Enter).
func (v *Process) fork(bwrap string, s sandbox.Sandbox, n Network, as IDs, views []rootfs.View, d *descriptors) error {
	var theirs []*os.File
	defer func() { attach.CloseAll(theirs) }()
	for _, pipe := range []struct {
		ours **os.File
		read bool
	}{{&v.Stdin, false}, {&v.Stdout, true}, {&v.Stderr, true}, {&v.arguments, false}} {
		r, w, err := os.Pipe()
		if err != nil {
			return fmt.Errorf("making a pipe: %w", err)
		}
		if pipe.read {
			r, w = w, r
		}
		*pipe.ours = w
		theirs = append(theirs, r)
	}
	stdin, stdout, stderr, arguments := theirs[0], theirs[1], theirs[2], theirs[3]
	if err := as.openToAll(stdin, stdout, stderr); err != nil {
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
	enter := []string{EnterArg, bwrap, strconv.Itoa(s.Limits.Tasks), strconv.FormatInt(s.Limits.File, 10),
		strconv.Itoa(len(d.files)), string(network), string(text), string(list), s.Command}
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
	if n.Own {
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

// Sockets returns the sockets from inside the server's network namespace, none from one that was there before, once the
// namespaces are ready. With that it is known what bwrap is left to do.
func (v *Process) Sockets() (_ []*os.File, err error) {
	defer func() {
		Wipe(v.given.Credentials)
		v.given = sandbox.Options{}
	}()
	b, oob := make([]byte, maxReport), make([]byte, unix.CmsgSpace(4*maxDescriptors))
	n, oobn, _, _, err := unix.Recvmsg(int(v.report.Fd()), b, oob, unix.MSG_CMSG_CLOEXEC)
	var files []*os.File
	if err == nil {
		files, err = received(oob[:oobn])
	}
	if err != nil {
		attach.CloseAll(files)
		return nil, fmt.Errorf("receiving the sockets of the namespace: %w", err)
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
		v.Shared = strings.Split(shared, "\n")
	}
	v.Live = files[len(files)-live:]
	return files[:len(files)-live], nil
}

// rest returns bwrap's arguments, but for those mounts of the plan, by number, that are made.
func (v *Process) rest(mounts string) ([]byte, error) {
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

// Mapped tells the process in the namespaces that its ids are there. One that has ended has said why.
func (v *Process) Mapped() {
	if !v.as.own() {
		_ = unix.Send(int(v.report.Fd()), []byte{0}, unix.MSG_NOSIGNAL)
	}
}

// Release lets bwrap go on: it reads its arguments to the end before it forks anything.
func (v *Process) Release() error {
	_, err := v.arguments.Write(v.options)
	clear(v.options)
	v.options = nil
	if err = errors.Join(err, v.arguments.Close()); err != nil {
		return fmt.Errorf("writing bwrap's arguments: %w", err)
	}
	return nil
}

// readStatus follows bwrap's --json-status-fd.
func (v *Process) readStatus(r *os.File) {
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
