package foreign

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/tailscale/hujson"
)

// maxDepth bounds how deep a file may nest: readers call themselves.
const maxDepth = 200

// shallow refuses what nests deeper.
func shallow(src []byte) error {
	depth := 0
	for i, b := range src { // brackets in strings count too, which no configuration has in such numbers
		switch b {
		case '{', '[':
			depth++
		case '}', ']':
			depth = max(depth-1, 0)
		}
		if depth > maxDepth {
			return fmt.Errorf("line %d nests deeper than %d levels", lineAt(src, i), maxDepth)
		}
	}
	return nil
}

func parseJSON(src []byte) (hujson.Value, error) {
	if err := shallow(src); err != nil {
		return hujson.Value{}, err
	}
	v, err := hujson.Parse(bytes.Clone(src))
	if err != nil {
		return v, errors.New("reading JSON: syntax mistake" + place(err) + hashHint(src, place(err)))
	}
	return v, nil
}

// hashHint says what to write if the mistake's place has a comment as Python, TOML and YAML begin it.
func hashHint(src []byte, place string) string {
	if at := behind(src, '#'); at > 0 && place == fmt.Sprintf(" in line %d", lineAt(src, at-1)) {
		return ": JSON has no comments with #; write // instead"
	}
	return ""
}

var lineOfMistake = regexp.MustCompile(`line [0-9]+`)

// place is the line that an error of a parser names, without the text of the file, which may be a secret.
func place(err error) string {
	if err == nil {
		return ""
	}
	if line := lineOfMistake.FindString(err.Error()); line != "" {
		return " in " + line
	}
	return ""
}

func readJSON(src []byte) (map[string]any, error) {
	v, err := parseJSON(src)
	if err != nil {
		return nil, err
	}
	if line := repeated(v, src); line > 0 {
		return nil, fmt.Errorf("reading JSON: the member in line %d is there twice", line)
	}
	v.Standardize()
	var m map[string]any
	d := json.NewDecoder(bytes.NewReader(v.Pack()))
	d.UseNumber()
	if err := d.Decode(&m); err != nil || m == nil {
		return nil, errors.New("reading JSON: the file is not an object")
	}
	return m, nil
}

// repeated is the line of the second of two members of one name, 0 without such: programs differ in which of them
// counts.
func repeated(v hujson.Value, src []byte) int {
	var within []hujson.Value
	switch v := v.Value.(type) {
	case *hujson.Object:
		seen := map[string]bool{}
		for _, m := range v.Members {
			name := m.Name.Value.(hujson.Literal).String()
			if seen[name] {
				return lineAt(src, m.Name.StartOffset)
			}
			seen[name] = true
			within = append(within, m.Value)
		}
	case *hujson.Array:
		within = v.Elements
	}
	for _, e := range within {
		if line := repeated(e, src); line > 0 {
			return line
		}
	}
	return 0
}

// lineAt is the number of the line of a byte.
func lineAt(src []byte, at int) int { return bytes.Count(src[:at], []byte("\n")) + 1 }

// addJSON inserts a member behind the last one of the deepest section that is there.
func addJSON(src []byte, path []string, whole []byte) ([]edit, error) {
	at, err := parseJSON(src)
	if err != nil {
		return nil, err
	}
	var raw json.RawMessage = whole
	for _, name := range path {
		var m map[string]json.RawMessage
		if err := json.Unmarshal(raw, &m); err != nil {
			return nil, err
		}
		raw = m[name]
	}
	i := 0
	for ; i < len(path)-1; i++ {
		next := at.Find("/" + path[i])
		if next == nil {
			break
		}
		at = *next
	}
	object, ok := at.Value.(*hujson.Object)
	if !ok {
		return nil, fmt.Errorf("%q is not an object", strings.Join(path[:i], "."))
	}
	for j := len(path) - 1; j > i; j-- {
		if raw, err = json.Marshal(map[string]json.RawMessage{path[j]: raw}); err != nil {
			return nil, err
		}
	}
	return insertMember(src, at, object, path[i], raw), nil
}

func insertMember(src []byte, at hujson.Value, object *hujson.Object, name string, raw []byte) []edit {
	outer, _ := indentAt(src, at.StartOffset)
	unit := "  "
	if strings.Contains(string(src), "\n\t") {
		unit = "\t"
	}
	indent, n := outer+unit, len(object.Members)
	if n > 0 {
		if own, alone := indentAt(src, object.Members[n-1].Name.StartOffset); alone {
			indent = own
		}
	}
	var b bytes.Buffer
	_ = json.Indent(&b, raw, indent, unit) // it was marshalled
	member := "\n" + indent + `"` + name + `": ` + b.String()
	end := at.EndOffset - 1 // of what is inside the braces
	if n == 0 {
		p := at.StartOffset + 1
		if !bytes.Contains(src[p:end], []byte("\n")) {
			member += "\n" + outer
		}
		return []edit{{at: p, text: member}}
	}
	last := object.Members[n-1].Value.EndOffset
	p, comma := last+behind(src[last:end], ','), true
	if p < last {
		p, comma = last, false
	}
	p = behindComment(src, p, end)
	if !bytes.Contains(src[p:end], []byte("\n")) {
		member += map[bool]string{true: ","}[comma] + "\n" + outer
	} else if comma {
		member += ","
	}
	edits := []edit{{at: p, text: member}}
	if !comma {
		edits = append([]edit{{at: last, text: ","}}, edits...)
	}
	return edits
}

// behind finds the place behind a byte that is not in a string or comment. It is negative without such a byte.
func behind(src []byte, wanted byte) int {
	for i := 0; i < len(src); i++ {
		switch {
		case src[i] == wanted:
			return i + 1
		case src[i] == '"':
			for i++; i < len(src) && src[i] != '"'; i++ {
				if src[i] == '\\' {
					i++
				}
			}
		case bytes.HasPrefix(src[i:], []byte("//")):
			i = lineEnd(src, i)
		case bytes.HasPrefix(src[i:], []byte("/*")):
			i += 2 + max(bytes.Index(src[i+2:], []byte("*/")), 0) + 1
		}
	}
	return -1 << 31
}

// behindComment skips a comment on the rest of the line, which belongs to what is before it.
func behindComment(src []byte, p, end int) int {
	stop := min(lineEnd(src, p), end)
	rest := bytes.TrimSpace(src[p:stop])
	if bytes.HasPrefix(rest, []byte("//")) ||
		bytes.HasPrefix(rest, []byte("/*")) && bytes.Index(rest, []byte("*/")) == len(rest)-2 {
		return stop
	}
	return p
}

// dropJSON takes a member out.
func dropJSON(src []byte, path []string) ([]byte, error) {
	v, err := parseJSON(src)
	if err != nil {
		return nil, err
	}
	patch, err := json.Marshal([]map[string]string{{"op": "remove", "path": "/" + strings.Join(path, "/")}})
	if err != nil {
		return nil, err
	}
	if err := v.Patch(patch); err != nil {
		return nil, errOthers
	}
	return v.Pack(), nil
}
