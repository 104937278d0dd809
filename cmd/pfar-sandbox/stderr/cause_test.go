package stderr

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// What runtimes and package runners write before they end, and the line of it that says why.
func TestCauseOf(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"nothing":   {"", ""},
		"one line":  {"bye", "bye"},
		"no letter": {"---\n}", "}"},
		"node, module": {`node:internal/modules/cjs/loader:1148
  throw err;
  ^

Error: Cannot find module '/srv/index.js'
    at Module._resolveFilename (node:internal/modules/cjs/loader:1145:15)
    at node:internal/main/run_main_module:28:49 {
  code: 'MODULE_NOT_FOUND',
  requireStack: []
}

Node.js v20.20.2`, "Error: Cannot find module '/srv/index.js'"},
		"node, thrown": {`/srv/index.js:3
    throw new Error("NOTION_TOKEN is required");
    ^

Error: NOTION_TOKEN is required
    at main (/srv/index.js:3:11)

Node.js v20.20.2`, "Error: NOTION_TOKEN is required"},
		"node, fetch": {`TypeError: fetch failed
    at node:internal/deps/undici/undici:13502:13 {
  [cause]: Error: getaddrinfo ENOTFOUND api.example.com
      at GetAddrInfoReqWrap.onlookupall [as oncomplete] (node:dns:122:26) {
    errno: -3008
  }
}

Node.js v22.1.0`, "TypeError: fetch failed"},
		"npm, unknown package": {`npm error code E404
npm error 404 Not Found - GET https://registry.npmjs.org/nosuch - Not found
npm error 404
npm error 404  'nosuch@*' is not in this registry.
npm error A complete log of this run can be found in: /home/user/.npm/_logs/2026-01-01T00_00_00_000Z-debug-0.log`,
			"npm error 404  'nosuch@*' is not in this registry."},
		"npm, no such version": {`npm error code ETARGET
npm error notarget No matching version found for nosuch@9.9.9.
npm error notarget In most cases you or one of your dependencies are requesting
npm error notarget a package version that doesn't exist.`,
			"npm error notarget No matching version found for nosuch@9.9.9."},
		"npm, refused": {`npm error code ECONNREFUSED
npm error syscall connect
npm error errno ECONNREFUSED
npm error FetchError: request to https://registry.npmjs.org/x failed, reason: connect ECONNREFUSED 198.18.1.1:443
npm error     at ClientRequest.<anonymous> (/usr/lib/node_modules/npm/node_modules/minipass-fetch/lib/index.js:130:14)
npm error If you are behind a proxy, please make sure that the
npm error 'proxy' config is set properly.  See: 'npm help config'
npm error Log files were not written due to an error writing to the directory: /home/user/.npm/_logs
npm error You can rerun the command with ` + "`--loglevel=verbose`" + ` to see the logs in your terminal`,
			"npm error FetchError: request to https://registry.npmjs.org/x failed, reason: connect ECONNREFUSED 198.18.1.1:443"},
		"older npm": {`npm ERR! code EACCES
npm ERR! Error: EACCES: permission denied, mkdir '/home/user/.npm'
npm ERR! A complete log of this run can be found in:
npm ERR!     /home/user/.npm/_logs/x-debug-0.log`, "npm ERR! Error: EACCES: permission denied, mkdir '/home/user/.npm'"},
		"python": {`Traceback (most recent call last):
  File "/srv/main.py", line 1, in <module>
    import mcp
ModuleNotFoundError: No module named 'mcp'`, "ModuleNotFoundError: No module named 'mcp'"},
		"uv": {"error: Failed to fetch: `https://pypi.org/simple/x/`\n  Caused by: dns error: failed to lookup address", "error: Failed to fetch: `https://pypi.org/simple/x/`"},
		"go": {`panic: runtime error: index out of range [1] with length 0

goroutine 1 [running]:
main.main()
	/srv/main.go:3 +0x1d
exit status 2`, "panic: runtime error: index out of range [1] with length 0"},
		"java":               {"Exception in thread \"main\" java.lang.IllegalStateException: no token\n\tat Main.main(Main.java:3)", `Exception in thread "main" java.lang.IllegalStateException: no token`},
		"shell":              {"/bin/sh: 1: uvx: not found", "/bin/sh: 1: uvx: not found"},
		"the last of causes": {"Error: cache is cold, going on\nlistening\nusage: server --token TOKEN\nError: --token is required", "Error: --token is required"},
		"no cause":           {"starting\nready\nshutting down", "shutting down"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			l := &Log{out: &out, now: time.Now}
			for line := range strings.SplitSeq(c.text, "\n") {
				l.heard(time.Now(), line)
			}
			if got := l.Cause(); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestCauseIsBounded(t *testing.T) {
	var out bytes.Buffer
	l := &Log{out: &out, now: time.Now}
	l.heard(time.Now(), "Error: long ago")
	for range 10 * maxWords {
		l.heard(time.Now(), strings.Repeat("ä", maxWord))
	}
	if got := l.Cause(); len(l.words) > maxWords || len(got) > maxWord || !strings.HasPrefix(got, "ä") ||
		strings.ContainsRune(got, '\uFFFD') {
		t.Errorf("%d lines are kept, and the cause has %d bytes: %.20q", len(l.words), len(got), got)
	}
}
