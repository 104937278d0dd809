package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pfar/pfar/tests/vm"
)

// cut describes a machine after a power cut during an upgrade.
type cut struct {
	dpkg    string // status of the package, as dpkg abbreviates it
	files   string // version of the files
	version string // version after finish
	format  int    // format of the state
	finish  string // commands that complete the upgrade
}

// cuts are the power cuts, by mark. dpkg cannot configure a package that it has unpacked in part, but it can unpack it
// again.
var cuts = map[string]cut{
	"renaming":  {"iHR", "first", "second", 1, "dpkg --configure -a; dpkg -i packages/second.deb"},
	"unpacked":  {"iU ", "second", "second", 1, "dpkg --configure -a"},
	"migrating": {"iF ", "third", "third", 2, "dpkg --configure -a"},
}

// afterCut is the boot after a power cut in an upgrade: `payload cut MARK`.
func afterCut(args []string) error {
	if len(args) != 1 || cuts[args[0]].dpkg == "" {
		return fmt.Errorf("want one of %q", slices.Sorted(maps.Keys(cuts)))
	}
	name := args[0]
	c := cuts[name]
	reportAll("cut", []check{
		{"the power was cut there", func() (string, error) { return c.wasThere(name) }},
		{"all files are of one version", c.filesAreWhole},
		{"this version runs", func() (string, error) { return versionIs(c.files) }},
		{"all servers run", func() (string, error) { return "", allRun(upgraded...) }},
		{"the audit is whole", auditIsWhole},
		{"calls are answered", answers},
		{"the vault has its secret", secretIsThere},
		{"pins are whole", func() (string, error) { return "", pinsAreWhole(upgraded) }},
		{"the state is of one format, whole", func() (string, error) { return c.stateIsWhole(name) }},
		{"the upgrade completes under servers that run", c.complete},
		{"nothing is left of it", func() (string, error) { return "", errors.Join(nothingLeft(), leftovers()) }},
		{"no unit failed", nothingFailed},
	})
	return nil
}

func dpkgSays() string {
	out, err := output("dpkg-query", "--show", "--showformat=${db:Status-Abbrev}", "pfar")
	if err != nil {
		return fmt.Sprintf("%v: %s", err, out)
	}
	return out
}

func (c cut) wasThere(name string) (string, error) {
	said := dpkgSays()
	if said != c.dpkg {
		return "", fmt.Errorf("dpkg says %q, want %q", said, c.dpkg)
	}
	return said, cutWasReal(lostFile + name)
}

// versions returns the digests of the packages' files: path -> version -> digest.
func versions() (map[string]map[string]string, error) {
	f, err := os.Open("packages/digests")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all := map[string]map[string]string{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.SplitN(lines.Text(), " ", 3)
		if all[fields[2]] == nil {
			all[fields[2]] = map[string]string{}
		}
		all[fields[2]][fields[0]] = fields[1]
	}
	return all, lines.Err()
}

// filesAreWhole wants the files of one version. Where dpkg had replaced some of them, the boot has brought them back.
func (c cut) filesAreWhole() (string, error) {
	detail, err := filesAreOf(c.files)
	if c.files != c.version {
		said, jerr := output("journalctl", "--boot", "--unit=pfar-rollback", "--output=cat")
		err = errors.Join(err, jerr, contains(said, "restored the version before it"))
	}
	return detail, err
}

// filesAreOf wants each file of the package to be that of a version, byte for byte.
func filesAreOf(version string) (string, error) {
	all, err := versions()
	if err != nil || len(all) < 50 {
		return "", fmt.Errorf("the digests of %d files, %w", len(all), err)
	}
	for _, path := range slices.Sorted(maps.Keys(all)) {
		want := all[path][version]
		if got, derr := digest(path); derr != nil || got != want {
			err = errors.Join(err, fmt.Errorf("%s has the digest %s, %w, want %s", path, got, derr, want))
		}
	}
	return fmt.Sprintf("%d files", len(all)), err
}

