// Package packaged makes pfar's packages for the tests that install them: a version in, a file out.
package packaged

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Package is one to make.
type Package struct {
	Format  string // as nfpm names it
	Arch    string // as Go names it
	Version string
	Options []string // for make
	Overlay string   // absolute path of a file for go build's -overlay; "": the programs are the repository's
}

// NoVCS has make build programs without the commit in them, as tests build theirs: go then compiles none of them twice.
const NoVCS = "VCS=false"

// In has do work in a directory of the repository for a version. Several tests install the same one, some at once: one
// makes what the others take.
func In(root, version string, do func(dir string) error) error {
	dir, err := filepath.Abs(filepath.Join(root, "build/test-packages", version))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	lock, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("locking %q: %w", dir, err)
	}
	return do(dir)
}

// Make makes a package as make package does but for the compression, and copies it to a file.
func Make(ctx context.Context, root string, p Package, to string) error {
	return In(root, p.Version+strings.Join(p.Options, ""), func(dir string) error {
		flags := ""
		if p.Overlay != "" {
			flags = "-overlay=" + p.Overlay
		}
		args := append([]string{
			"--no-print-directory", "-C", root, "package", "ARCH=" + p.Arch, "FORMAT=" + p.Format, "COMPRESSION=none",
			"VERSION=" + p.Version, "PACKAGES_DIR=" + dir + "/packages", NoVCS,
		}, p.Options...)
		if err := run(ctx, []string{"GOFLAGS=" + flags}, "make", args...); err != nil {
			return err
		}
		files, err := filepath.Glob(dir + "/packages/*." + strings.ReplaceAll(p.Format, "archlinux", "pkg.tar.zst"))
		if err != nil || len(files) != 1 {
			return fmt.Errorf("make package made %q", files)
		}
		return run(ctx, nil, "cp", files[0], to)
	})
}

// run runs a program without the flags of the make that runs the test.
func run(ctx context.Context, env []string, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "MAKE") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %q: %w\n%s", name, args, err, out)
	}
	return nil
}
