// Package vm boots Debian's systemd in a virtual machine, runs a payload as root in it and hands back the payload's
// verdicts.
package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pfar/pfar/tests/image"
)

// Machine is an image that can be booted any number of times; what a payload writes is gone when it ends, if it has no
// Disk.
type Machine struct {
	dir string // holds kernel and root file system
}

// Boot says what one boot is to do.
type Boot struct {
	// Files are the payload: name in its directory -> file or directory here. The one called "run" is run.
	Files map[string]string
	// Disk is the machine's disk, of Machine.Disk, if it is to keep what is written. Whoever boots from it next finds
	// that.
	Disk string
	// Log is the file to which qemu logs the writes to Disk, for OpenWrites; "": there is no log.
	Log string
	// TPM is the directory of the machine's TPM 2.0, which is a new one if that is empty; "": the machine has none.
	TPM string
	// Target is what is booted beside the payload, which waits for sysinit.target only; none: the payload alone.
	Target string
	// PowerOff is what the payload writes to its stdout where the machine loses its power: what no disk has by then is
	// lost.
	PowerOff string
}

// Outcome is what one boot left.
type Outcome struct {
	Results string // what the payload wrote to its stdout
	Console string // kernel, systemd and the payload's stderr
	Ended   bool   // the payload ran to its end and returned Status
	Status  string
	Took    time.Duration
	Used    time.Duration // processor time of qemu, which other load on the host hardly changes
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
	payload, console, results := filepath.Join(dir, "payload.img"), filepath.Join(dir, "console"), filepath.Join(dir, "results")
	if err := writePayload(ctx, dir, payload, boot.Files); err != nil {
		return out, err
	}
	if boot.Log != "" {
		if err := os.WriteFile(boot.Log, nil, 0o600); err != nil {
			return out, fmt.Errorf("making the log of the disk: %w", err)
		}
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
	if cmd.ProcessState != nil {
		out.Used = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
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

// options are qemu's. The kernel has NVMe and ext4 built in, so there is no initramfs. The payload answers on a serial
// port of its own: the kernel's report of an OOM kill would land in the middle of its lines. Emulation only: a /dev/kvm
// inside a virtual machine may open and hang. One thread for both processors: with two, a kernel that patches its own
// instructions while the other processor runs them now and then ends in an "Oops: int3".
func (m *Machine) options(boot Boot, payload, console, results string) []string {
	target := targetName
	if boot.Target != "" {
		target = boot.Target
	}
	params := []string{
		fmt.Sprintf("root=PARTUUID=%x-01", diskID), "rootwait", "rw", "console=ttyS0", "init=/lib/systemd/systemd", "systemd.unit=" + target, "systemd.wants=" + payloadName,
		"systemd.log_color=0", "systemd.show_status=0", "mitigations=off", "quiet", "audit=0", "selinux=0", "apparmor=0",
		"no_timer_check",                           // the kernel counts interrupts by its clock, and on a busy machine panics
		"panic=-1",                                 // and qemu ends
		"transparent_hugepage=never", "nowatchdog", // what they do costs an emulated processor more than it saves
	}
	for _, unit := range masked {
		params = append(params, "systemd.mask="+unit)
	}
	options := []string{
		"-accel", "tcg,thread=single", "-cpu", "Nehalem", "-smp", "2", "-m", "1024",
		"-nodefaults", "-no-user-config", "-display", "none", "-monitor", "none", "-no-reboot",
		"-kernel", filepath.Join(m.dir, kernelFile), "-append", strings.Join(params, " "),
		"-device", "nvme,id=c0,serial=pfar",
	}
	options = append(options, m.root(boot)...)
	options = append(options,
		"-device", "nvme-ns,drive=d0,bus=c0,nsid=1",
		"-drive", "format=raw,if=none,id=d1,readonly=on,file="+payload,
		"-device", "nvme-ns,drive=d1,bus=c0,nsid=2",
		"-serial", "file:"+console, "-serial", "file:"+results,
	)
	if boot.TPM != "" {
		options = append(options, "-chardev", "socket,id=tpm,path="+socketOf(boot.TPM), "-tpmdev", "emulator,id=tpm0,chardev=tpm", "-device", "tpm-tis,tpmdev=tpm0")
	}
	return options
}

// root are qemu's options for the disk d0. qemu never waits for the host's disk (cache=unsafe, no-flush): a power cut
// ends qemu alone, and the host's kernel keeps all that qemu wrote.
func (m *Machine) root(boot Boot) []string {
	switch {
	case boot.Log != "":
		return []string{"-blockdev", "driver=blklogwrites,node-name=d0" +
			",file.driver=file,file.cache.no-flush=on,file.filename=" + boot.Disk +
			",log.driver=file,log.cache.no-flush=on,log.filename=" + boot.Log}
	case boot.Disk != "":
		return []string{"-drive", "format=raw,if=none,id=d0,cache=unsafe,file=" + boot.Disk}
	}
	return []string{"-drive", "format=raw,if=none,id=d0,snapshot=on,file=" + filepath.Join(m.dir, rootFile)}
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

// writePayload makes the file system that the machine has as its second disk.
func writePayload(ctx context.Context, dir, to string, files map[string]string) error {
	tree := filepath.Join(dir, "payload")
	if err := os.Mkdir(tree, 0o755); err != nil {
		return fmt.Errorf("making the payload: %w", err)
	}
	for name, source := range files {
		if _, err := image.Run(ctx, dir, "cp", "-a", "--reflink=auto", source, filepath.Join(tree, name)); err != nil {
			return fmt.Errorf("adding %q to the payload: %w", name, err)
		}
	}
	used, err := image.Run(ctx, dir, "du", "-s", "--block-size=1M", tree)
	if err != nil {
		return err
	}
	size, _, _ := strings.Cut(used, "\t")
	megabytes, err := strconv.Atoi(size)
	if err != nil {
		return fmt.Errorf("measuring the payload: %w", err)
	}
	options := []string{"-q", "-t", "ext4", "-L", "payload", "-O", "^has_journal", "-d", tree, to, strconv.Itoa(megabytes+megabytes/8+16) + "M"}
	_, err = image.Run(ctx, dir, "mke2fs", options...)
	return errors.Join(err, os.RemoveAll(tree))
}
