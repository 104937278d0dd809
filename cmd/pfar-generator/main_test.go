package main

import (
	"bytes"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "rewrite what the golden files say is written")

func TestMain(m *testing.M) {
	if os.Getenv("PFAR_GENERATOR_UNDER_TEST") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// generator is the program over the directories below root.
func generator(root string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = []string{
		"PFAR_GENERATOR_UNDER_TEST=1", "PFAR_CONFIG_DIR=" + root + "/etc/pfar/mcp.d", "PFAR_STATE_DIR=" + root + "/var/lib/pfar",
	}
	return cmd
}

// TestGolden runs the program over the files of each archive that are below etc and var; the others are what it writes:
// below normal, and on stderr.
func TestGolden(t *testing.T) {
	archives, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(archives) == 0 {
		t.Fatalf("%d archives, %v", len(archives), err)
	}
	for _, path := range archives {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			root := t.TempDir()
			got := &txtar.Archive{Comment: a.Comment}
			for _, f := range a.Files {
				if strings.HasPrefix(f.Name, "etc/") || strings.HasPrefix(f.Name, "var/") {
					put(t, filepath.Join(root, f.Name), string(f.Data))
					got.Files = append(got.Files, f)
				}
			}
			got.Files = append(got.Files, run(t, root)...)
			if *update {
				if err := os.WriteFile(path, txtar.Format(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if want := txtar.Format(a); !*update && !bytes.Equal(txtar.Format(got), want) {
				t.Errorf("got:\n%s\nwant:\n%s", txtar.Format(got), want)
			}
		})
	}
}

func put(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// run returns what the program wrote, links as "-> target".
func run(t *testing.T, root string) []txtar.File {
	t.Helper()
	for _, dir := range []string{"normal", "early", "late"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := generator(root, root+"/normal", root+"/early", root+"/late")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		t.Errorf("it fails, and the boot may: %v\n%s", err, &stderr)
	}
	var files []txtar.File
	for _, dir := range []string{"normal", "early", "late"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			name, _ := filepath.Rel(root, path)
			if d.Type()&fs.ModeSymlink != 0 {
				link, err := os.Readlink(path)
				if os.Getuid() != 0 { // the units of a user
					link = strings.Replace(link, "/systemd/user/", "/systemd/system/", 1)
				}
				files = append(files, txtar.File{Name: name, Data: fmt.Appendf(nil, "-> %s\n", link)})
				return err
			}
			b, err := os.ReadFile(path)
			files = append(files, txtar.File{Name: name, Data: bytes.ReplaceAll(b, []byte(root), nil)})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	said := regexp.MustCompile(`\[\d+\]`).ReplaceAllString(strings.ReplaceAll(stderr.String(), root, ""), "[PID]")
	said = regexp.MustCompile(`this is pfar [^,]+`).ReplaceAllString(said, "this is pfar VERSION")
	if said != "" {
		files = append(files, txtar.File{Name: "stderr", Data: []byte(said)})
	}
	return files
}

func TestItNeverStopsTheBoot(t *testing.T) {
	root := t.TempDir()
	if out, err := generator(root, root+"/normal", "", "").CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("without /etc/pfar: %v, %s", err, out)
	}
	put(t, root+"/etc/pfar/mcp.d/a.hcl", "server {\n  command = \"sh\"\n}\n")
	if os.Getuid() == 0 {
		if err := os.Mkdir(root+"/roots", 0o755); err != nil {
			t.Fatal(err)
		}
		cmd := generator(root, root+"/roots", "", "")
		cmd.Env = append(cmd.Env, "SYSTEMD_SCOPE=user")
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("in root's own systemd: %v, %s", err, out)
		}
		if written, err := os.ReadDir(root + "/roots"); err != nil || len(written) > 0 {
			t.Errorf("root's own systemd is to start the machine's servers: %v, %v", written, err)
		}
	}
	put(t, root+"/normal", "a file, where systemd would give a directory")
	if out, err := generator(root, root+"/normal", "", "").CombinedOutput(); err != nil || !strings.Contains(string(out), "ignoring") {
		t.Errorf("where it cannot write: %v, %s", err, out)
	}
	if err := os.RemoveAll(root + "/etc/pfar/mcp.d"); err != nil {
		t.Fatal(err)
	}
	put(t, root+"/etc/pfar/mcp.d", "no directory")
	if out, err := generator(root, root+"/normal", "", "").CombinedOutput(); err != nil ||
		!strings.Contains(string(out), "Directory not readable") {
		t.Errorf("without a directory: %v, %s", err, out)
	}
	if err := generator(root).Run(); err == nil {
		t.Error("without arguments it does as if it were run by systemd")
	}
}

// manyDeclarations returns the root of 200.
func manyDeclarations(t testing.TB) string {
	root := t.TempDir()
	for i := range 200 {
		put(t, fmt.Sprintf("%s/etc/pfar/mcp.d/s%d.hcl", root, i),
			fmt.Sprintf("description = \"number %d\"\nserver {\n  command = \"sh\"\n}\n", i))
	}
	if err := os.Mkdir(root+"/normal", 0o755); err != nil {
		t.Fatal(err)
	}
	return root
}

func TestMany(t *testing.T) {
	root := manyDeclarations(t)
	if out, err := generator(root, root+"/normal").CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("%v, %s", err, out)
	}
	links, err := filepath.Glob(root + "/normal/pfar.target.wants/*")
	if err != nil || len(links) != 200 {
		t.Errorf("%d links, %v", len(links), err)
	}
}

// BenchmarkMany is 200 declarations: the boot waits for it.
func BenchmarkMany(b *testing.B) {
	const limit = 300 * time.Millisecond
	root := manyDeclarations(b)
	for b.Loop() {
		if err := os.RemoveAll(root + "/normal"); err != nil {
			b.Fatal(err)
		}
		if err := os.Mkdir(root+"/normal", 0o755); err != nil {
			b.Fatal(err)
		}
		if out, err := generator(root, root+"/normal").CombinedOutput(); err != nil || len(out) > 0 {
			b.Fatalf("%v, %s", err, out)
		}
	}
	if each := b.Elapsed() / time.Duration(b.N); each > limit {
		b.Errorf("%v for 200 declarations, over the limit of %v", each, limit)
	}
}

// TestFolders: what a package installs starts at boot, also where /etc has no declarations yet, and what stands above
// hides it.
func TestFolders(t *testing.T) {
	root := t.TempDir()
	etc, vendor := filepath.Join(root, "etc"), filepath.Join(root, "usr")
	put(t, filepath.Join(vendor, "a.hcl"), "command = \"sh\"\ndescription = \"vendor\"\n")
	generated := func(want string) {
		t.Helper()
		to := t.TempDir()
		cmd := exec.Command(os.Args[0], to, to, to)
		cmd.Env = []string{"PFAR_GENERATOR_UNDER_TEST=1", "PFAR_CONFIG_DIR=" + etc + ":" + filepath.Join(root,
			"run") + ":" + vendor, "PFAR_STATE_DIR=" + root}
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Fatalf("%v: %s", err, out)
		}
		got, err := os.ReadFile(filepath.Join(to, "pfar-mcp@a.service.d/50-declaration.conf"))
		if (err == nil) != (want != "") || !strings.Contains(string(got), want) {
			t.Errorf("got %s, %v; want %q", got, err, want)
		}
	}
	generated("vendor")
	put(t, filepath.Join(etc, "a.hcl.d", "x.hcl"), "description = \"changed\"\n")
	generated("changed")
	put(t, filepath.Join(etc, "a.hcl"), "command = \"sh\"\ndescription = \"owner\"\n")
	put(t, filepath.Join(etc, "a.hcl.d", "x.hcl"), "timeout = \"9s\"\n")
	generated("owner")
	put(t, filepath.Join(etc, "a.hcl.d", "y.hcl"), "autostart = false\n")
	generated("")
	put(t, filepath.Join(root, "run", "a.hcl.d", "y.hcl"), "autostart = true\n")
	generated("")
}
