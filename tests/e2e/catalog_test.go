package e2e

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/generator/catalog"
	"github.com/pfar/pfar/generator/source"
	"github.com/pfar/pfar/policies"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/tests/catalogued"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/handover"
)

// listsNothing are the services that list no tools with a token that nobody gave out, and what pfar is at when they
// fail.
func listsNothing() map[string]string {
	return map[string]string{
		"apify":    "initializing: ",  // it asks the API what its tools take
		"stripe":   "initializing: ",  // it hands all messages on to mcp.stripe.com
		"supabase": "listing tools: ", // it asks the API which tools the account has
	}
}

// TestKnownServices installs the package of each known service and starts it confined, as its entry says, with tokens
// that nobody gave out. It wants the tools of each, facts of every tool, and no definition that is not in
// policies/reviewed where that has some of the service.
func TestKnownServices(t *testing.T) {
	if os.Getuid() == ordinary {
		return // it has run as root, and is about no privilege
	}
	t.Parallel()
	policy := policies.Load(nil, "").Policy
	for _, c := range catalog.Load(nil, "").All() {
		if c.Program.Package == "" || testing.Short() && c.Name != "memory" {
			continue // all of them are gigabytes
		}
		pkg, err := source.ParseExact(c.Program.Package)
		check(t, err)
		t.Run(c.Name, func(t *testing.T) {
			named := registryNamed
			if pkg.Kind == source.PyPI {
				named = indexNamed
			}
			knownService(t, policy, c, pkg, named(t))
		})
	}
}

// mainOf is a server in Python with the tools that it is asked to have. It takes any arguments.
const mainOf = `import json, sys

TOOLS = %s

ANSWERS = {
    "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
        "serverInfo": {"name": "stand-in", "version": "1"}},
    "tools/list": {"tools": [{"name": t, "description": t, "inputSchema": {"type": "object"}} for t in TOOLS]},
    "tools/call": {"content": [{"type": "text", "text": "called"}]},
}

def main():
    for line in sys.stdin:
        m = json.loads(line)
        if "id" not in m:
            continue
        a = {"jsonrpc": "2.0", "id": m["id"]}
        if m["method"] in ANSWERS:
            a["result"] = ANSWERS[m["method"]]
        else:
            a["error"] = {"code": -32601, "message": "no such method"}
        print(json.dumps(a), flush=True)
`

// TestKnownPythonServices takes the known services in Python the way of TestKnownServices, from an index of the test
// that has a stand-in for each package in the version of its entry. Then it sets one up by the command line that a
// client's file has of it, "python -m".
func TestKnownPythonServices(t *testing.T) {
	if os.Getuid() != 0 {
		return // only root has names of its own, and it has run as root
	}
	t.Parallel()
	r, policy := newRegistries(t), policies.Load(nil, "").Policy
	env := []string{"PIP_INDEX_URL=" + r.url("/simple/"), "PIP_CERT=" + r.roots}
	tools := map[string]string{
		"fetch": `["fetch"]`, "git": `["git_status", "git_log", "git_commit"]`, "time": `["get_current_time"]`,
	}
	for _, c := range catalog.Load(nil, "").All() {
		pkg, err := source.ParseExact(c.Program.Package)
		if err != nil || pkg.Kind != source.PyPI {
			continue
		}
		has, known := tools[c.Name]
		if !known {
			t.Errorf("there is no stand-in for %s", pkg)
			continue
		}
		delete(tools, c.Name)
		if testing.Short() && c.Name != "git" { // which the last case takes as well
			continue
		}
		module := strings.ReplaceAll(pkg.Name, "-", "_")
		file := wheelOf(t, filepath.Join(r.dir, "files"), module, pkg.Version, fmt.Sprintf(mainOf, has))
		r.pypi(t, pkg.Name, filepath.Base(file))
		t.Run(c.Name, func(t *testing.T) { knownService(t, policy, c, pkg, env, inHosts(r)...) })
	}
	if len(tools) > 0 {
		t.Errorf("the catalogue has no %v in Python", tools)
	}
	t.Run("python -m", func(t *testing.T) {
		p, repository := prepare(t, nil), directory(t, "")
		p.env = append(p.env, env...)
		p.up(inHosts(r)...)
		words := strings.Fields("add --yes -- python3 -m mcp_server_git --repository " + repository)
		out, stderr, code := p.command(words...)
		if code != 0 || !strings.Contains(out, "git: running, and holds no secret") {
			t.Fatalf("pfar add: %d %s %s", code, out, stderr)
		}
		p.isOf("git", "pypi:mcp-server-git")
		if out := p.succeeds("call", "git.git_status"); !strings.Contains(out, "called") {
			t.Errorf("pfar call: %s", out)
		}
	})
}

