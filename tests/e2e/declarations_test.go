package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/units/control"
)

// mistakes returns more than two hundred declarations, by file name, each with one mistake.
func mistakes(t testing.TB) map[string]string {
	t.Helper()
	bad := map[string]string{}
	add := func(name, text string) { bad[name] = text }
	server := fmt.Sprintf("server {\n  command = %s\n}\n", quote(program(t, "echo")))
	values := map[string][]string{
		"description":     {"3", "[]", "true", "{}"},
		"label":           {`"top-secret"`, `""`, "1", `["public"]`, `"Public"`, `"internal "`},
		"enabled":         {`"maybe"`, "[]", "{}", "[true]"},
		"autostart":       {`"sometimes"`, "{}", "[1]"},
		"timeout":         {`"soon"`, `"-1s"`, `"0s"`, `"292y"`, "[]", `"1"`, `"9999999h"`},
		"idle_timeout":    {`"soon"`, `"-5m"`, "[]", "{}"},
		"version":         {"[]", "{}"},
		"transport":       {`"carrier-pigeon"`, `""`, "1", `"STDIO"`, `"http"`},
		"env":             {`"A=B"`, `["A"]`, "1", `{ "A B" = "x" }`, `{ "1A" = "x" }`, `{ "" = "x" }`, `{ LD_PRELOAD = "/tmp/x.so" }`, `{ HTTP_PROXY = "http://x" }`, `{ https_proxy = "http://x" }`, `{ A = [] }`, `{ "A=B" = "x" }`},
		"auth":            {`"vault:x"`, `["vault:x"]`, `{ A = "plain" }`, `{ A = "vault:" }`, `{ A = "vault:../x" }`, `{ A = "vault:*" }`, `{ A = "VAULT:x" }`, `{ A = "vault:a/b" }`, `{ A = "vault:vault:x" }`, `{ A = "vault:X Y" }`, `{ A = 1 }`, `{ "A B" = "vault:x" }`, `{ A = "see vault:x" }`, `{ A = "vault:x%2fy" }`},
		"allowed_domains": nil,
	}
	for _, d := range []string{"*", "*.", ".", "*.com", "a*.b.c", "*.*.c", "http://x", "x/", "1.2.3.4/33", "0x7f.1", " x", "x ", "", "a..b", "-a.b",
		"a.b-", "x:0", "x:65536", "x:-1", "x:443:443", "a_b c", "a\\nb", "host#.x", "x%2e", "a@b", "[::1", "::1]:443", "a.*.b", "*a.b"} {
		values["allowed_domains"] = append(values["allowed_domains"], fmt.Sprintf(`["%s"]`, d))
	}
	values["allowed_domains"] = append(values["allowed_domains"], `"example.com"`, "[1]", "{}", "[[]]")
	n := 0
	for key, list := range values {
		for _, v := range list {
			n++
			add(fmt.Sprintf("bad-value-%03d.hcl", n), fmt.Sprintf("%s = %s\n%s", key, v, server))
		}
	}
	for i, v := range []string{"memory_limit = -1", `memory_limit = "-1m"`, `memory_limit = "0"`, `memory_limit = "lots"`, `memory_limit = "1e99g"`, `memory_limit = "infinity"`,
		`memory_limit = "NaN"`, "memory_limit = []", "tasks_max = 0", "tasks_max = -1", `tasks_max = "many"`, "tasks_max = 1e18", "tasks_max = 1.5", `cpu_quota = "all"`, `cpu_quota = "-5%"`,
		`cpu_quota = "0%"`, `read_only = "relative"`, `read_only = ["relative"]`, `read_only = ["/a/../b"]`, `read_only = ["~"]`, `read_only = ["/proc"]`, `read_only = ["/sys"]`, `writable = ["/"]`,
		`writable = ["/etc"]`, `writable = ["/proc"]`, `writable = ["/sys"]`, `writable = ["/dev"]`, `writable = ["/usr"]`, `writable = [1]`, `state = "yes please"`, "state = []", `read_only_fs = "maybe"`,
		"allow_tmp = {}", "network = true", "share_net = true", "privileged = true", "Memory_limit = \"1m\"", "memory_limits = \"1m\"", "tasks-max = 1"} {
		add(fmt.Sprintf("bad-sandbox-%03d.hcl", i), server+"sandbox {\n  "+v+"\n}\n")
	}
	for i, key := range []string{"alowed_domains", "allowed_domain", "Allowed_domains", "labels", "desc", "command", "args", "secrets", "net", "mounts", "volumes", "image", "user", "root", "seccomp",
		"capabilities", "profile", "egress", "url_", "time_out", "auto_start", "enable", "evn", "atuh", "versions", "tools"} {
		add(fmt.Sprintf("bad-key-%03d.hcl", i), fmt.Sprintf("%s = \"x\"\n%s", key, server))
	}
	for i, text := range []string{"", "server", "server {", "server {}", "server { command = }", `server { command = "" }`, "server { command = 1 }", "server {\n command = \"x\"\n}\nserver {\n command = \"y\"\n}\n",
		`server = "x"`, "}", "{", "= 1", "\x00", "\xff\xfe", "label = \"public\nserver {}", `server { command = "x" args = ["y" }`, "label = public\n" + server, "label = \"${file(\"/etc/shadow\")}\"\n" + server,
		"label = \"public\"\nlabel = \"secret\"\n" + server, server + "sandbox {}\nsandbox {}\n", server + "trust { public_source = 1 }\n", server + "trust { nonsense = true }\n",
		server + "tool \"x\" { semantics = \"execute\" }\n", server + "tool { semantics = \"read\" }\n", server + "tool \"x\" { semantics = \"read\" }\ntool \"x\" { semantics = \"read\" }\n", server + "wibble {}\n", strings.Replace(server, "server", "server \"named\"", 1),
		"server {\n  command = \"x\"\n  args = \"y\"\n}\n", "server {\n  command = \"x\"\n  args = [{}]\n}\n", "server {\n  command = \"x\\u0000y\"\n}\n", "server {\n  comand = \"x\"\n}\n",
		"name = \"../x\"\n" + server, "name = \"a/b\"\n" + server, "name = \"-rf\"\n" + server, "name = \"Upper\"\n" + server, "name = \"%n\"\n" + server, "name = \"\"\n" + server, "name = 5\n" + server,
		"name = \"" + strings.Repeat("a", 200) + "\"\n" + server} {
		add(fmt.Sprintf("bad-text-%03d.hcl", i), text)
	}
	for i, text := range []string{"", "=", "server = 1", "[server]", "[server]\ncommand = 1", "[server]\ncommand = \"x\"\ncommand = \"y\"", "[server]\ncommand = \"x\"\n[server]\n", "label = \"x\"\n[server]\ncommand = \"x\"",
		"unknown = 1\n[server]\ncommand = \"x\"", "[server]\ncommand = \"x\"\n[sandbox]\nmemory_limit = -1", "[server]\ncommand = \"x\"\n[sandbox]\nnope = 1", "[server]\ncommand = 'x", "[server\ncommand = \"x\"",
		"allowed_domains = \"x\"\n[server]\ncommand = \"x\"", "[server]\ncommand = \"x\"\n[auth]\nA = \"plain\"", "\ufeff[server]\ncommand = 3", "[server]\ncommand = \"x\"\nargs = 2026-11-21"} {
		add(fmt.Sprintf("bad-toml-%03d.toml", i), text)
	}
	add("Bad-Name.hcl", server)
	add("bad name.hcl", server)
	add("1bad.hcl", server)
	add("a-name-that-is-far-too-long-for-systemd.hcl", server)
	add("second.hcl", "name = \"good\"\n"+server) // the first is that of good.hcl
	add("good.toml", fmt.Sprintf("[server]\ncommand = %s\n", quote(program(t, "echo"))))
	return bad
}

