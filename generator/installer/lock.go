package installer

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/pfar/pfar/generator/source"
)

// MaxLock bounds a lock, in bytes.
const MaxLock = 16 << 20

// tool is the name of the program that installs.
func tool(k source.Kind) string {
	if k == source.PyPI {
		return "pip"
	}
	return "npm"
}

// CheckLock checks that a lock names the package that was asked for, and a digest for each package in the tree. The
// registry or the index has named the digests, and npm or pip has compared them with the files that it fetched.
// If the digest of an npm package is known beforehand, the package must have that one.
func CheckLock(p source.Package, lock []byte, known string) error {
	check := func() error { return checkNPM(p, lock, known) }
	if p.Kind == source.PyPI {
		check = func() error { return checkPip(p, lock) }
	}
	if err := check(); err != nil {
		return fmt.Errorf("checking what %s has installed: %w", tool(p.Kind), err)
	}
	return nil
}

// digests are the prefixes of digests that npm accepts and nobody can forge.
var digests = []string{"sha512-", "sha384-", "sha256-"}

func checkNPM(p source.Package, lock []byte, known string) error {
	var l struct {
		Packages map[string]struct {
			Version, Resolved, Integrity string
			Link, InBundle               bool
		}
	}
	if err := json.Unmarshal(lock, &l); err != nil {
		return fmt.Errorf("the lock cannot be read: %w", err)
	}
	top := l.Packages["node_modules/"+p.Name]
	if top.Version != p.Version {
		return fmt.Errorf("want version %q of %s, got %q", p.Version, p.Name, top.Version)
	}
	if known != "" && !slices.Contains(strings.Fields(top.Integrity), known) {
		return fmt.Errorf("the registry has another %s than pfar knows: want %s, got %s; "+
			"if you trust that one, write an entry for the service in services.d", p, known, top.Integrity)
	}
	for at, e := range l.Packages {
		strong := slices.ContainsFunc(strings.Fields(e.Integrity), func(word string) bool {
			return slices.ContainsFunc(digests, func(d string) bool { return strings.HasPrefix(word, d) })
		})
		switch {
		case at == "": // the folder itself
		case e.Link:
			return fmt.Errorf("%s is a link to somewhere else", at)
		case e.InBundle: // comes with the package that it is in, and under its digest
		case !strong:
			return fmt.Errorf("the registry gives no SHA-2 digest of %s", at)
		case !secure(e.Resolved):
			return fmt.Errorf("%s is from %q, which is not the registry", at, e.Resolved)
		}
	}
	return nil
}

// Scripted returns the npm packages of a lock that have install scripts, by name. pfar does not run these.
func Scripted(lock []byte) (names []string) {
	var l struct {
		Packages map[string]struct{ HasInstallScript bool }
	}
	if json.Unmarshal(lock, &l) != nil { // or it is of pip, which installs only wheels: they have none
		return nil
	}
	for at, e := range l.Packages {
		const in = "node_modules/"
		if i := strings.LastIndex(at, in); i >= 0 && e.HasInstallScript {
			names = append(names, at[i+len(in):])
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// report is pip's report of what it would install. index.py writes its lock in the same form.
type report struct {
	Install []struct {
		Metadata struct{ Name, Version string }
		Download struct {
			URL     string
			Archive *struct{ Hashes map[string]string } `json:"archive_info"`
		} `json:"download_info"`
	}
}

// Newest reads the newest version of a package from the file that a job without a version leaves in place of a lock.
func Newest(p source.Package, left []byte) (source.Package, error) {
	var err error
	if p.Kind == source.PyPI {
		var r report
		err = json.Unmarshal(left, &r)
		for _, e := range r.Install {
			if source.Normal(e.Metadata.Name) == p.Name {
				p.Version = e.Metadata.Version
			}
		}
	} else {
		err = json.Unmarshal(left, &p.Version)
	}
	if err != nil {
		return p, fmt.Errorf("reading the newest version from the output of %s: %w", tool(p.Kind), err)
	}
	return source.ParseExact(p.String())
}

func checkPip(p source.Package, left []byte) error {
	var r report
	if err := json.Unmarshal(left, &r); err != nil {
		return fmt.Errorf("the lock cannot be read: %w", err)
	}
	found := false
	for _, e := range r.Install {
		found = found || source.Normal(e.Metadata.Name) == p.Name
		switch a := e.Download.Archive; {
		case a == nil || len(a.Hashes["sha256"]) != 64:
			return fmt.Errorf("the index names no SHA-256 digest of %s", e.Metadata.Name)
		case !secure(e.Download.URL):
			return fmt.Errorf("%s is from %q, which is not the index", e.Metadata.Name, e.Download.URL)
		}
	}
	if !found {
		return fmt.Errorf("the lock does not have %s", p.Name)
	}
	return nil
}

// secure reports whether a file was fetched over TLS.
func secure(from string) bool {
	u, err := url.Parse(from)
	return err == nil && u.Scheme == "https" && u.Host != ""
}
