package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/pfar/pfar/generator/catalog"
	"github.com/pfar/pfar/generator/source"
	"github.com/pfar/pfar/policies/drift"
	"github.com/pfar/pfar/units/control"
)

// packageHost is where the test's registries are, on loopback.
const packageHost = "registry.example.com"

// registries are stand-ins for those of npm and PyPI.
type registries struct {
	*httptest.Server
	dir   string // of the files
	roots string // by which clients know them
	hosts string // for /etc/hosts

	mu    sync.Mutex
	about map[string]string        // what is said, by path
	asked map[string]chan struct{} // by path of a file: is closed when it is asked for, and the answer never comes
}

func newRegistries(t *testing.T) *registries {
	t.Helper()
	r := &registries{dir: directory(t, "/var/tmp"), about: map[string]string{}, asked: map[string]chan struct{}{}}
	r.Server = httptest.NewUnstartedServer(r)
	r.Config.ErrorLog = log.New(io.Discard, "", 0)
	r.StartTLS()
	t.Cleanup(r.CloseClientConnections)
	r.roots, r.hosts = filepath.Join(r.dir, "roots.pem"), filepath.Join(r.dir, "hosts")
	put(t, r.roots, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate().Raw})))
	put(t, r.hosts, "127.0.0.1 localhost "+packageHost+" pypi.org files.pythonhosted.org\n")
	return r
}

func (r *registries) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	text, known := r.about[q.URL.Path]
	asked := r.asked[q.URL.Path]
	delete(r.asked, q.URL.Path)
	r.mu.Unlock()
	switch {
	case asked != nil:
		close(asked)
		<-q.Context().Done()
	case known:
		if strings.HasPrefix(text, `{"meta"`) {
			w.Header().Set("Content-Type", "application/vnd.pypi.simple.v1+json")
		}
		io.WriteString(w, text)
	default:
		http.ServeFile(w, q, filepath.Join(r.dir, "files", path.Base(q.URL.Path)))
	}
}

// url is that of a path.
func (r *registries) url(path string) string {
	return "https://" + packageHost + r.URL[strings.LastIndex(r.URL, ":"):] + path
}

// hold has a file never come, and returns what is closed when it is asked for.
func (r *registries) hold(path string) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked[path] = make(chan struct{})
	return r.asked[path]
}

// npm publishes a version of a package that is the echo server, with these members of its package.json.
func (r *registries) npm(t *testing.T, name, version, more string) {
	t.Helper()
	binary, err := os.ReadFile(program(t, "echo"))
	check(t, err)
	r.publish(t, name, version, more, binary)
}

// publish is npm with another program.
func (r *registries) publish(t *testing.T, name, version, more string, binary []byte) {
	t.Helper()
	file := strings.ReplaceAll(strings.TrimPrefix(name, "@"), "/", "-") + "-" + version + ".tgz"
	packed := tarball(t, map[string][]byte{
		"package/package.json": fmt.Appendf(nil, `{"name": %q, "version": %q, "bin": "echo"%s}`, name, version, more),
		"package/echo":         binary,
	})
	write(t, filepath.Join(r.dir, "files", file), string(packed))
	sum := sha512.Sum512(packed)
	r.mu.Lock()
	defer r.mu.Unlock()
	var about struct {
		Name     string                     `json:"name"`
		Tags     map[string]string          `json:"dist-tags"`
		Versions map[string]json.RawMessage `json:"versions"`
	}
	at := "/npm/" + name
	if r.about[at] != "" {
		check(t, json.Unmarshal([]byte(r.about[at]), &about))
	} else {
		about.Versions = map[string]json.RawMessage{}
	}
	about.Name, about.Tags = name, map[string]string{"latest": version}
	about.Versions[version] = json.RawMessage(fmt.Sprintf(`{"name": %q, "version": %q, "bin": "echo", "dist": `+
		`{"tarball": %q, "integrity": "sha512-%s"}%s}`, name, version, r.url("/files/"+file),
		base64.StdEncoding.EncodeToString(sum[:]), more))
	text, err := json.Marshal(about)
	check(t, err)
	r.about[at] = string(text)
}

