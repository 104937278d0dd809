package vm

import (
	"archive/tar"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"github.com/pfar/pfar/tests/image"
)

const (
	kernelFile  = "vmlinuz"
	rootFile    = "root.img" // a disk with one partition: kernels may find two disks in either order
	partition   = 1 << 20    // bytes before the partition
	diskID      = 0x70666172
	targetName  = "payload.target"
	payloadName = "payload.service"
	kernel      = "linux-image-cloud-amd64" // the cloud kernel has NVMe, ext4 and TPMs built in
)

// files are what the image has besides packages, path -> text. User 1000 lingers: it has a systemd of its own from boot
// on.
var files = map[string]string{
	"etc/systemd/system/" + targetName: `[Unit]
Requires=sysinit.target dbus.socket systemd-logind.service payload.service
After=sysinit.target dbus.socket
AllowIsolate=yes
`,
	"etc/systemd/system/" + payloadName: `[Unit]
After=sysinit.target dbus.socket systemd-logind.service
SuccessAction=poweroff-force
FailureAction=poweroff-force
[Service]
Type=oneshot
TimeoutStartSec=infinity
ExecStart=/bin/sh -c 'stty -F /dev/ttyS1 raw; exec >/dev/ttyS1 2>/dev/ttyS0; mkdir -p /payload && mount -t ext4 -o ro LABEL=payload /payload && cd /payload && ./run; echo "` + end + `$?"'
`,
	"var/lib/systemd/linger/user": "",
}

// modules are the parts of the kernel package that the image has besides the kernel: what nftables loads when it is
// asked to, and cables between network namespaces.
func modules() []string {
	return []string{"kernel/drivers/net/veth.ko", "modules.builtin", "modules.order", "kernel/net/netfilter/", "kernel/net/ipv4/netfilter/", "kernel/net/ipv6/netfilter/", "kernel/lib/", "kernel/crypto/"}
}

// libraries are what systemd speaks to a TPM with, if they are there, by the release of Debian.
var libraries = map[string][]string{
	"bookworm": {"libtss2-esys-3.0.2-0", "libtss2-rc0", "libtss2-mu0", "libtss2-tcti-device0"},
	"trixie":   {"libtss2-esys-3.0.2-0t64", "libtss2-rc0t64", "libtss2-mu-4.0.1-0t64", "libtss2-tcti-device0t64"},
}

// tools are the programs that the machine needs, and the Debian packages that have them.
var tools = map[string]string{
	"qemu-system-x86_64": "qemu-system-x86",
	"mke2fs":             "e2fsprogs",
	"dpkg-deb":           "dpkg",
	"swtpm":              "swtpm",
}

// Install brings the tools onto this machine, and says which it brought.
func Install(ctx context.Context) ([]string, error) { return image.Install(ctx, tools) }

// Image returns the machine, which it builds first if nobody has yet.
func Image(ctx context.Context) (*Machine, error) {
	dir, err := image.Make(ctx, image.Recipe{Name: "vm", Files: files, More: fmt.Sprintf("%s %q %q", kernel, modules(), libraries), Keep: keep})
	return &Machine{dir}, err
}

// keep puts the kernel and the root file system into files.
func keep(ctx context.Context, dir, root string) error {
	if err := fetchKernel(ctx, dir, root); err != nil {
		return err
	}
	release, err := image.Suite()
	if err != nil {
		return err
	}
	install := append([]string{root, "apt-get", "install", "-q", "-y", "--no-install-recommends"}, libraries[release]...)
	if _, err := image.Run(ctx, root, "chroot", install...); err != nil {
		return err
	}
	if err := image.Trim(root); err != nil {
		return err
	}
	disk := filepath.Join(dir, rootFile)
	if err := partitioned(disk, 1<<30); err != nil {
		return err
	}
	_, err = image.Run(ctx, dir, "mke2fs", "-q", "-t", "ext4", "-d", root, "-J", "size=8",
		"-E", fmt.Sprintf("lazy_itable_init=1,offset=%d", partition), disk, "1G")
	return err
}

// partitioned makes an empty disk with a partition of some bytes, and a master boot record that names it.
func partitioned(path string, size int64) error {
	const (
		sector = 512
		linux  = 0x83 // the partition's type
	)
	mbr := make([]byte, sector)
	binary.LittleEndian.PutUint32(mbr[440:], diskID)
	entry := mbr[446:]
	entry[4] = linux
	binary.LittleEndian.PutUint32(entry[8:], partition/sector)
	binary.LittleEndian.PutUint32(entry[12:], uint32(size/sector))
	mbr[510], mbr[511] = 0x55, 0xaa
	if err := os.WriteFile(path, mbr, 0o644); err != nil {
		return err
	}
	return os.Truncate(path, partition+size)
}

// fetchKernel asks the new system's own apt, so that the host may be another release or distribution.
func fetchKernel(ctx context.Context, work, root string) error {
	if _, err := image.Run(ctx, root, "chroot", root, "apt-get", "update", "-q"); err != nil {
		return err
	}
	depends, err := image.Run(ctx, root, "chroot", root, "apt-cache", "depends", kernel)
	if err != nil {
		return err
	}
	_, name, ok := strings.Cut(depends, "Depends: linux-image-")
	if !ok {
		return fmt.Errorf("finding the kernel: %q depends on no kernel image", kernel)
	}
	name, _, _ = strings.Cut(name, "\n")
	if _, err := image.Run(ctx, root, "chroot", root, "sh", "-c", "cd /tmp && apt-get download -q linux-image-"+strings.TrimSpace(name)); err != nil {
		return err
	}
	debs, err := filepath.Glob(filepath.Join(root, "tmp", "linux-image-*.deb"))
	if err != nil || len(debs) != 1 {
		return fmt.Errorf("finding the downloaded kernel: %d packages, want 1", len(debs))
	}
	version := strings.TrimSpace(name)
	if err := unpackKernel(ctx, debs[0], filepath.Join(work, kernelFile), root); err != nil {
		return err
	}
	_, err = image.Run(ctx, root, "chroot", root, "depmod", version)
	return err
}

// unpackKernel takes the kernel and the modules out of their package.
func unpackKernel(ctx context.Context, deb, kernel, root string) error {
	cmd := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", deb)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("reading the kernel package: %w", err)
	}
	found := false
	for r := tar.NewReader(stdout); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("reading the kernel package: %w", errors.Join(err, cmd.Wait()))
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		name, to := strings.TrimPrefix(path.Clean(h.Name), "usr/"), "" // where Debian 13 has modules
		switch {
		case strings.HasPrefix(name, "boot/vmlinuz-"):
			found, to = true, kernel
		case isModule(name):
			to = filepath.Join(root, "usr", name) // /lib is a link
		default:
			continue
		}
		if err := writeFrom(r, to); err != nil {
			return err
		}
	}
	if !found {
		return fmt.Errorf("finding the kernel in %q: it is not there", deb)
	}
	return cmd.Wait()
}

// isModule reports whether a file of the kernel package is one that the image has, by its path: lib/modules/VERSION/...
func isModule(name string) bool {
	parts := strings.SplitN(name, "/", 4)
	if len(parts) != 4 || parts[0] != "lib" || parts[1] != "modules" {
		return false
	}
	for _, m := range modules() {
		if strings.HasPrefix(parts[3], m) {
			return true
		}
	}
	return false
}

func writeFrom(r io.Reader, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}
