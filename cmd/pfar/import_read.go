package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/pfar/pfar/generator"
	"github.com/pfar/pfar/generator/foreign"
	"github.com/pfar/pfar/generator/importer"
	"github.com/pfar/pfar/policies"
	"github.com/pfar/pfar/units/chores"
	"github.com/pfar/pfar/units/control"
)

// proposals reads the files, makes a declaration of each server, and has pfard check it.
func (v importVerb) proposals(ctx context.Context, w importWish) ([]readFile, error) {
	files, err := v.sources(ctx, w)
	if err != nil {
		return nil, err
	}
	report, unasked := v.report(ctx)
	if unasked != nil && (!w.dryRun || !errors.Is(unasked, control.ErrNotRunning)) {
		return nil, unasked
	}
	o := importer.Options{Services: servicesVerb(v).catalogue(ctx), Facts: policies.Load(nil, "").Policy.Services, Exists: exists,
		Taken: map[string]string{}}
	for _, s := range report.Servers {
		o.Taken[s.Name] = s.File
	}
	for i := range files {
		f := &files[i]
		entries, err := importer.Read(f.source)
		if err != nil {
			return nil, fail(exitFailed, "%s: %w", f.File, err)
		}
		o.Origin = "Imported from " + f.File + " by pfar import"
		for _, p := range importer.Propose(entries, o) {
			if p.Refused == "" {
				o.Taken[p.Server] = f.File
			}
			f.Servers = append(f.Servers, planned{Proposal: p})
		}
	}
	if err := only(files, w.only); err != nil || unasked != nil || w.dryRun && v.guest() {
		return files, err // a guest may not ask pfard about a declaration
	}
	return files, v.check(ctx, files)
}

// only keeps the servers with these names, and drops all others.
func only(files []readFile, names []string) error {
	if len(names) == 0 {
		return nil
	}
	var all []string
	unknown := slices.Clone(names)
	for i := range files {
		files[i].Servers = slices.DeleteFunc(files[i].Servers, func(s planned) bool {
			all = append(all, s.Name)
			of := func(name string) bool { return name == s.Name || name == s.Server && s.Refused == "" }
			unknown = slices.DeleteFunc(unknown, of)
			return !slices.ContainsFunc(names, of)
		})
	}
	if len(unknown) > 0 {
		return fail(exitNoSuch, "the file has no server %q; it has %s", unknown[0], strings.Join(all, ", "))
	}
	return nil
}

// check has pfard check each declaration together with all others.
func (v importVerb) check(ctx context.Context, files []readFile) error {
	for i := range files {
		for j := range files[i].Servers {
			s := &files[i].Servers[j]
			if s.Refused != "" {
				continue
			}
			d, err := v.control().Declare(ctx, s.Server, control.Text{New: []byte(s.Text), Dry: true})
			if err != nil && !errors.Is(err, control.ErrChanged) {
				return err
			}
			if err != nil { // there is a file of this name, which declares no known server
				s.Refused = err.Error()
				s.Notes = append(s.Notes, importer.Note{Line: s.Line, Text: s.Refused})
			} else {
				s.judged(d)
			}
			if s.Refused != "" {
				s.Text, s.Secrets = "", nil
			}
		}
	}
	return nil
}

// judged takes what pfard says of a declaration.
func (s *planned) judged(d *control.Declared) {
	for _, g := range d.Diagnostics {
		if g.Summary == generator.NotInstalled {
			s.Absent = true
			continue
		}
		text := g.Summary
		if g.Detail != "" {
			text += ": " + g.Detail
		}
		if g.Severity == "error" {
			s.Refused = text
		}
		s.Notes = append(s.Notes, importer.Note{Line: s.Line, Text: text})
	}
}

// sources reads the files that the arguments name.
func (v importVerb) sources(ctx context.Context, w importWish) (files []readFile, err error) {
	if w.from != "" {
		f, err := v.ofProgram(w)
		return []readFile{f}, err
	}
	for _, name := range w.files {
		f, err := v.named(ctx, name, w.user)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// ofProgram reads the configuration file of a program in the user's home.
func (v importVerb) ofProgram(w importWish) (readFile, error) {
	whose, err := v.owner(w.user)
	if err != nil {
		return readFile{}, err
	}
	f, err := openForeign(whose, chores.Programs[w.from], "")
	if err != nil {
		return readFile{}, err
	}
	defer f.close()
	if f.info == nil {
		return readFile{}, fail(exitNoSuch, "no file %s", f.path).withHint("name the FILE, if it is elsewhere")
	}
	return readFile{File: f.path, Program: w.from,
		source: importer.Source{Name: f.path, Text: f.src, Home: whose.home}}, nil
}

// named reads a file that the caller names, or standard input.
func (v importVerb) named(ctx context.Context, name, of string) (readFile, error) {
	if name == "-" {
		text, err := interruptible(ctx, func() ([]byte, error) {
			return io.ReadAll(io.LimitReader(v.stdin, foreign.MaxSize+1))
		})
		whose, _ := v.owner(of) // a home that is not known stays out
		return readFile{File: "standard input", source: importer.Source{Name: "-", Text: text, Home: whose.home}}, err
	}
	path, err := filepath.Abs(name)
	if err != nil {
		return readFile{}, err
	}
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return readFile{}, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fail(exitFailed, "%s is not a regular file", path)
	}
	if err != nil {
		return readFile{}, err
	}
	text, err := io.ReadAll(io.LimitReader(file, foreign.MaxSize+1))
	if err != nil {
		return readFile{}, fmt.Errorf("reading %s: %w", path, err)
	}
	s := importer.Source{Name: path, Text: text, Home: v.homeOf(info, of)}
	s.Folder = projectOf(path, s.Home)
	return readFile{File: path, source: s}, nil
}

// homeOf returns the home of the file's owner: "~" in the file means that home.
func (v importVerb) homeOf(info os.FileInfo, of string) string {
	if of != "" || v.uid != 0 {
		whose, _ := v.owner(of)
		return whose.home
	}
	u, err := user.LookupId(strconv.Itoa(int(info.Sys().(*syscall.Stat_t).Uid)))
	if err != nil {
		return ""
	}
	return u.HomeDir
}

// projectOf returns the project that a file belongs to; "" for a file of the user's own.
func projectOf(path, home string) string {
	dir := filepath.Dir(path)
	if strings.HasPrefix(filepath.Base(dir), ".") { // .vscode, .cursor
		dir = filepath.Dir(dir)
	}
	if home == "" || dir == home || strings.HasPrefix(dir, filepath.Join(home, ".config")) {
		return ""
	}
	return dir
}
