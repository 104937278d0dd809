package generator

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/policies/egress"
)

// record is a line of RECORD for a script as mapFS writes it.
func record(name, script string) string {
	sum := sha256.Sum256([]byte(script + "\n"))
	return name + ",sha256=" + base64.RawURLEncoding.EncodeToString(sum[:]) + ",9"
}

// programs are installed packages: by npm into a project and for all, by pnpm, by pipx and uv, into a virtual
// environment; and what strangers might put there.
func programs() string {
	const notion, exa = "/node_modules/@notionhq/notion-mcp-server/", "/node_modules/exa-mcp-server/"
	const git, site = "#!/srv/venv/bin/python", "/lib/python3.11/site-packages/"
	list := []string{
		"/srv/n" + notion + `package.json : {"name": "@notionhq/notion-mcp-server", "bin": {"notion-mcp-server": "bin/cli.mjs"}}`,
		"/srv/n" + notion + "bin/cli.mjs #!/usr/bin/env node",
		"/srv/n" + notion + "bin/other.mjs #!/usr/bin/env node",
		"/srv/n/node_modules/.bin/notion-mcp-server -> ../@notionhq/notion-mcp-server/bin/cli.mjs",
		"/srv/n/other -> node_modules/@notionhq/notion-mcp-server/bin/other.mjs",

		"/usr/local/lib" + exa + `package.json : {"name": "exa-mcp-server", "bin": "./index.cjs"}`,
		"/usr/local/lib" + exa + "index.cjs #!/usr/bin/env node",
		"/usr/local/bin/exa-mcp-server -> ../lib" + exa + "index.cjs",
		"/usr/local/bin/exa -> /usr/local/bin/exa-mcp-server",

		"/srv/p/node_modules/.pnpm/exa@1" + exa + `package.json : {"name": "exa-mcp-server", "bin": {"exa": "./index.cjs"}}`,
		"/srv/p/node_modules/.pnpm/exa@1" + exa + "index.cjs #!/usr/bin/env node",
		"/srv/p/node_modules/exa-mcp-server -> .pnpm/exa@1" + exa,

		// Another one under an alias, one that brings its own, and a checkout with that name.
		"/srv/alias" + exa + `package.json : {"name": "evil", "bin": {"exa": "index.cjs"}}`,
		"/srv/alias" + exa + "index.cjs #!/usr/bin/env node",
		"/srv/e/node_modules/evil" + exa + `package.json : {"name": "exa-mcp-server", "bin": "index.cjs"}`,
		"/srv/e/node_modules/evil" + exa + "index.cjs #!/usr/bin/env node",
		"/srv/e/node_modules/evil/node_modules/.pnpm/x" + exa + `package.json : {"name": "exa-mcp-server", "bin": "index.cjs"}`,
		"/srv/e/node_modules/evil/node_modules/.pnpm/x" + exa + "index.cjs #!/usr/bin/env node",
		"/srv/e/node_modules/.bin/evil -> ../evil" + exa + "index.cjs",
		`/srv/checkout/package.json : {"name": "exa-mcp-server", "bin": "index.cjs"}`,
		"/srv/checkout/index.cjs #!/usr/bin/env node",
		"/srv/l/node_modules/exa-mcp-server -> /srv/checkout",
		"/srv/none" + exa + "index.cjs #!/usr/bin/env node",

		"/srv/venv/pyvenv.cfg", "/srv/venv/bin/python -> /usr/bin/python3", "/srv/venv/bin/mcp-server-git " + git,
		"/srv/venv/bin/evil " + git, "/srv/venv/bin/mcp-server-time " + git + " evil",
		"/srv/venv" + site + "mcp_server_git-1.dist-info/entry_points.txt : [console_scripts]\\nmcp-server-git = mcp_server_git:main",
		"/srv/venv" + site + "mcp_server_git-1.dist-info/RECORD : " + record("../../../bin/mcp-server-git", git) + "\\n" + record("mcp_server_git/__main__.py", "import evil"),
		"/srv/venv" + site + "mcp_server_git/__main__.py : import evil\\n",
		// Another one has replaced its command and its module.
		"/srv/venv" + site + "mcp_server_time-1.dist-info/entry_points.txt : [console_scripts]\\nmcp-server-time = mcp_server_time:main",
		"/srv/venv" + site + "mcp_server_time-1.dist-info/RECORD : " + record("../../../bin/mcp-server-time", git) + "\\n" + record("mcp_server_time/__main__.py", "import time"),
		"/srv/venv" + site + "mcp_server_time/__main__.py : import evil\\n",
		// A checkout, and a module of another package.
		"/srv/venv" + site + "mcp_server_fetch-1.dist-info/direct_url.json : {}",
		"/srv/venv" + site + "mcp_server_fetch-1.dist-info/RECORD : " + record("mcp_server_fetch/__main__.py", "import x"),
		"/srv/venv" + site + "mcp_server_fetch/__main__.py : import x\\n",
		"/srv/venv" + site + "evil-1.dist-info/RECORD : " + record("mcp_server_other/__main__.py", "import x"),
		"/srv/venv" + site + "mcp_server_other/__main__.py : import x\\n",

		"/opt/pipx/venvs/mcp-server-git/pyvenv.cfg", "/opt/pipx/venvs/mcp-server-git/bin/mcp-server-git " + git,
		"/opt/pipx/venvs/mcp-server-git/bin/python -> /usr/bin/python3",
		"/opt/pipx/venvs/mcp-server-git" + site + "mcp_server_git-1.dist-info/entry_points.txt : [console_scripts]\\nmcp-server-git=mcp_server_git:main",
		"/opt/pipx/venvs/mcp-server-git" + site + "mcp_server_git-1.dist-info/RECORD : " + record("../../../bin/mcp-server-git", git),
		"/usr/local/bin/mcp-server-git -> /opt/pipx/venvs/mcp-server-git/bin/mcp-server-git",
		// What the host's own Python and another Node.js have.
		"/usr/local/lib/python3.11/dist-packages/mcp_server_fetch-1.dist-info/RECORD : " + record("mcp_server_fetch/__main__.py", "import x"),
		"/usr/local/lib/python3.11/dist-packages/mcp_server_fetch/__main__.py : import x\\n",
		"/opt/node/bin/node *", "/opt/node/lib/node_modules/npm/package.json : {\"name\": \"npm\"}",
		"/srv/node *", "/srv/python3 *", "/srv/npx *", "/srv/uvx *", "/srv/cache/npm/",
		"/srv/links/notion -> ../n/node_modules/.bin/notion-mcp-server",
		"/usr/local/bin/evil-mcp *",

		// Scripts of no package, and what their first lines have run.
		"/srv/wrapped #!/bin/sh", "/srv/loop #!/srv/loop",
		"/srv/loading #!/usr/bin/env -S node --import /srv/evil.js /srv/n" + notion + "bin/cli.mjs",
		"/srv/pathed #!/usr/bin/env -S PATH=/srv node /srv/n" + notion + "bin/cli.mjs",
		"/srv/quoted #!/usr/bin/env -S node '/srv/n" + notion + "bin/cli.mjs'",
		"/srv/optioned #!/usr/bin/env -S NODE_OPTIONS=--import=/srv/evil.js exa-mcp-server", "/srv/chained #!/srv/chain",
		"/srv/chain #!/usr/local/bin/exa-mcp-server",
		"/srv/enved #!/usr/bin/env -S DEBUG=1 exa-mcp-server --flag",
		"/srv/fetching #!/usr/bin/env -S npx -y @brave/brave-search-mcp-server",
		"/srv/odd\xff\xfe/node_modules/exa-mcp-server/package.json : {\"name\": \"exa-mcp-server\", \"bin\": \"index.cjs\"}",
		"/srv/odd\xff\xfe/node_modules/exa-mcp-server/index.cjs #!/usr/bin/env node",

		"/srv/evil.js", "/srv/x/node_modules/.exa/x *", "/srv/x/node_modules/@a/b *",
	}
	// What npm notes of the same package in node_modules: from its registry, an archive, a repository, ...
	for dir, note := range map[string]string{
		"noted": `{"version": "1.0.0", "resolved": "https://registry.npmjs.org/exa-mcp-server/-/exa-mcp-server-1.0.0.tgz"}`,
		"own":   `{"version": "1.0.0"}`,
		"f":     `{"version": "1.0.0", "resolved": "file:../exa.tgz"}`,
		"g":     `{"version": "1.0.0", "resolved": "git+ssh://git@github.com/evil/exa.git#1"}`,
		"v":     `{"version": "2.0.0"}`,
		"u":     ``,
	} {
		if note != "" {
			note = `"node_modules/exa-mcp-server": ` + note
		}
		list = append(list, "/srv/"+dir+"/node_modules/.package-lock.json : {\"packages\": {"+note+"}}",
			"/srv/"+dir+exa+`package.json : {"name": "exa-mcp-server", "version": "1.0.0", "bin": {"exa-mcp-server": "index.cjs"}}`,
			"/srv/"+dir+exa+"index.cjs #!/usr/bin/env node", "/srv/"+dir+"/node_modules/.bin/exa-mcp-server -> ../exa-mcp-server/index.cjs")
	}
	list = append(list, `/srv/own/package.json : {"name": "own", "bin": {"exa-mcp-server": "evil.js"}}`)
	return fetchers() + strings.Join(list, "\n")
}