// tarball packs files as npm does, which takes a second of processor for it. All may be run, as npm has it for a bin.
func tarball(t *testing.T, files map[string][]byte) []byte {
	t.Helper()
	var packed bytes.Buffer
	zip, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	check(t, err)
	archive := tar.NewWriter(zip)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		check(t, archive.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(files[name]))}))
		_, err := archive.Write(files[name])
		check(t, err)
	}
	check(t, archive.Close())
	check(t, zip.Close())
	return packed.Bytes()
}

// pypi publishes a file of a package.
func (r *registries) pypi(t *testing.T, name, file string) {
	t.Helper()
	r.page(name, fmt.Sprintf("<html><body><a href=\"/files/%s#sha256=%s\">%s</a></body></html>", file,
		r.sum(t, file), file))
}

// page sets what the index of PyPI says of a package.
func (r *registries) page(name, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.about["/simple/"+name+"/"] = text
}

// sum is the SHA-256 of a file.
func (r *registries) sum(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(r.dir, "files", file))
	check(t, err)
	return fmt.Sprintf("%x", sha256.Sum256(b))
}

// inHosts runs a command where the registries are known by name.
func inHosts(r *registries) []string {
	const script = `mount --bind "$0" /etc/hosts; exec "$@"`
	return []string{"unshare", "--mount", "--propagation", "private", "sh", "-ec", script, r.hosts}
}

