// Command pfar-generator has systemd start the declared servers at boot: declarations in, unit files out
// (systemd.generator(7)).
//
// It is run before anything else: without a bus, a network, and on some machines /var. Whatever it finds, it lets the
// machine boot. The systemd of a user runs it as well, for that user's servers.
package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/generator/boot"
	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/migrate"
)

func main() {
	if len(os.Args) != 2 && len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "pfar-generator: systemd runs it, with three directories (systemd.generator(7))")
		os.Exit(2)
	}
	if os.Getuid() == 0 && os.Getenv("SYSTEMD_SCOPE") == "user" {
		return // root's servers are the machine's
	}
	log := openLog()
	defer log.Close()
	generate(os.Args[1], control.DefaultDirs(os.Getenv, os.Getuid()), log)
}

// openLog returns the kernel's log where systemd runs this, for journald may not yet, and else stderr.
func openLog() io.WriteCloser {
	if os.Getenv("SYSTEMD_EXEC_PID") == strconv.Itoa(os.Getpid()) {
		if f, err := os.OpenFile("/dev/kmsg", os.O_WRONLY, 0); err == nil {
			return f
		}
	}
	return os.Stderr
}

// generate writes what the declarations of dirs.Config ask for, and the last good versions of those that are broken.
// Each line for the log is one write, as /dev/kmsg wants it.
func generate(to string, dirs control.Dirs, log io.Writer) {
	warn := func(format string, a ...any) {
		fmt.Fprintf(log, "<4>pfar-generator[%d]: %s\n", os.Getpid(), fmt.Sprintf(format, a...))
	}
	if err := migrate.Check(dirs.State); err != nil { // pfard says so too, and starts nothing
		warn("%v; no server is started", err)
		return
	}
	folders := declaration.Folders(control.OurDir, dirs.Folders(dirs.Config)...)
	o := declaration.Options{Servers: dirs.Servers, Kept: os.DirFS(dirs.Kept())}
	set := declaration.Load(folders, o)
	if _, err := os.Stat(dirs.Config); os.IsNotExist(err) && len(set.Earlier) == 0 {
		folders[0].FS = nothing{} // pfard makes it, and reads the others
		set = declaration.Load(folders, o)
	}
	said := map[string]bool{}
	for _, d := range set.Diags { // the first of each file: the kernel takes ten lines at once from a program
		if d.Severity == hcl.DiagError && d.Subject != nil && !said[d.Subject.Filename] {
			said[d.Subject.Filename] = true
			warn("%s, ignoring; pfar check says more", place(d))
		}
	}
	off := func(name string) bool {
		_, err := os.Lstat(dirs.Disabled(name))
		return err == nil
	}
	for _, f := range boot.Files(os.Getuid(), slices.Concat(set.Servers, set.Earlier), off) {
		if err := write(to, f); err != nil {
			warn("%v, ignoring", err)
		}
	}
}

// nothing is an empty folder.
type nothing struct{}

func (nothing) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

func (nothing) ReadDir(string) ([]fs.DirEntry, error) { return nil, nil }

// place is where a mistake is, and its kind. What else there is to say may quote the file, and anybody reads the
// kernel's log.
func place(d *hcl.Diagnostic) string {
	name := strings.Trim(strconv.Quote(d.Subject.Filename), `"`)
	return fmt.Sprintf("%s:%d:%d: %s", name, d.Subject.Start.Line, d.Subject.Start.Column, d.Summary)
}

func write(to string, f boot.File) error {
	path := filepath.Join(to, f.Path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if f.Link != "" {
		return os.Symlink(f.Link, path)
	}
	return os.WriteFile(path, []byte(f.Text), 0o644)
}
