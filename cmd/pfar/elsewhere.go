package main

import (
	"cmp"
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
	case first == "registry" || first == "mcp":
		translate := registryWords
		if first == "mcp" {
			translate = mcpWords
		}
		return usage("unknown verb %q", first).withHint("%s", proposed(cmp.Or(translate(rest), "pfar --help")))
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

// registryWords and mcpWords translate the verbs of "pflow registry" and "pflow mcp"; "": they know no such verb.
func registryWords(words []string) string {
	flags, names := flagsOf(words)
	if len(names) == 0 {
		return ""
	}
	verb, name := names[0], append(names, "NAME")[1]
	switch verb {
	case "add-mcp":
		return "pfar add --name " + flags("server", "NAME") + " -- " + flags("command", "COMMAND")
	case "list":
		if filter := flags("filter", ""); filter != "" {
			return "pfar flow nodes --search " + filter
		}
		return "pfar flow nodes"
	case "search":
		return "pfar flow nodes --search " + shellWord(name)
	case "refresh":
		return "pfar refresh " + flags("mcp-server", "")
	case "describe":
		return "pfar describe " + shellWord(name)
	case "validate":
		return "pfar check"
	case "migrate-mcp":
		return "pfar import " + flags("from", "FILE")
	case "test-mcp-connections":
		return "pfar test"
	}
	return ""
}

func mcpWords(words []string) string {
	flags, names := flagsOf(words)
	if len(names) == 0 {
		return ""
	}
	verb, name := names[0], append(names, "NAME")[1]
	switch verb {
	case "add":
		return "pfar add --name " + flags("name", "NAME") + " " + flags("url", "URL")
	case "edit":
		return "pfar edit " + shellWord(name)
	case "launch":
		return "pfar start " + shellWord(name)
	case "daemon":
		return "pfar up"
	case "list":
		return "pfar status"
	}
	if len(names) < 2 {
		return ""
	}
	node := "mcp-" + verb + "-" + name
	at := 0
	for i, w := range words {
		if w == name {
			at = i
		}
	}
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
