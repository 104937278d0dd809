package installer

import (
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/pfar/pfar/generator"
	"github.com/pfar/pfar/generator/source"
	"github.com/pfar/pfar/units/sandbox"
)

const (
	packages = "/var/lib/pfar/packages"
	stage    = packages + "/.staged/job"
)

// host is a machine with node, npm and Python, and these files.
func host(files map[string]string) generator.Host {
	m := fstest.MapFS{
		"usr/bin/node":     {Data: []byte("\x7fELF"), Mode: 0o755},
		"usr/bin/python3":  {Data: []byte("\x7fELF"), Mode: 0o755},
		"usr/bin/env":      {Data: []byte("\x7fELF"), Mode: 0o755},
		"usr/bin/npm":      {Data: []byte("../lib/node_modules/npm/bin/npm-cli.js"), Mode: fs.ModeSymlink | 0o777},
		"etc/ssl/certs/ca": {Data: []byte("PEM"), Mode: 0o644},
		"usr/lib/node_modules/npm/bin/npm-cli.js": {Data: []byte("#!/usr/bin/env node\n"), Mode: 0o755},
		"var/lib/pfar/packages/.staged/job":       {Mode: fs.ModeDir | 0o700},
		"home/alice/shims/python3":                {Data: []byte("#!/usr/bin/env bash\n"), Mode: 0o755},
	}
	for name, text := range files {
		m[name[1:]] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
	}
	return generator.Host{
		FS: m, Path: []string{"/home/alice/shims", "/usr/bin"}, Home: "/home/alice", StateDir: "/var/lib/pfar/home",
		Packages: packages, Adapter: "/usr/lib/pfar/pfar-adapter",
	}
}

func reader(files, env map[string]string, own bool) Reader {
	return Reader{Host: host(files), Own: own, Env: func(name string) string { return env[name] }}
}