// knownService takes one service from its package to its tools; env names the registry, and wrap is where pfar runs.
func knownService(
	t *testing.T, policy *gate.Policy, c catalog.Service, pkg source.Package, env []string, wrap ...string,
) {
	for i, q := range c.Parameters {
		if q.Access != "" {
			c.Parameters[i].Example = directory(t, "")
		}
		if c.Name == "git" {
			check(t, exec.Command("git", "init", "--quiet", c.Parameters[i].Example).Run())
		}
	}
	text, err := catalogued.Declare(c)
	check(t, err)
	p := prepare(t, map[string]string{c.Name + ".hcl": text})
	p.env = append(p.env, env...)
	p.up(wrap...)
	r := p.await(c.Name+" installed", 20*time.Minute, func(r control.Report) bool {
		s := server(r, c.Name)
		return s.Name != "" && s.State != control.Fetching
	})
	if s := server(r, c.Name); s.Broken {
		t.Fatalf("%s: %s", s.State, s.Detail)
	}
	installedAs(t, p, c, pkg)
	for _, s := range c.Secrets {
		p.stdin = invented(s) + "\n"
		if _, stderr, code := p.command("vault", "set", s.Key); code != 0 {
			t.Fatalf("pfar vault set %s: %d: %s", s.Key, code, stderr)
		}
	}
	p.stdin = ""
	r = p.await(c.Name+" up or down", soon, func(r control.Report) bool {
		s := server(r, c.Name)
		return s.State == control.Running || s.Crashes > 0
	})
	if want, ok := listsNothing()[c.Name]; ok {
		if s := server(r, c.Name); s.State == control.Running || !strings.Contains(s.Detail, want) {
			t.Errorf("%s: %s, want %q", s.State, s.Detail, want)
		}
		return
	}
	if s := server(r, c.Name); s.State != control.Running {
		t.Fatalf("%s: %s", s.State, s.Detail)
	}
	lines := listedBy(t, p, c.Name)
	testCall(t, p, c)
	reviewedLines(t, c.Name, pkg.Name, lines)
	var missing []string
	for _, line := range lines {
		word, rest, _ := strings.Cut(line, " ")
		_, name, _ := strings.Cut(rest, " ")
		if word != "tool" {
			continue
		}
		if !slices.ContainsFunc(policy.Services[c.Name].Words, func(w gate.Word) bool {
			return w.Tool != "" && w.Tool.Match(name) && w.Effect != 0
		}) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		t.Errorf("the facts of %s say nothing of its tools %q", c.Name, missing)
	}
}

// testCall makes the call that shows whether a service's secrets are right: these are not, and it has to say so.
func testCall(t *testing.T, p *pfar, c catalog.Service) {
	t.Helper()
	if c.Test == nil {
		return
	}
	client, tool := p.client("/mcp/operator/default"), c.Name+"__"+c.Test.Tool // nobody is there to approve a call
	if !slices.Contains(client.names(), tool) {
		t.Fatalf("%s has no tool %s", c.Name, c.Test.Tool)
	}
	var arguments map[string]any
	check(t, json.Unmarshal(c.Test.Arguments, &arguments))
	r, err := client.call(tool, arguments)
	trial := handover.Trial{Answer: c.Test.Answer}
	if good := err == nil && trial.Good(r.isError, r.text); good != (len(c.Secrets) == 0) {
		t.Errorf("%s %s: good is %t: %v, %s", c.Name, c.Test.Tool, good, err, r.text)
	}
}