// fetchers are the host's own runners of packages.
func fetchers() string {
	return strings.Join([]string{
		"/usr/bin/npx -> ../lib/node_modules/npm/bin/npx-cli.js", "/usr/bin/npm -> ../lib/node_modules/npm/bin/npm-cli.js",
		"/usr/lib/node_modules/npm/bin/npm-cli.js #!/usr/bin/env node",
		"/usr/lib/node_modules/npm/bin/npx-cli.js #!/usr/bin/env node",
		`/usr/lib/node_modules/npm/package.json : {"name": "npm", "bin": {"npm": "bin/npm-cli.js", "npx": "bin/npx-cli.js"}}`,
		"/usr/local/bin/uv *", "/usr/local/bin/uvx *", "/usr/local/bin/bunx *", "/usr/bin/pnpm #!/usr/bin/env node",
		"/usr/bin/pipx #!/usr/bin/python3",
	}, "\n") + "\n"
}

// originAs is the origin of a command line in words: "" is not known, and a question mark stands before what is doubted.
// Of the words in more, net lets the server reach the registries, state keeps its home, and a path is writable.
func originAs(t *testing.T, host, line, more string) string {
	words := strings.Fields(line)
	s := declaration.Server{
		Program: declaration.Program{Command: words[0], Args: words[1:]},
	}
	for _, w := range strings.Fields(more) {
		name, value, variable := strings.Cut(w, "=")
		switch {
		case variable:
			s.Env = append(s.Env, declaration.Variable{Name: name, Value: value})
		case w == "state":
			s.Sandbox.State = true
		case w == "net":
			for _, host := range []string{"registry.npmjs.org", "pypi.org", "files.pythonhosted.org"} {
				s.Allowed = append(s.Allowed, egress.Endpoint{Host: host})
			}
		default:
			s.Sandbox.Writable = append(s.Sandbox.Writable, w)
		}
	}
	o := facts{s, testHost(t, host)}.origin()
	if o.doubt != "" {
		return "?" + o.pkg
	}
	return o.pkg
}

