// Package boot says which servers systemd starts at boot: declarations in, what systemd.generator(7) writes out.
package boot

import (
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"strings"
	"unicode"

	"github.com/pfar/pfar/generator/declaration"
)

// Directory is where a systemd has its generators write, and finds it (argv[1] of a generator): the machine's for root,
// and else that of a user, whose runtime directory is $XDG_RUNTIME_DIR.
func Directory(uid int, runtime string) string {
	if uid == 0 {
		return "/run/systemd/generator"
	}
	return path.Join(runtime, "systemd/generator")
}

const (
	template = "pfar-mcp@.service"
	wants    = "pfar.target.wants"
	dropIn   = "50-declaration.conf"
)

// unitFiles is where that systemd has pfar's units.
func unitFiles(uid int) string {
	if uid == 0 {
		return "/usr/lib/systemd/system"
	}
	return "/usr/lib/systemd/user"
}

// File is one thing that is written.
type File struct {
	Path string // below the generator's directory
	Link string // what it is a symbolic link to; "": it holds Text
	Text string
}

// Files are what is written for the servers of a user or, for root, the machine: a wish of pfar.target's for each that
// starts by itself, and what its unit is to say of it. off reports whether the operator has disabled a server
// (control.Dirs.Disabled).
func Files(uid int, servers []declaration.Server, off func(name string) bool) []File {
	var files []File
	for _, s := range servers {
		if !s.Enabled || !s.Autostart || off(s.Name) {
			continue
		}
		unit := unitName(s.Name)
		files = append(files,
			File{Path: path.Join(wants, unit), Link: path.Join(unitFiles(uid), template)},
			File{Path: path.Join(unit+".d", dropIn), Text: describe(s)},
		)
	}
	return files
}

// unitName is the unit of a server, whose name declaration has found fit for one.
func unitName(server string) string { return "pfar-mcp@" + server + ".service" }

func describe(s declaration.Server) string {
	text := "# Written by pfar-generator at boot and at each daemon-reload. " +
		"systemctl disable does not change it: use pfar disable.\n[Unit]\n"
	// With SourcePath= systemctl would ask for a daemon-reload after each edit, which pfard acts on without one.
	file := url.URL{Scheme: "file", Path: s.File}
	text += "Documentation=" + strings.ReplaceAll(file.String(), "%", "%%") + "\n"
	first, _, _ := strings.Cut(strings.TrimSpace(s.Description), "\n") // below it is how to use it
	if d := value(first); d != "" {
		text += fmt.Sprintf("Description=MCP server %s: %s\n", s.Name, d)
	}
	return text
}

// value makes text the value of a setting in a unit file (systemd.syntax(7)): one line, in which % begins no specifier
// and no backslash at the end takes the next line in. Only for settings in which systemd does not unquote.
func value(s string) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			return ' '
		}
		return r
	}, s)
	s = strings.Join(strings.Fields(s), " ")
	return strings.ReplaceAll(strings.TrimRight(s, `\ `), "%", "%%")
}

// Current reports whether a generator's directory holds what is to be written, and of ours nothing else. If not,
// systemd is to be told to run its generators again (daemon-reload).
func Current(have fs.FS, want []File) bool {
	wanted := map[string]bool{}
	for _, f := range want {
		wanted[f.Path] = true
		if !f.in(have) {
			return false
		}
	}
	for _, pattern := range []string{path.Join(wants, unitName("*")), path.Join(unitName("*")+".d", dropIn)} {
		found, err := fs.Glob(have, pattern)
		if err != nil {
			return false
		}
		for _, p := range found {
			if !wanted[p] {
				return false
			}
		}
	}
	return true
}

func (f File) in(have fs.FS) bool {
	if f.Link != "" {
		link, err := fs.ReadLink(have, f.Path)
		return err == nil && link == f.Link
	}
	b, err := fs.ReadFile(have, f.Path)
	return err == nil && string(b) == f.Text
}
