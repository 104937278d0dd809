package declaration

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/block"
)

const (
	maxTokens   = 16 // of one client: rotation needs two
	maxUIDs     = 64
	noUID       = 1<<32 - 1 // (uid_t)-1 is none (setresuid(2))
	tokenDigits = 64
	searchWord  = "search"
)

var tokenDigest = regexp.MustCompile(`^[0-9A-Fa-f]{64}$`)

// clientFile reads the declaration of a client.
type clientFile struct {
	*reader
	client *Client
	rights *rights
}

func newClientFile(f *block.File, c *Client) *clientFile {
	d := &clientFile{reader: newReader(f, wordsOfClients), client: c}
	c.places = d.Places
	d.rights = &rights{reader: d.reader}
	d.schema = []block.Section{
		{Keys: d.keys(), Top: true}, {Name: serverSection, Keys: d.rights.keys(), Many: true},
		{Name: trustSection, Keys: d.rights.trustKeys()}, {Name: toolsSection, Keys: d.rights.toolsKeys()},
	}
	return d
}

func (d *clientFile) keys() []block.Key {
	c := d.client
	modes := []string{string(access.Sticky), string(access.Connection)}
	return []block.Key{
		key("name", `"desk"`, "", d.name),
		key("description", `"Claude Desktop on this machine"`, "", d.description(&c.Description)),
		key("enabled", `true`, `true`, d.SetTruth(&c.Enabled)),
		key("token_sha256", `["e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"]`, `[]`, d.tokens),
		key("uid", `[1000]`, `[]`, d.uids),
		key("servers", `["notion", "github"]`, `[]`, d.servers),
		key("profile", `"strict"`, `"strict"`, d.profile),
		key("sessions", `"sticky"`, `"sticky"`, word(d.reader, &c.Sessions, modes, wordsOfClientSessions)),
		key("connect", `true`, `false`, d.SetTruth(&c.Connect)),
		key("tasks", `"client"`, `"operator"`, d.tasks),
		key("task_header", `"X-Conversation-Id"`, "", d.taskHeader),
		key("relax", `"a test that begins clean each time"`, "", d.SetLine(&c.Relax)),
		key(toolsSection, "", "", d.tools),
		key(serverSection, "", "", d.settings),
	}
}

// read reads the keys, and then checks those that depend on each other.
func (d *clientFile) read(root *block.Node) {
	d.Section(d.called(""), root)
	c, given := d.client, d.Given
	if given["name"] == nil {
		if fault := clientNameFault(c.Name); fault != "" {
			d.Problem(d.Start(), "Invalid name", "The client is named after the file, and the name %s %s. Rename the file, or "+
				"write name = %q.", block.QuoteName(c.Name), fault, clientNameNear(c.Name))
		}
	}
	reserved := c.Name == access.Operator
	if reserved {
		d.Problem(d.nameRange(), "Reserved name", "The operator is the person who types calls, whose calls need no "+
			"approval; a file cannot declare it. Write another name, such as name = \"desk\"; default.hcl says what the "+
			"operator's programs may use.")
	}
	said := given["token_sha256"] != nil || given["uid"] != nil || d.meant["token_sha256"] || d.meant["uid"]
	if !said && !reserved && c.Name != access.Default {
		d.Problem(d.Start(), "Missing key", "Nothing says who this client is. Write token_sha256 = [\"...\"], as pfar "+
			"client add %s does, or uid = [1000].", c.Name)
	}
	relax, connection := given["relax"], c.Sessions == access.Connection
	if f := given["sessions"]; f != nil && connection && c.Relax == "" && relax == nil {
		d.Problem(f.Val.At, "Missing reason", `sessions = "connection" lets a client forget its label when it connects again. `+
			`Write relax = "why that is right for this client" beside it.`)
	}
	d.checkTasks()
	if relax != nil && c.Relax != "" && !connection && !c.Tasks.Client && given["profile"] == nil {
		d.Diags = append(d.Diags, needless(relax.At))
	}
	d.checkSettings()
}

