package generator

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/pfar/pfar/generator/declaration"
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

func compiled(t *testing.T, text string) Plan {
	t.Helper()
	p, diags := Compile(parsed(t, text), testHost(t, ""))
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	return p
}

func TestDiff(t *testing.T) {
	one := compiled(t, plain)
	plans := func(p ...Plan) map[string]Plan {
		m := map[string]Plan{}
		for i, x := range p {
			m[fmt.Sprintf("s%d", i)] = x
		}
		return m
	}
	const db = `allowed_domains = ["db.lan:5432"]` + "\n" + plain
	hosts := compiled(t, db)
	private := func(prefix string) Plan { return compiled(t, `allow_private = { "db.lan" = "`+prefix+`" }`+"\n"+db) }
	auth := func(more string) Plan {
		return compiled(t, `allowed_domains = ["y.example", "y.example:8443"]`+"\n"+`auth = { A = { secret = "vault:b", `+more+` } }`+"\n"+plain)
	}
	const broker = `deliver = "broker"`
	asIs := auth(`deliver = "env"`)
	for name, c := range map[string]struct {
		have, want map[string]Plan
		changes    []Change
	}{
		"nothing":         {nil, nil, nil},
		"the same":        {plans(one), plans(compiled(t, plain)), nil},
		"new":             {nil, plans(one, one), []Change{{"s0", Start, "declared and not running"}, {"s1", Start, "declared and not running"}}},
		"gone":            {plans(one), nil, []Change{{"s0", Stop, "its declaration is gone"}}},
		"disabled":        {plans(one), plans(compiled(t, "enabled = false\n"+plain)), []Change{{"s0", Stop, "enabled = false in its declaration"}}},
		"never started":   {nil, plans(compiled(t, "enabled = false\n"+plain), compiled(t, "autostart = false\n"+plain)), nil},
		"limits":          {plans(one), plans(compiled(t, plain+"sandbox { tasks_max = 9 }")), []Change{{"s0", Restart, "changed: limits"}}},
		"memory":          {plans(one), plans(compiled(t, plain+`sandbox { memory_limit = "1g" }`)), []Change{{"s0", Adjust, "changed: mounts, limits"}}},
		"hosts":           {plans(one), plans(compiled(t, `allowed_domains = ["x.example"]`+"\n"+plain)), []Change{{"s0", Adjust, "changed: egress, what the gateway knows"}}},
		"private":         {plans(hosts), plans(private("10.1.2.3")), []Change{{"s0", Adjust, "changed: egress, what the gateway knows"}}},
		"no more private": {plans(private("10.1.2.3")), plans(hosts), []Change{{"s0", Adjust, "changed: egress, what the gateway knows"}}},
		"another address": {plans(private("10.1.2.3")), plans(private("10.1.2.4")), []Change{{"s0", Adjust, "changed: egress, what the gateway knows"}}},
		"a wider prefix":  {plans(private("10.1.2.0/24")), plans(private("10.1.0.0/16")), []Change{{"s0", Adjust, "changed: egress, what the gateway knows"}}},
		"same private":    {plans(private("10.1.2.3")), plans(private("10.1.2.3/32")), nil},
		"a variable":      {plans(one), plans(compiled(t, plain+`env = { A = "b" }`)), []Change{{"s0", Restart, "changed: environment"}}},
		"a secret's name": {plans(one), plans(compiled(t, plain+`auth = { A = "vault:b" }`)), []Change{{"s0", Restart, "changed: environment, credentials, what the gateway knows"}}},
		"how delivered":   {plans(asIs), plans(auth(`deliver = "file"`)), []Change{{"s0", Restart, "changed: mounts, environment, credentials"}}},
		"brokered":        {plans(asIs), plans(auth(broker)), []Change{{"s0", Restart, "changed: mounts, environment, credentials"}}},
		"its hosts":       {plans(auth(broker)), plans(auth(broker + `, hosts = ["y.example:8443"]`)), []Change{{"s0", Restart, "changed: credentials"}}},
		"its places":      {plans(auth(broker)), plans(auth(broker + `, in = ["body"]`)), []Change{{"s0", Restart, "changed: credentials"}}},
		"said in full":    {plans(auth(broker)), plans(auth(broker + `, hosts = ["y.example:443"], in = ["header:Authorization"]`)), nil},
		"description":     {plans(one), plans(compiled(t, `description = "x"`+"\n"+plain)), []Change{{"s0", Adjust, "changed: what the gateway knows"}}},
		"another program": {plans(one), plans(compiled(t, strings.Replace(plain, `"${servers}`, `"--no-warnings", "${servers}`, 1))), []Change{{"s0", Restart, "changed: command"}}},
		"the same found":  {plans(one), plans(compiled(t, strings.Replace(plain, `"node"`, `"/usr/bin/node"`, 1))), []Change{{"s0", Restart, "changed: command"}}},
		"version":         {plans(one), plans(compiled(t, `version = "1.0"`+"\n"+plain)), []Change{{"s0", Restart, "changed: what the gateway knows"}}},
		"capabilities":    {plans(one), plans(compiled(t, `client_capabilities = ["roots"]`+"\n"+plain)), []Change{{"s0", Restart, "changed: what the gateway knows"}}},
		"their order":     {plans(compiled(t, `client_capabilities = ["sampling", "roots"]`+"\n"+plain)), plans(compiled(t, `client_capabilities = ["roots", "sampling"]`+"\n"+plain)), nil},
		"sessions":        {plans(one), plans(compiled(t, `sessions = "own"`+"\n"+plain)), []Change{{"s0", Restart, "changed: what the gateway knows"}}},
		"pins":            {plans(one), plans(compiled(t, `pins = "hold"`+"\n"+plain)), []Change{{"s0", Adjust, "changed: what the gateway knows"}}},
		"default pins":    {plans(one), plans(compiled(t, `pins = "trust-first"`+"\n"+plain)), nil},
		"an alias":        {plans(one), plans(compiled(t, `tool "a" { alias = ["b"] }`+"\n"+plain)), []Change{{"s0", Adjust, "changed: what the gateway knows"}}},
		"idle_timeout":    {plans(one), plans(compiled(t, `idle_timeout = "5m"`+"\n"+plain)), []Change{{"s0", Restart, "changed: idle_timeout"}}},
		"autostart":       {plans(one), plans(compiled(t, "autostart = false\n"+plain)), []Change{{"s0", Restart, "changed: when it starts"}}},
	} {
		if got := Diff(c.have, c.want); !reflect.DeepEqual(got, c.changes) {
			t.Errorf("%s: %+v, want %+v", name, got, c.changes)
		}
	}
}