// TestInstall has npm and pip install packages, from registries that the operator's settings name and nobody else's,
// and wants what fails, or is cut off, to leave nothing that counts.
func TestInstall(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can have names of its own; TestInstallOwn is about users")
	}
	t.Parallel()
	r := newRegistries(t)
	const name = "@example/mcp-echo"
	r.npm(t, name, "1.0.0", "")
	r.npm(t, name, "1.1.0", `, "scripts": {"postinstall": "touch ran"}, "hasInstallScript": true`)
	r.npm(t, name, "1.2.0", `, "dependencies": {"elsewhere": "https://other.example.com/x.tgz"}`)
	r.npm(t, name, "1.3.0", "")
	r.npm(t, name, "1.4.0", "")
	put(t, filepath.Join(r.dir, "files/example-mcp-echo-1.3.0.tgz"), "another one")
	memory, _ := catalog.Load(nil, "").Find("memory")
	known, err := source.ParseExact(memory.Program.Package)
	check(t, err)
	r.npm(t, known.Name, known.Version, "") // the registry is consistent, and has another package of that name
	wheel(t, filepath.Join(r.dir, "files"), "mcp_server_git")
	put(t, filepath.Join(r.dir, "files/mcp_server_time-1.0.tar.gz"), "sources")
	r.pypi(t, "mcp-server-git", "mcp_server_git-1.0-py3-none-any.whl")
	r.pypi(t, "mcp-server-time", "mcp_server_time-1.0.tar.gz")

	p := prepare(t, map[string]string{"echoed.hcl": `package = "npm:` + name + `@1.0.0"` + "\n"})
	named := []string{
		"npm_config_registry=" + r.url("/npm/"), "npm_config_cafile=" + r.roots,
		"PIP_INDEX_URL=" + r.url("/simple/"), "PIP_CERT=" + r.roots, "PIP_FIND_LINKS=", "NPM_CONFIG_REGISTRY=",
	}
	p.env = append(p.env, named...)
	p.up(inHosts(r)...)
	p.awaitRunning("echoed") // pfard installs what is declared
	p.isOf("echoed", name)
	if out, stderr, code := p.command("install", "echoed", "--json"); code != 0 || !strings.Contains(out, `"done": true`) {
		t.Fatalf("%d: %s %s", code, out, stderr)
	}
	p.write("none.hcl", `package = "npm:`+name+`@9.9.8"`+"\n")
	p.await("why it is not installed", soon, func(r control.Report) bool {
		s := server(r, "none")
		return s.State == control.Failed && strings.Contains(s.Detail, "No matching version found") &&
			strings.Contains(s.Detail, "pfar install npm:"+name+"@9.9.8")
	})
	out, _, code := p.command("install", "npm:"+name+"@1.0.0")
	if code != 0 || !strings.Contains(out, "is there already") {
		t.Errorf("again: %d %s", code, out)
	}
	place := func(rest string) string { return filepath.Join(p.state(), "packages", rest) }
	lock, err := os.ReadFile(place("npm/" + name + "/1.0.0/lock.json"))
	if err != nil || !bytes.Contains(lock, []byte(`"integrity": "sha512-`)) {
		t.Errorf("the lock: %s, %v", lock, err)
	}
	if _, stderr, code := p.command("install", "npm:"+name+"@1.1.0"); code != 0 ||
		!strings.Contains(stderr, "pfar did not run the install scripts of "+name+"; if the server needs them, install") {
		t.Errorf("with a script: %d %s", code, stderr)
	}
	if at := place("npm/" + name + "/1.1.0/tree/node_modules/" + name + "/ran"); exists(at) {
		t.Errorf("a script of the package has run: %s", at)
	}
	upgradedAndBack(t, p, name)
	addedUnknown(t, p, r)
	if _, stderr, code := p.command("install", "pypi:mcp-server-git==1.0"); code != 0 ||
		strings.Contains(stderr, "script") {
		t.Errorf("PyPI: %d %s", code, stderr)
	}
	p.write("git.hcl", "package = \"pypi:mcp-server-git==1.0\"\n")
	p.await("the other server", soon, func(r control.Report) bool { return server(r, "git").Name != "" })
	p.isOf("git", "pypi:mcp-server-git")

	for pkg, want := range map[string]string{
		"npm:" + name + "@1.2.0":     "other.example.com",
		"npm:" + name + "@1.3.0":     "integrity",
		memory.Program.Package:       "than pfar knows: want " + memory.Program.Integrity,
		"npm:" + name + "@9.9.9":     "No matching version found for @example/mcp-echo@9.9.9",
		"npm:@example/none@1.0.0":    "404",
		"pypi:mcp-server-time==1.0":  "No matching distribution",
		"pypi:mcp-server-git==7.0.0": "No matching distribution",
	} {
		if testing.Short() && want[0] == 'N' {
			continue // each of these is npm's or pip's own word for a package that is not there
		}
		_, stderr, code := p.command("install", pkg)
		if code != 1 || !strings.Contains(strings.ToLower(stderr), strings.ToLower(want)) {
			t.Errorf("%s: %d %s, want %q", pkg, code, stderr, want)
		}
	}
	for _, rest := range []string{"npm/" + name + "/1.2.0", "npm/" + name + "/1.3.0", "pypi/mcp-server-time/1.0"} {
		if exists(place(rest)) {
			t.Errorf("%s is there", rest)
		}
	}
	killedInstall(t, p, r, name)

	p.stop()
	q := prepare(t, nil) // nobody names the public registries, which are at private addresses here
	q.env = append(q.env, "PIP_INDEX_URL=", "PIP_CONFIG_FILE=", "PIP_FIND_LINKS=")
	q.up(inHosts(r)...)
	const refused = "pypi.org:443 (address-refused); to use a registry at a private address, name it"
	_, stderr, code := q.command("install", "pypi:mcp-server-git==1.0")
	if code != 1 || !strings.Contains(stderr, refused) {
		t.Errorf("a private address that nobody names: %d %s", code, stderr)
	}
}

