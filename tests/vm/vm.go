// Package vm boots Debian's systemd in a virtual machine, runs a payload as root in it and hands back the payload's verdicts.
package vm

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Machine is an image that can be booted any number of times; what a payload writes is gone when it ends.
type Machine struct {
	dir string // holds kernel and root file system
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

// Run boots the machine, unpacks files (name in the payload's directory -> path here) and runs the one called "run".
func (m *Machine) Run(ctx context.Context, files map[string]string) (Outcome, error) {
	var out Outcome
	dir, err := os.MkdirTemp("", "pfar-vm-")
	if err != nil {
		return out, fmt.Errorf("making a directory for the run: %w", err)
	}
	defer os.RemoveAll(dir)
	payload, console, results := filepath.Join(dir, "payload.tar"), filepath.Join(dir, "console"), filepath.Join(dir, "results")
	if err := writePayload(payload, files); err != nil {
		return out, err
	}
	start := time.Now()
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", m.options(payload, console, results)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err = cmd.Run()
	out.Took = time.Since(start)
	out.Console, out.Results = readSerial(console), readSerial(results)
	if ctx.Err() != nil {
		return out, fmt.Errorf("running the machine for %s: %w", out.Took.Round(time.Second), context.Cause(ctx))
	}
	if err != nil {
		return out, fmt.Errorf("running qemu: %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	out.Results, out.Status, out.Ended = strings.Cut(out.Results, end)
	out.Status = strings.TrimSpace(out.Status)
	return out, nil
}

// options are qemu's. The kernel has NVMe and ext4 built in, so there is no initramfs, and two namespaces on one
// controller keep the device names stable. The payload answers on a serial port of its own: the kernel's report of an
// OOM kill would land in the middle of its lines. Emulation only: a /dev/kvm inside a virtual machine may open and hang.
func (m *Machine) options(payload, console, results string) []string {
	params := []string{
		"root=/dev/nvme0n1", "rw", "console=ttyS0", "init=/lib/systemd/systemd", "systemd.unit=" + targetName,
		"systemd.log_color=0", "systemd.show_status=0", "mitigations=off", "quiet", "audit=0", "selinux=0", "apparmor=0",
	}
	for _, unit := range masked {
		params = append(params, "systemd.mask="+unit)
	}
	return []string{
		"-accel", "tcg,thread=multi", "-cpu", "Nehalem", "-smp", "2", "-m", "1024",
		"-nodefaults", "-no-user-config", "-display", "none", "-monitor", "none", "-no-reboot",
		"-kernel", filepath.Join(m.dir, kernelFile), "-append", strings.Join(params, " "),
		"-device", "nvme,id=c0,serial=pfar",
		"-drive", "format=raw,if=none,id=d0,snapshot=on,file=" + filepath.Join(m.dir, rootFile),
		"-device", "nvme-ns,drive=d0,bus=c0,nsid=1",
		"-drive", "format=raw,if=none,id=d1,readonly=on,file=" + payload,
		"-device", "nvme-ns,drive=d1,bus=c0,nsid=2",
		"-serial", "file:" + console, "-serial", "file:" + results,
	}
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
		if err := addFile(w, name, source); err != nil {
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

func addFile(w *tar.Writer, name, source string) error {
	f, err := os.Open(source)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: st.Size()}); err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return err
}