// TestBadDeclarations puts two hundred mistakes beside one good declaration.
func TestBadDeclarations(t *testing.T) {
	t.Parallel()
	bad := mistakes(t)
	if len(bad) < 200 {
		t.Fatalf("%d mistakes", len(bad))
	}
	all := map[string]string{"good.hcl": echo(t, "-label", "good")}
	for name, text := range bad {
		all[name] = text
	}
	p := prepare(t, all)
	p.up()
	// The launcher of a bad declaration fails by itself, before or after the good server runs.
	r := p.await("good running, all others failed", soon, func(r control.Report) bool {
		return server(r, "good").State == control.Running && !slices.ContainsFunc(r.Servers, func(s control.Server) bool {
			return s.Name != "good" && (s.State != control.Failed || !s.Broken)
		})
	})
	if got := p.client("/mcp/good").must("label", map[string]any{}); got != "good" {
		t.Errorf("the good one answers %q", got)
	}
	checkDiagnostics(t, bad, r.Diagnostics)

	stdout, stderr, code := p.command("check", p.declarations, "--json")
	if code != 1 {
		t.Errorf("pfar check: %d, %s", code, stderr)
	}
	if !json.Valid([]byte(stdout)) {
		t.Errorf("pfar check --json: %.300s", stdout)
	}
	for name := range bad {
		if !strings.Contains(stdout, name) {
			t.Errorf("pfar check says nothing of %s", name)
		}
	}
}

// checkDiagnostics wants one clear error for each file.
func checkDiagnostics(t *testing.T, bad map[string]string, diagnostics []control.Diagnostic) {
	t.Helper()
	errors := map[string][]control.Diagnostic{}
	for _, d := range diagnostics {
		if d.Severity == "error" {
			name := filepath.Base(d.File)
			errors[name] = append(errors[name], d)
		}
	}
	for name, text := range bad {
		list := errors[name]
		switch {
		case len(list) == 0:
			t.Errorf("%s: no diagnostic for:\n%s", name, text)
		case len(list) > 1:
			t.Errorf("%s: %d diagnostics for one mistake: %+v\n%s", name, len(list), list, text)
		case list[0].Line < 1 || list[0].Column < 1 || list[0].Summary == "" || list[0].Detail == "" || !strings.Contains(list[0].Text, name):
			t.Errorf("%s: not clear: %+v", name, list[0])
		}
	}
	for name := range errors {
		if _, ok := bad[name]; !ok {
			t.Errorf("%s: diagnostics for what is right: %+v", name, errors[name])
		}
	}
}