// TestInstalled wants a program to be of its package however it is started, and of none where another could be it.
func TestInstalled(t *testing.T) {
	const notion, exa, git = "@notionhq/notion-mcp-server", "exa-mcp-server", "pypi:mcp-server-git"
	const cli = "/srv/n/node_modules/@notionhq/notion-mcp-server/bin/cli.mjs"
	host := programs()
	for _, c := range []struct{ line, more, want string }{
		{"node /srv/evil.js " + cli, "", ""}, {"node --import /srv/evil.js " + cli, "", ""},
		{"node --require=/srv/evil.js " + cli, "", ""},
		{"node -r " + cli + " /srv/evil.js", "", ""}, {"node -e evil " + cli, "", ""}, {"sh " + cli, "", ""},
		{"node notion-mcp-server", "", ""}, {"node exa-mcp-server", "", ""},
		{"node /srv/n/node_modules/@notionhq/notion-mcp-server/../../../evil.js", "", ""},
		{"/srv/n/node_modules/.bin/evil", "", ""},
		{"/srv/n/other", "", ""}, {"/srv/alias/node_modules/exa-mcp-server/index.cjs", "", ""},
		{"/srv/none/node_modules/exa-mcp-server/index.cjs", "", ""},
		{"/srv/e/node_modules/.bin/evil", "", ""},
		{"node /srv/e/node_modules/evil/node_modules/exa-mcp-server/index.cjs", "", ""},
		{"node /srv/e/node_modules/evil/node_modules/.pnpm/x/node_modules/exa-mcp-server/index.cjs", "", ""},
		{"/srv/checkout/index.cjs", "", ""}, {"/srv/l/node_modules/exa-mcp-server/index.cjs", "", ""},
		{"/srv/x/node_modules/.exa/x", "", ""}, {"/srv/x/node_modules/@a/b", "", ""},
		{"/srv/venv/bin/evil", "", ""}, {"/srv/venv/bin/mcp-server-time", "", "?pypi:mcp-server-time"},
		{"/srv/venv/bin/python", "", ""}, {"/opt/pipx/venvs/mcp-server-git/bin/python", "", ""},
		{"/srv/venv/bin/python -m mcp_server_time", "", "?pypi:mcp-server-time"},
		{"/srv/venv/bin/python -m mcp_server_fetch", "", "?pypi:mcp-server-fetch"},
		{"/srv/venv/bin/python -m mcp_server_other", "", ""},
		{"/srv/venv/bin/python -m", "", ""}, {"/srv/venv/bin/python -c evil", "", ""},
		{"/srv/venv/bin/python -W x -m mcp_server_git", "", ""}, {"python3 -m mcp_server_git", "", ""},
		{"exa-mcp-server", "NODE_OPTIONS=--import=/srv/evil.js", "?" + exa},
		{"exa-mcp-server", "NODE_PATH=/srv", "?" + exa}, {"/srv/venv/bin/mcp-server-git", "PYTHONPATH=/srv", "?" + git},
		{"exa-mcp-server", "LD_PRELOAD=/srv/evil.so", "?" + exa},
		// A folder that the server writes to: its program, a part of it, the link to it.
		{"/srv/venv/bin/mcp-server-git", "/srv/venv", "?" + git},
		{"/srv/venv/bin/mcp-server-git", "/srv/venv/lib/python3.11/site-packages/evil-1.dist-info", "?" + git},
		{"node " + cli, "/srv/n/node_modules/@notionhq/notion-mcp-server/data", "?" + notion},
		{"/srv/n/node_modules/.bin/notion-mcp-server", "/srv/n/node_modules/.bin", "?" + notion},
		{"/srv/links/notion", "/srv/links", "?" + notion}, {"/srv/links/notion", "/srv/data", notion},
		// Only called like an interpreter.
		{"/srv/node " + cli, "", "?" + notion}, {"/srv/python3 /srv/venv/bin/mcp-server-git", "", "?" + git},
		// npm's list: from an archive, from a repository, another version, one that it has not installed.
		{"/srv/f/node_modules/.bin/exa-mcp-server", "", "?" + exa},
		{"/srv/g/node_modules/.bin/exa-mcp-server", "", "?" + exa},
		{"/srv/v/node_modules/.bin/exa-mcp-server", "", "?" + exa},
		{"/srv/u/node_modules/.bin/exa-mcp-server", "", "?" + exa},
		// Shebangs: of no package, too many, with code of others, an environment of others.
		{"/srv/wrapped", "", ""}, {"/srv/loop", "", ""}, {"/srv/loading", "", ""}, {"/srv/pathed", "", ""},
		{"/srv/quoted", "", ""}, {"/srv/optioned", "", "?" + exa},
		{"/srv/odd\xff\xfe", "", ""}, {"/srv/odd\xff\xfe/node_modules/exa-mcp-server/index.cjs", "", ""}, // which is not valid in package fs

		{"node " + cli, "", notion}, {"node --enable-source-maps --max-old-space-size=512 " + cli, "", notion},
		{cli, "", notion},
		{"/srv/n/node_modules/.bin/notion-mcp-server", "", notion},
		{"node /srv/n/node_modules/.bin/notion-mcp-server", "", notion},
		{"node /srv/n/node_modules/@notionhq/notion-mcp-server/bin/other.mjs", "", notion}, // which the owner has written
		{"exa-mcp-server", "", exa}, {"exa", "", exa}, {"/usr/local/bin/exa-mcp-server --flag", "", exa},
		{"/srv/p/node_modules/exa-mcp-server/index.cjs", "", exa},
		{"exa", "NODE_OPTIONS=--max-old-space-size=512 --no-warnings", exa},
		{"mcp-server-git", "", git}, {"/opt/pipx/venvs/mcp-server-git/bin/mcp-server-git", "", git},
		{"/srv/venv/bin/mcp-server-git", "", git},
		{"/srv/venv/bin/python /srv/venv/bin/mcp-server-git", "", git},
		{"/srv/venv/bin/python -m mcp_server_git --repository /x", "", git},
		{"/srv/venv/bin/python -I -m mcp_server_git", "", git},
		{"python3 -m mcp_server_fetch", "", "pypi:mcp-server-fetch"}, {"/opt/node/bin/node " + cli, "", notion},
		{"/srv/noted/node_modules/.bin/exa-mcp-server", "", exa},
		{"/srv/chained /x", "", exa}, {"/srv/enved", "", exa}, {"env DEBUG=1 node " + cli, "", notion},
		{"/usr/bin/env node " + cli, "", notion},
	} {
		line := strings.ReplaceAll(c.line, `\xff\xfe`, "\xff\xfe")
		if got := originAs(t, host, line, c.more); got != c.want {
			t.Errorf("%s %q: %q, want %q", c.more, line, got, c.want)
		}
	}
}

