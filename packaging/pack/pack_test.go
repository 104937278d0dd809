package main

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// root is the repository.
const root = "../.."

// TestEveryModuleIsNamed with its licence, in the copyright file and in the bill of materials, of either architecture.
func TestEveryModuleIsNamed(t *testing.T) {
	t.Parallel()
	for _, arch := range []string{"amd64", "arm64"} {
		modules, err := linked(root, arch)
		if err != nil {
			t.Fatal(err)
		}
		licences := map[string]string{}
		for _, m := range modules {
			licences[m.Path] = m.Licence
			named := len(m.Copyright) > 0 || m.Licence == "Apache-2.0" || m.Licence == "MPL-2.0" // whose texts name nobody
			if m.Licence == "" || m.Version == "" || !named {
				t.Errorf("%s: %q %q %q", m.Path, m.Version, m.Licence, m.Copyright)
			}
		}
		for path, want := range map[string]string{
			"Go": "BSD-3-Clause", "filippo.io/age": "BSD-3-Clause", "github.com/hashicorp/hcl/v2": "MPL-2.0", "github.com/mark3labs/mcp-go": "MIT",
			"github.com/coreos/go-systemd/v22": "Apache-2.0", "github.com/godbus/dbus/v5": "BSD-2-Clause",
		} {
			if licences[path] != want {
				t.Errorf("%s, %s: the licence is %q, want %q", arch, path, licences[path], want)
			}
		}
		out, err := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", root+"/cmd/...").Output()
		if err != nil {
			t.Fatal(err)
		}
		if all := allLicences(modules); all != "Apache-2.0 AND BSD-2-Clause AND BSD-3-Clause AND MIT AND MPL-2.0" {
			t.Errorf("%s: rpm is told of the licences %s", arch, all)
		}
		bill, err := bill("1", modules)
		if err != nil {
			t.Fatal(err)
		}
		for _, debian := range []bool{true, false} {
			text := copyright(modules, debian)
			for _, path := range slices.Compact(slices.Sorted(slices.Values(strings.Fields(string(out))))) {
				if path == ours {
					continue
				}
				if !strings.Contains(text, "vendor/"+path+"/*\n") {
					t.Errorf("the copyright file lacks %s", path)
				}
				if !bytes.Contains(bill, []byte(`"`+path+`"`)) {
					t.Errorf("the bill of materials lacks %s", path)
				}
			}
			if full := strings.Count(text, "TERMS AND CONDITIONS FOR USE, REPRODUCTION"); debian && full != 0 || !debian && full != 1 {
				t.Errorf("debian %t: Apache's licence is there %d times", debian, full)
			}
		}
		if !json.Valid(bill) {
			t.Errorf("no JSON: %s", bill)
		}
	}
}

func TestLicencesThatNobodyKnows(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"none":    {"README": "free"},
		"unknown": {"LICENSE": "Do what you want."},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range files {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if err := new(module).read(dir); err == nil {
				t.Error("it is taken for a licence")
			}
		})
	}
}

