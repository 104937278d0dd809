package declaration

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/policies/access"
)

func clientFileSection() section {
	return section{"", []key{
		{"name", `"desk"`, "", (*decoder).clientName},
		{"description", `"Claude Desktop on this machine"`, "", (*decoder).clientDescription},
		{"enabled", `true`, `true`, func(d *decoder, f *field) {
			if v, ok := d.truth(f); ok {
				d.client.Enabled = v
			}
		}},
		{"token_sha256", `["e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"]`, `[]`, (*decoder).tokens},
		{"uid", `[1000]`, `[]`, (*decoder).uids},
		{"servers", `["notion", "github"]`, `[]`, (*decoder).clientServers},
		{"profile", `"strict"`, `"strict"`, (*decoder).profile},
		{"sessions", `"sticky"`, `"sticky"`, (*decoder).clientSessions},
		{"relax", `"a test that begins clean each time"`, "", (*decoder).relax},
		{toolsSection, "", "", (*decoder).clientTools},
		{serverSection, "", "", (*decoder).settings},
	}}
}

func settingsSection() section {
	return section{serverSection, []key{
		{"label", `"sensitive"`, "", (*decoder).clientLabel},
		{trustSection, "", "", func(d *decoder, f *field) {
			if n, ok := d.table(f); ok {
				d.section(clientTrustSection(), n)
			}
		}},
		{toolsSection, "", "", func(d *decoder, f *field) {
			if n, ok := d.table(f); ok {
				d.section(clientToolsSection(), n)
			}
		}},
	}}
}

func clientTrustSection() section {
	return section{trustSection, []key{
		{"public_source", `true`, "", trusted(func(t *access.Trust) { t.PublicSource = true })},
		{"secret_data", `true`, "", trusted(func(t *access.Trust) { t.SecretData = true })},
		{"public_sink", `true`, "", trusted(func(t *access.Trust) { t.PublicSink = true })},
		{"dangerous_writes", `true`, "", trusted(func(t *access.Trust) { t.DangerousWrites = true })},
	}}
}

func clientToolsSection() section {
	return section{toolsSection, []key{
		{"allow", `["notion.search*"]`, `[]`, func(d *decoder, f *field) { d.own.Allow = d.patterns(f) }},
		{"hide", `["*.delete*"]`, `[]`, func(d *decoder, f *field) { d.own.Hide = d.patterns(f) }},
	}}
}

func clientSections() []section {
	return []section{clientFileSection(), settingsSection(), clientTrustSection(), clientToolsSection()}
}

// wordsOfClients are what a key of a client is called elsewhere.
func wordsOfClients() map[string]string {
	return map[string]string{
		"token": "token_sha256", "tokens": "token_sha256", "secret": "token_sha256", "password": "token_sha256", "api_key": "token_sha256", "key": "token_sha256",
		"bearer": "token_sha256", "sha256": "token_sha256", "token_hash": "token_sha256", "digest": "token_sha256",
		"user": "uid", "uids": "uid", "users": "uid", "peer": "uid", "id": "name", "client": "name", "title": "description", "desc": "description",
		"allowed_servers": "servers", "mcpservers": "servers", "access": "servers", "may": "servers",
		"policy": "profile", "mode": "profile", "gate": "profile",
		"session": "sessions", "session_mode": "sessions", "reason": "relax", "why": "relax",
		"tool": "tools", "allowed_tools": "tools", "hidden": "hide", "deny": "hide", "denied": "hide", "block": "hide", "exclude": "hide", "allowed": "allow", "include": "allow", "only": "allow",
		"disabled": "enabled", "active": "enabled", "sensitivity": "label", "settings": "server", "security": "label",
	}
}

func (d *decoder) clientName(f *field) {
	s, ok := d.text(f)
	if !ok {
		return
	}
	if fault := clientNameFault(s); fault != "" {
		d.report(problem(f.val.rng, "Invalid name", "The name %s %s. Write name = %q.", quoteName(s), fault, clientNameNear(s)))
		return
	}
	d.client.Name = s
}

func (d *decoder) clientDescription(f *field) {
	d.description(f)
	d.client.Description = d.server.Description
}