// TestFetched wants a runner to run the package that it is told if nothing can stand in for that.
func TestFetched(t *testing.T) {
	const brave, git = "@brave/brave-search-mcp-server", "pypi:mcp-server-git"
	host := programs()
	for _, c := range []struct{ line, more, want string }{
		{"npx -y " + brave, "", "?" + brave}, {"uvx mcp-server-git", "", "?" + git}, // there is nowhere to fetch it from
		{"npx -y " + brave, "net state", "?" + brave}, {"uvx mcp-server-git", "net state", "?" + git}, // from its own home
		{"npx -y " + brave, "net npm_config_registry=https://evil.test", "?" + brave},
		{"uvx mcp-server-git", "net UV_INDEX_URL=https://evil.test", "?" + git},
		{"npx " + brave, "net npm_config_cache=/srv/cache/npm /srv/cache", "?" + brave},
		{"/srv/npx " + brave, "net", "?" + brave}, {"/srv/uvx mcp-server-git", "net", "?" + git},
		{"npx mcp-server-git", "net", git}, {"npx evil-mcp", "net", "?evil-mcp"}, // the host's own goes first
		{"npx -p " + brave + " evil", "net", "?" + brave}, {"npx -p evil -p " + brave + " brave", "net", ""},
		{"npx -c evil " + brave, "net", ""},
		{"uvx --from mcp-server-git evil", "net", "?" + git}, {"uvx --with evil mcp-server-git", "net", ""},
		{"uvx --from git+https://evil.test/x mcp-server-git", "net", ""},
		{"uv run mcp-server-git", "net", ""},
		{"uv run --with mcp-server-fetch python -m mcp_server_fetch", "net", "?pypi:mcp-server-fetch"},
		{"uv run --with-editable /srv/x mcp-server-git", "net", ""},
		{"uv run --with mcp-server-git mcp-server-git", "net", git}, // of the host, where the first of PATH is certain
		{"npx --prefix /srv/none exa-mcp-server", "", ""}, {"npx --prefix relative exa-mcp-server", "", ""},
		{"npx --prefix /srv/noted exa-mcp-server@2", "net", ""},
		{"npx --prefix /srv/own exa-mcp-server", "", ""}, {"npx --prefix /srv/f exa-mcp-server", "", "?exa-mcp-server"},
		{"npx --prefix /srv/noted exa-mcp-server", "/srv/noted", "?exa-mcp-server"},

		{"npx -y " + brave, "net", brave}, {"npx " + brave + "@1.2.3", "net", brave},
		{"npm exec --yes -- " + brave, "net", brave}, {"npx exa-mcp-server", "net", "exa-mcp-server"},
		{"npx " + brave, "net npm_config_cache=/tmp/x", brave}, {"uvx mcp-server-git@latest", "net", git},
		{"uvx --python 3.12 --from mcp_server_git==1.0 mcp-server-git", "net", git},
		{"uv tool run mcp-server-git", "net", git},
		{"uv run --with mcp-server-fetch mcp-server-fetch", "net", "pypi:mcp-server-fetch"},
		{"pipx run mcp-server-git", "net", git},
		{"/srv/fetching", "net", brave}, {"npx --prefix /srv/noted exa-mcp-server", "", "exa-mcp-server"},
		{"npx --prefix=/srv/noted exa-mcp-server", "", "exa-mcp-server"},
	} {
		if got := originAs(t, host, c.line, c.more); got != c.want {
			t.Errorf("%s %s: %q, want %q", c.more, c.line, got, c.want)
		}
	}
}

// TestModuleInState wants a module that the server may have put into its own home not to pass for the package's.
func TestModuleInState(t *testing.T) {
	if got := originAs(t, programs(), "/srv/venv/bin/python -m mcp_server_git", "state"); got != "?pypi:mcp-server-git" {
		t.Errorf("from the kept home: %q", got)
	}
	if got := originAs(t, programs(), "/srv/venv/bin/python -P -m mcp_server_git", "state"); got != "pypi:mcp-server-git" {
		t.Errorf("not from the kept home: %q", got)
	}
}
