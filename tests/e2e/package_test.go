package e2e

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/gate"
)

// TestRealPackages has npm, pip and the go command install programs, and wants each to be of its package, and none that
// only says so.
func TestRealPackages(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(directory(t, "/var/tmp"))
	check(t, err)
	servers, err := npmServers()
	check(t, err)
	run := atHome(t, dir)
	archived := archive(t, dir, run)
	venv := virtual(t, dir, run)
	goPath, forged := goPrograms(t, dir, run)
	write(t, filepath.Join(dir, "shebang"), "#!/usr/bin/env -S DEBUG=1 "+servers+"/node_modules/.bin/mcp-server-memory\n")

	const memory, git = "@modelcontextprotocol/server-memory", "pypi:mcp-server-git"
	const github = "go:github.com/github/github-mcp-server/cmd/github-mcp-server"
	lines := map[string]struct {
		command []string
		more    string
		want    string
	}{
		"npm-link":     {[]string{servers + "/node_modules/.bin/mcp-server-memory"}, "", memory},
		"npm-shebang":  {[]string{dir + "/shebang"}, "", memory},
		"npm-project":  {[]string{"npx", "--prefix", servers, "mcp-server-memory"}, "", memory},
		"npm-archive":  {[]string{archived + "/node_modules/.bin/mcp-server-memory"}, "", "?" + memory},
		"npx-archive":  {[]string{"npx", "--prefix", archived, "mcp-server-memory"}, "", "?" + memory},
		"npx-nowhere":  {[]string{"npx", "-y", memory}, "", "?" + memory},
		"npx-fetched":  {[]string{"npx", "-y", memory}, `allowed_domains = ["registry.npmjs.org"]`, memory},
		"venv-script":  {[]string{venv + "/bin/mcp-server-git"}, "", git},
		"venv-module":  {[]string{venv + "/bin/python", "-m", "mcp_server_git"}, "", git},
		"venv-other":   {[]string{venv + "/bin/mcp-server-time"}, "", "?pypi:mcp-server-time"},
		"go-installed": {[]string{goPath + "/bin/github-mcp-server"}, "", github},
		"go-forged":    {[]string{forged}, "", "?" + github},
	}
	declarations := map[string]string{}
	for name, l := range lines {
		args := make([]string, len(l.command)-1)
		for i, a := range l.command[1:] {
			args[i] = fmt.Sprintf("%q", a)
		}
		const format = "%s\nserver {\n  command = %q\n  args = [%s]\n}\n"
		declarations[name+".hcl"] = fmt.Sprintf(format, l.more, l.command[0], strings.Join(args, ", "))
	}
	p := prepare(t, declarations)
	for _, name := range slices.Sorted(maps.Keys(lines)) {
		p.isOf(name, lines[name].want)
	}
	if out, _, _ := p.command("check"); strings.Contains(out, "error:") {
		t.Errorf("check: %s", out)
	}
	out, _, _ := p.command("explain", "npm-archive")
	for _, want := range []string{
		"Its program may be the package " + memory + ", but npm has not installed it from its registry",
		`Write service = "memory"`,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("explain: %s, want %s", out, want)
		}
	}
}

