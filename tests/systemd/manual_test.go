package systemd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/pfar/pfar/tests/systemd/bed"
	"github.com/pfar/pfar/units/control"
)

// macro is one of mdoc(7) that marks words of a command and is none of them.
var macro = regexp.MustCompile(`^(\.?(Nm|Cm|Li|Ar|Dl|Ic|Pa)|\.)$`)

// manualCommand returns the command in the line of pfard(8) that begins with a macro and words.
func manualCommand(t *testing.T, begins string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "packaging", "man", "pfard.8"))
	if err != nil {
		t.Fatal(err)
	}
	at := strings.Index(string(text), "\n"+begins)
	if at < 0 {
		t.Fatalf("pfard(8) has no line %q", begins)
	}
	line, _, _ := strings.Cut(string(text)[at+1:], "\n")
	var words []string
	for word := range strings.FieldsSeq(strings.ReplaceAll(line, "Fl ", "-")) {
		if !macro.MatchString(word) {
			words = append(words, word)
		}
	}
	return strings.Join(words, " ")
}

// manualBlock returns the lines of the literal text in pfard(8) that has a certain one.
func manualBlock(t testing.TB, with string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "packaging", "man", "pfard.8"))
	if err != nil {
		t.Fatal(err)
	}
	for block := range strings.SplitSeq(strings.ReplaceAll(string(text), `\-`, "-"), "\n.Bd -literal -offset indent\n") {
		if block, _, ok := strings.Cut(block, "\n.Ed\n"); ok && strings.Contains(block, with+"\n") {
			return strings.Split(block, "\n")
		}
	}
	t.Fatalf("pfard(8) has no %q", with)
	return nil
}

// typed is a script of lines of pfard(8). The machine has no network: the package is there, and npm finds its own there
// already.
func typed(lines []string) string {
	script := `export DEBIAN_FRONTEND=noninteractive; cd ` + packages + ` 2>/dev/null || :
npm() { for last; do :; done; test -e "$last"/package-lock.json; ln -s ` + fromNPM + `/node_modules "$last"/; }
`
	return script + strings.Join(lines, "\n") + "\n"
}

// exampleDeclared is pfard(8)'s command after which there is a server.
const exampleDeclared = "cp /usr/share/doc/pfar/examples/memory.toml /etc/pfar/mcp.d/"

// TestReadme types the commands of pfard(8) as root, which run pfar as a service, and then those for a user. In between
// root changes the port as pfard(8) says.
func TestReadme(t *testing.T) {
	t.Parallel()
	m := bare(t)
	lines := manualBlock(t, exampleDeclared)
	last := len(lines) - 1
	m.Shell(t, typed(lines[:last]))
	shows := func(status func() bed.Result) {
		t.Helper()
		bed.Eventually(t, soon, func() error {
			if r := status(); r.Code != 0 || !strings.Contains(r.Stdout, "active (running)") || !strings.Contains(r.Stdout, " tools") {
				return errors.New(r.String())
			}
			return nil
		})
	}
	shows(func() bed.Result { return m.Try("sh", "-euc", typed(lines[last:])) })
	becomes(t, m, "memory", control.Running)
	anotherPort(t, m)

	lines = manualBlock(t, "systemctl --user enable --now pfar.target")
	o := owner{m, "user", 1000}
	unlock(t, m)
	m.Run(t, "install", "-d", "-o", o.name, "-g", o.name, o.home())
	m.Shell(t, "USER="+o.name+"\nsudo() { \"$@\"; }\n"+typed(lines[:1]))
	bed.Eventually(t, soon, func() error {
		if r := o.Try("systemctl", "--user", "is-system-running"); r.Stdout != "running\n" {
			return fmt.Errorf("the user's systemd: %s", r)
		}
		return nil
	})
	last = len(lines) - 1
	o.Run(t, "sh", "-euc", typed(lines[1:last]))
	shows(func() bed.Result { return o.Try("sh", "-euc", typed(lines[last:])) })
	becomes(t, o, "memory", control.Running)
}

// anotherPort changes the port of the machine's endpoint, in an editor.
func anotherPort(t *testing.T, m *bed.Machine) {
	t.Helper()
	answers := func(port, want string) {
		t.Helper()
		const ask = `import sys, urllib.request, urllib.error
try:
    urllib.request.urlopen("http://127.0.0.1:" + sys.argv[1] + "/mcp", data=b"{}")
except urllib.error.HTTPError as e:
    print("answers", e.code)
except urllib.error.URLError as e:
    print(e.reason)`
		bed.Eventually(t, soon, func() error {
			if r := m.Try("python3", "-c", ask, port); !strings.Contains(r.Stdout, want) {
				return fmt.Errorf("port %s: want %q: %s", port, want, r)
			}
			return nil
		})
	}
	answers("7417", "answers 401")
	// The editor gets a file in which what stands behind the first line that says so is the drop-in.
	m.Put(t, "/root/editor", "#!/bin/sh\nsed -i '/^### Anything between here/a [Socket]\\nListenStream=\\nListenStream=127.0.0.1:7500' \"$1\"\n", 0o755)
	edit := manualCommand(t, ".Nm systemctl Cm edit Li pfar-gateway-http.socket")
	m.Run(t, "env", "SYSTEMD_EDITOR=/root/editor", "script", "--quiet", "--return", "--command", edit, "/dev/null") // it wants a terminal
	m.Shell(t, manualCommand(t, ".Nm systemctl Cm restart Li pfar-gateway-http.socket"))
	answers("7500", "answers 401")
	answers("7417", "refused")
	bed.Eventually(t, soon, func() error {
		if r := m.Try("pfar", "status", "--json"); !strings.Contains(r.Stdout, `"endpoint": "http://127.0.0.1:7500/mcp"`) {
			return fmt.Errorf("pfar status: %s", r)
		}
		return nil
	})
}
