package main

import (
	"cmp"
	"os"
	"strings"
	"unicode/utf8"
)

// longestProposed bounds a command line that a hint proposes, in bytes.
const longestProposed = 300

// elsewhere refuses a command line that has the words of pflow's documents, or is a question or a flow without its
// verb, and proposes what to write. It returns nil for all others.
func elsewhere(args []string) error {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		return nil
	}
	first, rest := args[0], args[1:]
	line := func(words []string) string {
		return joinedLine(words, func(w string) bool { return w == ">>" })
	}
	switch {
	case first == "registry":
		line := cmp.Or(translated(registryWords(), rest), "pfar --help")
		return usage("unknown verb %q", first).withHint("%s", proposed(line))
	case first == "mcp":
		line := cmp.Or(translated(mcpWords(), rest), toolWords(rest), "pfar --help")
		return usage("unknown verb %q", first).withHint("%s", proposed(line))
	case strings.Contains(first, ">>"):
		return usage("a flow needs the verb flow").withHint("%s", proposed("pfar flow run "+line(args)))
	case strings.ContainsAny(first, " \t\n"):
		return usage("unknown verb %q", shortWord(first)).withHint("%s", proposed("pfar ask "+line(args)))
	case strings.HasPrefix(first, "mcp-") || strings.HasPrefix(first, "mcp_"):
		flow := strings.ReplaceAll(line(args), " >> ", " + ")
		return usage("unknown verb %q", shortWord(first)).withHint("%s", proposed("pfar flow run "+flow))
	}
	return nil
}

// registryWords and mcpWords translate the verbs of "pflow registry" and "pflow mcp". ${FLAG:ELSE} stands for the value
// of a flag, and ${:ELSE} for the first name behind the verb; without that it is ELSE.
func registryWords() map[string]string {
	return map[string]string{
		"add-mcp":              "pfar add --name ${server:NAME} -- ${command:COMMAND}",
		"list":                 "pfar flow nodes --search ${filter:}",
		"search":               "pfar flow nodes --search ${:NAME}",
		"refresh":              "pfar refresh ${mcp-server:}",
		"describe":             "pfar describe ${:NAME}",
		"validate":             "pfar check",
		"migrate-mcp":          "pfar import ${from:FILE}",
		"test-mcp-connections": "pfar test",
	}
}

func mcpWords() map[string]string {
	return map[string]string{
		"add":    "pfar add --name ${name:NAME} ${url:URL}",
		"edit":   "pfar edit ${:NAME}",
		"launch": "pfar start ${:NAME}",
		"daemon": "pfar up",
		"list":   "pfar status",
	}
}

// translated is a command line by a table of verbs; "": the table does not have its verb.
func translated(table map[string]string, words []string) string {
	flags, names := flagsOf(words)
	if len(names) == 0 {
		return ""
	}
	line := os.Expand(table[names[0]], func(mark string) string {
		flag, otherwise, _ := strings.Cut(mark, ":")
		switch {
		case flag != "":
			return flags(flag, otherwise)
		case len(names) > 1:
			return shellWord(names[1])
		}
		return otherwise
	})
	return strings.TrimSuffix(strings.TrimSpace(line), " --search")
}

// toolWords translate "pflow mcp SERVER TOOL", which runs a tool; "": it is something else.
func toolWords(words []string) string {
	_, names := flagsOf(words)
	if len(names) < 2 {
		return ""
	}
	at := 0
	for i, w := range words {
		if w == names[1] {
			at = i
		}
	}
	node := "mcp-" + names[0] + "-" + names[1]
	return "pfar flow run " + joinedLine(append([]string{node}, words[at+1:]...), func(string) bool { return false })
}

// flagsOf splits words into names and flags with values. The function returns the value of a flag, safe for a shell, or
// what stands for it.
func flagsOf(words []string) (flags func(name, otherwise string) string, names []string) {
	values := map[string]string{}
	for i := 0; i < len(words); i++ {
		flag, ok := strings.CutPrefix(words[i], "--")
		name, value, whole := strings.Cut(flag, "=")
		switch {
		case !ok:
			names = append(names, words[i])
			continue
		case !whole && i+1 < len(words) && !strings.HasPrefix(words[i+1], "-"):
			i++
			value = words[i]
		}
		values[name] = value
	}
	return func(name, otherwise string) string {
		if v := values[name]; v != "" {
			return shellWord(v)
		}
		return otherwise
	}, names
}

// proposed is a command line for a hint: of one that is too long, the verb.
func proposed(line string) string {
	line = strings.TrimSpace(line)
	switch {
	case len(line) <= longestProposed && utf8.ValidString(line):
		return line
	case strings.HasPrefix(line, "pfar flow "):
		return "pfar flow run --help"
	}
	return strings.Join(strings.Fields(line)[:2], " ") + " --help"
}

func shortWord(w string) string { return cut(w, 60) }
