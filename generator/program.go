package generator

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/pfar/pfar/generator/source"
	"github.com/pfar/pfar/units/hostfs"
)

// interpreter is how a command takes the file that it is to run.
type interpreter struct {
	valued string // options that take the next word
	ends   string // options after which no file follows: the program is given otherwise
	first  string // words that may stand before the file
	file   string // the option that the file follows, instead of standing alone
}

// interpreters by name, without a version.
func interpreters() map[string]interpreter {
	node := interpreter{valued: "-r --require --import --loader --experimental-loader -C --conditions",
		ends: "-e --eval -p --print -pe -v --version"}
	shell := interpreter{valued: "-o +o -O +O", ends: "-c"}
	python := interpreter{valued: "-W -X --check-hash-based-pycs", ends: "-c -m -V --version"}
	return map[string]interpreter{
		"node": node, "nodejs": node, "tsx": node, "ts-node": node,
		"bun":    {valued: "-r --preload --cwd --config", ends: "-e --eval -p --print x create install", first: "run"},
		"deno":   {valued: "-c --config --import-map --lock --cert --location", ends: "eval task install", first: "run serve"},
		"python": python, "pypy": python,
		"ruby": {valued: "-I -r -C", ends: "-e"}, "perl": {valued: "-I -M", ends: "-e -E"}, "lua": {valued: "-l", ends: "-e"},
		"php": {valued: "-c -d", ends: "-r"}, "Rscript": {ends: "-e"}, "dotnet": {ends: "tool run exec"},
		"java": {valued: "-cp -classpath --class-path -p --module-path", ends: "-m --module", file: "-jar"},
		"sh":   shell, "bash": shell, "dash": shell, "zsh": shell, "ksh": shell,
	}
}

var versioned = regexp.MustCompile(`^([A-Za-z-]+?)[0-9.]*$`)

// interpreterOf tells an interpreter by the name that it was called by, or that it has.
func interpreterOf(names ...string) (interpreter, bool) {
	for _, name := range names {
		m := versioned.FindStringSubmatch(path.Base(name))
		if m == nil {
			continue
		}
		if i, ok := interpreters()[m[1]]; ok {
			return i, true
		}
	}
	return interpreter{}, false
}

func isInterpreter(f hostfs.File) bool {
	_, ok := interpreterOf(f.Written, f.Real)
	return ok
}

// program shows the file that an interpreter is to run, and the package that it belongs to.
func (c *software) program(command string) {
	if command == "" {
		return
	}
	in, ok := interpreterOf(command, c.host.real(command))
	if _, _, runs := source.RunnerOf(append([]string{path.Base(c.server.Command)}, c.server.Args...)); !ok || runs {
		return // bunx is a link to bun, and what follows is a package
	}
	i := in.find(c.server.Args)
	if i < 0 {
		return
	}
	key, name := fmt.Sprintf("args[%d]", i), c.server.Args[i]
	if name == "-" || strings.Contains(name, "://") || strings.HasPrefix(name, "npm:") || strings.HasPrefix(name, "jsr:") {
		return // standard input, or a module that deno and bun fetch
	}
	if !path.IsAbs(name) {
		c.fail(key, "Program not absolute", "%q is the program that %s is to run, and it is relative, to what is not "+
			"known. Write the absolute path, such as %q.", name, path.Base(command), c.absolute(name))
		return
	}
	if path.Clean(name) != name {
		c.fail(key, "Path not clean", "%q has \"//\", \".\" or \"..\" in it, or ends in \"/\". Write %q.", name, path.Clean(name))
		return
	}
	f, err := c.host.resolve(name)
	switch {
	case err != nil:
		c.lack(paths(f), key, "Program not found", "%v. Install it, or write where it is.", err)
	case !f.Regular() && !f.Directory():
		c.fail(key, "Not a program", "%s is neither a file nor a directory. Write the path of a program.", where(f))
	case c.permitted(f, key):
		c.showProgram(f, key)
	}
}

func (c *software) showProgram(f hostfs.File, key string) {
	tree := c.treeOfProgram(f)
	if f.Directory() && c.broad(tree) {
		c.fail(key, "Refused path", "%s is a directory that no server sees whole. Write the path of the program's "+
			"own directory.", where(f))
		return
	}
	c.show(f, bind{real: tree, key: key, why: "the program"})
	if i := slices.IndexFunc(c.private, func(dir string) bool { return overlap(path.Dir(f.Real), dir) }); tree == f.Real &&
		i >= 0 && !f.Directory() {
		c.warn(key, "Only the file is shown", "The server sees %s alone, without the other files of its directory: pfar's "+
			"own %s is beside it. Install the program elsewhere if it needs them.", where(f), c.private[i])
	}
}

// find returns the index of the argument that is the program, or -1.
func (in interpreter) find(args []string) int {
	has := func(list, word string) bool { return slices.Contains(strings.Fields(list), word) }
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case in.file != "" && a == in.file && i+1 < len(args):
			return i + 1
		case has(in.ends, a):
			return -1
		case has(in.valued, a):
			i++
		case a == "--":
			if i+1 < len(args) && in.file == "" {
				return i + 1
			}
			return -1
		case strings.HasPrefix(a, "-") && len(a) > 1:
			if in.cluster(a) {
				return -1
			}
		case in.file != "":
			return -1 // java Main
		case has(in.first, a):
		default:
			return i
		}
	}
	return -1
}

// cluster reports whether single letters that are written together ("-uc") end with one after which no file follows.
func (in interpreter) cluster(a string) bool {
	if strings.HasPrefix(a, "--") || len(a) < 3 || len(a) > 4 || in.file != "" {
		return false
	}
	return slices.ContainsFunc(strings.Fields(in.ends), func(end string) bool {
		return len(end) == 2 && end[0] == '-' && a[len(a)-1] == end[1] && !strings.ContainsAny(a, "=:/.")
	})
}
