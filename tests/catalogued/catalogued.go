// Package catalogued writes declarations for tests: what comes of a known service when each question is answered with
// its example.
package catalogued

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pfar/pfar/generator/catalog"
	"github.com/pfar/pfar/policies/broker"
)

// Declare returns the declaration of a service that runs its package.
func Declare(c catalog.Service) string {
	answers := answersOf(c)
	var b strings.Builder
	fmt.Fprintf(&b, "service = %q\ndescription = %q\nlabel = %q\nallowed_domains = %s\n", c.Name, c.Summary, c.Label,
		answers.list(c.Domains))
	fmt.Fprintf(&b, "server {\n  package = %q\n", c.Program.Package)
	if c.Program.Bin != "" {
		fmt.Fprintf(&b, "  command = %q\n", c.Program.Bin)
	}
	fmt.Fprintf(&b, "  args = %s\n}\n", answers.list(c.Program.Args))
	b.WriteString("sandbox {\n")
	if c.Program.Memory != "" {
		fmt.Fprintf(&b, "  memory_limit = %q\n", c.Program.Memory)
	}
	for _, p := range c.Parameters {
		if p.Access != "" {
			key := map[string]string{"read": "read_only", "write": "writable"}[p.Access]
			fmt.Fprintf(&b, "  %s = [%q]\n", key, p.Example)
		}
	}
	fmt.Fprintf(&b, "  state = %t\n}\n", c.Program.State)
	b.WriteString("auth = {\n")
	for _, k := range c.Secrets {
		fmt.Fprintf(&b, "  %s = { secret = \"vault:%s\", deliver = %q", k.Env, k.Key, word(k.Deliver))
		if k.Deliver == broker.OnWire {
			var in []string
			for _, p := range k.In {
				in = append(in, p.String())
			}
			fmt.Fprintf(&b, ", in = %s, hosts = %s", answers.list(in), answers.list(k.Hosts))
		}
		b.WriteString(" }\n")
	}
	b.WriteString("}\nenv = {\n")
	for _, name := range slices.Sorted(maps.Keys(c.Program.Env)) {
		fmt.Fprintf(&b, "  %s = %q\n", name, answers.fill(c.Program.Env[name]))
	}
	for _, p := range c.Parameters {
		if p.Env != "" {
			fmt.Fprintf(&b, "  %s = %q\n", p.Env, p.Example)
		}
	}
	b.WriteString("}\n")
	return b.String()
}

func word(d broker.Delivery) string {
	if d == broker.InEnvironment {
		return "env"
	}
	return string(d)
}

// answers are pairs of {NAME} and what stands for it.
type answers []string

func answersOf(c catalog.Service) (a answers) {
	for _, p := range c.Parameters {
		a = append(a, "{"+p.Name+"}", p.Example)
	}
	return a
}

func (a answers) fill(s string) string { return strings.NewReplacer(a...).Replace(s) }

// list writes words as HCL has them.
func (a answers) list(words []string) string {
	var quoted []string
	for _, w := range words {
		quoted = append(quoted, fmt.Sprintf("%q", a.fill(w)))
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