// addedUnknown adds packages of which pfar knows nothing: it finds their newest versions, stores their secrets, learns
// from them, and verifies nothing.
func addedUnknown(t *testing.T, p *pfar, r *registries) {
	t.Helper()
	const name, token = "@example/mcp-unknown", "tok-77aa01f3c9d24e60-of-the-unknown"
	echo := program(t, "echo")
	r.npm(t, name, "1.0.0", "")
	r.npm(t, name, "1.1.0", "")
	wheelOf(t, filepath.Join(r.dir, "files"), "acme_notes", "1.0", fmt.Sprintf(mainOf, `["note"]`))
	r.pypi(t, "acme-notes", "acme_notes-1.0-py3-none-any.whl")
	if out, stderr, code := p.command("add", "npm:"+name, "--dry-run"); code != 0 ||
		!strings.Contains(out, `package = "npm:`+name+`@1.1.0"`) ||
		exists(filepath.Join(p.state(), "packages/npm", name)) {
		t.Errorf("a dry run: %d %s %s", code, out, stderr)
	}
	for _, c := range []struct{ args, stdin, server, text string }{
		{"npm:" + name + " --secret UNKNOWN_TOKEN", token, "unknown", "# From pfar add: npm:" + name + "@1.1.0\n\n" +
			"server { package = \"npm:" + name + "@1.1.0\" }\n\nauth = { UNKNOWN_TOKEN = \"vault:unknown_token\" }\n"},
		{"npm:" + name + "@1.0.0 --secret A_TOKEN@api.example.com --name brokered", token, "brokered",
			"# From pfar add: npm:" + name + "@1.0.0\nallowed_domains = [\"api.example.com\"]\n\n" +
				"server { package = \"npm:" + name + "@1.0.0\" }\n\n" +
				"auth = {\n  A_TOKEN = {\n    secret  = \"vault:brokered_a_token\"\n    deliver = \"broker\"\n" +
				"    hosts   = [\"api.example.com\"]\n  }\n}\n"},
		{"pypi:acme-notes", "", "acme-notes",
			"# From pfar add: pypi:acme-notes==1.0\n\nserver { package = \"pypi:acme-notes==1.0\" }\n"},
		{"pypi:acme-notes==1.0 --name notes", "", "notes",
			"# From pfar add: pypi:acme-notes==1.0\n\nserver { package = \"pypi:acme-notes==1.0\" }\n"},
		{"--name lined -- npx -y " + name + "@1.0.0", "", "lined", "# From pfar add: npm:" + name + "@1.0.0\n\n" +
			"server { package = \"npm:" + name + "@1.0.0\" }\n"},
		{"--name local -- " + echo + " -tools 3", "", "local", "# From pfar add: " + echo + "\n\n" +
			"server {\n  command = \"" + echo + "\"\n  args    = [\"-tools\", \"3\"]\n}\n"},
	} {
		p.stdin = c.stdin
		args := append([]string{"add", "--yes", "--learn", "1s"}, strings.Fields(c.args)...)
		out, stderr, code := p.command(args...)
		p.stdin = ""
		if code != 0 ||
			!strings.Contains(out, c.server+": connected, not verified\nIt is declared in "+p.path(c.server+".hcl")) ||
			!strings.Contains(stderr, c.server+" is in learning mode for 1s") {
			t.Errorf("%s: %d %s %s", c.args, code, out, stderr)
		}
		if text, err := os.ReadFile(p.path(c.server + ".hcl")); err != nil || string(text) != c.text {
			t.Errorf("%v: declared %s, want %s", err, text, c.text)
		}
		if out, stderr, code := p.command(args...); code != 0 || !strings.Contains(out, c.server+": running") {
			t.Errorf("%s again: %d %s %s", c.args, code, out, stderr)
		}
	}
	for _, key := range []string{"unknown_token", "brokered_a_token"} {
		if keys := p.vaultKeys(); !strings.Contains(keys, `"`+key+`"`) {
			t.Errorf("the vault has %s", keys)
		}
	}
	assertSecretNowhere(t, p, token)
	if out := p.succeeds("call", "notes.note"); !strings.Contains(out, "called") {
		t.Errorf("the note: %s", out)
	}
	if _, stderr, code := p.command("add", "npm:@example/nowhere", "--yes"); code != 1 ||
		!strings.Contains(stderr, "looking for the newest version of npm:@example/nowhere") {
		t.Errorf("a package that is not there: %d %s", code, stderr)
	}
}

