package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/generator/source"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/durable"
)

// upgrades is the directory in which pfard notes which version the package of each server had before. The note is
// written before the declaration is: what it says counts only where the declaration has one of its two versions.
type upgrades string

func (u upgrades) file(server string) string { return filepath.Join(string(u), server+".json") }

// of is the last upgrade of a server; nil: there was none, or it cannot be read.
func (u upgrades) of(server string) *control.Upgrade {
	var last control.Upgrade
	b, err := os.ReadFile(u.file(server))
	if err != nil || json.Unmarshal(b, &last) != nil {
		return nil
	}
	return &last
}

// note remembers that a declaration that is about to be written changes the version of its package.
func (u upgrades) note(q control.Request, now, then declaration.Set) error {
	from, had := packageIn(now, q.Server)
	to, has := packageIn(then, q.Server)
	if q.Text.Back || !had || !has || from.Key() != to.Key() || from.Version == to.Version {
		return nil
	}
	text, _ := json.Marshal(control.Upgrade{From: from.String(), To: to.String()}) // strings
	err := os.MkdirAll(string(u), 0o700)
	if err == nil {
		err = durable.WriteFile(u.file(q.Server), text)
	}
	if err != nil {
		return fmt.Errorf("noting which version %q had before: %w", q.Server, err)
	}
	return nil
}

// forget is for a server that is declared no more. What stays by mistake counts for nothing.
func (u upgrades) forget(server string) { _ = os.Remove(u.file(server)) }

// packageIn is the package of a server among declarations.
func packageIn(set declaration.Set, server string) (source.Package, bool) {
	at := slices.IndexFunc(set.Servers, func(s declaration.Server) bool { return s.Name == server })
	if at < 0 {
		return source.Package{}, false
	}
	return packageOf(set.Servers[at])
}
