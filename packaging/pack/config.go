package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// description of the package: a line, and then text.
const description = `appliance that runs untrusted MCP servers in sandboxes
 pfar runs each server of the Model Context Protocol in a sandbox that has its
 own user, file system and network. A server reaches only the hosts that its
 declaration names. One gate decides about each call of each client, asks people
 to approve risky ones, and records every decision.`

// summary is its line, as a sentence begins.
var summary = strings.ToUpper(description[:1]) + strings.SplitN(description[1:], "\n", 2)[0]

// content is a file of the package, as nfpm is told of it.
type content struct {
	Src  string         `json:"src,omitempty"`
	Dst  string         `json:"dst"`
	Type string         `json:"type,omitempty"`
	Info map[string]any `json:"file_info"`
}

// config is nfpm's configuration: JSON is YAML.
func (p pack) config(modules []module) ([]byte, error) {
	contents, err := p.contents()
	if err != nil {
		return nil, err
	}
	c := map[string]any{
		"name": "pfar", "arch": p.Arch, "platform": "linux", "version": p.version(), "version_schema": "none",
		"maintainer": maintainer, "homepage": "https://" + ours, "license": "Apache-2.0", "umask": 0o022,
		"description": description, "disable_globbing": true, "contents": contents,
		"mtime": p.date,
	}
	source := func(name string) string { return filepath.Join(p.Source, "packaging", p.Format, name) }
	preinst := source("../preinst") // for either
	switch p.Format {
	case "deb":
		c["section"], c["priority"] = "admin", "optional"
		c["scripts"] = map[string]string{
			"preinstall": preinst, "postinstall": source("postinst"), "preremove": source("prerm"), "postremove": source("postrm"),
		}
		c["depends"], c["recommends"], c["suggests"] = debian.depends, debian.recommends, debian.suggests
		c["deb"] = map[string]any{"compression": p.Compression, "breaks": debian.breaks}
	case "rpm":
		c["release"] = release
		c["license"] = allLicences(modules)
		c["description"] = strings.ReplaceAll(strings.TrimSpace(strings.SplitN(description, "\n", 2)[1]), "\n ", "\n")
		c["changelog"] = filepath.Join(filepath.Dir(p.Root), "changelog.json")
		c["scripts"] = map[string]string{
			"preinstall": preinst, "postinstall": source("post"), "preremove": source("preun"), "postremove": source("postun"),
		}
		c["depends"], c["recommends"], c["suggests"] = fedora.depends, fedora.recommends, fedora.suggests
		c["provides"] = []string{
			"user(pfar)", "user(pfar-launcher)", "user(pfar-console)",
			"group(pfar)", "group(pfar-launcher)", "group(pfar-console)", "group(pfar-admin)",
		}
		if p.Compression == "none" { // which rpm does not know
			p.Compression = "gzip:1"
		}
		c["rpm"] = map[string]any{
			"compression": p.Compression, "group": "System Environment/Daemons", "buildhost": "localhost",
			"summary": summary,
		}
	case "apk", "archlinux":
		c["license"], c["description"] = allLicences(modules), summary
		c["release"] = map[string]string{"apk": "0", "archlinux": release}[p.Format]
		c["depends"] = map[string][]string{"apk": alpine, "archlinux": arch}[p.Format]
		own := map[string]any{}
		if c["scripts"], own["scripts"], err = p.named(); err != nil {
			return nil, err
		}
		if p.Format == "archlinux" {
			own["packager"] = maintainer
		}
		c[p.Format] = own
	default:
		return nil, fmt.Errorf("reading the format: %q; use deb, rpm, apk or archlinux", p.Format)
	}
	return json.MarshalIndent(c, "", " ")
}

// named writes the scripts of the rpm for apk and pacman. rpm tells a script by a number what is under way; these
// two have a script for each case. nfpm keeps the scripts of upgrades apart.
func (p pack) named() (scripts, upgrades map[string]string, err error) {
	scripts, upgrades = map[string]string{}, map[string]string{}
	for _, s := range []struct {
		of     map[string]string
		name   string
		source string
		number int // as rpm has it: how many versions are there afterwards
	}{
		{scripts, "postinstall", "rpm/post", 1},
		{scripts, "preremove", "rpm/preun", 0},
		{scripts, "postremove", "rpm/postun", 0},
		{upgrades, "preupgrade", "preinst", 2},
		{upgrades, "postupgrade", "rpm/post", 2},
	} {
		text, err := os.ReadFile(filepath.Join(p.Source, "packaging", s.source))
		if err != nil {
			return nil, nil, err
		}
		shebang, rest, _ := strings.Cut(string(text), "\n")
		path := filepath.Join(filepath.Dir(p.Root), s.name)
		if err := os.WriteFile(path, fmt.Appendf(nil, "%s\nset -- %d\n%s", shebang, s.number, rest), 0o755); err != nil {
			return nil, nil, err
		}
		if err := os.Chtimes(path, p.date, p.date); err != nil { // which goes into an apk
			return nil, nil, err
		}
		s.of[s.name] = path
	}
	return scripts, upgrades, nil
}

