package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units/sandbox"
)

// descriptor is one file for LISTEN_FDS.
type descriptor struct {
	name string
	file *os.File
}

// bind shows source at target in the process's own mount namespace, as BindReadOnlyPaths= does (systemd.exec(5)):
// what root may enter, the unprivileged user of a server may not (a clone below /root).
type bind struct {
	source, target string
	readOnly       bool
}

// spec is one process, in the words of systemd.exec(5).
type spec struct {
	name        string // of the unit
	argv        []string
	env         []string
	user        identity
	descriptors []descriptor
	credentials map[string][]byte // CREDENTIALS_DIRECTORY; nil: none
	runtimeDir  string            // RUNTIME_DIRECTORY; "": none
	binds       []bind
	log         string // file for stdout and stderr, appended to
	notify      string // NOTIFY_SOCKET
	makes       bool   // it makes sandboxes
}

// close closes the descriptors, which a process that runs has copies of.
func (s spec) close() {
	for _, d := range s.descriptors {
		d.file.Close()
	}
}

// process is a spec that runs.
type process struct {
	pid    int
	cmd    *exec.Cmd
	exited chan struct{} // closed when it has ended; then code is valid
	code   int
}

// spawn starts the process and closes its descriptors here, whether it worked or not.
func spawn(s spec, credentialsDir string) (*process, error) {
	defer s.close()
	if err := writeCredentials(credentialsDir, s.credentials, s.user); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(s.log, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(s.argv[0], s.argv[1:]...)
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "NOTIFY_SOCKET=" + s.notify}, s.env...)
	if s.credentials != nil {
		cmd.Env = append(cmd.Env, "CREDENTIALS_DIRECTORY="+credentialsDir)
	}
	if s.runtimeDir != "" {
		cmd.Env = append(cmd.Env, "RUNTIME_DIRECTORY="+s.runtimeDir)
	}
	names := make([]string, len(s.descriptors))
	for i, d := range s.descriptors {
		cmd.ExtraFiles = append(cmd.ExtraFiles, d.file)
		names[i] = d.name
	}
	if len(names) > 0 { // LISTEN_PID is left out: units.AdoptDescriptors
		cmd.Env = append(cmd.Env, fmt.Sprintf("LISTEN_FDS=%d", len(names)), "LISTEN_FDNAMES="+strings.Join(names, ":"))
	}
	// pfard killed with SIGKILL takes its processes with it; a launcher then ends its server in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGTERM, Setpgid: true}
	if s.user.set {
		id := uint32(s.user.id)
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: id, Gid: id}
	}
	p := &process{cmd: cmd, exited: make(chan struct{})}
	started := make(chan error, 1)
	filter, err := sandbox.Process(runtime.GOARCH, s.makes)
	if err != nil {
		return nil, err
	}
	go p.run(s.binds, filter, started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %q: %w", s.argv[0], err)
	}
	return p, nil
}

// run starts the process and stays until it has ended. It keeps its thread: PDEATHSIG comes when the thread that
// forked ends (prctl(2)), and the thread may have a mount namespace of its own. At the end the thread goes with it.
func (p *process) run(binds []bind, filter []byte, started chan<- error) {
	runtime.LockOSThread()
	err := privateMounts(binds)
	if err == nil {
		err = confineThread(filter)
	}
	if err != nil {
		started <- err
		return
	}
	if err := p.cmd.Start(); err != nil {
		started <- err
		return
	}
	p.pid = p.cmd.Process.Pid
	started <- nil
	p.code = exitCode(p.cmd.Wait())
	close(p.exited)
}

// confineThread gives the calling thread what NoNewPrivileges= and SystemCallFilter= give a unit (systemd.exec(5)), and
// with it what it forks. The thread needs nothing that the filter refuses, and ends with its process.
func confineThread(filter []byte) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("giving up new privileges: %w", err)
	}
	program := unix.SockFprog{
		Len:    uint16(len(filter) / unix.SizeofSockFilter),
		Filter: (*unix.SockFilter)(unsafe.Pointer(unsafe.SliceData(filter))),
	}
	err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
	runtime.KeepAlive(filter)
	if err != nil {
		return fmt.Errorf("setting the filter of system calls: %w", err)
	}
	return nil
}

// exitCode is 0 to 255 as the process gave it, 128+n for a signal, -1 if it is not known.
func exitCode(err error) int {
	var e *exec.ExitError
	switch {
	case err == nil:
		return 0
	case !errors.As(err, &e):
		return -1
	}
	if s, ok := e.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return 128 + int(s.Signal())
	}
	return e.ExitCode()
}

// privateMounts gives the calling thread a mount namespace with binds in it, and nothing of that shows outside.
func privateMounts(binds []bind) error {
	if len(binds) == 0 {
		return nil
	}
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("making a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	for _, b := range binds {
		if err := b.mount(); err != nil {
			return fmt.Errorf("binding %q at %q: %w", b.source, b.target, err)
		}
	}
	return nil
}

// mount opens the source without following a link in any part of it: the thing that was planned, or nothing.
func (b bind) mount() error {
	fd, err := unix.Openat2(unix.AT_FDCWD, b.source, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", fd), b.target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	if !b.readOnly {
		return nil
	}
	return unix.Mount("", b.target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "")
}

// writeCredentials makes the directory that LoadCredential= would make: only its user can read it.
func writeCredentials(dir string, credentials map[string][]byte, user identity) error {
	if credentials == nil {
		return nil
	}
	if err := removeCredentials(dir); err != nil {
		return fmt.Errorf("emptying the credentials directory: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("making the credentials directory: %w", err)
	}
	for name, value := range credentials {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, value, 0o400); err != nil {
			return fmt.Errorf("writing credential %q: %w", name, err)
		}
		if err := user.chown(path); err != nil {
			return err
		}
	}
	if err := user.chown(dir); err != nil {
		return err
	}
	return os.Chmod(dir, 0o500)
}

func removeCredentials(dir string) error {
	_ = os.Chmod(dir, 0o700) // it is 0500, and its owner may be ourselves
	return os.RemoveAll(dir)
}

func statUID(st fs.FileInfo) uint32 { return st.Sys().(*syscall.Stat_t).Uid }

// roots is the part of an environment that says by which certificates a host is known (crypto/x509, OpenSSL).
func roots(environment []string) (list []string) {
	for _, e := range environment {
		if strings.HasPrefix(e, "SSL_CERT_FILE=") || strings.HasPrefix(e, "SSL_CERT_DIR=") {
			list = append(list, e)
		}
	}
	return list
}
