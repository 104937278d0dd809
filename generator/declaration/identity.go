package declaration

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"golang.org/x/net/publicsuffix"

	"github.com/pfar/pfar/policies"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/policies/nearest"
	"github.com/pfar/pfar/policies/visible"
)

const (
	// MaxName is how many characters a server's name may have: pfar-m-NAME is a user of at most 31.
	MaxName        = 23
	maxDescription = 1024
	maxDomains     = 256
)

var (
	namePattern    = regexp.MustCompile(`^[a-z][a-z0-9-]{0,22}$`)
	versionPattern = regexp.MustCompile(`^v?[0-9][0-9A-Za-z.+_-]{0,63}$`)
	toolPattern    = regexp.MustCompile(`^[A-Za-z0-9_./*-]{1,128}$`)
	outside        = regexp.MustCompile(`[^a-z0-9]+`)
)

func validName(s string) bool { return nameFault(s) == "" }

// ValidName reports whether a server may have this name.
func ValidName(s string) bool { return validName(s) }

// nameFault says what is wrong with a name. It becomes part of user names, unit names, socket paths and of tool names
// on the wire, so everything that any of these reads in another way is refused.
func nameFault(s string) string {
	switch {
	case s == "":
		return "is empty"
	case strings.Contains(s, "_"):
		return `holds "_", which on the wire separates the server from the tool (notion__search)`
	case strings.Contains(s, "--"):
		return `holds "--", which tools that write "-" for "_" take for the mark between server and tool`
	case strings.HasSuffix(s, "-"):
		return `ends in "-", which runs into the mark between server and tool`
	case len(s) > MaxName:
		return "has " + strconv.Itoa(len(s)) + " characters, and the server's user name has room for " + strconv.Itoa(MaxName)
	case s[0] < 'a' || s[0] > 'z':
		return "does not begin with a letter from a to z"
	case !namePattern.MatchString(s):
		return "holds other characters than a to z, 0 to 9 and -"
	}
	return ""
}

// validNameNear returns the valid name that looks most like s.
func validNameNear(s string) string {
	s = strings.Trim(outside.ReplaceAllString(strings.ToLower(s), "-"), "-")
	s = strings.TrimLeft(s, "0123456789-")
	if len(s) > MaxName {
		s = strings.TrimRight(s[:MaxName], "-")
	}
	if s == "" {
		return "my-server"
	}
	return s
}

func (d *decoder) name(f *field) {
	s, ok := d.text(f)
	if !ok {
		return
	}
	if fault := nameFault(s); fault != "" {
		d.report(problem(f.val.rng, "Invalid name", "The name %s %s. Write name = %q.", quoteName(s), fault, validNameNear(s)))
		return
	}
	d.server.Name, d.server.Of = s, ""
}

// nameOfFile returns the name that a file gives its server and, of a named instance, the server that it is one of:
// browser.research.hcl declares "browser-research", an instance of "browser". The dot stays in the file's name: names
// of users have none (systemd.exec(5)), many models take none in those of tools, and one separates the server from the
// tool.
func nameOfFile(filename string) (name, of string) {
	base, _ := splitName(filename)
	of, instance, ok := strings.Cut(base, ".")
	if name = of + "-" + instance; ok && validName(of) && validName(instance) && validName(name) {
		return name, of
	}
	return base, ""
}

// checkName judges the file's own name, which is the server's if the file does not say one.
func (d *decoder) checkName() {
	if _, said := d.given["name"]; said {
		return
	}
	if fault := nameFault(d.server.Name); fault != "" {
		near := validNameNear(d.server.Name)
		d.report(problem(d.src.start(), "Invalid name", "The server is named after the file, and the name %s %s. Rename the file, or write name = %q.", quoteName(d.server.Name), fault, near))
	}
}

func (d *decoder) description(f *field) {
	s, ok := d.text(f)
	if !ok {
		return
	}
	if len(s) > maxDescription {
		d.report(problem(f.val.rng, "Too long", "description has %d bytes, and room for %d. Write a sentence.", len(s), maxDescription))
		return
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r != '\n' && r != '\t' && visible.Deceptive(r) }) {
		d.report(problem(f.val.rng, "Invisible character", "description holds a control character or one that cannot be seen: %s. Remove it.", quote(s)))
		return
	}
	d.server.Description = s
}

// wordsOfLabels are what labels are called elsewhere.
func wordsOfLabels() map[string]string {
	return map[string]string{
		"confidential": "sensitive", "private": "sensitive", "personal": "sensitive", "restricted": "regulated", "pii": "regulated", "open": "public", "top-secret": "secret",
	}
}

func (d *decoder) label(f *field) {
	words := []string{string(Public), string(Internal), string(Sensitive), string(Regulated), string(Secret)}
	if s, ok := d.enum(f, words, wordsOfLabels()); ok {
		d.server.Label = Label(s)
	}
}

