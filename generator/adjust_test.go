package generator

import (
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/units/plan"
)

// TestAdjusted: what a process is started with, asked in its handshake, or shown by its namespace's rules takes
// another one.
func TestAdjusted(t *testing.T) {
	const hosts = "allowed_domains = [\"x.example\", \"10.1.2.3:5432\"]\n"
	was := compiled(t, hosts+plain)
	for text, want := range map[string]string{
		hosts + plain + "sandbox {\n tasks_max = 40\n}\n":               "another process",
		hosts + plain + "sandbox {\n read_only_fs = false\n}\n":         "another process",
		hosts + plain + "sandbox {\n allow_tmp = false\n}\n":            "another process",
		hosts + plain + "env = { A = \"b\" }\n":                         "another process",
		hosts + plain + "auth = { A = \"vault:b\" }\n":                  "another process",
		hosts + "version = \"1.0\"\n" + plain:                           "another process",
		hosts + "client_capabilities = [\"roots\"]\n" + plain:           "another process",
		hosts + "sessions = \"own\"\n" + plain:                          "another process",
		hosts + "idle_timeout = \"5m\"\n" + plain:                       "another process",
		hosts + strings.Replace(plain, "cli.mjs", "cli.mjs\", \"-v", 1): "another process",
		"allowed_domains = [\"x.example\"]\n" + plain:                   "another process",
		strings.Replace(hosts, "5432", "5433", 1) + plain:               "another process",
		strings.Replace(hosts, "10.1.2.3", "10.1.2.0/24", 1) + plain:    "another process",

		hosts + plain: "",
		hosts + plain + "sandbox {\n memory_limit = \"1G\"\n}\n":             "limits",
		hosts + plain + "sandbox {\n cpu_quota = \"50%\"\n}\n":               "limits",
		hosts + "description = \"another\"\n" + plain:                        "gateway",
		hosts + "label = \"secret\"\n" + plain:                               "gateway",
		hosts + "timeout = \"5s\"\n" + plain:                                 "gateway",
		hosts + "pins = \"hold\"\n" + plain:                                  "gateway",
		hosts + "trust {\n dangerous_writes = true\n}\n" + plain:             "gateway",
		hosts + "tool \"a\" {\n effect = \"irreversible\"\n}\n" + plain:      "gateway",
		strings.Replace(hosts, "x.example", "y.example", 1) + plain:          "gateway bridge",
		strings.Replace(hosts, "[", "[\"*.x.example\", ", 1) + plain:         "gateway bridge",
		hosts + "allow_private = { \"x.example\" = \"10.1.2.3\" }\n" + plain: "gateway bridge",
	} {
		is := compiled(t, text)
		before := plan.Digest(was)
		change, live := plan.Adjusted(was, is)
		var got []string
		for _, part := range []struct {
			is   bool
			name string
		}{{!live, "another process"}, {change.Limits, "limits"}, {change.Gateway, "gateway"}, {change.Bridge, "bridge"}} {
			if part.is {
				got = append(got, part.name)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
		if plan.Digest(was) != before {
			t.Errorf("%s: asking has changed the plan", text)
		}
	}
}

// TestAdjustedByWords: a version of pfar that says what is mounted in other words starts no server again.
func TestAdjustedByWords(t *testing.T) {
	was, is := compiled(t, plain), compiled(t, plain)
	for i := range is.Sandbox.Mounts {
		is.Sandbox.Mounts[i].Why = "in other words"
	}
	if change, live := plan.Adjusted(was, is); !live || change != (plan.Adjustment{}) {
		t.Errorf("other words change %+v; live: %v", change, live)
	}
}

// TestKeeping: the addresses of names are the running server's, and are no difference to what is declared.
func TestKeeping(t *testing.T) {
	was := compiled(t, "allowed_domains = [\"a.example\", \"b.example\"]\n"+plain)
	is := compiled(t, "allowed_domains = [\"c.example\", \"b.example\"]\n"+plain)
	kept, ok := is.Keeping(was)
	if want := []string{"a.example", "b.example", "c.example"}; !ok || !slices.Equal(kept.Egress.Places(), want) {
		t.Fatalf("%q, %v; want %q", kept.Egress.Places(), ok, want)
	}
	if change, live := plan.Adjusted(kept, is); !live || change != (plan.Adjustment{}) {
		t.Errorf("it differs from what is declared by %+v, %v", change, live)
	}
	if again, _ := was.Keeping(kept); !slices.Equal(again.Egress.Places(), kept.Egress.Places()) {
		t.Errorf("back again: %q", again.Egress.Places())
	}
}
