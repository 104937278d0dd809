package packaged

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Before makes the package p of the version before the repository's: see VersionBefore.
func Before(ctx context.Context, root, file string, p Package, to string) error {
	version, err := VersionBefore(ctx, root, file)
	if err != nil {
		return err
	}
	return In(root, version, func(dir string) error {
		source := filepath.Join(dir, "source")
		if err := os.RemoveAll(source); err != nil {
			return err
		}
		defer os.RemoveAll(source)
		const extract = `mkdir "$3" && git -C "$1" archive --format=tar "$2" | tar -x -C "$3"`
		if err := run(ctx, nil, "sh", "-euc", extract, "sh", root, version, source); err != nil {
			return err
		}
		return Make(ctx, source, p, to)
	})
}

// VersionBefore is the newest tag of a release below HEAD or, while there is none, the commit that a file names.
func VersionBefore(ctx context.Context, root, file string) (version string, err error) {
	git := func(args ...string) (string, error) {
		out, err := exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...).Output()
		return strings.TrimSpace(string(out)), err
	}
	if version, err = git("describe", "--tags", "--abbrev=0", "--match", "v[0-9]*", "HEAD^"); err != nil {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		version = strings.Fields(string(text))[0]
	}
	if _, err := git("merge-base", "--is-ancestor", version, "HEAD"); err != nil {
		return "", fmt.Errorf("finding %s, the version to upgrade from, in the history of %q: %w; "+
			"fetch it by git fetch --unshallow --tags", version, root, err)
	}
	return version, nil
}