// TestSettings: the last file counts as npm and pip have it, a person's own only where pfar is theirs, and what cannot
// be asked safely is refused with its place.
func TestSettings(t *testing.T) {
	type texts = map[string]string
	type wish struct {
		url, ca string
		named   bool
		fault   string
	}
	at := func(url string) wish { return wish{url: url, named: true} }
	faulty := func(words string) wish { return wish{fault: words} }
	const npm, pypi, own = source.NPM, source.PyPI, true
	const a, b = "https://a.example/", "https://b.example/"
	const rc, conf, my = "/etc/npmrc", "/etc/pip.conf", "/home/alice/.npmrc"
	public := wish{url: "https://registry.npmjs.org/"}
	for name, c := range map[string]struct {
		kind       source.Kind
		files, env texts
		own        bool
		want       wish
	}{
		"npm alone":  {npm, nil, nil, own, public},
		"PyPI alone": {pypi, nil, nil, own, wish{url: "https://pypi.org/simple/"}},
		"a mirror": {npm, texts{"/usr/etc/npmrc": "; ours\nregistry = " + a + "\ncafile=\"/etc/ssl/certs/ca\"\n"}, nil,
			!own, wish{a, "/etc/ssl/certs/ca", true, ""}},
		"the public one by name": {npm, texts{rc: "registry=https://registry.npmjs.org/\n"}, nil, !own, at(public.url)},
		"another global file": {npm, texts{
			"/usr/lib/node_modules/npm/npmrc": "globalconfig=/srv/npmrc\n", "/srv/npmrc": "registry=" + a,
			"/usr/etc/npmrc": "registry=" + b,
		}, nil, !own, at(a)},
		"one's own":        {npm, texts{"/usr/etc/npmrc": "registry=" + a, my: "registry=" + b}, nil, own, at(b)},
		"a stranger's own": {npm, texts{my: "registry=" + b}, nil, !own, public},
		"a variable":       {npm, nil, texts{"npm_config_registry": a}, !own, at(a)},
		"in a variable":    {npm, texts{rc: "registry=${R}"}, texts{"R": a}, !own, at(a)},
		"pip": {pypi, texts{conf: "[global]\nindex_url = " + a + "\ncert = /etc/ssl/certs/ca\n"}, nil, !own,
			wish{a, "/etc/ssl/certs/ca", true, ""}},
		"pip install": {pypi, texts{conf: "[install]\nindex-url = " + a + "\n[global]\nindex-url = " + b}, nil, !own, at(a)},
		"pip of another section": {pypi, texts{conf: "[download]\nindex-url = " + a}, nil, !own,
			wish{url: "https://pypi.org/simple/"}},
		"not encrypted": {npm, texts{rc: "registry=http://a.example/"}, nil, !own,
			faulty(`registry in /etc/npmrc: "http://a.example/" is not encrypted`)},
		"a password": {pypi, nil, texts{"PIP_INDEX_URL": "https://u:hunter2@a.example/"}, !own,
			faulty("index-url in PIP_INDEX_URL: this URL has a password")},
		"no URL":     {npm, texts{rc: "registry=a.example"}, nil, !own, faulty("not the URL of a registry")},
		"a wildcard": {npm, texts{rc: "registry=https://*/"}, nil, !own, faulty("registry in /etc/npmrc")},
		"a bad scope": {npm, texts{rc: "@corp:registry=http://a.example/"},
			nil, !own, faulty("@corp:registry in /etc/npmrc")},
		"a relative file": {npm, texts{rc: "cafile=ca.pem"}, nil, !own,
			faulty(`cafile in /etc/npmrc: "ca.pem" is not an absolute path`)},
	} {
		s, err := reader(c.files, c.env, c.own).Read(c.kind)
		if fault := c.want.fault; fault != "" {
			if err == nil || !strings.Contains(err.Error(), fault) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s: %v, want %q", name, err, fault)
			}
			continue
		}
		if err != nil || (wish{s.URL, s.CA, s.Named, ""}) != c.want {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
}

// TestReach: a job reaches registries and nothing else, and at a private address only those that the operator names.
func TestReach(t *testing.T) {
	private, meta := netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("169.254.169.254")
	for name, c := range map[string]struct {
		kind    source.Kind
		npmrc   string
		hosts   []string
		private string // name that may lead into the own network
	}{
		"npm":  {source.NPM, "", []string{"registry.npmjs.org:443"}, ""},
		"PyPI": {source.PyPI, "", []string{"files.pythonhosted.org", "pypi.org:443"}, ""},
		"a mirror": {source.NPM, "registry=https://npm.corp.example:8443/x/",
			[]string{"npm.corp.example:8443"}, "npm.corp.example"},
		"a scope": {source.NPM, "@corp:registry=https://npm.corp.example/",
			[]string{"npm.corp.example:443", "registry.npmjs.org:443"}, "npm.corp.example"},
		"an address": {source.NPM, "registry=https://[2001:db8::1]/", []string{"[2001:db8::1]:443"}, ""},
	} {
		r := reader(map[string]string{"/etc/npmrc": c.npmrc}, nil, false)
		p, err := r.Plan(Job{source.Package{Kind: c.kind, Name: "x", Version: "1.0.0"}, "abcdefgh", stage})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got []string
		for _, e := range p.Egress.Endpoints {
			got = append(got, e.String())
		}
		if slices.Sort(got); !slices.Equal(got, c.hosts) {
			t.Errorf("%s: reaches %q, want %q", name, got, c.hosts)
		}
		for _, host := range append(strings.Fields("registry.npmjs.org pypi.org npm.corp.example evil.example"), c.private) {
			if _, ok := p.Egress.Vet(host, private); ok != (host == c.private && host != "") {
				t.Errorf("%s: %s at a private address: %t", name, host, ok)
			}
			if _, ok := p.Egress.Vet(host, meta); ok {
				t.Errorf("%s: %s may be the metadata service", name, host)
			}
		}
		if len(p.Credentials) > 0 {
			t.Errorf("%s: it gets %+v", name, p.Credentials)
		}
	}
}

// TestJob: a job writes to its folder alone, which it sees where the package will be, and runs no script of a package.
func TestJob(t *testing.T) {
	for name, c := range map[string]struct {
		p    source.Package
		want []string // in this order
	}{
		"npm": {source.Package{Kind: source.NPM, Name: "@a/b", Version: "1.2.3"},
			[]string{"/usr/bin/npm", "install", "--ignore-scripts", "--cafile", "/srv/ca.pem", "@a/b@1.2.3"}},
		"PyPI": {source.Package{Kind: source.PyPI, Name: "b", Version: "1.2"},
			[]string{"/usr/bin/python3", digestReader, "https://pypi.org/simple/", "/srv/ca.pem", "b==1.2",
				"/usr/bin/python3", "-m", "pip", "--isolated", "--no-input", "--disable-pip-version-check",
				"--no-cache-dir", "--quiet"}},
		"npm's newest": {source.Package{Kind: source.NPM, Name: "@a/b"},
			[]string{"/usr/bin/npm", "view", "--ignore-scripts", "--cafile", "/srv/ca.pem", "--json", "@a/b",
				"version"}},
		"PyPI's newest": {source.Package{Kind: source.PyPI, Name: "b"},
			[]string{"/usr/bin/python3", "-m", "pip", "--only-binary", ":all:", "--cert", "/srv/ca.pem", "--dry-run",
				"--no-deps", "b"}},
	} {
		files := map[string]string{
			"/etc/npmrc": "cafile=/srv/ca.pem", "/etc/pip.conf": "[global]\ncert=/srv/ca.pem", "/srv/ca.pem": "PEM",
		}
		p, err := reader(files, nil, true).Plan(Job{c.p, "abcdefgh", stage})
		if err != nil {
			t.Fatal(name, err)
		}
		place := host(nil).Folder(c.p)
		if p.Name != Server || p.Gateway.Session != "abcdefgh" || p.State || p.PrivateHome() != stage {
			t.Errorf("%s: %+v", name, p)
		}
		box := p.Sandbox
		if !box.Once || box.Command != "/bin/sh" || box.Limits.Memory <= 0 || box.Limits.Tasks <= 0 {
			t.Errorf("%s: %+v", name, box)
		}
		rest := box.Args
		for _, word := range c.want {
			at := slices.Index(rest, word)
			if at < 0 {
				t.Errorf("%s: %q has no %q after what comes before it", name, box.Args, word)
				break
			}
			rest = rest[at+1:]
		}
		if len(rest) > 0 {
			t.Errorf("%s: %q comes last", name, rest)
		}
		for _, m := range box.Mounts {
			if m.Kind == sandbox.Bind && m.Dest != place {
				t.Errorf("%s: writes to %q", name, m.Dest)
			}
			if m.Source == "/srv/ca.pem" && !m.ReadOnly() {
				t.Errorf("%s: may write to the certificates", name)
			}
		}
		if !slices.ContainsFunc(box.Mounts, func(m sandbox.Mount) bool { return m.Dest == place }) {
			t.Errorf("%s: has no folder", name)
		}
	}
}

// TestNoJob: what is missing on the host is said.
func TestNoJob(t *testing.T) {
	npm := source.Package{Kind: source.NPM, Name: "x", Version: "1.0.0"}
	none := func(string) string { return "" }
	for want, r := range map[string]Reader{
		"npm is not installed": {Host: generator.Host{FS: fstest.MapFS{}, Packages: packages}, Env: none},
		"no directory":         {Host: generator.Host{FS: fstest.MapFS{}}, Env: none},
		"certificates":         reader(map[string]string{"/etc/npmrc": "cafile=/srv/none.pem"}, nil, false),
		"is not a file":        reader(map[string]string{"/etc/npmrc": "cafile=/usr"}, nil, false),
		"not encrypted":        reader(map[string]string{"/etc/npmrc": "registry=http://a.example/"}, nil, false),
	} {
		_, err := r.Plan(Job{npm, "abcdefgh", stage})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestNewest reads a version, and takes no word that is none.
func TestNewest(t *testing.T) {
	const pip = `{"install": [{"metadata": {"name": "c", "version": "9"}},
		{"metadata": {"name": "%s", "version": "%s"}}]}`
	for _, c := range []struct{ pkg, left, want string }{
		{"npm:@a/b", `"1.2.3"` + "\n", "npm:@a/b@1.2.3"},
		{"npm:b", `"../.."`, ""}, {"npm:b", `"--prefix"`, ""}, {"npm:b", `""`, ""}, {"npm:b", "", ""},
		{"npm:b", "{}", ""},
		{"pypi:a-b", fmt.Sprintf(pip, "A_b", "1.2"), "pypi:a-b==1.2"},
		{"pypi:a-b", fmt.Sprintf(pip, "d", "1.2"), ""}, {"pypi:a-b", fmt.Sprintf(pip, "a-b", "1.2 x"), ""},
		{"pypi:a-b", "[]", ""},
	} {
		p, err := source.Parse(c.pkg)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Newest(p, []byte(c.left))
		if (err == nil) != (c.want != "") || err == nil && got.String() != c.want {
			t.Errorf("%s: %s, %v, want %q", c.left, got, err, c.want)
		}
	}
}

// TestCheckLock: a package without a digest, from elsewhere, or another one than was asked for is refused.
func TestCheckLock(t *testing.T) {
	const hash = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	entry := func(name, more string) string {
		return `"node_modules/` + name + `": {"version": "1.0.0", "resolved": "https://r.example/x.tgz"` + more + `}`
	}
	npm := func(entries ...string) string {
		return `{"packages": {"": {"name": "tree"}, ` + strings.Join(entries, ", ") + `}}`
	}
	const sum = `, "integrity": "sha512-AAAA"`
	pip := func(name, url, info string) string {
		return `{"install": [{"metadata": {"name": "` + name + `", "version": "1.0"}, "download_info": {"url": "` +
			url + `"` + info + `}}]}`
	}
	archive := `, "archive_info": {"hashes": {"sha256": "` + hash + `"}}`
	for name, c := range map[string]struct{ pkg, lock, fault, known string }{
		"npm":              {"npm:x@1.0.0", npm(entry("x", sum), entry("y", sum)), "", ""},
		"the known digest": {"npm:x@1.0.0", npm(entry("x", sum), entry("y", sum)), "", "sha512-AAAA"},
		"another digest":   {"npm:x@1.0.0", npm(entry("x", sum)), "want sha512-AAA, got sha512-AAAA", "sha512-AAA"},
		"a known weaker one": {"npm:x@1.0.0", npm(entry("x", `, "integrity": "sha256-A"`)),
			"another npm:x@1.0.0", "sha512-A"},
		"bundled": {"npm:x@1.0.0", npm(entry("x", sum),
			`"node_modules/x/node_modules/y": {"inBundle": true}`), "", ""},
		"no digest":      {"npm:x@1.0.0", npm(entry("x", sum), entry("y", "")), "no SHA-2 digest of node_modules/y", ""},
		"a weak digest":  {"npm:x@1.0.0", npm(entry("x", `, "integrity": "sha1-AAAA"`)), "no SHA-2 digest", ""},
		"its own folder": {"npm:x@1.0.0", npm(entry("x", sum+`, "link": true`)), "is a link", ""},
		"git": {"npm:x@1.0.0", npm(entry("x", sum),
			`"node_modules/y": {"integrity": "sha512-A", "resolved": "git+ssh://h/y"}`), "not the registry", ""},
		"another version": {"npm:x@1.0.1", npm(entry("x", sum)), `want version "1.0.1" of x, got "1.0.0"`, ""},
		"another package": {"npm:z@1.0.0", npm(entry("x", sum)), `want version "1.0.0" of z, got ""`, ""},
		"no JSON":         {"npm:x@1.0.0", "nothing", "cannot be read", ""},
		"pip": {"pypi:mcp-x==1.0",
			pip("MCP_x", "https://i.example/x.whl", archive), "", ""},
		"pip no digest": {"pypi:mcp-x==1.0",
			pip("mcp-x", "https://i.example/x.whl", `, "archive_info": {}`), "no SHA-256", ""},
		"pip of git": {"pypi:mcp-x==1.0",
			pip("mcp-x", "https://i.example/x", `, "vcs_info": {}`), "no SHA-256", ""},
		"pip of a file": {"pypi:mcp-x==1.0",
			pip("mcp-x", "file:///x.whl", archive), "not the index", ""},
		"pip of another": {"pypi:mcp-y==1.0",
			pip("mcp-x", "https://i.example/x.whl", archive), "the lock does not have mcp-y", ""},
		"pip no JSON": {"pypi:mcp-x==1.0", "", "cannot be read", ""},
	} {
		p, err := source.ParseExact(c.pkg)
		if err != nil {
			t.Fatal(err)
		}
		err = CheckLock(p, []byte(c.lock), c.known)
		if (err == nil) != (c.fault == "") || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%s: %v, want %q", name, err, c.fault)
		}
	}
}

// TestScripted: npm says which packages have install scripts, those of others too.
func TestScripted(t *testing.T) {
	const yes, no = `{"hasInstallScript": true}`, `{}`
	for lock, want := range map[string][]string{
		`{"packages": {"": {}, "node_modules/a": ` + no + `}}`: nil,
		`{"packages": {"node_modules/@a/b": ` + yes + `, "node_modules/@a/b/node_modules/c": ` + yes + `,
			"node_modules/c": ` + yes + `, "node_modules/d": ` + no + `}}`: {"@a/b", "c"},
		`{"packages": {"": ` + yes + `, "elsewhere": ` + yes + `}}`: nil,
		`{"install": []}`: nil, "nothing": nil,
	} {
		if got := Scripted([]byte(lock)); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", lock, got, want)
		}
	}
}
