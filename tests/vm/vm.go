// Package vm boots Debian's systemd in a virtual machine, runs a payload as root in it and hands back the payload's verdicts.
package vm

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/pfar/pfar/tests/image"
)

// Machine is an image that can be booted any number of times; what a payload writes is gone when it ends, if it has no Disk.
type Machine struct {
	dir string // holds kernel and root file system
}

// Boot says what one boot is to do.
type Boot struct {
	// Files are the payload: name in its directory -> file or directory here. The one called "run" is run.
	Files map[string]string
	// Disk is the machine's disk, of Machine.Disk, if it is to keep what is written. Whoever boots from it next finds that.
	Disk string
	// TPM is the directory of the machine's TPM 2.0, which is a new one if that is empty; "": the machine has none.
	TPM string
	// Target is what is booted beside the payload, which waits for sysinit.target only; none: the payload alone.
	Target string
	// PowerOff is what the payload writes to its stdout where the machine loses its power: what no disk has by then is lost.
	PowerOff string
}

// Outcome is what one boot left.
type Outcome struct {
	Results string // what the payload wrote to its stdout
	Console string // kernel, systemd and the payload's stderr
	Ended   bool   // the payload ran to its end and returned Status
	Status  string
	Took    time.Duration
}

// end is what the unit in the image writes after the payload's last line.
const end = "PAYLOAD-STATUS:"

// Disk makes a disk like the image's, below dir, which boots may write to.
func (m *Machine) Disk(ctx context.Context, dir string) (string, error) {
	disk := filepath.Join(dir, "disk.img")
	_, err := image.Run(ctx, dir, "cp", "--reflink=auto", "--sparse=always", filepath.Join(m.dir, rootFile), disk)
	return disk, err
}

