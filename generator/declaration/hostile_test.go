package declaration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/block"
	"github.com/pfar/pfar/policies/visible"
)

// What a parser could choke on ends soon and with a diagnostic.
func TestHostileFiles(t *testing.T) {
	full := func(s string) string { return strings.Repeat(s, (maxSize-100)/len(s)) } // as deep as it goes
	fill := func(s string) string { return strings.Repeat(s, maxSize/8/len(s)) }
	for name, src := range map[string]string{
		"lists":           "x = " + full("["),
		"objects":         "x = " + full("{a="),
		"parentheses":     "x = " + full("("),
		"signs":           "x = " + full("-") + "1",
		"nots":            "x = " + full("!") + "true",
		"conditions":      "x = " + full("a?b:") + "c",
		"templates":       "x = \"" + fill("${\"") + "\"",
		"directives":      "x = \"" + fill("%{if true}") + "\"",
		"blocks":          full("a {\n"),
		"dots":            "x = " + fill("a."),
		"dotted key":      fill("a.") + "a = 1",
		"header":          "[" + fill("a.") + "a]",
		"quotes":          fill("\""),
		"operators":       "x = 1" + fill("+1"),
		"unknown keys":    many("k%d = 1\n"),
		"same key":        fill("k = 1\n"),
		"long key":        fill("k") + " = 1",
		"long string":     "command = \"" + fill("k") + "\"",
		"heredocs":        fill("x = <<E\n"),
		"inline in toml":  "x = " + full("{a = ") + "1",
		"string template": "x = \"" + fill("${[") + "\"",
		"domains":         "allowed_domains = [" + many("\"h%d.example.com\",") + "]",
		"variables":       "env = {" + many("V%d = \"x\",") + "}",
		"paths":           "sandbox = { read_only = [" + many("\"/srv/%d\",") + "] }",
		"private":         "allowed_domains = [\"x.example\"]\nallow_private = {" + many("\"h%d.example.com\" = \"10.0.0.1\",") + "}",
		"pinned hosts":    "allowed_domains = [\"x.example\"]\nauth = { A = { secret = \"vault:a\", deliver = \"broker\" } }\ntls_pins = {" + many("\"h%d.example.com\" = \"sha256/\",") + "}",
		"pins":            "allowed_domains = [\"x.example\"]\nauth = { A = { secret = \"vault:a\", deliver = \"broker\" } }\ntls_pins = { \"x.example\" = [" + many("\"sha256/%d\",") + "] }",
		"addresses":       "allowed_domains = [\"x.example\"]\nallow_private = { \"x.example\" = [" + many("\"10.0.0.0/%d\",") + "] }",
		"hosts":           "allowed_domains = [\"x.example\"]\nauth = { A = { secret = \"vault:a\", deliver = \"broker\", hosts = [" + many("\"h%d.example\",") + "] } }",
		"places":          "allowed_domains = [\"x.example\"]\nauth = { A = { secret = \"vault:a\", deliver = \"broker\", in = [" + many("\"query:q%d\",") + "] } }",
		"credentials":     "allowed_domains = [" + strings.Repeat("\"x.example\",", maxDomains) + "]\nauth = {" + many("A%d = { secret = \"vault:a\", deliver = \"broker\", hosts = [\"y.example\", \"z.example\"] }\n") + "}",
		"far names":       "allowed_domains = [" + strings.Repeat("\"x.example\",", maxDomains) + "]\nallow_private = {" + strings.Repeat("\""+strings.Repeat("a.", 120)+"a\" = 1\n", maxDomains) + "}",
		"capabilities":    "client_capabilities = [" + fill("\"roots\",") + "]",
		"aliases":         "x = 1\ntool = { search = { alias = [" + many("\"a%d\",") + "] } }",
		"tools":           "x = 1\ntool = {" + many("t%d = { alias = [\"a\"] }\n") + "}",
		"comments":        fill("/* "),
	} {
		for _, ext := range []string{block.HCL, block.TOML} {
			t.Run(name+ext, func(t *testing.T) {
				start := processorTime(t)
				s, diags := Parse("x"+ext, []byte(src), testOptions())
				if s != nil || !diags.HasErrors() {
					t.Error("no error")
				}
				if len(diags) > block.MaxDiagnostics+1 {
					t.Errorf("%d diagnostics", len(diags))
				}
				checkDiagnostics(t, "x"+ext, []byte(src), diags)
				rendered(t, "x"+ext, []byte(src), diags)
				if d := processorTime(t) - start; d > 20*time.Second {
					t.Errorf("took %v", d)
				}
			})
		}
	}
}