// day is the date in a version between two releases.
var day = regexp.MustCompile(`[0-9]+`)

// version is that of the package. Only dpkg and rpm know "~", which sorts a version before its release.
func (p pack) version() string {
	released, step, before := strings.Cut(p.Version, "~")
	switch {
	case !before || p.Format == "deb" || p.Format == "rpm":
		return p.Version
	case p.Format == "apk": // it takes one number: that of the day
		return released + "_pre" + day.FindString(step)
	}
	return released + step // pacman: letters at once after a number come before it
}

// release counts the rpms of a version.
const release = "1"

// relations are the packages of others that a package names.
type relations struct{ depends, recommends, suggests, breaks []string }

// The first bubblewrap with --bind-fd and --disable-userns: in Debian 12 that is a security update. Ubuntu 24.04 was
// released without --bind-fd and has it by an update.
var debian = relations{
	depends: []string{
		"systemd (>= 252)", "dbus", "bubblewrap (>= 0.8.0-2+deb12u1)", "ca-certificates", "e2fsprogs", "passwd",
		"init-system-helpers (>= 1.62)",
	},
	recommends: []string{"nftables", "nodejs", "npm", "dbus-user-session", "libpam-systemd"},
	suggests:   []string{"chromium", "tigervnc-standalone-server"},
	breaks:     []string{"bubblewrap (= 0.9.0-1)", "bubblewrap (= 0.9.0-1build1)"},
}

var fedora = relations{
	depends:    []string{"systemd >= 252", "(dbus or dbus-1)", "bubblewrap >= 0.10.0", "ca-certificates", "e2fsprogs"},
	recommends: []string{"nftables", "nodejs", "npm"},
	suggests:   []string{"chromium", "tigervnc-server"},
}

// Arch has no older bubblewrap. Alpine has chattr in a package of its own.
var (
	arch   = []string{"systemd>=252", "dbus", "bubblewrap>=0.10.0", "ca-certificates", "e2fsprogs"}
	alpine = []string{"systemd>=252", "dbus", "bubblewrap>=0.10.0", "ca-certificates", "e2fsprogs-extra"}
)

// shells are directories of programs that need not be there; to rpm a directory that nobody names is nobody's.
var shells = regexp.MustCompile(`^(/usr/share/(fish|zsh)|/etc/needrestart)(/|$)`)

// contents lists the files below the root. Directories are the package's own only where no other package has them.
func (p pack) contents() ([]content, error) {
	var list []content
	err := filepath.WalkDir(p.Root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		facts := map[string]any{"mode": info.Mode().Perm(), "mtime": p.date}
		c := content{Src: path, Dst: strings.TrimPrefix(path, p.Root), Info: facts}
		switch {
		case d.IsDir():
			if !strings.Contains(c.Dst, "/pfar") && (p.Format == "deb" || !shells.MatchString(c.Dst)) {
				return nil
			}
			c.Src, c.Type = "", "dir"
		case info.Mode()&fs.ModeSymlink != 0:
			c.Type = "symlink"
			if c.Src, err = os.Readlink(path); err != nil {
				return err
			}
		default:
			c.Type = p.kind(c.Dst)
		}
		list = append(list, c)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("listing the files of the package: %w", err)
	}
	return list, nil
}

// kind is what the package manager is told about a file.
func (p pack) kind(path string) string {
	switch {
	case strings.HasPrefix(path, "/etc/"):
		return "config|noreplace"
	case p.Format == "rpm" && strings.HasPrefix(path, "/usr/share/licenses/"):
		return "license"
	case p.Format == "rpm" && (strings.HasPrefix(path, "/usr/share/doc/") || strings.HasPrefix(path, "/usr/share/man/")):
		return "doc"
	}
	return ""
}
