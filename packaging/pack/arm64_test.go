package main

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/tests/image"
)

// emulated installs, removes and purges a package in a Debian for arm64, whose programs qemu runs: its maintainer
// scripts, and its own programs. The kernel is told of qemu in a user namespace, so that the host does not change.
func emulated(t *testing.T, deb string) {
	if os.Geteuid() != 0 {
		t.Skip("NOT RUN as an ordinary user: the root file system for arm64 is made as root")
	}
	qemu, err := exec.LookPath("qemu-aarch64-static")
	if err != nil {
		t.Fatalf("%v; tests/setup.sh qemu-aarch64-static installs it", err)
	}
	root, err := image.Foreign(t.Context(), "arm64")
	if err != nil {
		t.Fatal(err)
	}
	const most = 1 << 16
	ids := []syscall.SysProcIDMap{{Size: most}}
	attributes := &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWNET,
		UidMappings: ids, GidMappings: ids, GidMappingsEnableSetgroups: true, Pdeathsig: syscall.SIGKILL,
	}
	run := func(script string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "sh", append([]string{"-euc", script, "sh"}, args...)...)
		cmd.SysProcAttr = attributes
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	const kernel = "mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc\n"
	if out, err := run(kernel); err != nil { // before Linux 6.7 there is one for the whole host
		t.Skipf("NOT RUN: the kernel has no binfmt_misc for a user namespace: %v, %s", err, out)
	}
	out, err := run(kernel+chroot, root, qemu, deb, t.TempDir())
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Log(out)
	for _, want := range []string{"arm64\n", "starts with the next boot", "pfar 0.0.1~test", "enabled\n", "pfar-admin:x:", "750 root:pfar-admin"} {
		if !strings.Contains(out, want) {
			t.Errorf("the package for arm64: no %q", want)
		}
	}
	if _, left, _ := strings.Cut(out, "purged, there is:\n"); left != "" {
		t.Errorf("purged, the package for arm64 leaves\n%s", left)
	}
}

// chroot gets a root file system, qemu, a package and a directory for what is written.
const chroot = `echo ':aarch64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:'\
'\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:'"$2:F" >/proc/sys/fs/binfmt_misc/register
mount -t tmpfs tmpfs "$4"
mkdir "$4/up" "$4/work" "$4/root"
mount -t overlay -o "userxattr,lowerdir=$1,upperdir=$4/up,workdir=$4/work" overlay "$4/root"
cp "$3" "$4/root/pfar.deb"
mount -t proc proc "$4/root/proc"
mount --rbind /dev "$4/root/dev"
exec chroot "$4/root" sh -euc '
export PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive
dpkg --print-architecture
for i in 1 2; do dpkg --force-depends -i /pfar.deb; done
pfar version
systemctl is-enabled pfar.target
getent group pfar-admin
getent group pfar-console
stat -c "%a %U:%G" /var/lib/pfar/audit
dpkg --force-depends --remove pfar
dpkg --force-depends --purge pfar
rm /pfar.deb
echo purged, there is:
find / -xdev -name "*pfar*" ! -path "/var/log/*"
! grep pfar /etc/passwd /etc/group'`
