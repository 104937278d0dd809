package image

import (
	"context"
	"path/filepath"
)

// Foreign returns the directory of a root file system for another processor, which it makes first if nobody has yet.
// Its packages are unpacked and not configured: that would take an emulator. Nobody may write to it.
func Foreign(ctx context.Context, arch string) (string, error) {
	suite, err := Suite()
	if err != nil {
		return "", err
	}
	dir, err := made("root-"+arch, key(suite, mirror, "systemd", unpack), func(work string) error {
		return inMemory(work, func(memory string) error {
			_, err := Run(ctx, work, "debootstrap", "--foreign", "--arch="+arch, "--variant=minbase", "--include=systemd", suite, memory, mirror)
			if err != nil {
				return err
			}
			if _, err := Run(ctx, memory, "sh", "-euc", unpack); err != nil {
				return err
			}
			if err := Trim(memory); err != nil {
				return err
			}
			_, err = Run(ctx, work, "cp", "-a", memory, filepath.Join(work, "root"))
			return err
		})
	})
	return filepath.Join(dir, "root"), err
}

// unpack does what is left of debootstrap's first stage: it unpacks only what a system cannot do without.
const unpack = `for package in var/cache/apt/archives/*.deb; do
	dpkg-deb --fsys-tarfile "$package" | tar --extract --keep-directory-symlink
done
cp usr/share/base-passwd/passwd.master etc/passwd
cp usr/share/base-passwd/group.master etc/group
rm -r debootstrap
for dir in proc sys; do # in a container debootstrap makes links of them
	[ ! -L $dir ] || { rm $dir && mkdir $dir; }
done
: >var/lib/dpkg/status`
