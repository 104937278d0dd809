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
		"name": "pfar", "arch": p.Arch, "platform": "linux", "version": p.Version, "version_schema": "none",
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
			"user(pfar)", "user(pfar-launcher)", "group(pfar)", "group(pfar-launcher)", "group(pfar-admin)",
		}
		if p.Compression == "none" { // which rpm does not know
			p.Compression = "gzip:1"
		}
		c["rpm"] = map[string]any{
			"compression": p.Compression, "group": "System Environment/Daemons", "buildhost": "localhost",
			"summary": strings.ToUpper(description[:1]) + strings.SplitN(description[1:], "\n", 2)[0],
		}
	default:
		return nil, fmt.Errorf("reading the format: %q; use deb or rpm", p.Format)
	}
	return json.MarshalIndent(c, "", " ")
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
			if !strings.Contains(c.Dst, "/pfar") && (p.Format != "rpm" || !shells.MatchString(c.Dst)) {
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
