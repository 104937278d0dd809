package generator

import (
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/generator/declaration"
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

		"/srv/venv/pyvenv.cfg", "/srv/venv/bin/python -> /usr/bin/python3", "/srv/venv/bin/mcp-server-git " + git, "/srv/venv/bin/evil " + git, "/srv/venv/bin/mcp-server-time " + git + " evil",
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

		"/opt/pipx/venvs/mcp-server-git/pyvenv.cfg", "/opt/pipx/venvs/mcp-server-git/bin/mcp-server-git " + git, "/opt/pipx/venvs/mcp-server-git/bin/python -> /usr/bin/python3",
		"/opt/pipx/venvs/mcp-server-git" + site + "mcp_server_git-1.dist-info/entry_points.txt : [console_scripts]\\nmcp-server-git=mcp_server_git:main",
		"/opt/pipx/venvs/mcp-server-git" + site + "mcp_server_git-1.dist-info/RECORD : " + record("../../../bin/mcp-server-git", git),
		"/usr/local/bin/mcp-server-git -> /opt/pipx/venvs/mcp-server-git/bin/mcp-server-git",
		"/srv/evil.js", "/srv/x/node_modules/.exa/x *", "/srv/x/node_modules/@a/b *",
	}
	return strings.Join(list, "\n")
}

// TestInstalled wants a program to be of its package however it is started, and of none where another could be it.
func TestInstalled(t *testing.T) {
	const notion, exa, git = "@notionhq/notion-mcp-server", "exa-mcp-server", "pypi:mcp-server-git"
	const cli = "/srv/n/node_modules/@notionhq/notion-mcp-server/bin/cli.mjs"
	for _, c := range []struct{ line, env, want string }{
		{"node /srv/evil.js " + cli, "", ""}, {"node --import /srv/evil.js " + cli, "", ""}, {"node --require=/srv/evil.js " + cli, "", ""},
		{"node -r " + cli + " /srv/evil.js", "", ""}, {"node -e evil " + cli, "", ""}, {"sh " + cli, "", ""}, {"node notion-mcp-server", "", ""}, {"node exa-mcp-server", "", ""},
		{"node /srv/n/node_modules/@notionhq/notion-mcp-server/../../../evil.js", "", ""}, {"/srv/n/node_modules/.bin/evil", "", ""},
		{"/srv/n/other", "", ""}, {"/srv/alias/node_modules/exa-mcp-server/index.cjs", "", ""}, {"/srv/none/node_modules/exa-mcp-server/index.cjs", "", ""},
		{"/srv/e/node_modules/.bin/evil", "", ""}, {"node /srv/e/node_modules/evil/node_modules/exa-mcp-server/index.cjs", "", ""},
		{"node /srv/e/node_modules/evil/node_modules/.pnpm/x/node_modules/exa-mcp-server/index.cjs", "", ""},
		{"/srv/checkout/index.cjs", "", ""}, {"/srv/l/node_modules/exa-mcp-server/index.cjs", "", ""}, {"/srv/x/node_modules/.exa/x", "", ""}, {"/srv/x/node_modules/@a/b", "", ""},
		{"/srv/venv/bin/evil", "", ""}, {"/srv/venv/bin/mcp-server-time", "", ""}, {"/srv/venv/bin/python", "", ""}, {"/opt/pipx/venvs/mcp-server-git/bin/python", "", ""},
		{"/srv/venv/bin/python -m mcp_server_time", "", ""}, {"/srv/venv/bin/python -m mcp_server_fetch", "", ""}, {"/srv/venv/bin/python -m mcp_server_other", "", ""},
		{"/srv/venv/bin/python -m", "", ""}, {"/srv/venv/bin/python -c evil", "", ""}, {"/srv/venv/bin/python -W x -m mcp_server_git", "", ""}, {"python3 -m mcp_server_git", "", ""},
		{"exa-mcp-server", "NODE_OPTIONS=--import=/srv/evil.js", ""}, {"exa-mcp-server", "NODE_PATH=/srv", ""}, {"/srv/venv/bin/mcp-server-git", "PYTHONPATH=/srv", ""},
		{"npx " + exa, "npm_config_registry=https://evil.test", ""}, {"uvx mcp-server-git", "UV_INDEX_URL=https://evil.test", ""},

		{"node " + cli, "", notion}, {"node --enable-source-maps --max-old-space-size=512 " + cli, "", notion}, {cli, "", notion},
		{"/srv/n/node_modules/.bin/notion-mcp-server", "", notion}, {"node /srv/n/node_modules/.bin/notion-mcp-server", "", notion},
		{"node /srv/n/node_modules/@notionhq/notion-mcp-server/bin/other.mjs", "", notion}, // which the owner has written
		{"exa-mcp-server", "", exa}, {"exa", "", exa}, {"/usr/local/bin/exa-mcp-server --flag", "", exa},
		{"/srv/p/node_modules/exa-mcp-server/index.cjs", "", exa}, {"exa", "NODE_OPTIONS=--max-old-space-size=512 --no-warnings", exa}, {"npx " + exa, "npm_config_cache=/tmp/x", exa},
		{"mcp-server-git", "", git}, {"/opt/pipx/venvs/mcp-server-git/bin/mcp-server-git", "", git}, {"/srv/venv/bin/mcp-server-git", "", git},
		{"/srv/venv/bin/python /srv/venv/bin/mcp-server-git", "", git}, {"/srv/venv/bin/python -m mcp_server_git --repository /x", "", git}, {"/srv/venv/bin/python -I -m mcp_server_git", "", git},
	} {
		words := strings.Fields(c.line)
		s := declaration.Server{Command: words[0], Args: words[1:]}
		if name, value, ok := strings.Cut(c.env, "="); ok {
			s.Env = []declaration.Variable{{Name: name, Value: value}}
		}
		if got := strings.Join((facts{s, testHost(t, programs())}).packages(), " "); got != c.want {
			t.Errorf("%s %s: %q, want %q", c.env, c.line, got, c.want)
		}
	}
}

// TestModuleInState wants a module that the server may have put into its own home not to pass for the package's.
func TestModuleInState(t *testing.T) {
	s := declaration.Server{Command: "/srv/venv/bin/python", Args: []string{"-m", "mcp_server_git"}, Sandbox: declaration.Sandbox{State: true}}
	if got := (facts{s, testHost(t, programs())}).packages(); got != nil {
		t.Errorf("from the kept home: %q", got)
	}
	s.Args = slices.Insert(s.Args, 0, "-P")
	if got := (facts{s, testHost(t, programs())}).packages(); len(got) != 1 {
		t.Errorf("not from the kept home: %q", got)
	}
}
