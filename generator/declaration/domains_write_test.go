package declaration

import (
	"strings"
	"testing"
)

// TestWithDomains wants entries to be added where a person would, and each comment to stay beside what it is about.
func TestWithDomains(t *testing.T) {
	const hclServer, tomlServer = "server {\n  command = \"node\"\n}\n", "[server]\ncommand = \"node\"\n"
	const more = `"b.test", "c.test:8443"`
	for name, c := range map[string]struct{ before, after string }{
		"none":          {"# of ours\n", "allowed_domains = [" + more + "]\n# of ours\n"},
		"empty":         {"allowed_domains = []\n", "allowed_domains = [" + more + "]\n"},
		"one line":      {"allowed_domains = [\"a.test\"] # why\n", "allowed_domains = [\"a.test\", " + more + "] # why\n"},
		"with a comma":  {"allowed_domains = [ \"a.test\" , ]\n", "allowed_domains = [ \"a.test\", " + more + " ]\n"},
		"there already": {"allowed_domains = [" + more + "]\n", "allowed_domains = [" + more + "]\n"},
		"one there":     {"allowed_domains = [\"b.test\"]\n", "allowed_domains = [" + more + "]\n"},
		"beside it": {
			"allowed_domains = [\"z.test\",\n  \"a.test\"]\n",
			"allowed_domains = [\"z.test\",\n  \"a.test\", " + more + "]\n",
		},
		"lines": {
			"allowed_domains = [\n\t\"a.test\", # why\n\t# more\n]\n",
			"allowed_domains = [\n\t\"a.test\", # why\n\t# more\n\t\"b.test\",\n\t\"c.test:8443\",\n]\n",
		},
		"no last comma": {
			"allowed_domains = [\n    \"a.test\" # why, so\n]\n",
			"allowed_domains = [\n    \"a.test\", # why, so\n    \"b.test\",\n    \"c.test:8443\",\n]\n",
		},
		"empty lines": {
			"allowed_domains = [\n  # none yet\n]\n",
			"allowed_domains = [\n  # none yet\n  \"b.test\",\n  \"c.test:8443\",\n]\n",
		},
	} {
		for file, server := range map[string]string{"a.hcl": hclServer, "a.toml": tomlServer} {
			got, err := WithDomains(file, []byte(c.before+server), []string{"b.test", "C.test:8443", "b.test"}, Options{})
			if err != nil || string(got) != c.after+server {
				t.Errorf("%s, %s: %v\n%s\nwant\n%s", name, file, err, got, c.after)
			}
		}
	}
	for entry, want := range map[string]string{
		"*.com": "public suffix", "*.github.io": "public suffix", "https://b.test/x": "", "b.test\"]\nlabel = [\"": "",
		"user:secret@b.test": "", "": "", "*": "", "10.0.0.0/4": "",
	} {
		got, err := WithDomains("a.hcl", []byte(hclServer), []string{entry}, Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v\n%s", entry, err, got)
		}
	}
	for _, broken := range []string{
		"allowed_domains = [\"a.test\"]\nblocked_domains = [\"x\"\n", "allowed_domains = \"a.test\"\n" + hclServer,
	} {
		if got, err := WithDomains("a.hcl", []byte(broken), []string{"b.test"}, Options{}); err == nil {
			t.Errorf("%q was extended: %s", broken, got)
		}
	}
}
