package declaration

import (
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/gate"
)

// Client is one declaration of clients.d, complete and valid: every default is filled in.
type Client struct {
	access.Client
	Description string

	places map[string]hcl.Range
}

// Place returns where the file gives a key, as Server.Place does.
func (c *Client) Place(key string) hcl.Range {
	if at, ok := c.places[key]; ok {
		return at
	}
	return hcl.Range{Filename: c.File, Start: hcl.InitialPos, End: hcl.InitialPos}
}

const (
	toolsSection = "tools"

	maxTokens   = 16 // of one client: rotation needs two
	maxUIDs     = 64
	maxListed   = 1024 // servers, or patterns of one list
	maxPattern  = 160
	noUID       = 1<<32 - 1 // (uid_t)-1 is none (setresuid(2))
	tokenDigits = 64
)

var (
	tokenDigest    = regexp.MustCompile(`^[0-9A-Fa-f]{64}$`)
	patternLetters = regexp.MustCompile(`^[A-Za-z0-9_./*?-]+$`)
)

// ParseClient reads one declaration of a client, as Parse does one of a server.
func ParseClient(filename string, b []byte) (*Client, hcl.Diagnostics) {
	c, _, diags := parseClient(filename, b)
	return c, diags
}

func parseClient(filename string, b []byte) (*Client, string, hcl.Diagnostics) {
	r := &builder{src: newSource(filename, b), meant: map[string]bool{}, named: serverSection}
	base, _ := splitName(filename)
	root := r.read()
	if root == nil {
		return nil, r.likelyName(base), r.finish()
	}
	d := newDecoder(r, base)
	d.client = &Client{Client: access.BuiltIn(access.Default)}
	d.client.Name = base
	d.client.File, d.client.Servers = filename, nil
	d.clientFile(root)
	name := d.client.Name
	if !validName(name) {
		name = base
	}
	diags := r.finish()
	if diags.HasErrors() {
		return nil, name, diags
	}
	d.client.places = d.server.places
	return d.client, name, diags
}

func (d *decoder) clientFile(root *node) {
	d.section(clientFileSection(), root)
	c := d.client
	if _, said := d.given["name"]; !said {
		if fault := clientNameFault(c.Name); fault != "" {
			d.report(problem(d.src.start(), "Invalid name", "The client is named after the file, and the name %s %s. Rename the file, or write name = %q.", quoteName(c.Name), fault, clientNameNear(c.Name)))
		}
	}
	reserved := c.Name == access.Operator
	if reserved {
		d.report(problem(d.nameRange(), "Reserved name", "The operator is the person who types calls, whose calls need no approval; a file cannot declare it. Write another name, such as name = \"desk\"; default.hcl says what the operator's programs may use."))
	}
	_, tokens := d.given["token_sha256"]
	_, uids := d.given["uid"]
	if !tokens && !uids && !reserved && c.Name != access.Default && !d.meant["token_sha256"] && !d.meant["uid"] {
		d.report(problem(d.src.start(), "Missing key", "Nothing says who this client is. Write token_sha256 = [\"...\"], as pfar client add %s does, or uid = [1000].", c.Name))
	}
	if said := d.given["sessions"]; said != nil && c.Sessions == access.Connection && c.Relax == "" {
		if f := d.given["relax"]; f == nil {
			d.report(problem(said.val.rng, "Missing reason", `sessions = "connection" lets a client forget its label when it connects again. Write relax = "why that is right for this client" beside it.`))
		}
	}
	if f := d.given["relax"]; f != nil && c.Relax != "" && c.Sessions != access.Connection && d.given["profile"] == nil {
		d.report(needless(f.rng))
	}
	d.checkSettings()
}

// needless warns of a reason for nothing.
func needless(at hcl.Range) *hcl.Diagnostic {
	return caution(at, "Reason for nothing", `Nothing in this file is laxer than the default, so there is nothing to give a reason for. Remove relax.`)
}

// nameRange is where the file says its client's name, or its beginning.
func (d *decoder) nameRange() hcl.Range {
	if f := d.given["name"]; f != nil {
		return f.val.rng
	}
	return d.src.start()
}

// checkSettings finds what is said of servers that the client may not use.
func (d *decoder) checkSettings() {
	c := d.client
	if slices.Contains(c.Servers, access.Every) {
		return
	}
	if f := d.given[serverSection]; f != nil && f.val.kind == table {
		for _, s := range f.val.fields {
			if _, ok := c.Settings[s.key]; ok && !slices.Contains(c.Servers, s.key) {
				d.report(caution(s.rng, "Server not listed", "servers does not have %s, so the client cannot use it and this says nothing. Add it there, or remove this.", quote(s.key)))
			}
		}
	}
	for _, list := range [...]struct {
		name     string
		patterns []string
	}{{"allow", c.Allow}, {"hide", c.Hide}} {
		for i, p := range list.patterns {
			server, _, _ := strings.Cut(p, ".")
			if !strings.ContainsAny(server, "*?") && !slices.Contains(c.Servers, server) {
				d.report(caution(d.server.places[listedAt("tools."+list.name, i)], "Server not listed", "servers does not have %s, so %s matches no tool. Add it there, or remove this.", quote(server), quote(p)))
			}
		}
	}
}

// clientNameFault says what is wrong with a name. It stands in URLs, file names and logs.
func clientNameFault(s string) string {
	switch {
	case s == "":
		return "is empty"
	case len(s) > MaxName:
		return "is longer than the 23 characters that a name may have"
	case s[0] < 'a' || s[0] > 'z':
		return "does not begin with a letter from a to z"
	case strings.HasSuffix(s, "-"), strings.Contains(s, "--"):
		return `has a "-" that stands between no letters`
	case !namePattern.MatchString(s):
		return "holds other characters than a to z, 0 to 9 and -"
	}
	return ""
}

// ClientNameFault says what is wrong with the name of a client, "" for nothing.
func ClientNameFault(s string) string { return clientNameFault(s) }

func clientNameNear(s string) string {
	if near := validNameNear(s); near != "my-server" {
		return near
	}
	return "my-client"
}

// trusted reads what may only be made worse: false would be the same as leaving it out, and look like more.
func trusted(set func(*access.Trust)) func(*decoder, *field) {
	return func(d *decoder, f *field) {
		switch v, ok := d.truth(f); {
		case !ok:
		case !v:
			d.report(problem(f.val.rng, "Nothing to relax", "A client's declaration may only make a server's facts stricter, and %[1]s = false would not. Write %[1]s = true, or leave it out and say it in the server's own declaration.", f.key))
		default:
			set(&d.own.Trust)
		}
	}
}

func (d *decoder) clientLabel(f *field) {
	words := []string{string(Public), string(Internal), string(Sensitive), string(Regulated), string(Secret)}
	if s, ok := d.enum(f, words, wordsOfLabels()); ok {
		var c gate.Confidentiality
		_ = c.UnmarshalText([]byte(s)) // one of the words
		d.own.Label = c
	}
}

// declares says what a file of this kind is about, and exampleName what one of them could be called.
func (b *builder) declares() string {
	if b.named == serverSection {
		return "client"
	}
	return "server"
}

func (b *builder) exampleName() string {
	if b.named == serverSection {
		return "desk"
	}
	return "notion"
}
