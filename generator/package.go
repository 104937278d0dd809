package generator

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/hostfs"
	"github.com/pfar/pfar/units/sandbox"
)

// origin is the package that a server's program belongs to. The zero value is not known.
type origin struct {
	pkg   string   // as policies name it
	doubt string   // why it is not certain, for a sentence that begins "but"; "": it is
	rests []string // the files and folders of the host that this is certain by, and the links on the way
}

// uncertain is an origin that the program only claims.
func uncertain(pkg, why string) origin { return origin{pkg: pkg, doubt: why} }

// certain reports whether the package managers' own records say so.
func (o origin) certain() bool { return o.pkg != "" && o.doubt == "" }

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

// declare tells the gate of the package.
func (o origin) declare(d *gate.Declared) {
	switch {
	case o.certain():
		d.Packages, d.Rests = []string{o.pkg}, o.rests
	case o.pkg != "":
		d.Doubt = &gate.Doubt{Package: o.pkg, Why: o.doubt}
	}
}

// originOf is origin without what else makes it uncertain.
func (c facts) originOf(l invocation) origin {
	called := path.Base(l.words[0])
	words := append([]string{called}, l.words[1:]...)
	if n, ok := runnerOf(words); ok {
		return runners[strings.Join(words[:n], " ")].origin(c, l.files[len(l.files)-1], words[n:])
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
		_, runs := runnerOf(append([]string{path.Base(l.words[0])}, l.words[1:]...))
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

// placesOf are the places that decide which file a path leads to.
func placesOf(f hostfs.File) []string {
	places := []string{f.Real}
	for _, l := range f.Links {
		places = append(places, l.At)
	}
	return places
}

// managers are package managers that are packages themselves.
var managers = []string{"npm", "pnpm", "yarn", "bun", "pypi:uv", "pypi:pipx"}

// hosts reports whether a program is certainly the interpreter or runner that its name says: it is the host's own, the
// one that pfar's PATH has, or it stands in an installation of Node.js or Python, or a package of that name.
func (c facts) hosts(f hostfs.File) bool {
	called, prefix := path.Base(f.Written), path.Dir(path.Dir(f.Real))
	if slices.ContainsFunc(softwareRoots(), func(root string) bool { return sandbox.Below(f.Real, root) }) {
		return true
	}
	if found, ok := c.host.lookup(called); ok && found.Real == f.Real {
		return true
	}
	if o := c.installed(f.Written); o.certain() && slices.Contains(managers, o.pkg) {
		return true
	}
	m := versioned.FindStringSubmatch(path.Base(f.Real))
	return path.Base(path.Dir(f.Real)) == "bin" && m != nil &&
		(m[1] == "node" && c.host.exists(path.Join(prefix, "lib/node_modules/npm/package.json")) ||
			m[1] == "python" && c.host.exists(path.Join(prefix, "lib", path.Base(f.Real), "os.py")))
}

// nodeOptions are those of Node.js that neither take the next word for their value nor load other code.
const nodeOptions = "--enable-source-maps --no-warnings --no-deprecation --use-system-ca --use-openssl-ca --use-bundled-ca --use-env-proxy " +
	"--trace-warnings --trace-uncaught --expose-gc --jitless --max-old-space-size= --max-semi-space-size= --max-http-header-size= --stack-size= " +
	"--disable-warning= --dns-result-order= --unhandled-rejections="

// elsewhere are variables that have programs load other code, or have runners fetch packages from another place.
var elsewhere = regexp.MustCompile(`(?i)^(?:p?npm_config_.*|yarn_.*|bun_.*|uv_.*|pipx?_.*|python(?:path|home|userbase)|node_path|ld_(?:preload|library_path|audit))$`)

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
	return slices.ContainsFunc(c.server.Sandbox.Writable, func(w string) bool { return path.IsAbs(p) && overlap(c.host.real(path.Clean(p)), c.host.real(w)) })
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

// installed is the package that a program on this host belongs to. Programs are often links: npm, pipx and uv make one
// for each command of a package.
func (c facts) installed(program string) origin {
	if !path.IsAbs(program) || path.Clean(program) != program {
		return origin{}
	}
	f, err := c.host.resolve(program)
	if err != nil || !f.Regular() {
		return origin{}
	}
	o := origin{}
	switch {
	case strings.Contains(f.Real, "/node_modules/"):
		o = c.ofNPM(f)
	case strings.HasPrefix(c.host.head(f.Real), "\x7fELF"):
		o = c.ofBinary(f)
	case path.Base(path.Dir(f.Real)) == "bin":
		prefix := path.Dir(path.Dir(f.Real))
		o = c.ofPyPI([]string{prefix}, func(d distribution) bool { return d.commands(path.Base(f.Real)) }, func(d distribution) bool {
			return d.wrote("bin/"+path.Base(f.Real), f.Real)
		})
	}
	if o.certain() {
		o.rests = append(o.rests, placesOf(f)...)
	}
	return o
}
