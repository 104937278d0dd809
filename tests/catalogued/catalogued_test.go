package catalogued

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/pfar/pfar/generator"
	"github.com/pfar/pfar/generator/catalog"
	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/generator/source"
	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/units/plan"
)

var update = flag.Bool("update", false, "rewrite testdata/plans.txt")

// TestPlans compiles each service without a warning, and compares what its server reaches, holds and keeps with the
// record.
func TestPlans(t *testing.T) {
	program := &fstest.MapFile{Data: []byte("\x7fELF"), Mode: 0o755}
	host := generator.Host{
		FS: fstest.MapFS{
			"usr/bin/node": program, "usr/bin/env": program, "usr/bin/python3": program, "usr/lib/chromium/chromium": program,
			"usr/lib/pfar/pfar-adapter": program,
		},
		Adapter: "/usr/lib/pfar/pfar-adapter",
		Path:    []string{"/usr/bin"}, Home: "/root", StateDir: "/var/lib/pfar/home", Packages: "/var/lib/pfar/packages",
	}
	for _, dir := range strings.Fields("etc home var/tmp tmp run proc/sys dev srv/notes srv/project") {
		host.FS.(fstest.MapFS)[dir] = &fstest.MapFile{Mode: fs.ModeDir | 0o755}
	}
	var all strings.Builder
	for _, c := range catalog.Load(nil, "").All() {
		if c.Program.Gone != "" {
			fmt.Fprintf(&all, "%s\n  %s\n", c.Name, c.Program.Gone)
		} else if c.Program.Package+c.Program.Command != "" {
			install(t, host, c)
			compile(t, &all, host, c)
		}
		if c.Remote.URL != "" {
			compile(t, &all, host, c.Elsewhere())
		}
	}
	path := filepath.Join("testdata", "plans.txt")
	if *update {
		if err := os.WriteFile(path, []byte(all.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if before, err := os.ReadFile(path); err != nil || string(before) != all.String() {
		const remedy = "Compare, then run: go test ./tests/catalogued -update"
		t.Errorf("%v; the plans are other ones than in %s. %s\n%s", err, path, remedy, &all)
	}
}

// compile writes what comes of a service's declaration.
func compile(t *testing.T, all *strings.Builder, host generator.Host, c catalog.Service) {
	t.Helper()
	text, err := Declare(c)
	if err != nil {
		t.Errorf("%s: %v", c.Name, err)
		return
	}
	s, diags := declaration.Parse(c.Name+".hcl", []byte(text), declaration.Options{})
	if s == nil {
		t.Errorf("%s: %v\n%s", c.Name, diags, text)
		return
	}
	p, more := generator.Compile(*s, host)
	if diags = append(diags, more...); len(diags) > 0 {
		t.Errorf("%s: %v\n%s", c.Name, diags, text)
	}
	describe(all, p)
}

// install puts the package of a service on a host, with one program.
func install(t *testing.T, h generator.Host, c catalog.Service) {
	t.Helper()
	p, err := source.ParseExact(c.Program.Package)
	if err != nil {
		t.Fatal(err)
	}
	put := func(at, text string) {
		h.FS.(fstest.MapFS)[(h.Folder(p) + "/" + at)[1:]] = &fstest.MapFile{Data: []byte(text), Mode: 0o755}
	}
	bin := cmp.Or(c.Program.Bin, "server")
	put("record.json", string(generator.Record(p)))
	if p.Kind == source.NPM {
		put("tree/node_modules/"+p.Name+"/package.json", fmt.Sprintf(`{"name": %q, "bin": {%q: "x.js"}}`, p.Name, bin))
		put("tree/node_modules/"+p.Name+"/x.js", "#!/usr/bin/env node\n")
		return
	}
	script := "#!/usr/bin/python3\n"
	sum := sha256.Sum256([]byte(script))
	info := "tree/lib/python3.11/site-packages/" + strings.ReplaceAll(p.Name, "-", "_") + "-" + p.Version + ".dist-info/"
	put("tree/pyvenv.cfg", "")
	put("tree/bin/"+bin, script)
	put(info+"entry_points.txt", "[console_scripts]\n"+bin+" = x:main\n")
	put(info+"RECORD", "../../../bin/"+bin+",sha256="+base64.RawURLEncoding.EncodeToString(sum[:])+",1\n")
}

// describe writes what a server gets.
func describe(b *strings.Builder, p plan.Plan) {
	fmt.Fprintln(b, strings.TrimSpace(p.Name+" "+p.Sandbox.Remote))
	for _, e := range p.Egress.Endpoints {
		fmt.Fprintf(b, "  reaches %s\n", e)
	}
	for _, k := range p.Credentials {
		switch k.Deliver {
		case broker.OnWire:
			fmt.Fprintf(b, "  holds a placeholder in %s; %s goes to %v, in %v\n", k.Name, k.Key, k.Hosts, k.Places)
		case broker.InFile:
			fmt.Fprintf(b, "  holds %s, in a file that %s names\n", k.Key, k.Name)
		default:
			fmt.Fprintf(b, "  holds %s, in %s\n", k.Key, k.Name)
		}
	}
	for _, m := range p.Sandbox.Mounts {
		if strings.HasPrefix(m.Dest, "/srv/") {
			fmt.Fprintf(b, "  sees %s %v\n", m.Dest, m.Kind)
		}
	}
	if p.State {
		b.WriteString("  keeps its home\n")
	}
	fmt.Fprintf(b, "  has %d MiB\n", p.Sandbox.Limits.Memory>>20)
}
