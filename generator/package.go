package generator

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/pfar/pfar/generator/source"
	"github.com/pfar/pfar/units/hostfs"
	"github.com/pfar/pfar/units/sandbox"
)

// origin finds the package that the server runs: the one that a runner fetches, or the installed one that its program
// belongs to. A stranger's program must not pass for a package that facts are shipped of.
func (c facts) origin() origin {
	l, ok := c.invocation()
	if !ok {
		return origin{}
	}
	o := c.originOf(l)
	if o.pkg == "" || o.doubt != "" {
		return o
	}
	for _, f := range l.files {
		o.rests = append(o.rests, placesOf(f)...)
	}
	if name := c.loadsElsewhere(l.env); name != "" {
		return uncertain(o.pkg, "the variable "+name+" can have it load other code")
	}
	for _, w := range c.server.Sandbox.Writable {
		if i := slices.IndexFunc(o.rests, func(p string) bool { return overlap(p, c.host.real(w)) }); i >= 0 {
			return uncertain(o.pkg, "the server may write to "+quote(w)+", where its program lies")
		}
	}
	slices.Sort(o.rests)
	all := append(softwareRoots(), o.rests...) // no server may write to the former
	o.rests = slices.DeleteFunc(slices.Compact(o.rests), func(p string) bool {
		return slices.ContainsFunc(all, func(dir string) bool { return p != dir && sandbox.Below(p, dir) })
	})
	return o
}

// originOf is origin without what else makes it uncertain.
func (c facts) originOf(l invocation) origin {
	called := path.Base(l.words[0])
	words := append([]string{called}, l.words[1:]...)
	if r, n, ok := source.RunnerOf(words); ok {
		return c.ofRunner(r, l.files[len(l.files)-1], words[n:])
	}
	if o := c.ofInstallation(); o.pkg != "" {
		return o
	}
	name := versioned.FindStringSubmatch(called)
	var o origin
	switch {
	case called == "node" || called == "nodejs":
		o = c.installed(operand(l.words[1:], nodeOptions))
	case name != nil && (name[1] == "python" || name[1] == "pypy"):
		o = c.runByPython(l.words[0], l.words[1:])
	default:
		if o = c.installed(l.words[0]); slices.Contains(managers, o.pkg) {
			return origin{} // it runs something else
		}
		return o
	}
	if f := l.files[len(l.files)-1]; o.certain() && !c.hosts(f) {
		return uncertain(o.pkg, quote(f.Written)+" is only called "+called)
	}
	return o
}

// invocation is what the kernel starts in the end: it puts a script's interpreter before the script, and env puts the
// program before its arguments.
type invocation struct {
	words []string
	env   []string      // names of variables that env sets
	files []hostfs.File // the programs on the way, the last one first in words
}

// maxScripts is how many interpreters may be scripts themselves: BINPRM_LOOP_LIMIT of the kernel, and as many env.
const maxScripts = 10

// invocation follows the command through shebangs and env. It stops at a program of a package, and reports false where
// it cannot follow.
func (c facts) invocation() (invocation, bool) {
	l := invocation{words: append([]string{c.commandPath()}, c.server.Args...)}
	for range maxScripts {
		if !path.IsAbs(l.words[0]) || path.Clean(l.words[0]) != l.words[0] {
			return l, false
		}
		f, err := c.host.resolve(l.words[0])
		if err != nil || !f.Regular() {
			return l, false
		}
		l.files = append(l.files, f)
		script, is := strings.CutPrefix(c.host.head(f.Real), "#!")
		_, _, runs := source.RunnerOf(append([]string{path.Base(l.words[0])}, l.words[1:]...))
		switch {
		case path.Base(l.words[0]) == "env" && c.hosts(f):
			if !l.unwrap(c.host) {
				return l, false
			}
			continue
		case !is, runs, c.installed(l.words[0]).pkg != "":
			return l, true
		}
		line, _, whole := strings.Cut(script, "\n")
		interpreter, argument, _ := strings.Cut(strings.Trim(line, " \t\r"), " ")
		if !whole || !path.IsAbs(interpreter) {
			return l, false
		}
		before := []string{path.Clean(interpreter)}
		if argument = strings.Trim(argument, " \t"); argument != "" {
			before = append(before, argument) // the kernel does not split it
		}
		l.words = append(before, l.words...)
	}
	return l, false
}