// upgradedAndBack has a server go to another version of its package, not to one that cannot be installed, and back.
func upgradedAndBack(t *testing.T, p *pfar, name string) {
	t.Helper()
	before, err := os.ReadFile(p.path("echoed.hcl"))
	check(t, err)
	if _, stderr, code := p.command("upgrade", "echoed", "9.9.9", "--yes"); code != 1 ||
		!strings.Contains(stderr, "nothing was changed: echoed goes on with npm:"+name+"@1.0.0") {
		t.Errorf("to no version: %d %s", code, stderr)
	}
	if now, err := os.ReadFile(p.path("echoed.hcl")); err != nil || !bytes.Equal(now, before) {
		t.Errorf("the declaration is now %s, %v", now, err)
	}
	out, stderr, code := p.command("upgrade", "echoed", "1.1.0", "--yes", "--json")
	if code != 0 || !strings.Contains(out, `"state": "running"`) {
		t.Errorf("upgrade: %d %s %s", code, out, stderr)
	}
	now, err := os.ReadFile(p.path("echoed.hcl"))
	if err != nil || string(now) != strings.Replace(string(before), "1.0.0", "1.1.0", 1) {
		t.Errorf("the declaration is now %s, %v", now, err)
	}
	out, stderr, code = p.command("upgrade", "echoed", "--back", "--yes")
	if code != 0 || !strings.Contains(out, name+"@1.0.0, running") {
		t.Errorf("back: %d %s %s", code, out, stderr)
	}
	if now, err := os.ReadFile(p.path("echoed.hcl")); err != nil || !bytes.Equal(now, before) {
		t.Errorf("the declaration is now %s, %v", now, err)
	}
}

// killedInstall kills all of pfar while npm waits for a package, and wants the next one to find nothing, and to install
// it.
func killedInstall(t *testing.T, p *pfar, r *registries, name string) {
	t.Helper()
	asked := r.hold("/files/example-mcp-echo-1.4.0.tgz")
	c := exec.Command(program(t, "pfar"), "install", "npm:"+name+"@1.4.0")
	c.Env = p.env
	check(t, c.Start())
	<-asked
	all := append(descendants(p.cmd.Process.Pid), process{pid: p.cmd.Process.Pid})
	for _, d := range all {
		_ = syscall.Kill(d.pid, syscall.SIGKILL)
	}
	<-p.ended
	// The next pfard does not start while this one holds its lock.
	until(t, "all of pfar is gone", func() bool { return !slices.ContainsFunc(all, process.alive) })
	if err := c.Wait(); err == nil {
		t.Error("whoever has asked takes it for installed")
	}
	at := filepath.Join(p.state(), "packages/npm", name, "1.4.0")
	if exists(at) {
		t.Errorf("%s is there", at)
	}
	p.again(inHosts(r)...)
	_, stderr, code := p.command("install", "npm:"+name+"@1.4.0")
	if code != 0 || !exists(filepath.Join(at, "record.json")) {
		t.Errorf("after that: %d %s", code, stderr)
	}
	until(t, "nothing is left", func() bool { // a declared package that is not there is tried at the same time
		left, err := os.ReadDir(filepath.Join(p.state(), "packages/.staged"))
		return err == nil && len(left) == 0
	})
}

