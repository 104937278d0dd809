package generator

import (
	"encoding/json"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/units/plan"
	"github.com/pfar/pfar/units/sandbox"
)

func parsed(t *testing.T, text string) declaration.Server {
	t.Helper()
	s, diags := declaration.Parse("/etc/pfar/mcp.d/notion.hcl", []byte(text), declaration.Options{Servers: "/var/lib/pfar/servers"})
	if s == nil {
		t.Fatal(diags)
	}
	return *s
}

const plain = `server {
  command = "node"
  args    = ["${servers}/notion/node_modules/notion/cli.mjs"]
}
`

func compiled(t *testing.T, text string) plan.Plan {
	t.Helper()
	p, diags := Compile(parsed(t, text), testHost(t, ""))
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	return p
}

// TestHowAPlanChanges compiles two declarations and says what it takes to get from one to the other.
func TestHowAPlanChanges(t *testing.T) {
	one := compiled(t, plain)
	const db = `allowed_domains = ["db.lan:5432"]` + "\n" + plain
	hosts := compiled(t, db)
	private := func(prefix string) plan.Plan {
		return compiled(t, `allow_private = { "db.lan" = "`+prefix+`" }`+"\n"+db)
	}
	auth := func(more string) plan.Plan {
		return compiled(t, `allowed_domains = ["y.example", "y.example:8443"]`+"\n"+`auth = { A = { secret = "vault:b", `+more+` } }`+"\n"+plain)
	}
	const broker = `deliver = "broker"`
	asIs := auth(`deliver = "env"`)
	for name, c := range map[string]struct {
		have, want plan.Plan
		takes      string
	}{
		"the same":        {one, compiled(t, plain), "nothing"},
		"limits":          {one, compiled(t, plain+"sandbox { tasks_max = 9 }"), "another process"},
		"memory":          {one, compiled(t, plain+`sandbox { memory_limit = "1g" }`), "as it runs"},
		"hosts":           {one, compiled(t, `allowed_domains = ["x.example"]`+"\n"+plain), "as it runs"},
		"private":         {hosts, private("10.1.2.3"), "as it runs"},
		"no more private": {private("10.1.2.3"), hosts, "as it runs"},
		"another address": {private("10.1.2.3"), private("10.1.2.4"), "as it runs"},
		"a wider prefix":  {private("10.1.2.0/24"), private("10.1.0.0/16"), "as it runs"},
		"same private":    {private("10.1.2.3"), private("10.1.2.3/32"), "nothing"},
		"a variable":      {one, compiled(t, plain+`env = { A = "b" }`), "another process"},
		"a secret's name": {one, compiled(t, plain+`auth = { A = "vault:b" }`), "another process"},
		"how delivered":   {asIs, auth(`deliver = "file"`), "another process"},
		"brokered":        {asIs, auth(broker), "another process"},
		"its hosts":       {auth(broker), auth(broker + `, hosts = ["y.example:8443"]`), "another process"},
		"its places":      {auth(broker), auth(broker + `, in = ["body"]`), "another process"},
		"said in full":    {auth(broker), auth(broker + `, hosts = ["y.example:443"], in = ["header:Authorization"]`), "nothing"},
		"description":     {one, compiled(t, `description = "x"`+"\n"+plain), "as it runs"},
		"another program": {one, compiled(t, strings.Replace(plain, `"${servers}`, `"--no-warnings", "${servers}`, 1)), "another process"},
		"the same found":  {one, compiled(t, strings.Replace(plain, `"node"`, `"/usr/bin/node"`, 1)), "another process"},
		"its package": {
			compiled(t, `package = "npm:mcp-x@1.0.0"`), compiled(t, `package = "npm:mcp-x@2.0.0"`), "another process",
		},
		"version":       {one, compiled(t, `version = "1.0"`+"\n"+plain), "another process"},
		"capabilities":  {one, compiled(t, `client_capabilities = ["roots"]`+"\n"+plain), "another process"},
		"their order":   {compiled(t, `client_capabilities = ["sampling", "roots"]`+"\n"+plain), compiled(t, `client_capabilities = ["roots", "sampling"]`+"\n"+plain), "nothing"},
		"sessions":      {one, compiled(t, `sessions = "own"`+"\n"+plain), "another process"},
		"pins":          {one, compiled(t, `pins = "hold"`+"\n"+plain), "as it runs"},
		"default pins":  {one, compiled(t, `pins = "trust-first"`+"\n"+plain), "nothing"},
		"an alias":      {one, compiled(t, `tool "a" { alias = ["b"] }`+"\n"+plain), "as it runs"},
		"a tool off":    {one, compiled(t, `tool "a" { enabled = false }`+"\n"+plain), "as it runs"},
		"a tool's name": {one, compiled(t, `tool "a" { rename = "b" }`+"\n"+plain), "as it runs"},
		"its inputs":    {one, compiled(t, `tool "a" { inputs = ["b"] }`+"\n"+plain), "as it runs"},
		"no outputs":    {one, compiled(t, `tool "a" { outputs = [] }`+"\n"+plain), "as it runs"},
		"idle_timeout":  {one, compiled(t, `idle_timeout = "5m"`+"\n"+plain), "another process"},
		"retries":       {one, compiled(t, "retries = 2\n"+plain), "as it runs"},
		"autostart":     {one, compiled(t, "autostart = false\n"+plain), "another process"},
	} {
		takes := "another process"
		if _, live := plan.Adjusted(c.have, c.want); plan.Digest(c.have) == plan.Digest(c.want) {
			takes = "nothing"
		} else if live {
			takes = "as it runs"
		}
		if takes != c.takes {
			t.Errorf("%s: takes %s, want %s", name, takes, c.takes)
		}
	}
}