// reviewedLines wants what a service lists among what policies/reviewed has of it, if that has anything. With -update
// it writes that down, but for the packages of packaging/servers: TestReviewedDefinitions starts those in more ways.
func reviewedLines(t *testing.T, service, pkg string, lines []string) {
	t.Helper()
	path := filepath.Join("..", "..", "policies", "reviewed", service+".txt")
	before, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return
	}
	check(t, err)
	if _, pinned := reviewedServers(t)[service]; *update && !pinned {
		slices.Sort(lines)
		text := "package " + pkg + "\n" + strings.Join(slices.Compact(lines), "\n") + "\n"
		check(t, os.WriteFile(path, []byte(text), 0o644))
		return
	}
	known := strings.Split(string(before), "\n")
	for _, line := range lines {
		// A version may begin with the name of the server in its declaration, which is another one there.
		if !slices.Contains(known, line) && !strings.HasPrefix(line, "version ") {
			const text = "%s lists %q, which nobody has read. Read it, then run: go test ./tests/e2e -run %s -update"
			t.Errorf(text, service, line, t.Name())
		}
	}
}

// registryNamed are variables that name the registry which this machine's npm is configured for: it may be at a private
// address.
func registryNamed(t *testing.T) (env []string) {
	t.Helper()
	for _, key := range []string{"registry", "cafile"} {
		out, err := exec.Command("npm", "config", "get", key).Output()
		check(t, err)
		if v := strings.TrimSpace(string(out)); v != "null" && v != "undefined" {
			env = append(env, "npm_config_"+key+"="+v)
		}
	}
	return env
}

// indexNamed are variables that name the index which this machine's pip is configured for. Where none answers, the
// test does not run, and with PFAR_TEST_PYPI it fails.
func indexNamed(t *testing.T) (env []string) {
	t.Helper()
	setting := func(key, variable string) string {
		value := os.Getenv(variable)
		out, err := exec.Command("/usr/bin/python3", "-m", "pip", "config", "get", "global."+key).Output()
		if value == "" && err == nil { // it fails where there is no such setting
			value = strings.TrimSpace(string(out))
		}
		if value != "" {
			env = append(env, variable+"="+value)
		}
		return value
	}
	index := cmp.Or(setting("index-url", "PIP_INDEX_URL"), "https://pypi.org/simple/")
	roots, err := x509.SystemCertPool()
	check(t, err)
	if cert := setting("cert", "PIP_CERT"); cert != "" {
		text, err := os.ReadFile(cert)
		check(t, err)
		roots.AppendCertsFromPEM(text)
	}
	c := http.Client{
		Timeout:   soon,
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{RootCAs: roots}},
	}
	answer, err := c.Get(index)
	if err == nil {
		answer.Body.Close()
		return env
	}
	if os.Getenv("PFAR_TEST_PYPI") != "" {
		t.Fatalf("no index of Python packages answers: %v", err)
	}
	t.Skipf("NOT RUN: no index of Python packages answers, and PFAR_TEST_PYPI does not want one: %v", err)
	return nil
}

// installedAs wants the package that lies there to be the one of the entry.
func installedAs(t *testing.T, p *pfar, c catalog.Service, pkg source.Package) {
	t.Helper()
	if pkg.Kind == source.PyPI { // its entry has no digest: an index may serve several files
		var report struct {
			Install []struct {
				Metadata struct{ Name, Version string }
			}
		}
		readJSON(t, filepath.Join(p.state(), "packages/pypi", pkg.Name, pkg.Version, "lock.json"), &report)
		for _, e := range report.Install {
			if source.Normal(e.Metadata.Name) == pkg.Name && e.Metadata.Version == pkg.Version {
				return
			}
		}
		t.Errorf("pip has installed %+v, the entry wants %s", report.Install, pkg)
		return
	}
	var lock struct {
		Packages map[string]struct{ Version, Integrity string }
	}
	readJSON(t, filepath.Join(p.state(), "packages/npm", pkg.Name, pkg.Version, "lock.json"), &lock)
	if has := lock.Packages["node_modules/"+pkg.Name]; has.Integrity != c.Program.Integrity || has.Version != pkg.Version {
		t.Errorf("%s %s is %s, its entry wants %s", pkg.Name, has.Version, has.Integrity, c.Program.Integrity)
	}
}

func readJSON(t *testing.T, path string, to any) {
	t.Helper()
	b, err := os.ReadFile(path)
	check(t, err)
	check(t, json.Unmarshal(b, to))
}

// invented is a secret of the right form that nobody gave out.
func invented(s catalog.Secret) string {
	if s.Key == "mongodb_connection" {
		return "mongodb://reader:invented@db.example.com:27017/app"
	}
	token := strings.Repeat("0a1b2c3d", 5)
	if len(s.Prefixes) > 0 {
		token = s.Prefixes[0] + token
	}
	return token
}
