package generator

import (
	"strings"
	"testing"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/units/fingerprint"
)

// TestFingerprint has a program changed in every way that another program may come about, and in those in which it
// stays the same.
func TestFingerprint(t *testing.T) {
	const host = `
/srv/n/node_modules/notion/package.json : {"name": "notion", "version": "1.0.0", "dependencies": {"dep": "1", "@a/b": "1"}, "optionalDependencies": {"none": "1"}}
/srv/n/node_modules/notion/bin/cli.mjs #!/usr/bin/env node
/srv/n/node_modules/notion/scripts/api.json : {}
/srv/n/node_modules/dep/package.json : {"name": "dep", "version": "1.0.0", "dependencies": {"deep": "1"}}
/srv/n/node_modules/dep/index.js : 1
/srv/n/node_modules/@a/b/package.json : {"name": "@a/b", "version": "1.0.0"}
/srv/n/node_modules/dep/node_modules/deep/package.json : {"name": "deep", "version": "1.0.0"}
/srv/n/node_modules/other/package.json : {"name": "other", "version": "1.0.0"}
/srv/n/node_modules/native/package.json : {"name": "native", "version": "1.0.0"}
/srv/n/node_modules/native/server *
/srv/c/package.json : {"name": "c", "version": "2.0.0"}
/srv/c/dist/index.js : 1
/srv/c/dist/page.html : 1
/srv/b/server *
/srv/v/pyvenv.cfg
/srv/v/bin/git #!/srv/v/bin/python
/srv/v/bin/python -> /usr/bin/python3
/srv/v/lib/python3.11/site-packages/git-1.dist-info/RECORD : 1
/srv/v/lib/python3.11/site-packages/dep-1.dist-info/RECORD : 1
`
	of := func(line, listing string) fingerprint.Fingerprint {
		words := strings.Fields(line)
		h := testHost(t, listing)
		s := declaration.Server{Program: declaration.Program{Command: words[0], Args: words[1:]}}
		list := facts{s, h}.files(newBounds(h))
		if list == nil {
			return fingerprint.Fingerprint{}
		}
		return fingerprint.Of(h.FS, list)
	}
	const npm, native = "node /srv/n/node_modules/notion/bin/cli.mjs", "/srv/n/node_modules/native/server"
	const checkout = "node /srv/c/dist/index.js"
	const binary, venv, module = "/srv/b/server", "/srv/v/bin/git", "/srv/v/bin/python -m git"
	for _, c := range []struct {
		line, old, new string
		changed        bool
	}{
		{npm, "/bin/cli.mjs #!/usr/bin/env node", "/bin/cli.mjs #!/usr/bin/env evil", true},
		{npm, "/scripts/api.json : {}", "/scripts/api.json : {\"evil\": 1}", true},
		{npm, "/srv/n/node_modules/notion/scripts/api.json : {}", "/srv/n/node_modules/notion/scripts/api.json : {}\n/srv/n/node_modules/notion/evil.js : 1", true},
		{npm, `"name": "notion", "version": "1.0.0"`, `"name": "notion", "version": "1.0.1"`, true},
		{npm, `"name": "dep", "version": "1.0.0"`, `"name": "dep", "version": "1.0.1"`, true},
		{npm, `"name": "@a/b", "version": "1.0.0"`, `"name": "@a/b", "version": "1.0.1"`, true},
		{npm, `"name": "deep", "version": "1.0.0"`, `"name": "deep", "version": "1.0.1"`, true},
		{npm, `"name": "other", "version": "1.0.0"`, `"name": "other", "version": "1.0.1"`, false},   // another server's, in the same folder
		{npm, "/srv/n/node_modules/dep/index.js : 1", "/srv/n/node_modules/dep/index.js : 2", false}, // the manual says so
		{native, `"native", "version": "1.0.0"`, `"native", "version": "1.0.1"`, true},
		{checkout, "/srv/c/dist/index.js : 1", "/srv/c/dist/index.js : 2", true},
		{checkout, "/srv/c/dist/page.html : 1", "/srv/c/dist/page.html : 2", false}, // what it may work on
		{binary, "/srv/b/server *", "/srv/b/server #!evil", true},
		{venv, "/srv/v/bin/git #!/srv/v/bin/python", "/srv/v/bin/git #!/srv/v/bin/evil", true},
		{venv, "dep-1.dist-info/RECORD : 1", "dep-1.dist-info/RECORD : 2", true},
		{module, "git-1.dist-info/RECORD : 1", "git-1.dist-info/RECORD : 2", true},
	} {
		if !strings.Contains(host, c.old) {
			t.Fatalf("%q is not there", c.old)
		}
		before, after := of(c.line, host), of(c.line, strings.Replace(host, c.old, c.new, 1))
		if before.SHA256 == "" || before != of(c.line, host) {
			t.Errorf("%s: %+v, not the same twice", c.line, before)
		}
		if (before != after) != c.changed {
			t.Errorf("%s, %q to %q: %+v, %+v", c.line, c.old, c.new, before, after)
		}
	}
	if f := of(npm, host); f.Package != "notion 1.0.0" || f.Dependencies != 3 || f.Files != 3 {
		t.Errorf("%+v", f)
	}
	for _, line := range []string{"npx -y notion", "uvx git", "node -e 1", "python3 -m x"} {
		if f := of(line, host); f != (fingerprint.Fingerprint{}) {
			t.Errorf("%s: %+v, and what is run is not on the disk, or not known", line, f)
		}
	}
}
