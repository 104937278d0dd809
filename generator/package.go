package generator

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/pfar/pfar/units/hostfs"
)

// runners are programs that run a package whose name they are given, by their own name and the words behind it. Of
// their options those are known that neither take a value nor lead to another package than the one that is named.
var runners = map[string]runner{
	"npx":         {"", "-y --yes -q --quiet --offline --prefer-offline --"},
	"npm exec":    {"", "-y --yes -q --quiet --offline --prefer-offline --"},
	"pnpx":        {"", "-s --silent"},
	"pnpm dlx":    {"", "-s --silent"},
	"yarn dlx":    {"", "-q --quiet"},
	"bunx":        {"", "--bun --silent"},
	"bun x":       {"", "--bun --silent"},
	"uvx":         {"pypi:", "-q --quiet -n --no-cache --offline --isolated --refresh --python="},
	"uv tool run": {"pypi:", "-q --quiet -n --no-cache --offline --isolated --refresh --python="},
	"pipx run":    {"pypi:", "-q --quiet --no-cache --python="},
}

type runner struct{ registry, options string }

// nodeOptions are those of Node.js that neither take the next word for their value nor load other code.
const nodeOptions = "--enable-source-maps --no-warnings --no-deprecation --use-system-ca --use-openssl-ca --use-bundled-ca --use-env-proxy " +
	"--trace-warnings --trace-uncaught --expose-gc --jitless --max-old-space-size= --max-semi-space-size= --max-http-header-size= --stack-size= " +
	"--disable-warning= --dns-result-order= --unhandled-rejections="

// packageName is a package and which version of it: no address, no file, and no other package that is to have the name.
var packageName = regexp.MustCompile(`^((?:@[a-z0-9~-][a-z0-9._~-]*/)?[A-Za-z0-9~-][A-Za-z0-9._~-]*)(?:[@=<>!\[][0-9A-Za-z.^~*<>=!+,\[\]@-]*)?$`)

// packages is the package that the server certainly runs, as policies name it: the one that a runner fetches, or the
// installed one that its program belongs to. A stranger's program must not pass for a package that facts are shipped
// of, so it is none where that is not certain.
func (c facts) packages() []string {
	words := append([]string{path.Base(c.server.Command)}, c.server.Args...)
	if c.loadsElsewhere() {
		return nil
	}
	if n, ok := runnerOf(words); ok {
		r := runners[strings.Join(words[:n], " ")]
		return r.packages(operand(words[n:], r.options))
	}
	name := versioned.FindStringSubmatch(words[0])
	switch {
	case words[0] == "node" || words[0] == "nodejs":
		return c.installed(operand(c.server.Args, nodeOptions))
	case name != nil && (name[1] == "python" || name[1] == "pypy"):
		return c.runByPython(c.server.Args)
	}
	return c.installed(c.commandPath())
}

// runnerOf is how many words of a command line are those of a runner.
func runnerOf(words []string) (int, bool) {
	for n := range min(3, len(words)) {
		if _, ok := runners[strings.Join(words[:n+1], " ")]; ok {
			return n + 1, true
		}
	}
	return 0, false
}

// elsewhere are variables that have programs load other code, or have runners fetch packages from another place.
var elsewhere = regexp.MustCompile(`(?i)^(?:p?npm_config_.*|yarn_.*|bun_.*|uv_.*|pipx?_.*|python(?:path|home|userbase)|node_path)$`)

// harmless are those of them that do neither.
var harmless = regexp.MustCompile(`(?i)_(?:cache|cache_dir|loglevel|update_notifier|offline|prefer_offline)$`)

