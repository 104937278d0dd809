package vm

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pfar/pfar/tests/packaged"
)

// TestUpgrade upgrades pfar to a version with the same format of the state and then to one with another, and logs all
// writes to the disk. It then boots the disk as a power cut leaves it: while dpkg renames files, between unpacking and
// configuration, and while pfard migrates the state. Each time one version runs, whole.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	m := machine(ctx, t)
	files := map[string]string{"payload": buildPayload(ctx, t), "packages": versions(ctx, t)}
	dir := t.TempDir()
	disk, err := m.Disk(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	programs := filepath.Join(t.TempDir(), "echo")
	if err := command(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", programs, "../echo"); err != nil {
		t.Fatal(err)
	}
	boot := func(t *testing.T, b Boot, more map[string]string) Outcome {
		t.Helper()
		b.Files = more
		for name, path := range files {
			b.Files[name] = path
		}
		return booted(ctx, t, m, b)
	}
	log := filepath.Join(dir, "log")
	out := boot(t, Boot{Disk: disk, Log: log}, map[string]string{
		"run": script(t, "exec ./payload upgrade"), "programs": filepath.Dir(programs),
	})
	checkResults(t, out.Results, map[string]int{"upgrade": 4})
	writes, err := OpenWrites(log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { writes.Close() })
	for _, mark := range []string{"renaming", "unpacked", "migrating"} {
		t.Run(mark, func(t *testing.T) {
			disk, err := writes.Cut(ctx, m, t.TempDir(), mark)
			if err != nil {
				t.Fatal(err)
			}
			out := boot(t, Boot{Disk: disk, Target: "multi-user.target"}, map[string]string{
				"run": script(t, "exec ./payload cut "+mark),
			})
			if !out.Ended || out.Status != "0" {
				t.Errorf("the payload ended: %t, with status %q, want 0", out.Ended, out.Status)
			}
			checkResults(t, out.Results, map[string]int{"cut": 12})
		})
	}
}

// versions makes the packages of three versions, and files with the version and the digests of each.
func versions(ctx context.Context, t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	var digests strings.Builder
	for _, v := range []struct{ name, version, overlay string }{
		{"first", "0.1.0~test", ""}, {"second", "0.1.0", ""}, {"third", "0.2.0~test", laterFormat(t)},
	} {
		deb := filepath.Join(dir, v.name+".deb")
		p := packaged.Package{Format: "deb", Arch: "amd64", Version: v.version, Overlay: v.overlay}
		err := packaged.Make(ctx, "../..", p, deb)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, v.name+".version"), []byte(v.version), 0o644)
		}
		if err == nil {
			err = digest(ctx, deb, func(path, sum string) { fmt.Fprintln(&digests, v.name, sum, path) })
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "digests"), []byte(digests.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// laterFormat makes a file for go build's -overlay, which puts the test's migration in place of pfar's. Only the
// programs that are built with it have this migration.
func laterFormat(t *testing.T) string {
	t.Helper()
	from, err := filepath.Abs("../../units/migrate/steps.go")
	to, terr := filepath.Abs("testdata/steps.go")
	b, jerr := json.Marshal(map[string]map[string]string{"Replace": {from: to}})
	file := filepath.Join(t.TempDir(), "overlay.json")
	if err := errors.Join(err, terr, jerr, os.WriteFile(file, b, 0o644)); err != nil {
		t.Fatal(err)
	}
	return file
}

// digest calls f with the path and the digest of each file of a package below /usr.
func digest(ctx context.Context, deb string, f func(path, sum string)) error {
	cmd := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", deb)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("reading %q: %w", deb, err)
	}
	for r := tar.NewReader(stdout); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return cmd.Wait()
		}
		if err != nil {
			return fmt.Errorf("reading %q: %w", deb, errors.Join(err, cmd.Wait()))
		}
		if h.Typeflag != tar.TypeReg || !strings.HasPrefix(h.Name, "./usr/") {
			continue
		}
		sum := Digest()
		if _, err := io.Copy(sum, r); err != nil {
			return fmt.Errorf("reading %q: %w", deb, errors.Join(err, cmd.Wait()))
		}
		f(strings.TrimPrefix(h.Name, "."), fmt.Sprintf("%x", sum.Sum(nil)))
	}
}
