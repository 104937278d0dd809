// Package installer plans how npm or pip installs one package in a sandbox, and judges what comes of it.
package installer

import (
	"fmt"
	"maps"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/pfar/pfar/generator"
	"github.com/pfar/pfar/generator/source"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units/hostfs"
)

// Registry is where packages come from.
type Registry struct {
	URL   string
	Named bool // the operator's settings name it: it may be at a private address
	hosts []string
}

// Settings are the registry settings of the host's npm or pip.
type Settings struct {
	Registry
	Scopes map[string]Registry // of npm, by "@scope"
	CA     string              // file with the certificates to trust; "": the tool's own
}

// all are the registries.
func (s Settings) all() []Registry {
	all := []Registry{s.Registry}
	for _, scope := range slices.Sorted(maps.Keys(s.Scopes)) {
		all = append(all, s.Scopes[scope])
	}
	return all
}

// Reader finds settings on a host. Its zero value ignores a person's own settings.
type Reader struct {
	Host generator.Host
	Own  bool                // read settings in the home directory of the person whose pfar this is
	Env  func(string) string // variables of pfard's environment
}

// Read returns the settings for packages of a registry.
func (r Reader) Read(k source.Kind) (Settings, error) {
	values, s := r.npm(), Settings{Registry: Registry{URL: "https://registry.npmjs.org/"}}
	key, ca := "registry", "cafile"
	if k == source.PyPI {
		values, key, ca = r.pip(), "index-url", "cert"
		s.Registry = Registry{URL: "https://pypi.org/simple/", hosts: []string{"files.pythonhosted.org"}}
	}
	if v := values[key]; v.text != "" {
		s.Registry = Registry{URL: v.text, Named: true}
		if err := s.check(); err != nil {
			return Settings{}, fmt.Errorf("%s in %s: %w", key, v.from, err)
		}
	} else if err := s.check(); err != nil {
		return Settings{}, err
	}
	for name, v := range values {
		scope, ok := strings.CutSuffix(name, ":registry")
		if !ok || k != source.NPM || !scopeName.MatchString(scope) || v.text == "" {
			continue
		}
		of := Registry{URL: v.text, Named: true}
		if err := of.check(); err != nil {
			return Settings{}, fmt.Errorf("%s in %s: %w", name, v.from, err)
		}
		if s.Scopes == nil {
			s.Scopes = map[string]Registry{}
		}
		s.Scopes[scope] = of
	}
	if v := values[ca]; v.text != "" {
		if s.CA = v.text; !path.IsAbs(s.CA) || path.Clean(s.CA) != s.CA {
			return Settings{}, fmt.Errorf("%s in %s: %q is not an absolute path", ca, v.from, s.CA)
		}
	}
	return s, nil
}

var scopeName = regexp.MustCompile(`^@[a-z0-9][a-z0-9._~-]*$`)

// check checks that a registry has an https URL without a password, and adds its host to hosts.
func (r *Registry) check() error {
	u, err := url.Parse(r.URL)
	switch {
	case err != nil || u.Host == "" || u.Opaque != "":
		return fmt.Errorf("not the URL of a registry; write \"https://registry.example/\"")
	case u.User != nil:
		return fmt.Errorf("this URL has a password, and pfar installs without secrets; name a mirror that needs none")
	case u.Scheme != "https":
		return fmt.Errorf("%q is not encrypted, so anyone on the way could change a package; write an https:// URL", r.URL)
	}
	port := u.Port()
	if port == "" {
		port = "443"
	}
	host := u.Hostname()
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	at := host + ":" + port
	if _, err := egress.ParseEndpoint(at); err != nil {
		return err
	}
	r.hosts = append(r.hosts, at)
	return nil
}

// reach returns the endpoints that an installer may reach: only the registries.
func (s Settings) reach() (all []egress.Endpoint, private []egress.Private) {
	for _, r := range s.all() {
		for _, h := range r.hosts {
			e, err := egress.ParseEndpoint(h)
			if err != nil || slices.Contains(all, e) { // check has read it
				continue
			}
			all = append(all, e)
			known := slices.ContainsFunc(private, func(p egress.Private) bool { return p.Host == e.Host })
			if r.Named && e.Host != "" && !known {
				private = append(private, egress.Private{Host: e.Host, Prefixes: egress.Ranges()})
			}
		}
	}
	return all, private
}