func digest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := vm.Digest()
	_, err = io.Copy(sum, f)
	return fmt.Sprintf("%x", sum.Sum(nil)), err
}

func versionIs(name string) (string, error) {
	want := read("packages/" + name + ".version")
	out, err := output("pfar", "version")
	if err == nil && !strings.Contains(out, want+",") {
		err = fmt.Errorf("pfar version says %s, want %s", out, want)
	}
	if err != nil {
		return "", err
	}
	r, err := status()
	if err == nil && r.Version != want {
		err = fmt.Errorf("pfard is %q, want %q", r.Version, want)
	}
	return want, err
}

func answers() (string, error) {
	out, err := output("pfar", "call", "calm.echo", "--message", "after the power cut")
	return "", errors.Join(err, contains(out, "after the power cut"))
}

func secretIsThere() (string, error) {
	env, err := environmentOf("keyed")
	if err == nil && env["TOKEN"] != secretOfTrial {
		err = fmt.Errorf("the server has %.30q", env["TOKEN"])
	}
	return "", err
}

// auditIsWhole wants the record of the call before the upgrade.
func auditIsWhole() (string, error) {
	verified, err := output("pfar", "audit", "verify")
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, verified)
	}
	out, err := output("pfar", "audit", "--server", "calm", "--tool", "echo", "--verdict", "allow")
	return strings.ReplaceAll(strings.TrimSpace(verified), "\n", "; "), errors.Join(err, contains(out, "echo"))
}

// stateIsWhole wants the state as it was before the upgrade, or whole in the next format.
func (c cut) stateIsWhole(name string) (string, error) {
	var mark struct{ Format int }
	if err := json.Unmarshal([]byte(read(stateDir+"/format.json")), &mark); err != nil || mark.Format != c.format {
		return "", fmt.Errorf("the state has format %d, %w, want %d", mark.Format, err, c.format)
	}
	if c.format == 1 {
		return "", trialHas(trial, map[string]string{"changed": "once", "gone": "old"})
	}
	said, err := output("journalctl", "--boot", "--unit=pfard", "--output=cat")
	if name == "migrating" {
		err = errors.Join(err, contains(said, "undid a migration of the state that was cut short"))
	}
	detail, merr := migrated()
	return detail, errors.Join(err, contains(said, "migrated the state"), merr)
}

// migrated wants the files of the third version's state, and the earlier files in the backup.
func migrated() (string, error) {
	return "", errors.Join(
		trialHas(trial, map[string]string{"changed": "once and changed", "new/first": "new", "last": "new"}),
		trialHas(stateDir+"/backup/1/trial", map[string]string{"changed": "once", "gone": "old"}),
	)
}

// trialHas wants these files in a directory, and no others.
func trialHas(dir string, want map[string]string) error {
	got := map[string]string{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			got[path] = read(filepath.Join(dir, path))
		}
		return err
	})
	if err == nil && !maps.Equal(got, want) {
		err = fmt.Errorf("%s has %q, want %q", dir, got, want)
	}
	return err
}

// complete completes the upgrade as an administrator does. It wants the servers to run on.
func (c cut) complete() (string, error) {
	before := launchers(upgraded...)
	out, err := shell(c.finish)
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	if said := dpkgSays(); said != "ii " {
		return "", fmt.Errorf("dpkg says %q: %s", said, out)
	}
	if _, err := runsOn(c.version, before); err != nil {
		return "", err
	}
	return filesAreOf(c.version)
}

// nothingLeft looks for files that dpkg was writing, and those that were kept for a rollback.
func nothingLeft() error {
	out, err := shell(`find /etc /usr /var/lib/dpkg/info -xdev \
	\( -name '*.dpkg-new' -o -name '*.dpkg-tmp' -o -name '*pfar-kept' -o -name 'pfar-previous*' \)`)
	if err == nil && out != "" {
		err = fmt.Errorf("the upgrade has left %s", out)
	}
	return err
}
