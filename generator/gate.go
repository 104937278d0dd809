package generator

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/generator/sandbox"
	"github.com/pfar/pfar/policies/gate"
)

// declared is what a declaration says to the gate: of the server as a whole, and of tools.
func declared(s declaration.Server) gate.Declared {
	d := gate.Declared{Server: s.Name, Of: s.Of, Service: s.Service, Packages: packages(s.Command, s.Args)}
	if len(s.Allowed) > 0 {
		d.Reach = reach(s)
	}
	from := "owner: " + path.Base(s.File)
	whole := gate.Word{Trust: s.Trust, From: from}
	if s.Says("label") {
		_ = whole.Confidentiality.UnmarshalText([]byte(s.Label)) // it is one of the words
	}
	d.Words = append(d.Words, whole)
	for _, name := range slices.Sorted(maps.Keys(s.Tools)) {
		t := s.Tools[name]
		w := gate.Word{Tool: gate.Pattern(name), Confidentiality: t.Output.Confidentiality, Integrity: t.Output.Integrity, Audience: t.Audience, Effect: t.Effect, From: from}
		_ = w.Semantics.UnmarshalText([]byte(t.Semantics)) // "" is not said
		d.Words = append(d.Words, w)
	}
	d.Words = slices.DeleteFunc(d.Words, gate.Word.Silent)
	return d
}

// holds are the folders and accounts that other servers can have, too.
func (c *compiler) holds() []gate.Place {
	var list []gate.Place
	for _, b := range c.binds {
		if !slices.ContainsFunc(softwareRoots(), func(root string) bool { return sandbox.Below(b.real, root) }) { // which nobody may write to
			list = append(list, gate.Place{Name: b.real, Writes: b.writable})
		}
	}
	for _, k := range c.server.Credentials {
		name := "$" + k.From
		if k.Key != "" {
			name = "vault:" + k.Key
		}
		if account := (gate.Place{Name: name, Writes: true}); !slices.Contains(list, account) {
			list = append(list, account)
		}
	}
	return list
}

// readsOrWrites is a tool's semantics where the owner says its effect instead.
func readsOrWrites(t declaration.Tool) string {
	switch {
	case t.Semantics != "" || t.Effect == 0:
		return t.Semantics
	case t.Effect == gate.None:
		return gate.Reads.String()
	}
	return gate.Writes.String()
}

// runners are programs that run a package whose name they are given, by their own name and the words behind it. Of their
// options those are known that neither take a value nor lead to another package than the one that is named.
var runners = map[string]runner{
	"npx":         {"", "-y --yes -q --quiet --offline --prefer-offline --"},
	"npm exec":    {"", "-y --yes -q --quiet --offline --prefer-offline --"},
	"pnpx":        {"", "-s --silent"},
	"pnpm dlx":    {"", "-s --silent"},
	"yarn dlx":    {"", "-q --quiet"},
	"bunx":        {"", "--bun --silent"},
	"bun x":       {"", "--bun --silent"},
	"uvx":         {"pypi:", "-q --quiet -n --no-cache --offline --isolated --refresh --python="},
	"uv tool run": {"pypi:", "-q --quiet -n --no-cache --offline --isolated --refresh --python="},
	"pipx run":    {"pypi:", "-q --quiet --no-cache --python="},
}

type runner struct{ registry, options string }

// nodeOptions are those of Node.js that neither take the next word for their value nor load other code.
const nodeOptions = "--enable-source-maps --no-warnings --no-deprecation --use-system-ca --use-openssl-ca --use-bundled-ca --use-env-proxy " +
	"--trace-warnings --trace-uncaught --expose-gc --jitless --max-old-space-size= --max-semi-space-size= --max-http-header-size= --stack-size= " +
	"--disable-warning= --dns-result-order= --unhandled-rejections="

// packageName is a package and which version of it: no address, no file, and no other package that is to have the name.
var packageName = regexp.MustCompile(`^((?:@[a-z0-9~-][a-z0-9._~-]*/)?[A-Za-z0-9~-][A-Za-z0-9._~-]*)(?:[@=<>!\[][0-9A-Za-z.^~*<>=!+,\[\]@-]*)?$`)

