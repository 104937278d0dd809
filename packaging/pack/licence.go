package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// ours is the module whose programs are packaged.
const ours = "github.com/pfar/pfar"

// module is a library that the programs contain, with the texts that its licence wants to be handed on.
type module struct {
	Path, Version string
	Licence       string // as SPDX writes it
	Copyright     []string
	Text          string // of all its licence files, and of its notices
	Notice        string
}

// linked returns the modules of which the programs contain packages, the Go library first.
func linked(source, arch string) ([]module, error) {
	cmd := exec.Command("go", "list", "-deps", "-json=Module", "./cmd/...")
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("listing what the programs contain: %w", err)
	}
	root, err := exec.Command("go", "env", "GOROOT").Output() // a program built with -trimpath does not know it
	if err != nil {
		return nil, fmt.Errorf("asking where Go is: %w", err)
	}
	dirs := map[string]string{"Go " + runtime.Version(): strings.TrimSpace(string(root))}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			Module *struct{ Path, Version, Dir string }
		}
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("reading what go list says: %w", err)
		}
		if p.Module != nil && p.Module.Path != ours {
			dirs[p.Module.Path+" "+p.Module.Version] = p.Module.Dir
		}
	}
	var list []module
	for name, dir := range dirs {
		m := module{}
		m.Path, m.Version, _ = strings.Cut(name, " ")
		if err := m.read(dir); err != nil {
			return nil, fmt.Errorf("reading the licence of %s: %w", m.Path, err)
		}
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b module) int { return strings.Compare(a.Path, b.Path) })
	return list, nil
}

var (
	licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying)([.-].*)?$`)
	noticeFile  = regexp.MustCompile(`(?i)^notice(\..*)?$`)
	holder      = regexp.MustCompile(`(?im)^\W*(?:[a-z0-9 .-]{0,20} )?(copyright (?:\(c\)|©|[0-9]|ibm|fsnotify).*)$`)
	// Apache's licence has an example of a line with a copyright.
	example = regexp.MustCompile(`\[yyyy\]|\{yyyy\}|name of copyright owner`)
)

// read takes a module's licence and notices from its directory.
func (m *module) read(dir string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		licence, notice := licenceFile.MatchString(f.Name()), noticeFile.MatchString(f.Name())
		if f.IsDir() || !licence && !notice || strings.HasSuffix(f.Name(), "-LOGO") {
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return err
		}
		text := strings.TrimSpace(strings.ReplaceAll(string(b), "\r\n", "\n"))
		for _, line := range holder.FindAllStringSubmatch(text, -1) {
			if line := strings.TrimSpace(line[1]); !example.MatchString(line) && !slices.Contains(m.Copyright, line) {
				m.Copyright = append(m.Copyright, line)
			}
		}
		if notice {
			m.Notice += text + "\n"
			continue
		}
		kind := kindOf(text)
		if kind == "" && m.Licence == "" {
			return fmt.Errorf("pack does not know the licence %s", f.Name())
		}
		switch {
		case m.Licence == "":
			m.Licence = kind
		case slices.Contains(shared, kind): // whose text the document has once
			text = kind
		}
		if m.Text != "" {
			m.Text += "\n\n" + f.Name() + ":\n\n"
		}
		m.Text += text
	}
	if m.Text == "" {
		return errors.New("no licence found")
	}
	return nil
}

// kindOf recognizes a licence by words that only it has.
func kindOf(text string) string {
	words := strings.Join(strings.Fields(text), " ")
	for _, l := range []struct{ spdx, says string }{
		{"Apache-2.0", "Apache License Version 2.0"},
		{"MPL-2.0", "Mozilla Public License, version 2.0"},
		{"MPL-2.0", "Mozilla Public License Version 2.0"},
		{"MIT", "Permission is hereby granted, free of charge"},
		{"BSD-3-Clause", "may be used to endorse or promote products derived from this software without"},
		{"BSD-2-Clause", "Redistributions in binary form must reproduce the above copyright notice"},
	} {
		if strings.Contains(words, l.says) {
			return l.spdx
		}
	}
	return ""
}