// processorTime is what this process has used, which does not depend on what else the machine does.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func many(format string) string {
	var b strings.Builder
	for i := 0; b.Len() < maxSize/4; i++ {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// Every key of the schema has an example that it accepts itself, in both syntaxes: the remedies are made of them.
func TestExamplesOfSchema(t *testing.T) {
	for _, s := range sections() {
		for _, k := range s.Keys {
			if k.Example == "" || s.Name == serverSection {
				continue
			}
			line := k.Name + " = " + k.Example
			src := line + "\n"
			switch {
			case s.Name == credentialSection:
				src = "allowed_domains = [\"api.notion.com\"]\nauth = { A = { " + line + " } }\n"
				if k.Name != "secret" {
					src = strings.Replace(src, line, "secret = \"vault:a\", "+line, 1)
				}
				if k.Name == "hosts" || k.Name == "in" {
					src = strings.Replace(src, line, "deliver = \"broker\", "+line, 1)
				}
			case k.Name == "scopes":
				src = "auth = { A = \"vault:a\", " + line + " }\n"
			case s.Name == toolSection:
				src = "tool = { search = { " + line + " } }\n"
			case s.Name != "":
				src = s.Name + " = { " + line + " }\n"
			}
			switch k.Name {
			case "url":
				src += "transport = \"sse\"\n"
			case "ca":
				src += "transport = \"sse\"\nurl = \"https://mcp.example.com/sse\"\n"
			case "insecure":
				src += "transport = \"sse\"\nurl = \"http://mcp.example.com/sse\"\n"
			case "path", "owner":
				if k.Name == "owner" {
					src += "path = \"/run/notion/mcp.sock\"\n"
				}
				src += "transport = \"uds\"\n"
			case "command":
			case "sessions_max", "session_idle":
				src += "sessions = \"own\"\ncommand = \"node\"\n"
			default:
				src += "command = \"node\"\n"
			}
			for _, ext := range []string{block.HCL, block.TOML} {
				server, diags := Parse("x"+ext, []byte(src), testOptions())
				if server == nil || len(diags) > 0 && k.Name != "insecure" {
					t.Errorf("%s in %s: %v", src, ext, diags)
				}
			}
		}
	}
}

func TestPlace(t *testing.T) {
	s, diags := Parse("x.toml", []byte("command = \"node\"\n[sandbox]\nread_only = [\"/srv/a\",\n \"/srv/b\"]\n"), Options{})
	if s == nil {
		t.Fatal(diags)
	}
	for key, want := range map[string]string{
		"command": "x.toml:1,11-17", "sandbox": "x.toml:2,2-9", "sandbox.read_only[1]": "x.toml:4,2-10", "url": "x.toml:1,1-1",
	} {
		if got := s.Place(key).String(); got != want {
			t.Errorf("%s is at %s, want %s", key, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/good/*.txtar", "testdata/bad/*.txtar"} {
		for _, g := range goldens(f, pattern) {
			for file, src := range g.sources(f) {
				_, ext := block.SplitName(file)
				f.Add(src, ext == block.TOML)
			}
		}
	}
	f.Fuzz(func(t *testing.T, src []byte, toml bool) {
		file := "fuzz.hcl"
		if toml {
			file = "fuzz.toml"
		}
		s, diags := Parse(file, src, testOptions())
		checkDiagnostics(t, file, src, diags)
		if (s == nil) != diags.HasErrors() {
			t.Errorf("server %v with %v", s, diags)
		}
		if s != nil {
			checkServer(t, s)
		}
		if text := rendered(t, file, src, diags); strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && r != '\t' && visible.Deceptive(r) }) {
			t.Errorf("printed %q", text)
		}
	})
}
