package vm

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	kernelFile = "vmlinuz"
	rootFile   = "root.img"
	targetName = "payload.target"
	suite      = "bookworm"
	mirror     = "http://deb.debian.org/debian"
	kernel     = "linux-image-cloud-amd64" // the cloud kernel has NVMe and ext4 built in
)

// packages are what the image has beyond debootstrap's minimal base.
const packages = "systemd,systemd-sysv,dbus,dbus-user-session,libpam-systemd,bubblewrap,kmod"

// recipe is what makes the image besides packages, path -> text. User 1000 lingers: it has a systemd of its own from boot on.
var recipe = map[string]string{
	"etc/systemd/system/" + targetName: `[Unit]
Requires=sysinit.target dbus.socket systemd-logind.service payload.service
After=sysinit.target dbus.socket
AllowIsolate=yes
`,
	"etc/systemd/system/payload.service": `[Unit]
After=sysinit.target dbus.socket systemd-logind.service
SuccessAction=poweroff-force
FailureAction=poweroff-force
[Service]
Type=oneshot
TimeoutStartSec=infinity
ExecStart=/bin/sh -c 'stty -F /dev/ttyS1 raw; exec >/dev/ttyS1 2>/dev/ttyS0; mkdir /payload; tar xf /dev/nvme0n2 -C /payload && cd /payload && ./run; echo "` + end + `$?"'
`,
	"var/lib/systemd/linger/user": "",
}

// modules are the parts of the kernel package that the image has besides the kernel: what nftables loads when it is asked to.
func modules() []string {
	return []string{"modules.builtin", "modules.order", "kernel/net/netfilter/", "kernel/net/ipv4/netfilter/", "kernel/net/ipv6/netfilter/", "kernel/lib/", "kernel/crypto/"}
}

// account is the ordinary user of the image.
const account = "user:x:1000:1000::/home/user:/bin/sh\n"

// Image returns the machine, which it builds below cache first if nobody has yet.
func Image(ctx context.Context, cache string) (*Machine, error) {
	cache, err := filepath.Abs(cache) // debootstrap changes its directory
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, fmt.Errorf("making %q: %w", cache, err)
	}
	lock, err := os.OpenFile(filepath.Join(cache, "lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the lock of %q: %w", cache, err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil { // another test may be building it
		return nil, fmt.Errorf("locking %q: %w", cache, err)
	}
	dir := filepath.Join(cache, key())
	if _, err := os.Stat(dir); err == nil {
		return &Machine{dir}, nil
	}
	if err := removeOld(cache); err != nil {
		return nil, err
	}
	work, err := os.MkdirTemp(cache, "new-")
	if err != nil {
		return nil, fmt.Errorf("making a directory for the image: %w", err)
	}
	defer os.RemoveAll(work)
	if err := inMountNamespace(func() error { return build(ctx, work) }); err != nil {
		return nil, fmt.Errorf("building the image: %w", err)
	}
	if err := os.Rename(work, dir); err != nil {
		return nil, fmt.Errorf("keeping the image: %w", err)
	}
	return &Machine{dir}, nil
}

// key names the image by all that goes into it from here.
func key() string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s\n%s\n%s\n%s\n%q\n", suite, mirror, kernel, packages, account, modules())
	for _, name := range sortedNames(recipe) {
		fmt.Fprintf(h, "%q %q\n", name, recipe[name])
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// removeOld removes images of other recipes, and what a run that was killed left. The lock is held.
func removeOld(cache string) error {
	entries, err := os.ReadDir(cache)
	if err != nil {
		return fmt.Errorf("reading %q: %w", cache, err)
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := os.RemoveAll(filepath.Join(cache, e.Name())); err != nil {
				return fmt.Errorf("removing an old image: %w", err)
			}
		}
	}
	return nil
}

// inMountNamespace runs f where no mount shows outside, and all of them end with f: debootstrap mounts /proc and /sys
// and leaves them when it is killed. f's commands are forked from the same thread, which dies with the goroutine.
func inMountNamespace(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
			done <- fmt.Errorf("making a mount namespace: %w", err)
			return
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			done <- fmt.Errorf("making mounts private: %w", err)
			return
		}
		done <- f()
	}()
	return <-done
}

// build fills work. The root is made in memory: dpkg waits for the disk after each file.
func build(ctx context.Context, work string) error {
	root := filepath.Join(work, "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", root, "tmpfs", 0, "size=2g,mode=0755"); err != nil {
		return fmt.Errorf("mounting a tmpfs: %w", err)
	}
	defer func() {
		_ = unix.Unmount(root, unix.MNT_DETACH)
		_ = os.Remove(root)
	}()
	if _, err := run(ctx, work, "debootstrap", "--variant=minbase", "--include="+packages, suite, root, mirror); err != nil {
		return err
	}
	if err := fetchKernel(ctx, work, root); err != nil {
		return err
	}
	if err := finish(root); err != nil {
		return err
	}
	_, err := run(ctx, work, "mke2fs", "-q", "-t", "ext4", "-d", root, "-O", "^has_journal", "-E", "lazy_itable_init=1",
		filepath.Join(work, rootFile), "1G")
	return err
}

// fetchKernel asks the new system's own apt, so that the host may be another release or distribution.
func fetchKernel(ctx context.Context, work, root string) error {
	if _, err := run(ctx, root, "chroot", root, "apt-get", "update", "-q"); err != nil {
		return err
	}
	depends, err := run(ctx, root, "chroot", root, "apt-cache", "depends", kernel)
	if err != nil {
		return err
	}
	_, name, ok := strings.Cut(depends, "Depends: linux-image-")
	if !ok {
		return fmt.Errorf("finding the kernel: %q depends on no kernel image", kernel)
	}
	name, _, _ = strings.Cut(name, "\n")
	if _, err := run(ctx, root, "chroot", root, "sh", "-c", "cd /tmp && apt-get download -q linux-image-"+strings.TrimSpace(name)); err != nil {
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
	_, err = run(ctx, root, "chroot", root, "depmod", version)
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
		name, to := path.Clean(h.Name), ""
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

// finish writes the recipe and removes what only costs space.
func finish(root string) error {
	for name, text := range recipe {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return err
		}
	}
	for name, line := range map[string]string{"passwd": account, "group": "user:x:1000:\n", "shadow": "user:*:19000:0:99999:7:::\n"} {
		f, err := os.OpenFile(filepath.Join(root, "etc", name), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteString(line)
		if err := errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("adding the user to %q: %w", name, err)
		}
	}
	home := filepath.Join(root, "home/user")
	if err := os.Mkdir(home, 0o700); err != nil {
		return err
	}
	if err := os.Chown(home, 1000, 1000); err != nil {
		return err
	}
	for _, dir := range []string{"var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/locale", "usr/share/man", "tmp"} {
		entries, err := filepath.Glob(filepath.Join(root, dir, "*"))
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := os.RemoveAll(e); err != nil {
				return err
			}
		}
	}
	return nil
}

// run returns the command's output; an error carries the end of it.
func run(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		const tail = 2000
		return "", fmt.Errorf("running %s: %w: %s", name, err, out.Bytes()[max(0, out.Len()-tail):])
	}
	return out.String(), nil
}
