package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// maintainer is who answers for the packages.
const maintainer = "pfar maintainers <pfar@users.noreply.github.com>"

// documents writes what a package has beside the files of make install.
func (p pack) documents(modules []module) error {
	ours, err := os.ReadFile(filepath.Join(p.Source, "LICENSE"))
	if err != nil {
		return err
	}
	changes, err := os.ReadFile(filepath.Join(p.Source, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	bill, err := bill(p.Version, modules)
	if err != nil {
		return err
	}
	const doc = "usr/share/doc/pfar/"
	files := map[string][]byte{
		doc + "copyright":        []byte(copyright(modules, p.Format == "deb")),
		doc + "CHANGELOG.md.gz":  compressed(changes),
		doc + "pfar.cdx.json.gz": compressed(bill),
	}
	switch p.Format {
	case "deb":
		files[doc+"changelog.gz"] = compressed([]byte(p.debianChangelog()))
		overrides, err := os.ReadFile(filepath.Join(p.Source, "packaging/deb/overrides"))
		if err != nil {
			return err
		}
		files["usr/share/lintian/overrides/pfar"] = overrides
	default:
		files["usr/share/licenses/pfar/LICENSE"] = ours
		files["../changelog.json"] = []byte(p.changelog())
	}
	for name, b := range files {
		path := filepath.Join(p.Root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, b, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// compressed is what gzip -9n makes.
func compressed(b []byte) []byte {
	var out bytes.Buffer
	w, _ := gzip.NewWriterLevel(&out, gzip.BestCompression)
	_, _ = w.Write(b) // to memory
	_ = w.Close()
	return out.Bytes()
}

// news is what Debian's and rpm's own logs of changes say: that of pfar is a file of the package.
const news = "See /usr/share/doc/pfar/CHANGELOG.md.gz."

func (p pack) debianChangelog() string {
	return fmt.Sprintf("pfar (%s) unstable; urgency=medium\n\n  * %s\n\n -- %s  %s\n",
		p.Version, news, maintainer, p.date.Format(time.RFC1123Z))
}

// changelog is in the form of nfpm.
func (p pack) changelog() string {
	b, _ := json.Marshal([]map[string]any{{
		"semver": p.Version + "-" + release, "date": p.date, "packager": maintainer, "changes": []map[string]string{{"note": news}},
	}})
	return string(b)
}

// shared are licences that Debian has on every machine, by the names of their files.
var shared = []string{"Apache-2.0", "MPL-2.0"}

// copyright is Debian's machine-readable form (DEP-5): for each module the holders and the terms. Modules with the same
// holders and terms share a paragraph.
func copyright(modules []module, debian bool) string {
	var out strings.Builder
	fmt.Fprintf(&out, "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n"+
		"Upstream-Name: pfar\nSource: https://%s\n"+
		"Comment: The programs contain the Go library and modules; each has a paragraph below.\n", ours)
	fmt.Fprintf(&out, "\nFiles: *\nCopyright: The pfar authors\nLicense: Apache-2.0\n")
	texts := map[string]string{"Apache-2.0": "On Debian systems the text is in /usr/share/common-licenses/Apache-2.0.",
		"MPL-2.0": "On Debian systems the text is in /usr/share/common-licenses/MPL-2.0."}
	for i, m := range modules {
		if slices.ContainsFunc(modules[:i], m.like) {
			continue
		}
		var files, versions []string
		for _, other := range modules[i:] {
			if other.Path == m.Path || other.like(m) {
				files = append(files, "vendor/"+other.Path+"/*")
				versions = append(versions, other.Path+" "+other.Version)
			}
		}
		holders := m.Copyright
		if len(holders) == 0 {
			holders = []string{"The authors of " + m.Path}
		}
		fmt.Fprintf(&out, "\nFiles: %s\nCopyright: %s\nLicense: %s\n",
			strings.Join(files, "\n "), strings.Join(holders, "\n "), m.Licence)
		if slices.Contains(shared, m.Licence) {
			if !debian {
				texts[m.Licence] = indented(m.Text)
			}
		} else {
			fmt.Fprintf(&out, "%s\n", indented(m.Text))
		}
		fmt.Fprintf(&out, "Comment:\n%s\n", indented(strings.Join(versions, "\n")))
		if m.Notice != "" {
			fmt.Fprintf(&out, "%s\n", indented("Its notice:\n"+strings.TrimSpace(m.Notice)))
		}
	}
	for _, name := range shared {
		text := texts[name]
		if debian || !strings.HasPrefix(text, " ") {
			text = indented(text)
		}
		fmt.Fprintf(&out, "\nLicense: %s\n%s\n", name, text)
	}
	return out.String()
}

// allLicences names those of pfar and of all modules, as rpm wants it.
func allLicences(modules []module) string {
	list := []string{"Apache-2.0"}
	for _, m := range modules {
		list = append(list, m.Licence)
	}
	slices.Sort(list)
	return strings.Join(slices.Compact(list), " AND ")
}

// like reports whether two modules have the same holders, terms and notices.
func (m module) like(o module) bool {
	return m.Licence == o.Licence && slices.Equal(m.Copyright, o.Copyright) && m.Notice == o.Notice &&
		(m.Text == o.Text || slices.Contains(shared, m.Licence))
}

// indented writes a text as a field's following lines.
func indented(text string) string {
	var out []string
	for line := range strings.Lines(text) {
		if line = strings.TrimRight(line, " \t\n"); line == "" {
			line = "."
		}
		out = append(out, " "+line)
	}
	return strings.Join(out, "\n")
}

// bill is the bill of materials, in CycloneDX's form. It has neither a number nor a time: two builds have the same.
func bill(version string, modules []module) ([]byte, error) {
	type licence struct {
		License map[string]string `json:"license"`
	}
	type component struct {
		Type     string    `json:"type"`
		Ref      string    `json:"bom-ref"`
		Name     string    `json:"name"`
		Version  string    `json:"version"`
		Licences []licence `json:"licenses"`
		PURL     string    `json:"purl"`
	}
	of := func(kind, path, version, spdx string) component {
		purl := "pkg:golang/" + path + "@" + version
		return component{kind, purl, path, version, []licence{{map[string]string{"id": spdx}}}, purl}
	}
	list := []component{}
	for _, m := range modules {
		if m.Path == "Go" {
			list = append(list, of("library", "std", strings.TrimPrefix(m.Version, "go"), m.Licence))
			continue
		}
		list = append(list, of("library", m.Path, m.Version, m.Licence))
	}
	return json.MarshalIndent(map[string]any{
		"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
		"metadata":   map[string]any{"component": of("application", ours, version, "Apache-2.0")},
		"components": list,
	}, "", " ")
}
