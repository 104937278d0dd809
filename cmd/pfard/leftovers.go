package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
)

// ids are the user ids that servers keep (package users).
type ids interface {
	Known(name string) (int, bool)
	Names() []string
	Release(name string) error
}

// noIDs is for servers that have none of their own, or one of the user's that are theirs while they run.
type noIDs struct{}

func (noIDs) Known(string) (int, bool) { return 0, false }
func (noIDs) Names() []string          { return nil }
func (noIDs) Release(string) error     { return nil }

// declared is what leftovers has to know of the servers. Its method is called in the loop.
type declared interface {
	undeclared(name string) error // wraps control.ErrDeclared if the server is declared, still runs, or might be declared
}

// leftovers finds and deletes what servers that are not declared any more have left.
type leftovers struct {
	inbox
	dirs    control.Dirs
	log     *slog.Logger
	audit   *auditor
	ids     ids // that servers keep
	servers declared
	secrets interface{ keysLeft(server string) []string }
	around  around
	names   []string // of servers that have left something
}

// find finds undeclared servers that left something behind. While the declarations cannot be read it knows of
// none.
func (l *leftovers) find() {
	l.names = nil
	dirs := l.dirs
	var names []string
	list := func(dir string, nameOf func(string) string) {
		entries, _ := os.ReadDir(dir) // the gateway's may be closed to a user
		for _, e := range entries {
			names = append(names, nameOf(e.Name()))
		}
	}
	itself := func(name string) string { return name }
	for _, own := range l.owned() {
		list(own.dir, itself)
		list(own.dir, ofCondemned)
	}
	list(filepath.Dir(dirs.Disabled("x")), itself)
	list(dirs.Pins(), func(name string) string { return strings.TrimSuffix(name, ".json") })
	for _, name := range l.ids.Names() {
		name, _ = strings.CutPrefix(name, serverUser(""))
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if units.IsServer(name) && l.servers.undeclared(name) == nil {
			l.names = append(l.names, name)
		}
	}
}

// clean tells what an undeclared server left behind and, if it is asked to, deletes it. It records that before.
func (l *leftovers) clean(p control.Peer, q control.Request) (*control.Leftovers, error) {
	if !units.IsServer(q.Server) {
		return nil, fmt.Errorf("%w: %q is not the name of a server", control.ErrInvalid, q.Server)
	}
	if err := l.do(func() error { return l.servers.undeclared(q.Server) }); err != nil {
		return nil, err
	}
	left := l.measure(q.Server)
	if err := l.do(func() error { left.Keys = l.secrets.keysLeft(q.Server); return nil }); err != nil {
		return nil, err
	}
	if !q.Remove || len(left.Items) == 0 {
		return left, nil
	}
	r := audit.Record{
		Kind: audit.Lifecycle, Method: string(q.Verb), Server: q.Server, Subject: left.String(),
		User: fmt.Sprintf("uid %d", p.UID), Outcome: "asked",
	}
	if err := l.audit.append(r); err != nil {
		return nil, fmt.Errorf("%w; without a record nothing is deleted", err)
	}
	if err := l.do(func() error { return l.condemnAll(q.Server) }); err != nil {
		return nil, err
	}
	err := l.removeAll(q.Server)
	if aerr := l.do(func() error { l.find(); l.around.tell(); return nil }); err == nil {
		err = aerr
	}
	if err != nil {
		return nil, err
	}
	l.log.Info("what a server left behind is deleted", "server", q.Server, "uid", p.UID, "what", left.String())
	left.Removed = true
	return left, nil
}

// owned are the directories in which each server has one of its own, with its user's files.
func (l *leftovers) owned() []struct {
	what control.LeftKind
	dir  string
} {
	return []struct {
		what control.LeftKind
		dir  string
	}{{control.LeftHome, l.dirs.Homes()}, {control.LeftUndo, l.dirs.Undo()}}
}

// measure looks at what a server has left, but for what the gateway and the vault keep.
func (l *leftovers) measure(name string) *control.Leftovers {
	dirs := l.dirs
	left := &control.Leftovers{Server: name, Items: []control.Leftover{}}
	for _, own := range l.owned() {
		for _, file := range append([]string{name}, condemnedOf(own.dir, name)...) {
			path := filepath.Join(own.dir, file)
			if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
				continue
			}
			item := control.Leftover{What: own.what, Path: path}
			item.Bytes, item.Files, item.Partly = treeSize(path)
			item.Partly = !item.Partly
			left.Items = append(left.Items, item)
		}
	}
	for _, path := range logsOf(dirs.Log(name)) {
		item := control.Leftover{What: control.LeftLog, Path: path}
		item.Bytes, _, _ = treeSize(path)
		left.Items = append(left.Items, item)
	}
	if _, err := os.Lstat(dirs.Disabled(name)); err == nil {
		left.Items = append(left.Items, control.Leftover{What: control.LeftMark, Path: dirs.Disabled(name)})
	}
	if id, ok := l.ids.Known(serverUser(name)); ok {
		left.Items = append(left.Items, control.Leftover{What: control.LeftID, ID: id})
	}
	return left
}

// logsOf are a log and what it was before it had grown too long.
func logsOf(log string) (paths []string) {
	for _, path := range []string{log, log + ".1"} {
		if _, err := os.Lstat(path); err == nil {
			paths = append(paths, path)
		}
	}
	return paths
}

// condemnAll takes the home away from a server that is declared later, whatever time it takes to delete it.
func (l *leftovers) condemnAll(name string) error {
	if err := l.servers.undeclared(name); err != nil {
		return err
	}
	for _, own := range l.owned() {
		if _, err := condemn(own.dir, name); err != nil {
			return fmt.Errorf("taking away the %s of %q: %w", own.what, name, err)
		}
	}
	return unmark(l.dirs.Disabled(name))
}

// removeAll deletes what is condemned, and lets others have the user id of which no file is left there.
func (l *leftovers) removeAll(name string) error {
	dirs := l.dirs
	for _, own := range l.owned() {
		for _, file := range condemnedOf(own.dir, name) {
			if err := removeTree(own.dir, file); err != nil {
				return err
			}
		}
	}
	return l.do(func() error {
		if l.servers.undeclared(name) != nil { // declared meanwhile: the id is its own, and so is the log
			return nil
		}
		for _, path := range logsOf(dirs.Log(name)) {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
		return l.ids.Release(serverUser(name))
	})
}