// TestGlobalPackage has npm install a server globally from its registry (npm i -g), and starts it by the link in bin.
// What is shipped about its service goes for its tools, although its declaration has another name.
func TestGlobalPackage(t *testing.T) {
	t.Parallel()
	const name, version = "@modelcontextprotocol/server-memory", "2026.8.31"
	dir, err := filepath.EvalSymlinks(directory(t, "/var/tmp"))
	check(t, err)
	install := exec.Command("npm", "install", "--global", "--no-audit", "--no-fund", "--prefix", dir, name+"@"+version)
	install.Env = append(os.Environ(), "HOME="+dir)
	switch out, err := install.CombinedOutput(); {
	case unreached.Match(out):
		t.Skipf("NOT RUN: npm does not reach its registry: %s", out)
	case err != nil:
		t.Fatalf("%v\n%s", err, out)
	}
	link := filepath.Join(dir, "bin/mcp-server-memory")
	if to, err := os.Readlink(link); err != nil || !strings.Contains(to, "lib/node_modules/"+name) {
		t.Fatalf("npm's command leads to %q: %v", to, err)
	}
	const text = `command = %q
pins = "trust-first"
env = { MEMORY_FILE_PATH = "/home/mcp/memory.json" }
sandbox {
  state = true
}
`
	p := start(t, map[string]string{"notes.hcl": fmt.Sprintf(text, link)})
	p.awaitRunning("notes")
	p.isOf("notes", name)
	for tool, row := range map[string]string{
		"read_graph":      "read shipped service sensitive clean sensitive none",
		"create_entities": "write shipped service sensitive clean sensitive reversible",
		"delete_entities": "write shipped service, undo sensitive clean sensitive reversible",
	} {
		out, errs, code := p.command("tools", "notes", tool)
		if out = strings.Join(strings.Fields(out), " "); code != 0 || !strings.Contains(out, "notes."+tool+" "+row) {
			t.Errorf("%s: %d %s %s, want %s", tool, code, errs, out, row)
		}
	}
	explained, _, _ := p.command("explain", "notes")
	for _, want := range []string{"it belongs to the service memory", "(service: services/memory.hcl:"} {
		if !strings.Contains(explained, want) {
			t.Errorf("explain: %s, want %s", explained, want)
		}
	}
	out, errs, code := p.command("call", "notes.read_graph")
	if code != 0 || !strings.Contains(out, "entities") {
		t.Errorf("called: %d %s %s", code, errs, out)
	}
}

// unreached is how npm says that it does not reach a registry.
var unreached = regexp.MustCompile(`ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ENETUNREACH|ETIMEDOUT`)

// atHome runs installers, which keep what they need in a folder of the test.
func atHome(t *testing.T, dir string) func(in string, env []string, words ...string) {
	return func(in string, env []string, words ...string) {
		t.Helper()
		c := exec.Command(words[0], words[1:]...)
		c.Dir, c.Env = in, append(os.Environ(), append(env, "HOME="+dir)...)
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", words, err, out)
		}
	}
}

// isOf wants a server's program to be of a package, after "?" of one that it may be.
func (p *pfar) isOf(name, want string) {
	p.t.Helper()
	stdout, stderr, code := p.command("plan", name, "--json")
	var plan struct {
		Gateway struct{ Declared gate.Declared }
	}
	if code != 0 || json.Unmarshal([]byte(stdout), &plan) != nil {
		p.t.Errorf("%s: %d %s", name, code, stderr)
		return
	}
	d := plan.Gateway.Declared
	got := strings.Join(d.Packages, " ")
	if d.Doubt != nil {
		got = "?" + d.Doubt.Package
	}
	if got != want {
		p.t.Errorf("%s: %q, want %q (%+v)", name, got, want, d.Doubt)
	}
}

// archive has npm install a package of a stranger's, which calls itself another one.
func archive(t *testing.T, dir string, run func(string, []string, ...string)) string {
	t.Helper()
	into, packed := filepath.Join(dir, "archive"), filepath.Join(dir, "modelcontextprotocol-server-memory-9.0.0.tgz")
	write(t, packed, string(tarball(t, map[string][]byte{
		"package/package.json": []byte(`{"name": "@modelcontextprotocol/server-memory", "version": "9.0.0",
		"bin": {"mcp-server-memory": "evil.js"}}`),
		"package/evil.js": []byte("#!/usr/bin/env node\n"),
	})))
	check(t, os.Mkdir(into, 0o755))
	run(into, nil, "npm", "install", "--silent", "--offline", packed)
	return into
}

// virtual has pip install a wheel from an index into a virtual environment, and one from its file.
func virtual(t *testing.T, dir string, run func(string, []string, ...string)) string {
	t.Helper()
	venv := filepath.Join(dir, "venv")
	run(dir, nil, "/usr/bin/python3", "-m", "venv", venv)
	wheel(t, dir, "mcp_server_git")
	run(dir, nil, venv+"/bin/pip", "install", "--quiet", "--no-index", "--find-links", dir, "mcp-server-git")
	run(dir, nil, venv+"/bin/pip", "install", "--quiet", "--no-index", wheel(t, dir, "mcp_server_time"))
	return venv
}

// wheel writes the wheel of a package with a command and a module.
func wheel(t *testing.T, dir, name string) string {
	return wheelOf(t, dir, name, "1.0", "def main(): pass\n")
}

