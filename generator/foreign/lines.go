package foreign

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"go.yaml.in/yaml/v3"
)

func readTOML(src []byte) (map[string]any, error) {
	m := map[string]any{}
	err := toml.Unmarshal(src, &m)
	if mistake, ok := errors.AsType[*toml.DecodeError](err); ok {
		line, _ := mistake.Position()
		return nil, fmt.Errorf("reading TOML: syntax mistake in line %d", line)
	}
	if err != nil {
		return nil, errors.New("reading TOML: syntax mistake")
	}
	return m, nil
}

// addTOML appends a table: a table has its whole name, so it can stand anywhere.
func addTOML(src []byte, _ []string, whole []byte) ([]edit, error) {
	gap := "\n"
	if !bytes.HasSuffix(src, []byte("\n")) {
		gap = "\n\n"
	}
	return []edit{{at: len(src), text: gap + string(whole)}}, nil
}

// dropTOML takes out the lines of a table, up to the next table. Comments before that belong to it.
func dropTOML(src []byte, path []string) ([]byte, error) {
	lines := bytes.SplitAfter(src, []byte("\n"))
	head := "[" + strings.Join(path, ".") + "]"
	for i, line := range lines {
		if string(bytes.TrimSpace(line)) != head {
			continue
		}
		next := i + 1
		for next < len(lines) && !bytes.HasPrefix(bytes.TrimSpace(lines[next]), []byte("[")) {
			next++
		}
		for next > i+1 && next < len(lines) && commentOrBlank(lines[next-1]) {
			next--
		}
		return bytes.Join(append(lines[:i:i], lines[next:]...), nil), nil
	}
	return nil, errOthers
}

func commentOrBlank(line []byte) bool {
	line = bytes.TrimSpace(line)
	return len(line) == 0 || line[0] == '#'
}

// maxAliases bounds references in YAML, which can make a small file a huge one.
const maxAliases = 100

func parseYAML(src []byte) (*yaml.Node, error) {
	var document yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(src))
	if err := d.Decode(&document); err != nil || len(document.Content) != 1 {
		return nil, errors.New("reading YAML: syntax mistake" + place(err))
	}
	var another yaml.Node
	if err := d.Decode(&another); err == nil {
		return nil, errors.New("reading YAML: the file has two documents")
	}
	root := document.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, errors.New("reading YAML: the file is not a mapping")
	}
	if aliases(root) > maxAliases {
		return nil, fmt.Errorf("reading YAML: more than %d aliases", maxAliases)
	}
	within(root, len(lineStarts(src)))
	return root, nil
}

// within has no node lie behind the last line: a value that is left out at the end of a file does, for the parser.
func within(n *yaml.Node, lines int) {
	n.Line = min(n.Line, lines)
	for _, child := range n.Content {
		within(child, lines)
	}
}

func aliases(n *yaml.Node) int {
	sum := 0
	if n.Kind == yaml.AliasNode {
		sum++
	}
	for _, child := range n.Content {
		sum += aliases(child)
	}
	return sum
}

func readYAML(src []byte) (map[string]any, error) {
	root, err := parseYAML(src)
	if err != nil {
		return nil, err
	}
	m := map[string]any{}
	if err := root.Decode(&m); err != nil {
		return nil, errors.New("reading YAML: a name is there twice, or is not a text" + place(err))
	}
	return m, nil
}

// pairOf finds a name and its value in a mapping.
func pairOf(mapping *yaml.Node, name string) (i int) {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == name {
			return i
		}
	}
	return -1
}

// addYAML puts the entry first into its section, or the section last into the file.
func addYAML(src []byte, path []string, whole []byte) ([]edit, error) {
	root, err := parseYAML(src)
	if err != nil || len(path) != 2 {
		return nil, errors.Join(err, errOthers)
	}
	starts := lineStarts(src)
	i := pairOf(root, path[0])
	if i < 0 {
		gap := ""
		if !bytes.HasSuffix(src, []byte("\n")) {
			gap = "\n"
		}
		return []edit{{at: len(src), text: gap + string(whole)}}, nil
	}
	key, section := root.Content[i], root.Content[i+1]
	_, entry, _ := bytes.Cut(whole, []byte("\n"))
	end := lineEnd(src, starts[key.Line-1])
	empty := section.Kind == yaml.ScalarNode && section.Tag == "!!null" && section.Value == ""
	indent := "  "
	switch {
	case section.Kind == yaml.MappingNode && section.Style&yaml.FlowStyle != 0 && len(section.Content) == 0:
		at := starts[section.Line-1] + section.Column - 1
		if !bytes.HasPrefix(src[at:], []byte("{}")) {
			return nil, errOthers
		}
		return []edit{{at: at, del: 2}, {at: end, text: "\n" + strings.TrimSuffix(string(entry), "\n")}}, nil
	case section.Kind == yaml.MappingNode && section.Style&yaml.FlowStyle == 0 && section.Line > key.Line:
		indent = strings.Repeat(" ", section.Content[0].Column-1)
	case !empty:
		return nil, errOthers
	}
	var b strings.Builder
	for line := range strings.Lines(string(entry)) {
		b.WriteString("\n" + indent + strings.TrimSuffix(strings.TrimPrefix(line, "  "), "\n"))
	}
	return []edit{{at: end, text: b.String()}}, nil
}

// dropYAML takes out the lines from a name to the next one.
func dropYAML(src []byte, path []string) ([]byte, error) {
	root, err := parseYAML(src)
	if err != nil || len(path) != 2 {
		return nil, errors.Join(err, errOthers)
	}
	i := pairOf(root, path[0])
	if i < 0 {
		return nil, ErrMissing
	}
	section := root.Content[i+1]
	j := pairOf(section, path[1])
	if j < 0 || section.Style&yaml.FlowStyle != 0 {
		return nil, errOthers
	}
	starts := append(lineStarts(src), len(src))
	from, to := starts[section.Content[j].Line-1], lastLine(section.Content[j+1])
	return append(src[:from:from], src[starts[to]:]...), nil
}

// lastLine is the number of the last line of a value that is written on single lines.
func lastLine(n *yaml.Node) int {
	line := n.Line
	for _, child := range n.Content {
		line = max(line, lastLine(child))
	}
	return line
}

func lineStarts(src []byte) []int {
	starts := []int{0}
	for i, b := range src {
		if b == '\n' && i+1 < len(src) {
			starts = append(starts, i+1)
		}
	}
	return starts
}