func (d *clientFile) name(f *block.Field) {
	s, ok := d.Text(f)
	if !ok {
		return
	}
	if fault := clientNameFault(s); fault != "" {
		d.Problem(f.Val.At, "Invalid name", "The name %s %s. Write name = %q.", block.QuoteName(s), fault, clientNameNear(s))
		return
	}
	d.client.Name = s
}

// tokens reads digests. What is none may be the token itself, so it is not repeated.
func (d *clientFile) tokens(f *block.Field) {
	d.Hidden.All(f.Val)
	if f.Val.Kind == block.List && len(f.Val.Items) == 0 {
		d.Problem(f.Val.At, "Empty value", "token_sha256 has no digest. Run pfar client rotate %s, or leave the key out.", d.client.Name)
	}
	for _, n := range d.TextsTo(maxTokens, f, "Too many tokens", "Keep those that are in use.") {
		var digest access.Digest
		if !tokenDigest.MatchString(n.Text) {
			d.Problem(n.At, "Not a digest", "token_sha256 takes the SHA-256 of a token, %d hexadecimal digits, and never the "+
				"token itself. Have pfar client rotate %s write one; if this is a token, it has been on disk and is to "+
				"be replaced.", tokenDigits, d.client.Name)
			continue
		}
		_ = digest.UnmarshalText([]byte(n.Text)) // as many digits as it takes
		if digest == access.DigestOf(nil) {
			d.Problem(n.At, "Digest of nothing", "This is the SHA-256 of an empty text, not of a token. Run pfar client rotate %s.", d.client.Name)
			continue
		}
		if slices.Contains(d.client.Tokens, digest) {
			d.Caution(n.At, "Duplicate token", "The same digest stands in the list already. Remove one of the two.")
			continue
		}
		d.PlaceEntry(f.Key, len(d.client.Tokens), n.At)
		d.client.Tokens = append(d.client.Tokens, digest)
	}
}

func (d *clientFile) uids(f *block.Field) {
	if f.Val.Kind != block.List {
		if f.Val.Kind == block.Number {
			d.Problem(f.Val.At, "Wrong type", "uid takes a list, not a number. Write uid = [%s].", f.Val.Text)
			return
		}
		d.WrongType(f, f.Val, "a list of numbers")
		return
	}
	if len(f.Val.Items) == 0 {
		d.Problem(f.Val.At, "Empty value", "uid names no user. Write %s, or leave the key out.", f.Example)
	}
	if len(f.Val.Items) > maxUIDs {
		d.Problem(f.Val.Items[maxUIDs].At, "Too many users", "uid has %d entries, and room for %d.", len(f.Val.Items), maxUIDs)
		return
	}
	for _, n := range f.Val.Items {
		if n.Kind == block.Text && n.Text != "" && strings.Trim(n.Text, "0123456789") == "" {
			d.Problem(n.At, "Wrong type", "uid takes numbers without quotes. Write uid = [%.20s].", n.Text)
			continue
		}
		if n.Kind == block.Text {
			d.Problem(n.At, "Wrong type", "uid takes numbers of users, not names. Write the number that id -u %s prints.", block.Quote(n.Text))
			continue
		}
		v, ok := d.integer(f, n, 0, noUID-1)
		if !ok {
			continue
		}
		if slices.Contains(d.client.UIDs, uint32(v)) {
			d.Caution(n.At, "Duplicate user", "%d stands in the list already. Remove one of the two.", v)
			continue
		}
		d.PlaceEntry(f.Key, len(d.client.UIDs), n.At)
		d.client.UIDs = append(d.client.UIDs, uint32(v))
	}
}

func (d *clientFile) servers(f *block.Field) {
	d.client.Servers = append(d.client.Servers, block.Entries[string]{
		Read:  func(n *block.Node) (string, bool) { return n.Text, d.listedServer(n, len(f.Val.Items) == 1) },
		Place: f.Key,
		Twice: "Duplicate server", Again: "%s is listed already in line %d. Remove one of the two.",
	}.Of(d.Reader, d.TextsTo(maxListed, f, "Too many servers", `Write "*" for all there are.`))...)
}