// TestTheSameBytes: two folders make the same packages of the same sources. In short the second takes what Go has
// linked for the first, and makes one format.
func TestTheSameBytes(t *testing.T) {
	arches, formats, compression := "amd64 arm64", "deb rpm apk archlinux", "xz"
	if testing.Short() {
		arches, compression = "amd64", "none"
	}
	tracked, err := exec.Command("git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		t.Skipf("NOT RUN: without git nobody knows which files are sources: %v", err)
	}
	var digests []string
	var last string
	for i := range 2 {
		dir := filepath.Join(t.TempDir(), fmt.Sprint("folder", i))
		copySources(t, dir, strings.Split(strings.Trim(string(tracked), "\x00"), "\x00"))
		if last != "" && testing.Short() {
			if out, err := exec.Command("cp", "-a", filepath.Join(last, "build"), dir).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
		if i > 0 && testing.Short() {
			if err := os.RemoveAll(filepath.Join(dir, "build/packages")); err != nil {
				t.Fatal(err)
			}
			formats = "apk"
		}
		last = dir
		cmd := exec.Command("make", "packages", "ARCHES="+arches, "FORMATS="+formats, "COMPRESSION="+compression, "VERSION=0.0.1~test")
		cmd.Dir = dir
		for _, v := range os.Environ() {
			if !strings.HasPrefix(v, "MAKE") && !strings.HasPrefix(v, "MFLAGS") {
				cmd.Env = append(cmd.Env, v)
			}
		}
		cmd.Env = append(cmd.Env, "SOURCE_DATE_EPOCH=1700000000")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("make packages: %v\n%s", err, out)
		}
		digests = append(digests, read(t, filepath.Join(dir, "build/packages/SHA256SUMS")))
		if want := len(strings.Fields(arches)) * len(strings.Fields(formats)); strings.Count(digests[i], "\n") != want {
			t.Errorf("want %d packages, there are\n%s", want, digests[i])
		}
		if i == 0 || !testing.Short() {
			check(t, filepath.Join(dir, "build"))
			others(t, filepath.Join(dir, "build/packages"))
		}
		if i == 0 && !testing.Short() {
			t.Run("arm64", func(t *testing.T) { emulated(t, filepath.Join(dir, "build/packages/pfar_0.0.1~test_arm64.deb")) })
		}
	}
	same := digests[0] == digests[1]
	if testing.Short() {
		same = digests[1] != "" && strings.Contains(digests[0], digests[1])
	}
	if !same {
		t.Errorf("the first directory has\n%s\nthe second\n%s", digests[0], digests[1])
	}
}

// others is what apk and pacman find in the packages of either processor.
func others(t *testing.T, dir string) {
	t.Helper()
	for name, want := range map[string][]string{
		"pfar_0.0.1_pre-r0_aarch64.apk": {"arch = aarch64"},
		"pfar_0.0.1_pre-r0_x86_64.apk": {
			"arch = x86_64", "pkgver = 0.0.1_pre-r0", "depend = systemd>=252", "depend = e2fsprogs-extra",
		},
		"pfar-0.0.1test-1-aarch64.pkg.tar.zst": {"arch = aarch64"},
		"pfar-0.0.1test-1-x86_64.pkg.tar.zst": {
			"arch = x86_64", "pkgver = 0.0.1test-1", "depend = bubblewrap>=0.10.0",
			"backup = etc/needrestart/conf.d/pfar.conf",
		},
	} {
		file := filepath.Join(dir, name)
		if _, err := os.Stat(file); err != nil && testing.Short() && strings.Contains(name, "aarch64") {
			continue
		}
		tar := func(args ...string) string {
			args = append([]string{"--auto-compress", "--warning=no-unknown-keyword", "-f", file}, args...)
			out, err := exec.Command("tar", args...).Output()
			if err != nil {
				t.Errorf("%s: tar %q: %v", name, args, err)
			}
			return string(out)
		}
		files, info := tar("-t"), tar("-xO", ".PKGINFO")
		for _, line := range append(want, "license = Apache-2.0 AND BSD-2-Clause AND BSD-3-Clause AND MIT AND MPL-2.0") {
			if !strings.Contains(info, line+"\n") {
				t.Errorf("%s: no %q in\n%s", name, line, info)
			}
		}
		for _, path := range []string{
			"usr/bin/pfar", "usr/share/zsh/site-functions/_pfar", "usr/share/licenses/pfar/LICENSE", "etc/pfar/mcp.d/",
		} {
			if !strings.Contains(files, path+"\n") {
				t.Errorf("%s has no %s", name, path)
			}
		}
		// Which script has which number of rpm's.
		numbers := map[string]string{
			"pre_upgrade": "2", "post_install": "1", "post_upgrade": "2", "pre_remove": "0", "post_remove": "0",
		}
		for function, number := range numbers {
			head := "#!/bin/sh\nset -- " + number + "\n"
			if strings.HasSuffix(name, ".apk") {
				script := "." + strings.NewReplacer("_", "-", "remove", "deinstall").Replace(function)
				if text := tar("-xO", script); !strings.HasPrefix(text, head) {
					t.Errorf("%s: %s begins with %.60q", name, script, text)
				}
			} else if text := tar("-xO", ".INSTALL"); !strings.Contains(text, "function "+function+"() {\n"+head) {
				t.Errorf("%s: %s is not in\n%s", name, function, text)
			}
		}
	}
}

