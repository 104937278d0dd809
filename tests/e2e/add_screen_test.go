package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// wantsHost makes a server want a host before it reads what it is asked.
const wantsHost = `import socket

try:
    socket.create_connection(("api.acme.example", 443), 5)
except OSError:
    pass

`

// TestAddScreens is what a person sees who adds packages that pfar does not know, one of npm and one of PyPI with a
// secret, at terminals of 80 and 120 columns. pfar finds the newest version, learns which host the second one wants,
// and the person allows it.
func TestAddScreens(t *testing.T) {
	if os.Getuid() != 0 {
		return // only root has names of its own, and it has run as root
	}
	t.Parallel()
	const token = "tok-4d0b7a63c1f85e29-of-the-screens"
	r := newRegistries(t)
	r.npm(t, "@example/mcp-quiet", "1.0.0", "")
	code := wantsHost + fmt.Sprintf(mainOf, `["list_notes", "delete_note"]`)
	wheelOf(t, filepath.Join(r.dir, "files"), "acme_notes", "1.2", code)
	r.pypi(t, "acme-notes", "acme_notes-1.2-py3-none-any.whl")
	for _, columns := range []int{80, 120} {
		t.Run(fmt.Sprint(columns), func(t *testing.T) {
			t.Parallel()
			p := prepare(t, nil)
			p.env = append(p.env, "npm_config_registry="+r.url("/npm/"), "npm_config_cafile="+r.roots,
				"NPM_CONFIG_REGISTRY=", "PIP_INDEX_URL="+r.url("/simple/"), "PIP_CERT="+r.roots)
			p.up(inHosts(r)...)

			s := p.atTerminal("add", "npm:@example/mcp-quiet", "--learn", "1s")
			s.wide(t, columns)
			s.reply(1, `Set up "quiet"? [y/N]`, "y")
			s.reply(1, `of "quiet"? [y/N]`, "y")
			s.same(t, fmt.Sprintf("npm, %d columns", columns), columns)

			s = p.atTerminal("add", "pypi:acme-notes", "--secret", "ACME_TOKEN@api.acme.example:8443")
			s.wide(t, columns)
			s.reply(1, `Set up "acme-notes"? [y/N]`, "y")
			s.reply(1, "(not shown):", token)
			s.reply(1, "reach api.acme.example? [y/N]", "y")
			s.reply(1, `Give it to "acme-notes" as its declaration is now? [y/N]`, "y")
			s.reply(1, `definitions of "acme-notes"? [y/N]`, "n")
			s.same(t, fmt.Sprintf("PyPI, %d columns", columns), columns)
			if strings.Contains(s.text(), token) {
				t.Error("the screen has a token")
			}
			assertSecretNowhere(t, p, token)
		})
	}
}

// wide gives a terminal its columns.
func (s *person) wide(t *testing.T, columns int) {
	t.Helper()
	check(t, unix.IoctlSetWinsize(s.fd(t), unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(columns), Row: 40}))
}

var (
	minutes = regexp.MustCompile(`[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2} [A-Z+0-9]{3,5}`)
	ofTests = regexp.MustCompile(`/tmp/pfar-e2e-[0-9]+`)
	sums    = regexp.MustCompile(`\b[0-9a-f]{64}\b`)
	// What is seen of them depends on how fast they are.
	steps = regexp.MustCompile(`(?m)^((npm|pypi):\S+: \w+|installing \S+|writing the declaration|starting the server|` +
		`calling a tool that only reads)\n`)
)

// same waits for the end, and compares the screen with its golden. No line is wider than the terminal.
func (s *person) same(t *testing.T, name string, columns int) {
	t.Helper()
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, s.text())
	}
	s.await(1, "pfar client install PROGRAM")
	got := minutes.ReplaceAllString(strings.ReplaceAll(s.text(), "\r", ""), "2026-01-02 03:04 UTC")
	got = steps.ReplaceAllString(sums.ReplaceAllString(ofTests.ReplaceAllString(got, "/tmp/home"), "DIGEST"), "")
	for line := range strings.Lines(got) {
		own := !strings.HasPrefix(line, `  "`) && !strings.HasPrefix(line, "pfar: ") // not of a definition or an error
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); own && n > columns {
			t.Errorf("%s: %d columns: %s", name, n, line)
		}
	}
	golden := filepath.Join("testdata", "screens", strings.NewReplacer(", ", "-", " columns", "").Replace(name)+".txt")
	if *update {
		check(t, os.MkdirAll(filepath.Dir(golden), 0o755))
		check(t, os.WriteFile(golden, []byte(got), 0o644))
	}
	if want, err := os.ReadFile(golden); err != nil || string(want) != got {
		t.Errorf("%v; the screen is\n%s", err, got)
	}
}