// Compile is a function: the same input gives the same plan, to the byte, also over a file.
func TestPlansAreStable(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		first, diags := compileArchive(t, a)
		for range 3 {
			again, more := compileArchive(t, a)
			if plan.Digest(again) != plan.Digest(first) || diagnostics(more) != diagnostics(diags) {
				t.Errorf("%s: differs from one run to the next", file)
			}
		}
		b, err := json.Marshal(first)
		if err != nil {
			t.Fatal(err)
		}
		var read plan.Plan
		if err := json.Unmarshal(b, &read); err != nil || plan.Digest(read) != plan.Digest(first) {
			t.Errorf("%s: not the same after a round trip, %v", file, err)
		}
	}
}

// Every plan of the goldens keeps what no declaration may change, and can be turned into options for bwrap.
func TestInvariants(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	sound := 0
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		p, diags := compileArchive(t, a)
		if diags.HasErrors() != strings.HasPrefix(filepath.Base(file), "bad-") {
			t.Errorf("%s: %v", file, diags)
		}
		if diags.HasErrors() {
			continue
		}
		sound++
		invariants(t, file, p)
	}
	if sound < 30 {
		t.Errorf("only %d plans", sound)
	}
}

func invariants(t *testing.T, name string, p plan.Plan) {
	t.Helper()
	m := p.Sandbox.Mounts
	if m[0].Kind != sandbox.Tmpfs || m[0].Dest != "/" || m[0].Size <= 0 {
		t.Errorf("%s: the root is %+v", name, m[0])
	}
	remounted := map[string]bool{}
	o := sandbox.Options{BindFD: map[int]int{}, DataFD: map[int]int{}, SeccompFD: 5, StatusFD: 6, Credentials: map[string][]byte{}}
	for i, x := range m {
		o.BindFD[i], o.DataFD[i] = 100+i, 100+i
		if x.Why == "" {
			t.Errorf("%s: nobody knows why there is %+v", name, x)
		}
		if x.Kind == sandbox.Tmpfs && x.Size <= 0 {
			t.Errorf("%s: %s without a size", name, x.Dest)
		}
		remounted[x.Dest] = remounted[x.Dest] || x.Kind == sandbox.Remount
		for _, secret := range append(testHost(t, "").Private, "/etc/shadow", "/home/alice/.ssh", "/home/alice", "/root") {
			shows := x.ReadOnly() || x.Kind == sandbox.Bind && !x.State
			if shows && (sandbox.Below(secret, x.Source) || sandbox.Below(x.Source, secret) && secret != "/home/alice" && secret != "/root") {
				t.Errorf("%s: %s is shown by %+v", name, secret, x)
			}
		}
	}
	if !remounted["/etc"] || !remounted["/dev"] || !remounted["/"] && name != "testdata/read_only_fs.txtar" {
		t.Errorf("%s: remounted are %v", name, remounted)
	}
	for _, c := range p.Credentials {
		o.Credentials[c.Name] = []byte("value")
	}
	if _, err := p.Sandbox.Arguments(o); err != nil {
		t.Errorf("%s: %v", name, err)
	}
}