// unwrap takes env away. It knows -S and variables.
func (l *invocation) unwrap(h Host) bool {
	words := l.words[1:]
	if len(words) > 0 {
		text, split := strings.CutPrefix(words[0], "-S")
		if !split {
			text, split = strings.CutPrefix(words[0], "--split-string=")
		}
		if split && strings.ContainsAny(text, "\\\"'$#") {
			return false
		}
		if split {
			words = append(strings.Fields(text), words[1:]...)
		}
	}
	for len(words) > 0 {
		name, _, ok := strings.Cut(words[0], "=")
		if !ok {
			break
		}
		l.env, words = append(l.env, name), words[1:]
	}
	if len(words) == 0 || strings.HasPrefix(words[0], "-") || slices.Contains(l.env, "PATH") {
		return false
	}
	if !strings.Contains(words[0], "/") {
		f, ok := h.lookup(words[0])
		if !ok {
			return false
		}
		words = append([]string{f.Written}, words[1:]...)
	}
	l.words = words
	return true
}

// nodeOptions are those of Node.js that neither take the next word for their value nor load other code.
const nodeOptions = "--enable-source-maps --no-warnings --no-deprecation --use-system-ca --use-openssl-ca --use-bundled-ca " +
	"--use-env-proxy --trace-warnings --trace-uncaught --expose-gc --jitless --max-old-space-size= --max-semi-space-size= " +
	"--max-http-header-size= --stack-size= " +
	"--disable-warning= --dns-result-order= --unhandled-rejections="

// elsewhere are variables that have programs load other code, or have runners fetch packages from another place.
var elsewhere = regexp.MustCompile(`(?i)^(?:p?npm_config_.*|yarn_.*|bun_.*|uv_.*|pipx?_.*` +
	`|python(?:path|home|userbase)|node_path|ld_(?:preload|library_path|audit))$`)

// harmless are those of them that do neither.
var harmless = regexp.MustCompile(`(?i)_(?:cache|cache_dir|loglevel|update_notifier|offline|prefer_offline)$`)

// loadsElsewhere names a variable of the server's environment that makes it uncertain which code runs; "" if none does.
func (c facts) loadsElsewhere(more []string) string {
	for _, v := range c.server.Env {
		switch {
		case v.Name == "NODE_OPTIONS" && operand(append(strings.Fields(v.Value), "end"), nodeOptions) == "end":
		case elsewhere.MatchString(v.Name) && harmless.MatchString(v.Name) && !c.kept(v.Value):
		case v.Name == "NODE_OPTIONS" || elsewhere.MatchString(v.Name):
			return v.Name
		}
	}
	for _, k := range c.server.Credentials {
		more = append(more, k.Env)
	}
	for _, name := range more {
		if name == "NODE_OPTIONS" || elsewhere.MatchString(name) {
			return name
		}
	}
	return ""
}

// kept reports whether the server writes a path in one run and finds it in the next.
func (c facts) kept(p string) bool {
	return slices.ContainsFunc(c.server.Sandbox.Writable, func(w string) bool {
		return path.IsAbs(p) && overlap(c.host.real(path.Clean(p)), c.host.real(w))
	})
}

// operand is the first word that is no option; "" if one before it is not among those that are known. What ends in "="
// has its value behind it.
func operand(args []string, options string) string {
	for _, a := range args {
		if !strings.HasPrefix(a, "-") {
			return a
		}
		if name, _, valued := strings.Cut(a, "="); valued {
			a = name + "="
		}
		if !slices.Contains(strings.Fields(options), a) {
			return ""
		}
	}
	return ""
}

// runByPython is the package of the module or script that an interpreter of Python runs.
func (c facts) runByPython(interpreter string, args []string) origin {
	i := slices.IndexFunc(args, func(a string) bool { return !slices.Contains(strings.Fields(source.PythonOptions), a) })
	if i < 0 {
		return origin{}
	}
	if args[i] != "-m" {
		return c.installed(operand(args[i:], ""))
	}
	if i+1 == len(args) || strings.ContainsAny(args[i+1], "./") {
		return origin{}
	}
	module := args[i+1]
	prefixes := []string{c.host.real(path.Dir(path.Dir(interpreter)))}
	if !c.host.exists(path.Join(prefixes[0], "pyvenv.cfg")) {
		prefixes = []string{"/usr/local", prefixes[0]} // Debian has its own packages beside those of pip
	}
	file := module + "/__main__.py"
	o := c.ofPyPI(prefixes, func(d distribution) bool {
		return d.name == source.Normal(module) && c.host.exists(path.Join(path.Dir(d.folder), file))
	}, func(d distribution) bool { return d.wrote(file, path.Join(path.Dir(d.folder), file)) })
	if o.pkg == "" {
		return o
	}
	// Python looks for a module in the working directory first, which is the server's home and kept by state.
	isolated := slices.Contains(args[:i], "-I") || slices.Contains(args[:i], "-P")
	if c.server.Sandbox.State && !isolated {
		return uncertain(o.pkg, "its home is kept (state = true), where python -m looks first")
	}
	return o
}
