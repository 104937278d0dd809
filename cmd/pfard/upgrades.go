package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/generator/source"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/durable"
)

// upgrades is the directory in which pfard records the last upgrade of each server's package. pfard writes the record
// before the declaration, so the record counts only if the declaration has one of its two versions.
type upgrades string

func (u upgrades) file(server string) string { return filepath.Join(string(u), server+".json") }

// of returns the last upgrade of a server; nil: there was none, or its record cannot be read.
func (u upgrades) of(server string) *control.Upgrade {
	var last control.Upgrade
	b, err := os.ReadFile(u.file(server))
	if err != nil || json.Unmarshal(b, &last) != nil {
		return nil
	}
	return &last
}

// note records an upgrade if a declaration changes the version of its package. Call it before the declaration is
// written.
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

// forget removes the record of a server that is no longer declared. A record that stays by mistake has no effect.
func (u upgrades) forget(server string) { _ = os.Remove(u.file(server)) }

// packageIn returns the package of a server in a set of declarations.
func packageIn(set declaration.Set, server string) (source.Package, bool) {
	s, ok := declaration.Find(set.Servers, server)
	if !ok {
		return source.Package{}, false
	}
	return packageOf(s)
}