// What a declaration says comes out as it went in, and cannot draw lines of its own into a report.
func TestStringsOfDeclarations(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	letters := []rune("ab/-= \n\t\"'\\$%{}`;\u202e\u200bé\x1b[31m\r")
	text := func() string {
		s := make([]rune, 1+r.IntN(10))
		for i := range s {
			s[i] = letters[r.IntN(len(letters))]
		}
		return string(s)
	}
	for range 300 {
		s := parsed(t, plain)
		s.Args = append(s.Args, text(), text())
		s.Env = []declaration.Variable{{Name: "A", Value: text()}}
		s.Description = text()
		p, diags := Compile(s, testHost(t, ""))
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		if !slices.Equal(p.Sandbox.Args, s.Args) || p.Gateway.Description != s.Description {
			t.Fatalf("args %q, want %q", p.Sandbox.Args, s.Args)
		}
		if !slices.Contains(p.Sandbox.Env, sandbox.Env{Name: "A", Value: s.Env[0].Value}) {
			t.Fatalf("%q is not in %+v", s.Env[0].Value, p.Sandbox.Env)
		}
		plainWords := compiled(t, plain+`env = { A = "x" }`)
		for name, pair := range map[string][2]string{"words": {Words(p), Words(plainWords)}, "explain": {Explain(p, nil), Explain(plainWords, nil)}} {
			if strings.Count(pair[0], "\n") != strings.Count(pair[1], "\n") || strings.ContainsAny(pair[0], "\x1b\r\u202e\u200b") {
				t.Fatalf("%s: %q", name, pair[0])
			}
		}
	}
}

func TestNothingToLookAt(t *testing.T) {
	h := Host{FS: mapFS(t, "")}
	p, diags := Compile(parsed(t, plain), h)
	if !diags.HasErrors() || p.Name != "" {
		t.Errorf("%+v, %v", p, diags)
	}
	p, diags = Compile(declaration.Server{}, h)
	if !diags.HasErrors() || p.Name != "" {
		t.Errorf("the zero server: %+v, %v", p, diags)
	}
}

func TestInterpreterFindsItsProgram(t *testing.T) {
	for _, c := range []struct {
		command string
		args    string
		want    int
	}{
		{"node", "/a.js", 0}, {"node", "--inspect -r /h.js /a.js /b.js", 3}, {"node", "-e code /a", -1}, {"node", "-pe code", -1},
		{"node", "-- /a.js", 1}, {"node", "", -1}, {"node", "--import=x /a.js", 1}, {"nodejs", "a.js", 0}, {"node20", "/a.js", 0},
		{"python3", "-m mod /data", -1}, {"python3.12", "-u /a.py", 1}, {"python", "-W ignore -X dev /a.py", 4}, {"python3", "-um mod", -1},
		{"python3", "-c code", -1}, {"java", "-jar /a.jar x", 1}, {"java", "-Xmx256m -jar /a.jar", 2}, {"java", "-cp /a:/b Main", -1},
		{"java", "Main /x", -1}, {"deno", "run --allow-net /a.ts", 2}, {"deno", "run npm:x", 1}, {"bun", "run /a.ts", 1}, {"bun", "x pkg", -1},
		{"sh", "-c /x", -1}, {"bash", "-ec x", -1}, {"bash", "-o pipefail /a.sh", 2}, {"perl", "-I /lib /a.pl", 2}, {"ruby", "/a.rb", 0},
	} {
		in, ok := interpreterOf("/usr/bin/" + c.command)
		if got := in.find(strings.Fields(c.args)); !ok || got != c.want {
			t.Errorf("%s %s: %d, want %d (%v)", c.command, c.args, got, c.want, ok)
		}
	}
	for _, name := range []string{"server", "node-server", "pythonic", "npx", "uvx"} {
		if _, ok := interpreterOf(name); ok {
			t.Errorf("%s is taken for an interpreter", name)
		}
	}
}