// A random walk: what Diff says, done, leaves nothing to do.
func TestDiffConverges(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	variants := []Plan{
		compiled(t, plain), compiled(t, plain+"sandbox { tasks_max = 9 }"), compiled(t, "enabled = false\n"+plain),
		compiled(t, `allowed_domains = ["x.example"]`+"\n"+plain),
		compiled(t, `allowed_domains = ["x.example"]`+"\n"+`allow_private = { "x.example" = ["10.1.2.3"] }`+"\n"+plain),
	}
	have := map[string]Plan{}
	for range 500 {
		want := map[string]Plan{}
		for i := range 5 {
			if r.IntN(3) > 0 {
				want[fmt.Sprintf("s%d", i)] = variants[r.IntN(len(variants))]
			}
		}
		for _, c := range Diff(have, want) {
			if c.Why == "" {
				t.Fatalf("%+v says no reason", c)
			}
			if c.Kind == Stop {
				delete(have, c.Name)
			} else {
				have[c.Name] = want[c.Name]
			}
		}
		if left := Diff(have, want); len(left) > 0 {
			t.Fatalf("still to do: %+v", left)
		}
		maps.DeleteFunc(want, func(_ string, p Plan) bool { return !p.Enabled })
		if !reflect.DeepEqual(have, want) {
			t.Fatalf("have %v, want %v", slices.Collect(maps.Keys(have)), slices.Collect(maps.Keys(want)))
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
			if Digest(again) != Digest(first) || diagnostics(more) != diagnostics(diags) {
				t.Errorf("%s: differs from one run to the next", file)
			}
		}
		b, err := json.Marshal(first)
		if err != nil {
			t.Fatal(err)
		}
		var read Plan
		if err := json.Unmarshal(b, &read); err != nil || Digest(read) != Digest(first) {
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

func invariants(t *testing.T, name string, p Plan) {
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

// DC-02, DC-08: what a declaration says comes out as it went in, and cannot draw lines of its own into a report.
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
		for name, pair := range map[string][2]string{"words": {p.Words(), plainWords.Words()}, "explain": {p.Explain(nil), plainWords.Explain(nil)}} {
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