func (d *clientFile) listedServer(n *block.Node, alone bool) bool {
	switch {
	case n.Text == access.Every && !alone:
		d.Problem(n.At, "All and some", `"*" means all servers, also later ones, so it stands alone. Write servers = ["*"], or the names only.`)
	case n.Text != access.Every && strings.ContainsAny(n.Text, "*?"):
		d.Problem(n.At, "Invalid server",
			`%s is a pattern, and servers takes names. Write each name, or "*" alone for all there are.`, block.Quote(n.Text))
	case n.Text != access.Every && !validName(n.Text):
		d.Problem(n.At, "Invalid server", "%s is not a server name: it %s. Write %s.", block.QuoteName(n.Text),
			strings.TrimPrefix(nameFault(n.Text), "it "), strconv.Quote(validNameNear(n.Text)))
	default:
		return true
	}
	return false
}

func (d *clientFile) profile(f *block.Field) {
	s, ok := d.Line(f)
	switch {
	case !ok:
	case !validName(s):
		d.Problem(f.Val.At, "Invalid profile", "%s is not a profile name. Write %s.", block.QuoteName(s), f.Example)
	default:
		d.client.Profile = s
	}
}

// tools reads which tools there are for the client, or the word that it finds them by searching.
func (d *clientFile) tools(f *block.Field) {
	if f.Val.Kind == block.Text {
		if d.client.Search = f.Val.Text == searchWord; !d.client.Search {
			const remedy = `tools is %s. Write tools = "search" to have the client search for tools, or allow and hide in %s.`
			d.Problem(f.Val.At, "Invalid value", remedy, block.Quote(f.Val.Text), d.form(toolsSection))
		}
		return
	}
	if n, ok := d.table(f); ok {
		all := d.rights.on("", d.called(toolsSection), n)
		d.client.Allow, d.client.Hide = all.Allow, all.Hide
	}
}

// settings reads the sections about single servers.
func (d *clientFile) settings(f *block.Field) {
	all, ok := d.table(f)
	if !ok {
		return
	}
	keys := d.called(serverSection)
	for _, s := range all.Fields {
		_, isKey := keys.Find(s.Key)
		switch {
		case s.Val.Kind == block.Broken:
		case s.Val.Kind != block.Table || isKey:
			d.Problem(s.At, "Server without a name", "%s needs the name of a server. Write it in %s.", block.Quote(s.Key), d.form(serverSection))
		case !validName(s.Key):
			d.Problem(s.At, "Invalid server", "%s is not a server name: it %s. Write %s.", block.QuoteName(s.Key),
				nameFault(s.Key), strconv.Quote(validNameNear(s.Key)))
		case len(s.Val.Fields) == 0:
			d.Problem(s.At, "Missing key", "Nothing is said of the server %s. Write %s in it, or leave it out.",
				block.Quote(s.Key), d.example("label"))
		default:
			if d.client.Settings == nil {
				d.client.Settings = map[string]access.Server{}
			}
			d.client.Settings[s.Key] = d.rights.on(s.Key, keys, s.Val)
		}
	}
}

// needless warns of a reason for nothing.
func needless(at hcl.Range) *hcl.Diagnostic {
	return block.Caution(at, "Reason for nothing",
		`Nothing in this file is laxer than the default, so there is nothing to give a reason for. Remove relax.`)
}

// nameRange is where the file says its client's name, or its beginning.
func (d *clientFile) nameRange() hcl.Range {
	if f := d.Given["name"]; f != nil {
		return f.Val.At
	}
	return d.Start()
}

// checkSettings finds what is said of servers that the client may not use.
func (d *clientFile) checkSettings() {
	c := d.client
	if slices.Contains(c.Servers, access.Every) {
		return
	}
	if f := d.Given[serverSection]; f != nil && f.Val.Kind == block.Table {
		for _, s := range f.Val.Fields {
			if _, ok := c.Settings[s.Key]; ok && !slices.Contains(c.Servers, s.Key) {
				d.Caution(s.At, "Server not listed", "servers does not have %s, so the client cannot use it and this says "+
					"nothing. Add it there, or remove this.", block.Quote(s.Key))
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
				d.Caution(d.Places[listedAt(toolsSection+"."+list.name, i)], "Server not listed", "servers does not have %s, so "+
					"%s matches no tool. Add it there, or remove this.", block.Quote(server), block.Quote(p))
			}
		}
	}
}
