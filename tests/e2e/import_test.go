package e2e

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/pfar/pfar/units/control"
)

const (
	cursorFile    = ".cursor/mcp.json"
	importedToken = "tok-5f0c6a1e9d7b43a8-of-the-echo"
	packagedToken = "tok-1b2d3c4f5e6a7988-of-the-package"
)

// clientHome lays out a home with the files of MCP clients, and runs commands as its user.
func (p *pfar) clientHome(files map[string]string) (home string) {
	p.t.Helper()
	home = directory(p.t, "")
	for name, text := range files {
		file := filepath.Join(home, name)
		must(p.t, os.MkdirAll(filepath.Dir(file), 0o700))
		must(p.t, os.WriteFile(file, []byte(text), 0o600))
	}
	p.env = append(p.env, "HOME="+home)
	return home
}

// trace lists the files of pfar that have a text in them.
func (p *pfar) trace(text string) (list []string) {
	p.t.Helper()
	for _, dir := range []string{p.home, p.run} {
		must(p.t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return nil // what is gone again, and sockets
			}
			b, err := os.ReadFile(path)
			if err == nil && bytes.Contains(b, []byte(text)) {
				list = append(list, path)
			}
			return nil
		}))
	}
	return list
}

// declaredFiles are the names in the folder of declarations.
func (p *pfar) declaredFiles() (names []string) {
	p.t.Helper()
	entries, err := os.ReadDir(p.declarations)
	must(p.t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// vaultKeys lists the vault.
func (p *pfar) vaultKeys() string {
	p.t.Helper()
	out, stderr, code := p.command("vault", "list", "--json")
	if code != 0 {
		p.t.Fatalf("vault list: %d %s", code, stderr)
	}
	return strings.Join(strings.Fields(out), " ")
}

// TestImport imports the servers of a client with the real pfard: they run, their tokens are in the vault and nowhere
// else, a killed import leaves nothing, and undo brings everything back.
func TestImport(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can have names of its own for a registry; TestImportOwn is about users")
	}
	t.Parallel()
	r := newRegistries(t)
	const name = "@example/mcp-imported"
	r.npm(t, name, "1.0.0", "")
	r.npm(t, name, "2.0.0", "")
	p := prepare(t, map[string]string{"mine.hcl": echo(t)})
	p.env = append(p.env, "npm_config_registry="+r.url("/npm/"), "npm_config_cafile="+r.roots, "NPM_CONFIG_REGISTRY=")
	p.up(inHosts(r)...)
	p.awaitRunning("mine")
	text := fmt.Sprintf(`{
  // what I use
  "mcpServers": {
    "Echo": {"command": %q, "env": {"ECHO_TOKEN": %q, "MODE": "x"}},
    "packaged": {"command": "npx", "args": ["-y", "%s@1.0.0"], "env": {"PACKAGED_TOKEN": %q}},
    "slow": {"command": "npx", "args": ["-y", "%s@2.0.0"], "env": {"SLOW_TOKEN": %q}},
    "mine": {"command": "mine"}, "boxed": {"command": "docker", "args": ["run", "x/mcp-linear"]}
  }
}
`, program(t, "echo"), importedToken, name, packagedToken, name, importedToken)
	file := filepath.Join(p.clientHome(map[string]string{cursorFile: text}), cursorFile)

	asked := r.hold("/files/example-mcp-imported-2.0.0.tgz")
	killed := exec.Command(program(t, "pfar"), "import", "--from", "cursor", "--yes", "--only", "slow")
	killed.Env = p.env
	must(t, killed.Start())
	<-asked
	must(t, syscall.Kill(killed.Process.Pid, syscall.SIGKILL))
	if killed.Wait() == nil {
		t.Error("the import that was killed is done")
	}
	if got := p.declaredFiles(); !slices.Equal(got, []string{"mine.hcl"}) || p.vaultKeys() != "[]" {
		t.Errorf("the import that was killed leaves %q, %s", got, p.vaultKeys())
	}

	out, stderr, code := p.command("import", "--from", "cursor", "--yes", "--json", "--only", "echo,packaged,mine,boxed")
	if code != 0 || !strings.Contains(out, "exists already") || !strings.Contains(out, "pfar add linear") {
		t.Fatalf("%d: %s %s", code, out, stderr)
	}
	p.awaitRunning("mine", "echo", "packaged")
	p.isOf("packaged", name)
	if got := p.vaultKeys(); !strings.Contains(got, `"key": "echo_token"`) ||
		!strings.Contains(got, `"key": "packaged_token"`) {
		t.Errorf("the vault has %s", got)
	}
	for _, secret := range []string{importedToken, packagedToken} {
		if strings.Contains(out+stderr, secret) {
			t.Error("a secret is printed")
		}
		if got := p.trace(secret); got != nil {
			t.Errorf("a secret is in %q", got)
		}
		strangersFind(t, p, secret)
	}
	now, err := os.ReadFile(file)
	if err != nil || string(now) != text {
		t.Errorf("the client's file is %s, %v", now, err)
	}

	if out, stderr, code := p.command("import", "--undo", "--yes"); code != 0 {
		t.Errorf("undo: %d: %s %s", code, out, stderr)
	}
	if got := p.declaredFiles(); !slices.Equal(got, []string{"mine.hcl"}) || p.vaultKeys() != "[]" {
		t.Errorf("undo leaves %q, %s", got, p.vaultKeys())
	}
	p.await("the imported servers to be gone", soon, func(r control.Report) bool { return len(r.Servers) == 1 })
	if now, err := os.ReadFile(file); err != nil || string(now) != text {
		t.Errorf("the client's file is %s, %v", now, err)
	}
}

// TestImportOwn imports a local program, as any user can.
func TestImportOwn(t *testing.T) {
	t.Parallel()
	p := start(t, nil)
	text := fmt.Sprintf(`{"mcpServers": {"e": {"command": %q, "env": {"E_TOKEN": %q}},
		"none": {"command": "/nowhere/x"}}}`, program(t, "echo"), importedToken)
	p.clientHome(map[string]string{cursorFile: text})
	if out, stderr, code := p.command("import", "--from", "cursor", "--yes"); code != 0 ||
		!strings.Contains(out, "e  imported") || !strings.Contains(out, "Command not found") {
		t.Fatalf("%d: %s %s", code, out, stderr)
	}
	p.awaitRunning("e")
	if got := p.trace(importedToken); got != nil {
		t.Errorf("the secret is in %q", got)
	}
	if out, stderr, code := p.command("import", "--undo", "--yes"); code != 0 || len(p.declaredFiles()) != 0 ||
		p.vaultKeys() != "[]" {
		t.Errorf("undo: %d: %s %s; left are %q", code, out, stderr, p.declaredFiles())
	}
}

// importFiles are the files that no program has in the home, by the server in each.
var importFiles = map[string]string{"project": "app/.mcp.json", "forerunner": "mcp.json"}

// TestImportPrograms imports the file of each program into one pfard, or in the short form one file of each syntax. The
// servers run with their tokens, which nothing but the vault keeps. Undo removes the servers and the tokens. No file
// changes.
func TestImportPrograms(t *testing.T) {
	t.Parallel()
	token := "tok-" + rand.Text()
	archive, err := txtar.ParseFile(filepath.Join("testdata", "programs.txtar"))
	must(t, err)
	files := map[string]string{}
	for _, f := range archive.Files {
		files[f.Name] = strings.NewReplacer("ECHO", program(t, "echo"), "TOKEN-", token+"-").Replace(string(f.Data))
	}
	names := []string{"claude", "claude-desktop", "codex", "cursor", "forerunner", "gemini", "goose", "opencode",
		"project", "vscode", "windsurf", "zed"}
	if testing.Short() {
		names = []string{"codex", "goose", "vscode"}
	}
	p := prepare(t, nil)
	must(t, os.Mkdir(filepath.Join(p.home, "policies.d"), 0o755))
	for _, name := range names {
		put(t, filepath.Join(p.home, "policies.d", name+".hcl"), fmt.Sprintf(
			"server %q {\n  reads = [\"environment\"]\n  relax = \"a test\"\n}\n", name))
	}
	p.up()
	home := p.clientHome(files)
	said := ""
	for _, name := range names {
		from := "--from=" + name
		if file, ok := importFiles[name]; ok {
			from = filepath.Join(home, file)
		}
		said += p.succeeds("import", "--yes", from)
	}
	if got := p.declaredFiles(); len(got) != len(names)+1 {
		t.Errorf("declared are %q", got)
	}
	p.awaitRunning(names...)
	vault, c := p.vaultKeys(), p.client("/mcp")
	for _, name := range names {
		variable := strings.ToUpper(strings.ReplaceAll(name, "-", "_")) + "_TOKEN"
		if !strings.Contains(vault, fmt.Sprintf(`"key": %q`, strings.ToLower(variable))) {
			t.Errorf("%s: the vault has no %s: %s", name, variable, vault)
		}
		// pfar replaces the value of a secret in results: so the server has it.
		if got := c.must(name+"__environment", nil); !strings.Contains(got, variable+"=[redacted]") {
			t.Errorf("%s: its environment is %s", name, got)
		}
	}
	if state := server(p.last(), "asks").State; state != control.Waiting {
		t.Errorf("a server whose input nobody has answered is %v", state)
	}
	if strings.Contains(said, token) {
		t.Error("a secret is printed")
	}
	assertSecretNowhere(t, p, token)
	sameFiles(t, home, files)

	for range names {
		said = p.succeeds("import", "--undo", "--yes")
	}
	if got := p.declaredFiles(); len(got) != 0 || p.vaultKeys() != "[]" {
		t.Errorf("undo leaves %q, %s, and says %s", got, p.vaultKeys(), said)
	}
	p.await("no server", soon, func(r control.Report) bool { return len(r.Servers) == 0 })
	assertSecretNowhere(t, p, token)
	sameFiles(t, home, files)
}

// TestImportPaths: a server that listens at a socket runs as its file says, in a sandbox of pfar's.
func TestImportPaths(t *testing.T) {
	t.Parallel()
	p := start(t, nil)
	file := filepath.Join(p.home, "mcp.json")
	put(t, file, fmt.Sprintf(`{"servers": {"held": {
  "transport": "uds", "path": "/run/held/mcp.sock", "command": "node", "args": [%q, "streamableHttp"],
  "env": {"PORT": "/run/held/mcp.sock"}
}}}`, npm(t, "@modelcontextprotocol/server-everything/dist/index.js")))
	p.succeeds("import", "--yes", file)
	if s := server(p.awaitRunning("held"), "held"); s.Transport != "stream-http" || s.Tools < 10 {
		t.Errorf("%d tools by %q", s.Tools, s.Transport)
	}
}

// sameFiles wants a home to have these files and no other, byte for byte.
func sameFiles(t *testing.T, home string, files map[string]string) {
	t.Helper()
	got := map[string]string{}
	must(t, filepath.WalkDir(home, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, _ := filepath.Rel(home, path)
		text, err := os.ReadFile(path)
		got[name] = string(text)
		return err
	}))
	if !maps.Equal(got, files) {
		t.Errorf("the home has %q", slices.Sorted(maps.Keys(got)))
		for name, text := range files {
			if got[name] != text {
				t.Errorf("%s is\n%s", name, got[name])
			}
		}
	}
}