// loadsElsewhere reports whether the server's environment makes it uncertain which code runs.
func (c facts) loadsElsewhere() bool {
	for _, v := range c.server.Env {
		if v.Name == "NODE_OPTIONS" && operand(append(strings.Fields(v.Value), "end"), nodeOptions) == "end" {
			continue
		}
		if v.Name == "NODE_OPTIONS" || elsewhere.MatchString(v.Name) && !harmless.MatchString(v.Name) {
			return true
		}
	}
	for _, k := range c.server.Credentials {
		if k.Env == "NODE_OPTIONS" || elsewhere.MatchString(k.Env) {
			return true
		}
	}
	return false
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

func (r runner) packages(word string) []string {
	m := packageName.FindStringSubmatch(word)
	switch {
	case m == nil:
		return nil
	case r.registry != "":
		return []string{r.registry + distributionName(m[1])}
	}
	return m[1:2]
}

// installed is the package that a program on this host belongs to. Programs are often links: npm, pipx and uv make one
// for each command of a package.
func (c facts) installed(program string) []string {
	if !path.IsAbs(program) || path.Clean(program) != program {
		return nil
	}
	f, err := c.host.resolve(program)
	switch {
	case err != nil || !f.Regular():
		return nil
	case strings.Contains(f.Real, "/node_modules/"):
		return c.ofNPM(f)
	case path.Base(path.Dir(f.Real)) == "bin":
		return c.ofPyPI(path.Dir(path.Dir(f.Real)), func(d distribution) bool {
			return d.commands(path.Base(f.Real)) && d.wrote("bin/"+path.Base(f.Real), f.Real)
		})
	}
	return nil
}

// packageManifest is what is read of a package.json.
type packageManifest struct {
	Name string
	Bin  json.RawMessage // a path, or paths by the names of commands
}

// ofNPM is the package of npm that a program belongs to. Its folder below node_modules and its package.json have the
// same name: of a package under an alias (NAME@npm:OTHER) and of a checkout they differ. Over a link it has to be a
// command of the package, since the owner has not seen what the link leads to.
func (c facts) ofNPM(f hostfs.File) []string {
	folder, name := npmFolder(f.Real)
	if name == "" {
		return nil
	}
	var m packageManifest
	b, ok := c.host.read(path.Join(folder, "package.json"))
	if !ok || json.Unmarshal(b, &m) != nil || m.Name != name {
		return nil
	}
	if path.Join(c.host.real(path.Dir(f.Written)), path.Base(f.Written)) != f.Real && !m.commands(folder, f.Real) {
		return nil
	}
	return []string{name}
}

// npmFolder is the folder and the name of the package that a file lies in. A package within another one came with that,
// which may have changed it, so it is none; pnpm keeps all of its packages one level deeper.
func npmFolder(real string) (folder, name string) {
	const modules = "/node_modules/"
	i := strings.LastIndex(real, modules)
	if above := real[:i]; strings.Contains(above, modules) {
		_, store, _ := strings.Cut(above, modules)
		if dir, ok := strings.CutPrefix(store, ".pnpm/"); !ok || strings.Contains(dir, "/") {
			return "", ""
		}
	}
	parts := strings.SplitN(real[i+len(modules):], "/", 3)
	scoped := strings.HasPrefix(parts[0], "@")
	switch {
	case scoped && len(parts) == 3:
		name = parts[0] + "/" + parts[1]
	case !scoped && len(parts) > 1 && !strings.HasPrefix(parts[0], "."):
		name = parts[0]
	default:
		return "", ""
	}
	return real[:i+len(modules)] + name, name
}

// commands reports whether a file is one of the commands of a package in a folder.
func (m packageManifest) commands(folder, real string) bool {
	var one string
	var several map[string]string
	if json.Unmarshal(m.Bin, &one) == nil {
		several = map[string]string{m.Name: one}
	} else if json.Unmarshal(m.Bin, &several) != nil {
		return false
	}
	for _, p := range several {
		if path.Join(folder, path.Join("/", p)) == real {
			return true
		}
	}
	return false
}

// pythonOptions neither take the next word for their value nor load other code.
const pythonOptions = "-u -I -P -s -E -B -O -OO -q -v"

// runByPython is the package of the module or script that an interpreter of Python runs, if that is the one of a
// virtual environment.
func (c facts) runByPython(args []string) []string {
	i := slices.IndexFunc(args, func(a string) bool { return !slices.Contains(strings.Fields(pythonOptions), a) })
	if i < 0 {
		return nil
	}
	if args[i] != "-m" {
		return c.installed(operand(args[i:], ""))
	}
	// Python looks for a module in the working directory first, which is the server's home and kept by state.
	isolated := slices.Contains(args[:i], "-I") || slices.Contains(args[:i], "-P")
	if i+1 == len(args) || c.server.Sandbox.State && !isolated {
		return nil
	}
	prefix := path.Dir(path.Dir(c.commandPath()))
	if !c.host.exists(path.Join(prefix, "pyvenv.cfg")) {
		return nil
	}
	module := args[i+1]
	return c.ofPyPI(c.host.real(prefix), func(d distribution) bool {
		file := module + "/__main__.py"
		return d.name == distributionName(module) && !strings.ContainsAny(module, "./") && d.wrote(file, path.Join(path.Dir(d.folder), file))
	})
}

// distribution is an installed package of PyPI: NAME-VERSION.dist-info.
type distribution struct {
	host         Host
	folder, name string
}

// maxDistributions bounds how many are looked at.
const maxDistributions = 2000

// ofPyPI is the package below a prefix that fits. Installers note in direct_url.json what they have not taken from an
// index (PEP 610), which can have any name.
func (c facts) ofPyPI(prefix string, fits func(distribution) bool) []string {
	for _, d := range c.distributions(prefix) {
		if fits(d) && !c.host.exists(path.Join(d.folder, "direct_url.json")) {
			return []string{"pypi:" + d.name}
		}
	}
	return nil
}

// distributions are the packages below a prefix.
func (c facts) distributions(prefix string) []distribution {
	var list []distribution
	for _, python := range c.host.list(path.Join(prefix, "lib")) {
		for _, packages := range []string{"site-packages", "dist-packages"} {
			dir := path.Join(prefix, "lib", python, packages)
			if !strings.HasPrefix(python, "python") || !c.host.exists(dir) {
				continue
			}
			for _, e := range c.host.list(dir) {
				if name, _, _ := strings.Cut(e, "-"); strings.HasSuffix(e, ".dist-info") && len(list) < maxDistributions {
					list = append(list, distribution{host: c.host, folder: path.Join(dir, e), name: distributionName(name)})
				}
			}
		}
	}
	return list
}

// commands reports whether a package declares a command.
func (d distribution) commands(name string) bool {
	b, _ := d.host.read(path.Join(d.folder, "entry_points.txt"))
	scripts := false
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			scripts = line == "[console_scripts]"
		}
		if key, _, ok := strings.Cut(line, "="); ok && scripts && strings.TrimSpace(key) == name {
			return true
		}
	}
	return false
}

// wrote reports whether the file is the one that the package's own list of files has, with its digest: another package
// in the same environment may have put its own in place of it.
func (d distribution) wrote(name, file string) bool {
	record, _ := d.host.read(path.Join(d.folder, "RECORD"))
	content, ok := d.host.read(file)
	sum := sha256.Sum256(content)
	suffix := ",sha256=" + base64.RawURLEncoding.EncodeToString(sum[:]) + ","
	for line := range strings.Lines(string(record)) {
		before, _, found := strings.Cut(line, suffix)
		if ok && found && (before == name || strings.HasPrefix(before, "../") && strings.TrimLeft(before, "./") == name) {
			return true
		}
	}
	return false
}

// distributionName is a name as PyPI compares them (PEP 503).
func distributionName(name string) string {
	return strings.NewReplacer("_", "-", ".", "-").Replace(strings.ToLower(name))
}
