package declaration

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/policies"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/block"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/nearest"
)

// ParseClient reads one declaration of a client, as Parse does one of a server.
func ParseClient(filename string, b []byte) (*Client, hcl.Diagnostics) {
	c, _, diags := parseClient(filename, b)
	return c, diags
}

func parseClient(filename string, b []byte) (*Client, string, hcl.Diagnostics) {
	base, _ := block.SplitName(filename)
	f := block.NewFile(filename, b, clientLanguage())
	root := tree(f, `Write at least the servers that the client may use: servers = ["notion"].`)
	if root == nil {
		return nil, likelyName(b, base), f.Finish()
	}
	c := &Client{Client: access.BuiltIn(access.Default)}
	c.Name, c.File, c.Servers, c.Connect = base, filename, nil, false
	newClientFile(f, c).read(root)
	name := c.Name
	if !validName(name) {
		name = base
	}
	diags := f.Finish()
	if diags.HasErrors() {
		return nil, name, diags
	}
	return c, name, diags
}

// ClientOptions are what a reader of clients knows beyond the files.
type ClientOptions struct {
	Known   []string     // paths of files whose clients are known already: they are read first, as Options.Known are
	Servers []string     // that are declared; nil: nobody knows
	Policy  *gate.Policy // that has the profiles; nil: nobody knows
}

// ClientSet is what a folder of clients says.
type ClientSet struct {
	Clients []Client // by name
	Broken  []Broken // names whose file has an error, by name: the last good version stays
	Diags   hcl.Diagnostics
	Files   map[string]*hcl.File

	Unread bool // the folder is there and cannot be read: nothing is known of any client
}

// Declares returns the file that declares a client, with an error or without; "": none does.
func (s ClientSet) Declares(name string) string {
	for _, one := range s.Clients {
		if one.Name == name {
			return one.File
		}
	}
	for _, b := range s.Broken {
		if b.Name == name {
			return b.File
		}
	}
	return ""
}

// Taken returns the file that keeps a new client from this name: one that declares it, or is called like it. fsys is
// the folder of the set, and dir its path.
func (s ClientSet) Taken(fsys fs.FS, dir, name string) string {
	if path := s.Declares(name); path != "" {
		return path
	}
	for _, ext := range []string{".hcl", ".toml"} {
		if _, err := fs.Lstat(fsys, name+ext); !errors.Is(err, fs.ErrNotExist) {
			return path.Join(dir, name+ext)
		}
	}
	return ""
}

// MaxClients bounds the clients of a machine: each request is compared with the tokens of all of them.
const MaxClients = 256

// LoadClients reads every declaration of a folder, as Load does. A folder that is not there declares nobody.
func LoadClients(fsys fs.FS, dir string, o ClientOptions) ClientSet {
	s := ClientSet{Files: map[string]*hcl.File{}}
	entries, err := Folder{dir, fsys}.list(o.Known)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.Unread = true
		at := hcl.Range{Filename: dir, Start: hcl.InitialPos, End: hcl.InitialPos}
		s.Diags = s.Diags.Append(block.Problem(at, "Directory not readable", "Reading the directory of clients: %s. Make "+
			"it a directory that pfar may read, or remove it.", block.Escape(policies.Reason(err))))
	}
	taken := owners{map[string]string{}, map[access.Digest]string{}, map[uint32]string{}}
	for _, e := range entries {
		if IsDeclaration(e.Name()) {
			s.read(fsys, path.Join(dir, e.Name()), e.Name(), taken, o.Policy)
		}
	}
	for i := range s.Clients {
		s.judge(&s.Clients[i], o.Servers)
	}
	slices.SortFunc(s.Clients, func(a, b Client) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(s.Broken, func(a, b Broken) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.File, b.File)) })
	return s
}

// owners are the files that have taken what only one client can have.
type owners struct {
	names  map[string]string
	tokens map[access.Digest]string
	uids   map[uint32]string
}