// packages is the one that a command line runs, as policies name it: what it has a runner fetch, or the one in whose folder its
// program lies. It is none where that is not certain.
func packages(command string, args []string) []string {
	words := append([]string{path.Base(command)}, args...)
	for n := range min(3, len(words)) {
		if r, ok := runners[strings.Join(words[:n+1], " ")]; ok {
			return r.packages(operand(words[n+1:], r.options))
		}
	}
	file := command
	if words[0] == "node" || words[0] == "nodejs" {
		file = operand(args, nodeOptions)
	}
	return installed(path.Clean(file))
}

// operand is the first word that is no option; "" if one before it is not among those that are known. What ends in "=" has its
// value behind it.
func operand(args []string, options string) string {
	for _, a := range args {
		if !strings.HasPrefix(a, "-") {
			return a
		}
		if name, _, valued := strings.Cut(a, "="); valued {
			a = name + "="
		}
		if !slices.Contains(strings.Fields(options), a) {
			return ""
		}
	}
	return ""
}

func (r runner) packages(word string) []string {
	m := packageName.FindStringSubmatch(word)
	switch {
	case m == nil:
		return nil
	case r.registry != "":
		return []string{r.registry + strings.NewReplacer("_", "-", ".", "-").Replace(strings.ToLower(m[1]))}
	}
	return m[1:2]
}

// installed is the package in whose folder a program lies: npm's, or pipx's and uv's, if it is the one of the package's name.
func installed(file string) []string {
	if i := strings.LastIndex(file, "/node_modules/"); i >= 0 {
		parts := strings.SplitN(file[i+len("/node_modules/"):], "/", 3)
		switch {
		case strings.HasPrefix(parts[0], "@") && len(parts) == 3:
			return []string{parts[0] + "/" + parts[1]}
		case len(parts) > 1 && !strings.HasPrefix(parts[0], "@") && !strings.HasPrefix(parts[0], "."):
			return parts[:1]
		}
		return nil
	}
	dir, name := path.Split(file)
	for _, tools := range []string{"/uv/tools/", "/pipx/venvs/"} {
		if strings.HasSuffix(dir, tools+name+"/bin/") {
			return []string{"pypi:" + name}
		}
	}
	return nil
}

// gateWords is what the owner says to the gate, a line for each tool.
func (p Plan) gateWords() []string {
	var d gate.Declared
	if p.Gateway.Declared == nil || json.Unmarshal(p.Gateway.Declared, &d) != nil {
		return nil
	}
	var list []string
	if d.Service != "" {
		list = append(list, "service "+quote(d.Service))
	}
	for _, w := range d.Words {
		list = append(list, saysOf(w))
	}
	return list
}

// explainGate says what the owner tells the gate of the server.
func (p Plan) explainGate(b *strings.Builder) {
	list := p.gateWords()
	if len(list) == 0 {
		fmt.Fprintf(b, "\nYou say nothing of what its tools do: the gate goes by what its policies know of them, and else takes the worst.\n")
		return
	}
	fmt.Fprintf(b, "\nOf what its tools do you say this; for the rest the gate goes by what its policies know, and else takes the worst:\n")
	bullets(b, list)
}

func saysOf(w gate.Word) string {
	var parts []string
	add := func(said bool, words string, value fmt.Stringer) {
		if said {
			parts = append(parts, words+" "+value.String())
		}
	}
	output := gate.Label{Confidentiality: w.Confidentiality, Integrity: w.Integrity}
	add(output.Known(), "output", output)
	add(!output.Known() && w.Confidentiality != 0, "output", w.Confidentiality)
	add(!output.Known() && w.Integrity != 0, "output", w.Integrity)
	add(w.Audience != 0, "audience", w.Audience)
	add(w.Effect != 0, "effect", w.Effect)
	add(w.Semantics != 0, "semantics", w.Semantics)
	add(w.Trust.PublicSource != 0, "public_source", w.Trust.PublicSource)
	add(w.Trust.SecretData != 0, "secret_data", w.Trust.SecretData)
	add(w.Trust.PublicSink != 0, "public_sink", w.Trust.PublicSink)
	add(w.Trust.DangerousWrites != 0, "dangerous_writes", w.Trust.DangerousWrites)
	about := "all that it offers"
	if w.Tool != "" {
		about = quote(string(w.Tool))
	}
	return about + ": " + strings.Join(parts, ", ")
}