// TestInstallFull has npm fill a small disk in the midst of a package: nothing is there, the words say why, and with
// room the same command installs it.
func TestInstallFull(t *testing.T) {
	if os.Getuid() != 0 {
		return // only root mounts a disk, and the test has run as root
	}
	t.Parallel()
	r := newRegistries(t)
	const name = "@example/mcp-large"
	r.npm(t, name, "1.0.0", "")
	p := prepare(t, nil)
	p.env = append(p.env, "npm_config_registry="+r.url("/npm/"), "npm_config_cafile="+r.roots, "NPM_CONFIG_REGISTRY=")
	disk := filepath.Join(p.state(), "packages")
	check(t, os.MkdirAll(disk, 0o755))
	wrap := inHosts(r)
	wrap[len(wrap)-2] = fmt.Sprintf("mount -t tmpfs -o size=1m,mode=755 none %s; %s", disk, wrap[len(wrap)-2])
	p.up(wrap...)
	inside := filepath.Join("/proc", fmt.Sprint(p.daemon()), "root", disk)
	_, stderr, code := p.command("install", "npm:"+name+"@1.0.0")
	if code != 1 || !strings.Contains(stderr, "the disk is full; make room") {
		t.Errorf("on a full disk: %d %s", code, stderr)
	}
	left, err := os.ReadDir(filepath.Join(inside, ".staged"))
	if err != nil || len(left) > 0 || exists(filepath.Join(inside, "npm", name, "1.0.0")) {
		t.Errorf("left: %v, %v", left, err)
	}
	namespace := fmt.Sprintf("--mount=/proc/%d/ns/mnt", p.daemon())
	out, err := exec.Command("nsenter", namespace, "mount", "-o", "remount,size=512m", disk).CombinedOutput()
	if err != nil {
		t.Fatalf("making room: %v %s", err, out)
	}
	p.succeeds("install", "npm:"+name+"@1.0.0")
	if !exists(filepath.Join(inside, "npm", name, "1.0.0/record.json")) {
		t.Error("it is not there")
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// TestInstallOwn installs a package as the pfar of a user, by that user's settings of npm, which name the registry of
// the machine's.
func TestInstallOwn(t *testing.T) {
	if os.Getuid() == 0 {
		return // it runs as an ordinary user as well
	}
	t.Parallel()
	const memory = "npm:@modelcontextprotocol/server-memory@2025.9.25"
	p := prepare(t, map[string]string{"memory.hcl": fmt.Sprintf("package = %q\n", memory)})
	home := directory(t, "/var/tmp")
	settings := "registry=https://registry.npmjs.org/\n"
	if out, err := exec.Command("npm", "config", "get", "cafile").Output(); err == nil {
		if ca := strings.TrimSpace(string(out)); filepath.IsAbs(ca) {
			settings += "cafile=" + ca + "\n"
		}
	}
	put(t, filepath.Join(home, ".npmrc"), settings)
	p.env = append(p.env, "HOME="+home)
	p.up()
	if _, stderr, code := p.command("install", "memory"); code != 0 {
		t.Fatalf("%d: %s", code, stderr)
	}
	p.awaitRunning("memory")
	p.isOf("memory", "@modelcontextprotocol/server-memory")
	listsItself(t, p, "memory")
}

// listsItself wants a listing of a real server, which has nothing but its sandbox, to be what it offers as it runs.
func listsItself(t *testing.T, p *pfar, name string) {
	t.Helper()
	l, err := control.Client{Path: filepath.Join(p.run, "control.sock")}.List(t.Context(), name, nil)
	check(t, err)
	found, err := drift.ReadListing(l.Found)
	tools := slices.DeleteFunc(found.Definitions, func(d drift.Definition) bool { return d.Kind != drift.Tool })
	if n := server(p.last(), name).Tools; err != nil || n == 0 || len(tools) != n {
		t.Errorf("%d are listed, and it has %d tools: %s %s, %v", len(tools), n, l.Failed, l.Refused, err)
	}
}