// read adds one file.
func (s *ClientSet) read(fsys fs.FS, file, entry string, taken owners, policy *gate.Policy) {
	base, _ := block.SplitName(entry)
	at := hcl.Range{Filename: file, Start: hcl.InitialPos, End: hcl.InitialPos}
	b, err := policies.ReadFile(fsys, entry, maxSize)
	if err != nil {
		s.Diags = s.Diags.Append(block.Problem(at, "File not readable", "Reading the declaration: %s. Make it a regular "+
			"file that pfar may read, or remove it.", block.Escape(policies.Reason(err))))
		s.broken(base, file, taken)
		return
	}
	s.Files[file] = &hcl.File{Bytes: b}
	c, name, diags := parseClient(file, b)
	s.Diags = append(s.Diags, diags...)
	if other, twice := taken.names[name]; twice {
		s.Diags = s.Diags.Append(block.Problem(at, "Duplicate client", "The name %q is taken by %s, which has it already. "+
			"Write another name = in one of the two, or remove one.", name, block.Quote(other)))
		return
	}
	if c != nil && len(s.Clients) == MaxClients {
		s.Diags = s.Diags.Append(block.Problem(at, "Too many clients", "There are %d clients already, and room for no "+
			"more. Remove those that are not in use.", MaxClients))
		c = nil
	}
	if c == nil {
		s.broken(name, file, taken)
		return
	}
	d := c.JudgeProfile(policy)
	if !d.HasErrors() {
		d = append(d, taken.take(c)...)
	}
	s.Diags = append(s.Diags, d...)
	if d.HasErrors() {
		s.broken(name, file, taken)
		return
	}
	s.Clients = append(s.Clients, *c)
}

func (s *ClientSet) broken(name, file string, taken owners) {
	s.Broken = append(s.Broken, Broken{name, file})
	if _, ok := taken.names[name]; !ok {
		taken.names[name] = file
	}
}

// take gives a client what it declares, or returns what others have already. Of two clients with one token nobody could
// say which one asks.
func (o owners) take(c *Client) (diags hcl.Diagnostics) {
	for i, t := range c.Tokens {
		if other, ok := o.tokens[t]; ok {
			diags = diags.Append(block.Problem(c.Place(listedAt("token_sha256", i)), "Token of another client",
				"%s has the same token, so pfar cannot tell the two apart. Run pfar client rotate %s.", block.Quote(other), c.Name))
		}
	}
	for i, u := range c.UIDs {
		if other, ok := o.uids[u]; ok {
			diags = diags.Append(block.Problem(c.Place(listedAt("uid", i)), "User of another client",
				"%s already has uid %d, so pfar cannot tell the two apart. Give the uid to one of them, and a token to the other.",
				block.Quote(other), u))
		}
	}
	if len(diags) > 0 {
		return diags
	}
	o.names[c.Name] = c.File
	for _, t := range c.Tokens {
		o.tokens[t] = c.File
	}
	for _, u := range c.UIDs {
		o.uids[u] = c.File
	}
	return nil
}

// JudgeProfile finds what is wrong with the client's profile: there has to be one of that name, and for one that allows
// more than strict there has to be a reason. Without a policy nothing is known of it.
func (c *Client) JudgeProfile(policy *gate.Policy) (diags hcl.Diagnostics) {
	if policy == nil {
		return nil
	}
	if _, there := policy.Profiles[c.Profile]; !there {
		return diags.Append(block.Problem(c.Place("profile"), "No such profile", "No profile is called %s, so nothing that "+
			"the client calls would be allowed. There is %s.", block.Quote(c.Profile),
			block.OneOf(slices.Sorted(maps.Keys(policy.Profiles)))))
	}
	_, given := c.places["profile"]
	_, reasoned := c.places["relax"]
	switch looser := policy.Looser(c.Profile, access.BuiltIn(access.Default).Profile); {
	case looser && c.Relax == "":
		return diags.Append(block.Problem(c.Place("profile"), "Missing reason", "The profile %s allows more than strict "+
			"does. Write relax = \"why that is right for this client\" beside it.", block.Quote(c.Profile)))
	case !looser && given && reasoned && c.Sessions != access.Connection:
		return diags.Append(needless(c.Place("relax")))
	}
	return nil
}

// judge warns of what is right and may not be what was meant.
func (s *ClientSet) judge(c *Client, servers []string) {
	if slices.Contains(servers, c.Name) {
		s.Diags = s.Diags.Append(block.Caution(c.Place("name"), "Name of a server", "A server is called %[1]q as well. For "+
			"this client /mcp/%[1]s is all that it may use; the server alone is at /mcp/%[1]s/default/%[1]s.", c.Name))
	}
	if servers == nil {
		return
	}
	for i, name := range c.Servers {
		if name == access.Every || slices.Contains(servers, name) {
			continue
		}
		hint := "Declare it, or remove it here."
		if near := nearest.Keyword(name, servers); near != "" {
			hint = "Did you mean " + near + "?"
		}
		s.Diags = s.Diags.Append(block.Caution(c.Place(listedAt("servers", i)), "No such server",
			"No server of the name %s is declared. %s", block.Quote(name), hint))
	}
}