// tokens reads digests. What is none may be the token itself, so it is not repeated.
func (d *decoder) tokens(f *field) {
	d.hidden.all(f.val)
	entries := d.texts(f)
	if f.val.kind == list && len(f.val.items) == 0 {
		d.report(problem(f.val.rng, "Empty value", "token_sha256 has no digest. Run pfar client rotate %s, or leave the key out.", d.client.Name))
	}
	if len(entries) > maxTokens {
		d.report(problem(entries[maxTokens].rng, "Too many tokens", "token_sha256 has %d entries, and room for %d. Keep those that are in use.", len(entries), maxTokens))
		return
	}
	for i, n := range entries {
		var digest access.Digest
		if !tokenDigest.MatchString(n.text) {
			d.report(problem(n.rng, "Not a digest", "token_sha256 takes the SHA-256 of a token, %d hexadecimal digits, and never the token itself. Have pfar client rotate %s write one; if this is a token, it has been on disk and is to be replaced.", tokenDigits, d.client.Name))
			continue
		}
		_ = digest.UnmarshalText([]byte(n.text)) // as many digits as it takes
		if digest == access.DigestOf(nil) {
			d.report(problem(n.rng, "Digest of nothing", "This is the SHA-256 of an empty text, not of a token. Run pfar client rotate %s.", d.client.Name))
			continue
		}
		if slices.Contains(d.client.Tokens, digest) {
			d.report(caution(n.rng, "Duplicate token", "The same digest stands in the list already. Remove one of the two."))
			continue
		}
		d.placedEntry(f.key, len(d.client.Tokens), entries[i].rng)
		d.client.Tokens = append(d.client.Tokens, digest)
	}
}

func (d *decoder) uids(f *field) {
	if f.val.kind != list {
		if f.val.kind == number {
			d.report(problem(f.val.rng, "Wrong type", "uid takes a list, not a number. Write uid = [%s].", f.val.text))
			return
		}
		d.wrongType(f, f.val, "a list of numbers")
		return
	}
	if len(f.val.items) == 0 {
		d.report(problem(f.val.rng, "Empty value", "uid names no user. Write %s, or leave the key out.", d.example(f.key)))
	}
	if len(f.val.items) > maxUIDs {
		d.report(problem(f.val.items[maxUIDs].rng, "Too many users", "uid has %d entries, and room for %d.", len(f.val.items), maxUIDs))
		return
	}
	for _, n := range f.val.items {
		if n.kind == text && n.text != "" && strings.Trim(n.text, "0123456789") == "" {
			d.report(problem(n.rng, "Wrong type", "uid takes numbers without quotes. Write uid = [%.20s].", n.text))
			continue
		}
		if n.kind == text {
			d.report(problem(n.rng, "Wrong type", "uid takes numbers of users, not names. Write the number that id -u %s prints.", quote(n.text)))
			continue
		}
		v, ok := d.integer(&field{key: f.key, rng: n.rng, val: n}, 0, noUID-1)
		if !ok {
			continue
		}
		if slices.Contains(d.client.UIDs, uint32(v)) {
			d.report(caution(n.rng, "Duplicate user", "%d stands in the list already. Remove one of the two.", v))
			continue
		}
		d.placedEntry(f.key, len(d.client.UIDs), n.rng)
		d.client.UIDs = append(d.client.UIDs, uint32(v))
	}
}

func (d *decoder) clientServers(f *field) {
	entries := d.texts(f)
	if len(entries) > maxListed {
		d.report(problem(entries[maxListed].rng, "Too many servers", `servers has %d entries, and room for %d. Write "*" for all there are.`, len(entries), maxListed))
		return
	}
	c := d.client
	seen := map[string]hcl.Range{}
	for _, n := range entries {
		first, twice := seen[n.text]
		switch {
		case n.text == access.Every && len(f.val.items) > 1:
			d.report(problem(n.rng, "All and some", `"*" means all servers, also later ones, so it stands alone. Write servers = ["*"], or the names only.`))
		case n.text != access.Every && strings.ContainsAny(n.text, "*?"):
			d.report(problem(n.rng, "Invalid server", `%s is a pattern, and servers takes names. Write each name, or "*" alone for all there are.`, quote(n.text)))
		case n.text != access.Every && !validName(n.text):
			d.report(problem(n.rng, "Invalid server", "%s is not a server name: it %s. Write %s.", quoteName(n.text), strings.TrimPrefix(nameFault(n.text), "it "), strconv.Quote(validNameNear(n.text))))
		case twice:
			d.report(caution(n.rng, "Duplicate server", "%s is listed already in line %d. Remove one of the two.", quote(n.text), first.Start.Line))
		default:
			seen[n.text] = n.rng
			d.placedEntry(f.key, len(c.Servers), n.rng)
			c.Servers = append(c.Servers, n.text)
		}
	}
}

func (d *decoder) profile(f *field) {
	s, ok := d.line(f)
	switch {
	case !ok:
	case !validName(s):
		d.report(problem(f.val.rng, "Invalid profile", "%s is not a profile name. Write %s.", quoteName(s), d.example(f.key)))
	default:
		d.client.Profile = s
	}
}

