package generator

import (
	"strings"
	"testing"

	"github.com/pfar/pfar/units/plan"
)

// TestTerms: what decides where a secret goes cannot be changed without the owner hearing of it, and what narrows it
// can.
func TestTerms(t *testing.T) {
	const hosts = `allowed_domains = ["x.example", "*.y.example", "a.y.example"]` + "\n"
	declared := func(more, auth string) plan.Plan {
		return compiled(t, more+"\n"+`auth = { A = `+auth+` }`+"\n"+plain)
	}
	const env, file = `"vault:b"`, `{ secret = "vault:b", deliver = "file" }`
	const broker = `{ secret = "vault:b", deliver = "broker", hosts = ["x.example"] }`
	one := declared(hosts, env)
	bridge := declared(hosts, broker)
	const key1, key2 = "sha256/AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", "sha256/BAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
	pinnedTo := func(pin string) plan.Plan {
		return declared(hosts+`tls_pins = { "x.example" = ["`+pin+`"] }`, broker)
	}
	for name, tt := range map[string]struct {
		before, now plan.Plan
		want        string
	}{
		"the same":            {one, declared(hosts, env), ""},
		"limits, description": {one, declared(hosts+"description = \"d\"\nsandbox { tasks_max = 9 }", env), ""},
		"fewer hosts":         {one, declared(`allowed_domains = ["x.example"]`, env), ""},
		"more blocked":        {one, declared(hosts+`blocked_domains = ["z.y.example"]`, env), ""},
		"a file":              {one, declared(hosts, file), ""},
		"the bridge alone":    {one, bridge, ""},
		"another key":         {one, compiled(t, hosts+`auth = { A = "vault:b", C = "vault:d" }`+"\n"+plain), ""},
		"another program": {one, compiled(t, hosts+"auth = { A = \"vault:b\" }\n"+
			strings.Replace(plain, `"${servers}`, `"--no-warnings", "${servers}`, 1)), "command: the command was"},
		"a variable":        {one, declared(hosts+`env = { NODE_OPTIONS = "--require=/x" }`, env), "env: env is another one"},
		"another variable":  {declared(hosts+`env = { B = "c" }`, env), declared(hosts+`env = { B = "d" }`, env), "env: env is another one"},
		"no more variables": {declared(hosts+`env = { B = "c" }`, env), one, "env: env is another one"},
		"more hosts": {one, declared(`allowed_domains = ["x.example", "*.y.example", "a.y.example", `+
			`"collect.example", "z.example:8443"]`, env), "allowed_domains: it also reaches collect.example z.example:8443"},
		"another port": {one, declared(`allowed_domains = ["x.example:22", "*.y.example", "a.y.example"]`, env),
			"allowed_domains: it also reaches x.example:22"},
		"fewer blocked": {declared(hosts+`blocked_domains = ["z.y.example"]`, env), one, "blocked_domains: it no longer blocks z.y.example"},
		"private": {one, declared(hosts+`allow_private = { "x.example" = ["10.1.2.3"] }`, env),
			"allow_private: it also reaches \"x.example at 10.1.2.3/32\""},
		"into the sandbox":       {bridge, one, "auth: the secret enters the sandbox"},
		"into the sandbox, file": {bridge, declared(hosts, file), "auth: the secret enters the sandbox"},
		"by both ways": {bridge, compiled(t, hosts+`auth = { A = `+broker+`, C = "vault:b" }`+"\n"+plain),
			"auth: the secret is also C; auth: the secret enters the sandbox"},
		"another variable's": {one, compiled(t, hosts+`auth = { C = "vault:b" }`+"\n"+plain), "auth: the secret is also C"},
		"pins":               {bridge, pinnedTo(key1), ""},
		"no more pins":       {pinnedTo(key1), bridge, "tls_pins: its bridge no longer wants a certain key of x.example"},
		"another pin":        {pinnedTo(key1), pinnedTo(key2), "tls_pins: its bridge also takes \"x.example sha256/"},
		"another place": {bridge, declared(hosts, strings.Replace(broker, `hosts`, `in = ["body"], hosts`, 1)),
			`auth: its bridge also puts the secret into "body of x.example:443"`},
		"another host": {bridge, declared(hosts, strings.Replace(broker, `"x.example"`, `"x.example", "a.y.example"`, 1)),
			`auth: its bridge also puts the secret into`},
	} {
		var got []string
		for _, e := range TermsOf(tt.now, "b").Beyond(TermsOf(tt.before, "b")) {
			got = append(got, e.Key+": "+e.What)
		}
		if all := strings.Join(got, "; "); len(got) > strings.Count(tt.want, ";")+1 ||
			!strings.HasPrefix(all, tt.want) || (all == "") != (tt.want == "") {
			t.Errorf("%s: %q, want %q", name, all, tt.want)
		}
	}
}
