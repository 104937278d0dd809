package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/pfar/pfar/generator/source"
)

// version is the version of a server's package, and the newest one.
type version struct {
	Server  string `json:"server"`
	Package string `json:"package,omitempty"`
	Version string `json:"version,omitempty"`
	Newest  string `json:"newest,omitempty"`
	Next    string `json:"next,omitempty"` // the command that changes to the newest; "": there is nothing to do
	Error   string `json:"error,omitempty"`
}

// asksAtOnce is how many registries pfar asks at once: each answer takes an npm or a pip.
const asksAtOnce = 4

// versions lists the servers that are declared with a package.
func (c upgradeVerb) versions(ctx context.Context) error {
	report, err := c.report(ctx)
	if err != nil {
		return err
	}
	list := []*version{}
	var asking sync.WaitGroup
	places := make(chan struct{}, asksAtOnce)
	for _, s := range report.Servers {
		text, err := os.ReadFile(s.File)
		if err == nil && !quotedPackage.Match(text) {
			continue
		}
		v := &version{Server: s.Name}
		list = append(list, v)
		var pkg source.Package
		if err == nil {
			pkg, _, err = packageIn(text)
		}
		if err != nil {
			v.Error = err.Error()
			continue
		}
		v.Package, v.Version = source.Package{Kind: pkg.Kind, Name: pkg.Name}.String(), pkg.Version
		own := filepath.Dir(s.File) == report.Directory
		asking.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			c.compare(ctx, v, own)
		})
	}
	asking.Wait()
	return c.printVersions(list)
}

// compare asks the registry for the newest version.
func (c upgradeVerb) compare(ctx context.Context, v *version, own bool) {
	exact, err := c.control().Newest(ctx, v.Package)
	if err != nil {
		v.Error = err.Error()
		return
	}
	switch v.Newest = versionOf(exact); {
	case v.Newest == v.Version:
	case own:
		v.Next = "pfar upgrade " + v.Server
	default: // a package has installed the declaration
		v.Next = "pfar edit " + v.Server
	}
}

func (c upgradeVerb) printVersions(list []*version) error {
	if c.json() {
		if err := c.printJSON(list); err != nil {
			return err
		}
	} else if len(list) > 0 {
		rows := [][]cell{heading("NAME", "PACKAGE", "VERSION", "NEWEST", "NEXT")}
		for _, v := range list {
			colour := ""
			if v.Next != "" {
				colour = yellow
			}
			next, newest := v.Next, v.Newest
			if v.Error != "" {
				next, newest = v.Error, "?"
			}
			rows = append(rows, []cell{{v.Server, ""}, {v.Package, ""}, {v.Version, ""}, {newest, colour}, {next, ""}})
		}
		c.table(c.stdout, rows)
	}
	var failed []string
	for _, v := range list {
		if v.Error != "" {
			failed = append(failed, v.Server)
		}
	}
	if len(failed) > 0 {
		return fail(exitFailed, "the newest version is not known for %s", strings.Join(failed, ", "))
	}
	if len(list) == 0 && !c.json() {
		c.hintAt("no server is declared with a package; pfar add installs one")
	}
	return nil
}