// wheelOf packs a package whose program is main of that code, with these lines in its METADATA.
func wheelOf(t *testing.T, dir, name, version, code string, more ...string) string {
	t.Helper()
	info := name + "-" + version + ".dist-info/"
	files := map[string]string{
		name + "/__init__.py": code, name + "/__main__.py": "from . import main\nmain()\n",
		info + "METADATA": "Metadata-Version: 2.1\nName: " + name + "\nVersion: " + version + "\n" +
			strings.Join(more, ""),
		info + "WHEEL":            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		info + "entry_points.txt": "[console_scripts]\n" + strings.ReplaceAll(name, "_", "-") + " = " + name + ":main\n",
	}
	record := info + "RECORD,,\n"
	for _, file := range slices.Sorted(maps.Keys(files)) {
		sum := sha256.Sum256([]byte(files[file]))
		record += fmt.Sprintf("%s,sha256=%s,%d\n", file, base64.RawURLEncoding.EncodeToString(sum[:]), len(files[file]))
	}
	files[info+"RECORD"] = record
	at := filepath.Join(dir, name+"-"+version+"-py3-none-any.whl")
	check(t, os.MkdirAll(dir, 0o755))
	check(t, os.WriteFile(at, zipped(t, files), 0o644))
	return at
}

// goPrograms has the go command install a program of a module that it fetches, and build a checkout that calls itself
// so. It returns the GOPATH of the first, and the second.
func goPrograms(t *testing.T, dir string, run func(string, []string, ...string)) (goPath, forged string) {
	t.Helper()
	const module = "github.com/github/github-mcp-server"
	const mod, main = "module " + module + "\n", "package main\n\nfunc main() {}\n"
	proxy := filepath.Join(dir, "proxy", module, "@v")
	write(t, filepath.Join(proxy, "list"), "v1.9.0\n")
	write(t, filepath.Join(proxy, "v1.9.0.info"), `{"Version": "v1.9.0"}`)
	write(t, filepath.Join(proxy, "v1.9.0.mod"), mod)
	check(t, os.WriteFile(filepath.Join(proxy, "v1.9.0.zip"), zipped(t, map[string]string{
		module + "@v1.9.0/go.mod": mod, module + "@v1.9.0/cmd/github-mcp-server/main.go": main,
	}), 0o644))
	checkout := filepath.Join(dir, "checkout")
	write(t, filepath.Join(checkout, "go.mod"), mod)
	write(t, filepath.Join(checkout, "cmd/github-mcp-server/main.go"), main)
	goPath = filepath.Join(dir, "go")
	env := []string{
		"GOPATH=" + goPath, "GOBIN=", "GOPROXY=file://" + dir + "/proxy", "GONOSUMDB=*", "GOFLAGS=-modcacherw",
		"CGO_ENABLED=0",
		"GOTOOLCHAIN=local", "GOCACHE=" + goCache(t, dir),
	}
	run(dir, env, goCommand(t), "install", module+"/cmd/github-mcp-server@v1.9.0")
	forged = filepath.Join(goPath, "bin/forged")
	run(checkout, env, goCommand(t), "build", "-o", forged, "./cmd/github-mcp-server")
	return goPath, forged
}

// goCommand is the one that the tests are built by.
func goCommand(t *testing.T) string {
	t.Helper()
	if at, err := exec.LookPath("go"); err == nil {
		return at
	}
	return "/usr/local/go/bin/go"
}

// goCache is the cache of whoever runs the tests, if that may be written to.
func goCache(t *testing.T, dir string) string {
	t.Helper()
	out, err := exec.Command(goCommand(t), "env", "GOCACHE").Output()
	at := strings.TrimSpace(string(out))
	if f, failed := os.CreateTemp(at, "e2e-"); err == nil && failed == nil {
		f.Close()
		os.Remove(f.Name())
		return at
	}
	return filepath.Join(dir, "gocache")
}

func write(t *testing.T, at, text string) {
	t.Helper()
	check(t, os.MkdirAll(filepath.Dir(at), 0o755))
	check(t, os.WriteFile(at, []byte(text), 0o755))
}

func zipped(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		w, err := z.Create(name)
		check(t, err)
		_, err = w.Write([]byte(files[name]))
		check(t, err)
	}
	check(t, z.Close())
	return b.Bytes()
}