func (d *decoder) allowedDomains(f *field) {
	entries := d.texts(f)
	d.domainsUnknown = len(entries) < len(f.val.items) || len(entries) > maxDomains
	if len(entries) > maxDomains {
		d.report(problem(entries[maxDomains].rng, "Too many domains", `allowed_domains has %d entries, and room for %d. Write "*.example.com" for the names below one.`, len(entries), maxDomains))
		return
	}
	seen := map[egress.Endpoint]hcl.Range{}
	for _, n := range entries {
		if strings.Contains(n.text, "@") { // may hold a password
			d.domainsUnknown = true
			d.hidden.add(n.rng)
			d.report(problem(n.rng, "Invalid domain", `The entry holds user information before "@". Write the host alone, such as "api.example.com".`))
			continue
		}
		e, err := parseEndpoint(n.text)
		if err != nil {
			if secretWithin(n.text) {
				d.hidden.add(n.rng)
				err = errNoHost
			}
			d.domainsUnknown = true
			d.report(problem(n.rng, "Invalid domain", "%s", domainFault(err)))
			continue
		}
		if first, twice := seen[e]; twice {
			d.report(caution(n.rng, "Duplicate domain", "%s is allowed already in line %d. Remove one of the two.", quote(n.text), first.Start.Line))
			continue
		}
		seen[e] = n.rng
		d.placedEntry(f.key, len(d.server.Allowed), n.rng)
		d.server.Allowed = append(d.server.Allowed, e)
	}
}

// parseEndpoint is egress.ParseEndpoint, and refuses a wildcard over names that anyone can register.
func parseEndpoint(s string) (egress.Endpoint, error) {
	e, err := egress.ParseEndpoint(s)
	if err != nil || !e.Wildcard {
		return e, err
	}
	if suffix, _ := publicsuffix.PublicSuffix(e.Host); suffix == e.Host {
		return egress.Endpoint{}, fmt.Errorf(`%q covers names that anyone can register (%q is a public suffix): write each host, or "*.example.%s"`, s, e.Host, e.Host)
	}
	return e, nil
}

// domainFault turns an error of parseEndpoint into a sentence that says what to write.
func domainFault(err error) string {
	fault := upperFirst(escape(err.Error())) + "."
	if !strings.Contains(strings.ToLower(fault), "write") {
		fault += ` Write a host name, such as "api.example.com".`
	}
	return fault
}

// blockedDomains reads names that allowed_domains does not allow. What no name allows is refused in any case.
func (d *decoder) blockedDomains(f *field) {
	entries := d.texts(f)
	if len(entries) > maxDomains {
		d.report(problem(entries[maxDomains].rng, "Too many domains", `blocked_domains has %d entries, and room for %d. Write "*.example.com" for the names below one.`, len(entries), maxDomains))
		return
	}
	for _, n := range entries {
		e, err := egress.ParseEndpoint(n.text)
		if err != nil && (strings.Contains(n.text, "@") || secretWithin(n.text)) {
			d.hidden.add(n.rng)
			err = errNoHost
		}
		switch {
		case err != nil:
			d.report(problem(n.rng, "Invalid domain", "%s", domainFault(err)))
		case e.Host == "":
			d.report(problem(n.rng, "Address as a name", "%s is an address. The server reaches those only that allowed_domains has: leave it out there.", quote(n.text)))
		default:
			d.blocked = append(d.blocked, n)
			d.server.Blocked = append(d.server.Blocked, e)
		}
	}
}

// checkBlocked finds entries that take nothing away: one is misspelt, or what it is to be taken from.
func (d *decoder) checkBlocked() {
	for i, e := range d.server.Blocked {
		if len(d.server.Allowed) > 0 && d.domainsKnown() && !slices.ContainsFunc(d.server.Allowed, e.Limits) {
			d.report(caution(d.blocked[i].rng, "Nothing to block", "allowed_domains does not allow %s anyway. Remove the entry, or correct it.", quote(d.blocked[i].text)))
		}
	}
}

func (d *decoder) enabled(f *field) {
	if v, ok := d.truth(f); ok {
		d.server.Enabled = v
	}
}

func (d *decoder) autostart(f *field) {
	if v, ok := d.truth(f); ok {
		d.server.Autostart = v
	}
}

func (d *decoder) timeout(f *field) {
	if v, ok := d.duration(f, time.Second, time.Hour, false); ok {
		d.server.Timeout = v
	}
}

func (d *decoder) idleTimeout(f *field) {
	if v, ok := d.duration(f, time.Second, 7*24*time.Hour, true); ok {
		d.server.IdleTimeout = v
	}
}

func (d *decoder) version(f *field) {
	s, ok := d.line(f)
	if !ok {
		return
	}
	if !versionPattern.MatchString(s) {
		d.report(problem(f.val.rng, "Not a version", `version names one exact version of the server, and %s is not a version. Write %s, or leave the key out.`, quote(s), d.example("version")))
		return
	}
	d.server.Version = s
}

// service names whose facts apply. The folder of policies may have such that are not shipped.
func (d *decoder) service(f *field) {
	s, ok := d.line(f)
	if !ok {
		return
	}
	known := policies.Services()
	if !slices.Contains(known, s) {
		hint := `Nothing is known of its tools, unless the folder of policies has a service of this name.`
		if near := nearest.Keyword(strings.ToLower(s), known); near != "" {
			hint = "Did you mean " + quote(near) + "? " + hint
		}
		d.report(caution(f.val.rng, "Unknown service", "pfar ships no facts of the service %s. %s", quoteName(s), hint))
	}
	d.server.Service = s
}

func (d *decoder) trustBlock(f *field) {
	if n, ok := d.table(f); ok {
		d.section(trustKeys(), n)
	}
}