func (d *decoder) clientSessions(f *field) {
	others := map[string]string{"default": "sticky", "one": "sticky", "shared": "sticky", "own": "connection", "per-connection": "connection", "each": "connection", "session": "connection"}
	if s, ok := d.enum(f, []string{string(access.Sticky), string(access.Connection)}, others); ok {
		d.client.Sessions = access.Sessions(s)
	}
}

func (d *decoder) relax(f *field) {
	if s, ok := d.line(f); ok {
		d.client.Relax = s
	}
}

func (d *decoder) clientTools(f *field) {
	n, ok := d.table(f)
	if !ok {
		return
	}
	d.own, d.about = access.Server{}, ""
	d.section(clientToolsSection(), n)
	d.client.Allow, d.client.Hide = d.own.Allow, d.own.Hide
}

// settings reads the sections about single servers.
func (d *decoder) settings(f *field) {
	all, ok := d.table(f)
	if !ok {
		return
	}
	for _, s := range all.fields {
		_, isKey := settingsSection().find(s.key)
		switch {
		case s.val.kind == broken:
		case s.val.kind != table || isKey:
			d.report(problem(s.rng, "Server without a name", "%s needs the name of a server. Write it in %s.", quote(s.key), d.form(serverSection)))
		case !validName(s.key):
			d.report(problem(s.rng, "Invalid server", "%s is not a server name: it %s. Write %s.", quoteName(s.key), nameFault(s.key), strconv.Quote(validNameNear(s.key))))
		case len(s.val.fields) == 0:
			d.report(problem(s.rng, "Missing key", "Nothing is said of the server %s. Write %s in it, or leave it out.", quote(s.key), d.example("label")))
		default:
			d.own, d.about = access.Server{}, s.key
			d.section(settingsSection(), s.val)
			if d.client.Settings == nil {
				d.client.Settings = map[string]access.Server{}
			}
			d.client.Settings[s.key] = d.own
		}
	}
}

func listedAt(list string, i int) string { return fmt.Sprintf("%s[%d]", list, i) }

// aboutServer is how a pattern of the file's own tools begins: a server's name, or a pattern of one, and a dot.
var aboutServer = regexp.MustCompile(`^[a-z0-9*?-]+\.`)

// patterns reads a list of patterns of tools: at the top with their servers, "notion.search*", in a server's section
// without.
func (d *decoder) patterns(f *field) []string {
	entries := d.texts(f)
	if f.val.kind == list && len(f.val.items) == 0 {
		d.report(problem(f.val.rng, "Empty value", "%s has no tool in it. Write %s, or leave the key out.", f.key, d.patternExample(f.key)))
	}
	if len(entries) > maxListed {
		d.report(problem(entries[maxListed].rng, "Too many patterns", "%s has %d entries, and room for %d. Write shorter patterns, such as %s.", f.key, len(entries), maxListed, d.patternExample(f.key)))
		return nil
	}
	var good []string
	for _, n := range entries {
		fault := patternFault(n.text)
		if fault == "" && d.about == "" && !aboutServer.MatchString(n.text) {
			if fault = "names no server"; n.text == access.Every {
				n.text, fault = "*.*", ""
			}
		}
		switch {
		case fault != "":
			d.report(problem(n.rng, "Invalid pattern", "%s %s. Write %s.", quote(n.text), fault, d.patternRemedy(f.key, n.text)))
		case slices.Contains(good, n.text):
			d.report(caution(n.rng, "Duplicate pattern", "%s stands in the list already. Remove one of the two.", quote(n.text)))
		default:
			if d.about == "" {
				d.placedEntry(toolsSection+"."+f.key, len(good), n.rng)
			}
			good = append(good, n.text)
		}
	}
	return good
}

func patternFault(s string) string {
	switch {
	case s == "":
		return "is empty"
	case len(s) > maxPattern:
		return "is longer than any tool's name can be"
	case strings.Contains(s, "__"):
		return "is written as clients see it, and a server stands before a dot here"
	case !patternLetters.MatchString(s):
		return "holds what no tool's name has: there are letters, digits, _ . / -, and * and ? for any of them"
	}
	return ""
}

func (d *decoder) patternExample(key string) string {
	if d.about != "" {
		return key + ` = ["search*"]`
	}
	return d.example(key)
}

func (d *decoder) patternRemedy(key, s string) string {
	server, tool, aggregate := strings.Cut(s, "__")
	switch {
	case aggregate && d.about == "" && patternFault(tool) == "" && validName(server):
		return quote(server + "." + tool)
	case aggregate && d.about != "" && patternFault(tool) == "":
		return quote(tool)
	case d.about == "" && patternFault(s) == "":
		return quote("*." + strings.TrimPrefix(s, "."))
	}
	return d.patternExample(key)
}