// check wants a package to have the programs that were built, byte for byte.
func check(t *testing.T, build string) {
	t.Helper()
	packages, _ := filepath.Glob(build + "/packages/*_amd64.deb")
	if _, err := exec.LookPath("dpkg-deb"); err != nil || len(packages) != 1 {
		t.Logf("NOT RUN: no dpkg-deb to look into %q: %v", packages, err)
		return
	}
	if !testing.Short() { // they take a while, and xz
		complain(t, "lintian", "--allow-root", "--fail-on", "error,warning", packages[0])
		all, _ := filepath.Glob(build + "/packages/*.rpm")
		complain(t, "rpmlint", append([]string{"--strict", "--config", root + "/packaging/rpm/rpmlint.toml"}, all...)...)
	}
	to := t.TempDir()
	if out, err := exec.Command("dpkg-deb", "-x", packages[0], to).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	slim(t, to)
	for name, path := range map[string]string{"pfar": "/usr/bin/", "pfard": "/usr/lib/pfar/", "pfar-generator": "/usr/lib/systemd/user-generators/"} {
		built, packed := read(t, build+"/packages.work/amd64/"+name), read(t, to+path+name)
		if sha256.Sum256([]byte(built)) != sha256.Sum256([]byte(packed)) {
			t.Errorf("the package has another %s", name)
		}
	}
}

// slim wants a program without symbols, and one generator that two directories name.
func slim(t *testing.T, to string) {
	t.Helper()
	program, err := elf.Open(to + "/usr/lib/pfar/pfard")
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	if program.Section(".symtab") != nil || program.Section(".debug_info") != nil {
		t.Error("the programs of the package have symbols")
	}
	link, err := os.Readlink(to + "/usr/lib/systemd/user-generators/pfar-generator")
	if want := "../system-generators/pfar-generator"; err != nil || link != want {
		t.Errorf("the generator of users is %q, %v, want a link to %q", link, err, want)
	}
}

// complain wants a program to find no fault with packages.
func complain(t *testing.T, program string, args ...string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Logf("NOT RUN: %v", err)
		return
	}
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", program, err, out)
	}
}

func copySources(t *testing.T, dir string, files []string) {
	t.Helper()
	for _, name := range files {
		info, err := os.Stat(filepath.Join(root, name))
		if err != nil {
			continue // deleted, and not committed
		}
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, []byte(read(t, filepath.Join(root, name))), info.Mode().Perm()); err != nil {
			t.Fatal(err)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestVersions: a version between two releases, as each package manager sorts it before its release.
func TestVersions(t *testing.T) {
	for version, want := range map[string]map[string]string{
		"0.1.0": {"deb": "0.1.0", "rpm": "0.1.0", "apk": "0.1.0", "archlinux": "0.1.0"},
		"0.1.0~git20261123.eb840c2.dirty": {
			"deb": "0.1.0~git20261123.eb840c2.dirty", "rpm": "0.1.0~git20261123.eb840c2.dirty",
			"apk": "0.1.0_pre20261123", "archlinux": "0.1.0git20261123.eb840c2.dirty",
		},
		"0.1.0~devel": {"deb": "0.1.0~devel", "rpm": "0.1.0~devel", "apk": "0.1.0_pre", "archlinux": "0.1.0devel"},
	} {
		for format, want := range want {
			if got := (pack{Format: format, Version: version}).version(); got != want {
				t.Errorf("%s of %s: %q, want %q", format, version, got, want)
			}
		}
	}
}