// Run boots the machine, unpacks files and runs the payload.
func (m *Machine) Run(ctx context.Context, boot Boot) (Outcome, error) {
	var out Outcome
	dir, err := os.MkdirTemp("", "pfar-vm-")
	if err != nil {
		return out, fmt.Errorf("making a directory for the run: %w", err)
	}
	defer os.RemoveAll(dir)
	payload, console, results := filepath.Join(dir, "payload.tar"), filepath.Join(dir, "console"), filepath.Join(dir, "results")
	if err := writePayload(payload, boot.Files); err != nil {
		return out, err
	}
	if boot.TPM != "" {
		end, err := startTPM(ctx, boot.TPM)
		if err != nil {
			return out, err
		}
		defer end()
	}
	start := time.Now()
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", m.options(boot, payload, console, results)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	off, err := runUntil(cmd, results, boot.PowerOff)
	out.Took = time.Since(start)
	out.Console, out.Results = readSerial(console), readSerial(results)
	if ctx.Err() != nil {
		return out, fmt.Errorf("running the machine for %s: %w", out.Took.Round(time.Second), context.Cause(ctx))
	}
	if err != nil && !off {
		return out, fmt.Errorf("running qemu: %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	if !off && boot.PowerOff != "" {
		return out, fmt.Errorf("waiting to cut the power: the payload never wrote %q", boot.PowerOff)
	}
	out.Results, out.Status, out.Ended = strings.Cut(out.Results, end)
	out.Status = strings.TrimSpace(out.Status)
	return out, nil
}

// runUntil runs qemu to its end, or kills it where the results have the line word. It reports whether it did.
func runUntil(qemu *exec.Cmd, results, word string) (off bool, err error) {
	if err := qemu.Start(); err != nil {
		return false, err
	}
	if word == "" {
		return false, qemu.Wait()
	}
	ended, cut := make(chan struct{}), make(chan bool)
	go func() { // a serial port to a file tells nobody when it is written to, and a socket would block the guest
		for {
			if strings.Contains("\n"+readSerial(results), "\n"+word+"\n") {
				cut <- qemu.Process.Kill() == nil
				return
			}
			select {
			case <-ended:
				cut <- false
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	err = qemu.Wait()
	close(ended)
	return <-cut, err
}

// options are qemu's. The kernel has NVMe and ext4 built in, so there is no initramfs, and two namespaces on one
// controller keep the device names stable. The payload answers on a serial port of its own: the kernel's report of an
// OOM kill would land in the middle of its lines. Emulation only: a /dev/kvm inside a virtual machine may open and hang.
func (m *Machine) options(boot Boot, payload, console, results string) []string {
	target, disk, snapshot := targetName, filepath.Join(m.dir, rootFile), "on"
	if boot.Disk != "" {
		disk, snapshot = boot.Disk, "off"
	}
	if boot.Target != "" {
		target = boot.Target
	}
	params := []string{
		"root=/dev/nvme0n1", "rw", "console=ttyS0", "init=/lib/systemd/systemd", "systemd.unit=" + target, "systemd.wants=" + payloadName,
		"systemd.log_color=0", "systemd.show_status=0", "mitigations=off", "quiet", "audit=0", "selinux=0", "apparmor=0",
		"no_timer_check", // the kernel counts interrupts by its clock, and on a busy machine panics
		"panic=-1",       // and qemu ends
	}
	for _, unit := range masked {
		params = append(params, "systemd.mask="+unit)
	}
	options := []string{
		"-accel", "tcg,thread=multi", "-cpu", "Nehalem", "-smp", "2", "-m", "1024",
		"-nodefaults", "-no-user-config", "-display", "none", "-monitor", "none", "-no-reboot",
		"-kernel", filepath.Join(m.dir, kernelFile), "-append", strings.Join(params, " "),
		"-device", "nvme,id=c0,serial=pfar",
		"-drive", "format=raw,if=none,id=d0,snapshot=" + snapshot + ",file=" + disk,
		"-device", "nvme-ns,drive=d0,bus=c0,nsid=1",
		"-drive", "format=raw,if=none,id=d1,readonly=on,file=" + payload,
		"-device", "nvme-ns,drive=d1,bus=c0,nsid=2",
		"-serial", "file:" + console, "-serial", "file:" + results,
	}
	if boot.TPM != "" {
		options = append(options, "-chardev", "socket,id=tpm,path="+socketOf(boot.TPM), "-tpmdev", "emulator,id=tpm0,chardev=tpm", "-device", "tpm-tis,tpmdev=tpm0")
	}
	return options
}

func socketOf(tpm string) string { return filepath.Join(tpm, "socket") }

// startTPM runs a TPM whose memory is in dir, until end, or until the machine hangs up.
func startTPM(ctx context.Context, dir string) (end func(), err error) {
	socket := socketOf(dir)
	if err := os.RemoveAll(socket); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "swtpm", "socket", "--tpm2", "--terminate", "--tpmstate", "dir="+dir, "--ctrl", "type=unixio,path="+socket)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting swtpm: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	end = func() {
		_ = cmd.Process.Kill()
		<-ended
	}
	for begin := time.Now(); time.Since(begin) < 10*time.Second; time.Sleep(5 * time.Millisecond) {
		select {
		case <-ended:
			return nil, fmt.Errorf("starting swtpm: %s", strings.TrimSpace(stderr.String()))
		default:
		}
		if _, err := os.Stat(socket); err == nil {
			return end, nil
		}
	}
	end()
	return nil, errors.New("starting swtpm: it makes no socket")
}

// masked units cost seconds of boot under emulation, and nothing here needs them.
var masked = []string{
	"serial-getty@ttyS0.service", "getty@tty1.service", "systemd-udevd.service", "systemd-udev-trigger.service",
	"systemd-udevd-control.socket", "systemd-udevd-kernel.socket", "systemd-random-seed.service",
	"systemd-update-utmp.service", "modprobe@.service",
}

func readSerial(path string) string {
	b, _ := os.ReadFile(path) // absent: qemu did not start, and says so itself
	return strings.ReplaceAll(string(b), "\r\n", "\n")
}

// writePayload writes a tar that the machine reads from its second disk; a disk is whole sectors.
func writePayload(path string, files map[string]string) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("making the payload: %w", err)
	}
	defer f.Close()
	w := tar.NewWriter(f)
	for name, source := range files {
		if err := addTree(w, name, source); err != nil {
			return fmt.Errorf("adding %q to the payload: %w", name, err)
		}
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("writing the payload: %w", err)
	}
	size, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	const block = 1 << 20
	return f.Truncate((size + block) / block * block)
}

// addTree adds a file as a program called name, or a directory as it is, its files root's.
func addTree(w *tar.Writer, name, source string) error {
	return filepath.WalkDir(source, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := d.Info()
		if err != nil {
			return err
		}
		h := &tar.Header{Name: path.Join(name, filepath.ToSlash(strings.TrimPrefix(p, source))), Mode: int64(st.Mode().Perm())}
		switch {
		case d.IsDir():
			h.Typeflag = tar.TypeDir
		case st.Mode().Type() == fs.ModeSymlink:
			h.Typeflag = tar.TypeSymlink
			if h.Linkname, err = os.Readlink(p); err != nil {
				return err
			}
		case st.Mode().IsRegular():
			h.Typeflag, h.Size = tar.TypeReg, st.Size()
			if p == source {
				h.Mode = 0o755
			}
		default:
			return fmt.Errorf("%q is of the type %s", p, st.Mode().Type())
		}
		if err := w.WriteHeader(h); err != nil || h.Size == 0 {
			return err
		}
		return copyFile(w, p)
	})
}

func copyFile(w io.Writer, p string) error {
	f, err := os.Open(p)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}