// value is a setting, with the file or variable that it comes from.
type value struct{ text, from string }

// npm reads npmrc files in npm's order, and then the environment. A later value replaces an earlier one.
func (r Reader) npm() map[string]value {
	all := map[string]value{}
	file := func(at string) {
		if at == "" {
			return
		}
		for name, v := range r.parse(at, "") {
			all[name] = v
		}
	}
	global := "/etc/npmrc"
	file(global)
	if f, ok := r.find("npm"); ok { // .../npm/bin/npm-cli.js
		file(path.Join(path.Dir(path.Dir(f.Real)), "npmrc"))
	}
	if f, ok := r.find("node"); ok {
		global = path.Join(path.Dir(path.Dir(f.Real)), "etc/npmrc")
	}
	if v := all["prefix"]; v.text != "" {
		global = path.Join(v.text, "etc/npmrc")
	}
	if v := all["globalconfig"]; v.text != "" {
		global = v.text
	}
	file(global)
	if r.Own {
		file(path.Join(r.Host.Home, ".npmrc"))
	}
	for _, name := range []string{"registry", "cafile"} {
		for _, variable := range []string{"npm_config_" + name, "NPM_CONFIG_" + strings.ToUpper(name)} {
			if v := r.Env(variable); v != "" {
				all[name] = value{v, variable}
			}
		}
	}
	return all
}

// pip reads pip.conf files in pip's order, and then the environment. A later value replaces an earlier one.
func (r Reader) pip() map[string]value {
	all := map[string]value{}
	files := []string{"/etc/xdg/pip/pip.conf", "/etc/pip.conf"}
	if r.Own {
		files = append(files, path.Join(r.Host.Home, ".pip/pip.conf"), path.Join(r.Host.Home, ".config/pip/pip.conf"))
	}
	if named := r.Env("PIP_CONFIG_FILE"); path.IsAbs(named) {
		files = append(files, named)
	}
	for _, section := range []string{"global", "install"} {
		for _, at := range files {
			for name, v := range r.parse(at, section) {
				all[strings.ReplaceAll(name, "_", "-")] = v
			}
		}
	}
	for name, variable := range map[string]string{"index-url": "PIP_INDEX_URL", "cert": "PIP_CERT"} {
		if v := r.Env(variable); v != "" {
			all[name] = value{v, variable}
		}
	}
	return all
}

// find looks up a program. It skips shims, which only choose a version: they need the home directory.
func (r Reader) find(name string) (hostfs.File, bool) {
	for _, dir := range r.Host.Path {
		at := path.Join(dir, name)
		f, err := hostfs.Resolve(r.Host.FS, at)
		shim := path.Base(dir) == "shims" || strings.Contains(f.Real, "/shims/")
		if path.IsAbs(dir) && err == nil && f.Executable() && !shim {
			return f, true
		}
	}
	return hostfs.File{}, false
}

var reference = regexp.MustCompile(`\$\{([A-Za-z0-9_]+)\}`)

// parse reads the "key = value" lines of a settings file that stand in a "[section]", or before any section for "". A
// missing file has none.
func (r Reader) parse(at, section string) map[string]value {
	all := map[string]value{}
	f, err := hostfs.Resolve(r.Host.FS, at)
	if err != nil {
		return all
	}
	b, _ := hostfs.Read(r.Host.FS, f.Real)
	in := ""
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "["); ok {
			in = strings.ToLower(strings.TrimSpace(strings.TrimSuffix(name, "]")))
			continue
		}
		name, text, ok := strings.Cut(line, "=")
		if !ok || in != section || strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";") {
			continue
		}
		text = strings.TrimSpace(text)
		if len(text) > 1 && (text[0] == '"' || text[0] == '\'') && text[len(text)-1] == text[0] {
			text = text[1 : len(text)-1]
		}
		text = reference.ReplaceAllStringFunc(text, func(ref string) string {
			return r.Env(reference.FindStringSubmatch(ref)[1])
		})
		all[strings.ToLower(strings.TrimSpace(name))] = value{text, at}
	}
	return all
}
