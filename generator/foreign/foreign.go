// Package foreign reads and edits the configuration files of MCP clients: a file in, its values with their lines out,
// or the file with one entry more or less, in which comments, order and every other byte stay.
package foreign

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
)

// Entry is the name under which pfar stands in each file.
const Entry = "pfar"

// MaxSize bounds the files. Claude Code keeps its history in the same file as its servers.
const MaxSize = 16 << 20

// Syntax is the language of a configuration file.
type Syntax int

const (
	JSON Syntax = iota // with comments and trailing commas
	TOML
	YAML
)

func read(syntax Syntax, src []byte) (map[string]any, error) {
	switch syntax {
	case TOML:
		return readTOML(src)
	case YAML:
		return readYAML(src)
	}
	return readJSON(src)
}

// ErrExists says that the file has an entry of this name already.
var ErrExists = errors.New("the file already has an entry " + Entry)

// ErrMissing says that the file has no entry of this name.
var ErrMissing = errors.New("the file has no entry " + Entry)

// errOthers says that an edit would change what belongs to others.
var errOthers = errors.New("the file is written in a way in which pfar cannot change its entry alone")

// edit replaces bytes of a file.
type edit struct {
	at, del int
	text    string
}

// language edits one syntax.
type language struct {
	add  func(src []byte, path []string, whole []byte) ([]edit, error)
	drop func(src []byte, path []string) ([]byte, error)
}

var languages = map[Syntax]language{
	JSON: {addJSON, dropJSON},
	TOML: {addTOML, dropTOML},
	YAML: {addYAML, dropYAML},
}

// Put adds pfar's entry to a file. whole is the file as it would be with this entry alone: it has the entry and where
// it stands. The second result is the text that is new.
func Put(syntax Syntax, src, whole []byte) (out []byte, added string, err error) {
	l, known := languages[syntax]
	switch {
	case !known:
		return nil, "", fmt.Errorf("unknown syntax %d", syntax)
	case len(src) > MaxSize:
		return nil, "", fmt.Errorf("the file has more than %d MiB", MaxSize>>20)
	}
	want, err := read(syntax, whole)
	if err != nil {
		return nil, "", err
	}
	path, entry, err := locate(want)
	if err != nil {
		return nil, "", err
	}
	if len(bytes.TrimSpace(src)) == 0 {
		return whole, string(whole), nil
	}
	before, err := read(syntax, src)
	if err != nil {
		return nil, "", err
	}
	if _, there := lookUp(before, path); there {
		return nil, "", ErrExists
	}
	edits, err := l.add(src, path, whole)
	if err != nil {
		return nil, "", err
	}
	out, added = apply(src, edits)
	after, err := read(syntax, out)
	if err != nil || !insert(before, path, entry) || !reflect.DeepEqual(before, after) {
		return nil, "", errOthers
	}
	return out, added, nil
}

// Take takes pfar's entry out of a file that was edited since. whole says where the entry stands.
func Take(syntax Syntax, src, whole []byte) ([]byte, error) {
	l, known := languages[syntax]
	if !known || len(src) > MaxSize {
		return nil, errOthers
	}
	want, err := read(syntax, whole)
	if err != nil {
		return nil, err
	}
	path, _, err := locate(want)
	if err != nil {
		return nil, err
	}
	before, err := read(syntax, src)
	if err != nil {
		return nil, err
	}
	if _, there := lookUp(before, path); !there {
		return nil, ErrMissing
	}
	out, err := l.drop(src, path)
	if err != nil {
		return nil, err
	}
	after, err := read(syntax, out)
	if err != nil || !remove(before, path) || !sameButEmpty(before, after) {
		return nil, errOthers
	}
	return out, nil
}

// locate follows a file that has one entry alone down to that entry.
func locate(whole map[string]any) (path []string, entry any, err error) {
	for at := whole; len(at) == 1; {
		for name, value := range at {
			path, entry = append(path, name), value
		}
		if path[len(path)-1] == Entry {
			return path, entry, nil
		}
		next, ok := entry.(map[string]any)
		if !ok {
			break
		}
		at = next
	}
	return nil, nil, fmt.Errorf("no entry %s", Entry)
}

func lookUp(at map[string]any, path []string) (any, bool) {
	value, there := at[path[0]]
	if len(path) == 1 || !there {
		return value, there
	}
	next, ok := value.(map[string]any)
	if !ok {
		return nil, false
	}
	return lookUp(next, path[1:])
}

// insert puts an entry in, and reports whether there was a place for it.
func insert(at map[string]any, path []string, entry any) bool {
	if len(path) == 1 {
		at[path[0]] = entry
		return true
	}
	next, ok := at[path[0]].(map[string]any)
	if at[path[0]] == nil {
		next, ok = map[string]any{}, true
		at[path[0]] = next
	}
	return ok && insert(next, path[1:], entry)
}

func remove(at map[string]any, path []string) bool {
	if len(path) == 1 {
		delete(at, path[0])
		return true
	}
	next, ok := at[path[0]].(map[string]any)
	return ok && remove(next, path[1:])
}

// sameButEmpty compares files in which a section without entries may be empty, null or missing.
func sameButEmpty(a, b any) bool {
	left, ok := a.(map[string]any)
	right, also := b.(map[string]any)
	if !ok && !also {
		return reflect.DeepEqual(a, b)
	}
	if ok != also && (a != nil || len(right) > 0) && (b != nil || len(left) > 0) {
		return false
	}
	for _, m := range []map[string]any{left, right} {
		for name := range m {
			if !sameButEmpty(left[name], right[name]) {
				return false
			}
		}
	}
	return true
}

// apply makes edits, and returns what they add, an edit a line.
func apply(src []byte, edits []edit) (out []byte, added string) {
	slices.SortStableFunc(edits, func(a, b edit) int { return a.at - b.at })
	from := 0
	var texts []byte
	for _, e := range edits {
		out = append(append(out, src[from:e.at]...), e.text...)
		from = e.at + e.del
		if len(e.text) > 1 { // a comma is none of the diff
			texts = append(texts, e.text...)
		}
	}
	return append(out, src[from:]...), string(texts)
}

// lineEnd is where the line that has this byte ends: at its newline, or at the end of the file.
func lineEnd(src []byte, at int) int {
	if i := bytes.IndexByte(src[at:], '\n'); i >= 0 {
		return at + i
	}
	return len(src)
}

// indentAt is the white space that begins the line of a byte, and whether only that is before it.
func indentAt(src []byte, at int) (string, bool) {
	start := bytes.LastIndexByte(src[:at], '\n') + 1
	line := src[start:at]
	rest := bytes.TrimLeft(line, " \t")
	return string(line[:len(line)-len(rest)]), len(rest) == 0
}
