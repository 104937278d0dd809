package declaration

import (
	"io/fs"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/block"
	"github.com/pfar/pfar/policies/inspector"
)

// Chat is one declaration of chat.d, complete and valid: a Matrix account at which the owner talks with pfar.
type Chat struct {
	inspector.External
	File string

	places map[string]hcl.Range
}

// Place returns where the file gives a key, as Server.Place does.
func (c *Chat) Place(key string) hcl.Range {
	if at, ok := c.places[key]; ok {
		return at
	}
	return start(c.File)
}

// MaxChats bounds the chats of a machine.
const MaxChats = 8

// ChatSet is the content of a folder of chats.
type ChatSet struct {
	Chats  []Chat   // by name
	Broken []Broken // names whose file has an error, by name: the last good version stays
	Diags  hcl.Diagnostics
	Files  map[string]*hcl.File
	Unread bool // the folder exists but cannot be read, so its chats are unknown
}

// ParseChat reads the declaration of one chat, as Parse reads that of a server.
func ParseChat(filename string, b []byte) (*Chat, hcl.Diagnostics) {
	base, _ := block.SplitName(filename)
	f := block.NewFile(filename, b, chatLanguage())
	root := tree(f, `Write at least which account pfar has and whom it listens to: `+
		`homeserver = "https://matrix.example.org", user = "@pfar:example.org", token = "vault:matrix_token" and `+
		`owner = "@ada:example.org".`)
	if root == nil {
		return nil, f.Finish()
	}
	c := &Chat{File: filename}
	c.Name, c.Account = base, new(inspector.Account)
	newChatFile(f, c).read(root)
	diags := f.Finish()
	if diags.HasErrors() {
		return nil, diags
	}
	return c, diags
}

// LoadChats reads every declaration of a folder, as LoadModels does. taken are the places of inspectors, notices and
// models, by name.
func LoadChats(fsys fs.FS, dir string, taken map[string]hcl.Range) ChatSet {
	list, s := loadFolder(Folder{dir, fsys}, taken, kindOfFile[Chat]{
		word: "chat", words: "chats",
		others: "An inspector, a notice or a model", most: MaxChats,
		parse: ParseChat, name: func(c *Chat) string { return c.Name },
	})
	return ChatSet{Chats: list, Broken: s.broken, Diags: s.diags, Files: s.files, Unread: s.unread}
}

// chatFile reads the declaration of a chat.
type chatFile struct {
	*reader
	chat *Chat
}

func newChatFile(f *block.File, c *Chat) *chatFile {
	d := &chatFile{reader: newReader(f, wordsOfChats), chat: c}
	c.places = d.Places
	d.schema = []block.Section{{Keys: d.keys(), Top: true}}
	return d
}

func (d *chatFile) keys() []block.Key {
	c := d.chat
	return []block.Key{
		key("homeserver", `"https://matrix.example.org"`, "", d.SetLine(&c.URL)),
		key("user", `"@pfar:example.org"`, "", d.SetLine(&c.Account.User)),
		key("token", `"vault:matrix_token"`, "", d.secret),
		key("owner", `"@ada:example.org"`, "", d.SetLine(&c.Account.Owner)),
		key("client", `"desk"`, `"default"`, d.client),
		key("connect", `true`, `false`, d.SetTruth(&c.Account.Connect)),
		key("allow_private", `["10.0.0.5"]`, `[]`, d.private),
	}
}

// keysOfAccounts are the keys of the file for the attributes of an External.
func keysOfAccounts() map[string]string {
	return map[string]string{"url": "homeserver", "key": "token"}
}

// read reads the keys, and then checks those that depend on each other.
func (d *chatFile) read(root *block.Node) {
	d.Section(d.called(""), root)
	readExternal(d.reader, &d.chat.External, "chat", "matrix.hcl", keysOfAccounts())
}

// secret reads which secret of the vault is the access token. Any other value may be the token itself, so no diagnostic
// repeats it.
func (d *chatFile) secret(f *block.Field) {
	if s, ok := secretNamed(d.reader, f, "token", "access token itself", "matrix_token"); ok {
		d.chat.Key = s
	}
}

// client reads the client as which pfar asks questions.
func (d *chatFile) client(f *block.Field) {
	s, ok := d.Text(f)
	if !ok {
		return
	}
	if fault := clientNameFault(s); fault != "" || s == access.Operator {
		if fault == "" {
			fault = "is the operator, but a chat cannot be the operator, because a model decides in a chat"
		}
		d.Problem(f.Val.At, "Invalid client", "The name %s %s. Name a client of clients.d, or leave client out.",
			block.QuoteName(s), fault)
		return
	}
	d.chat.Account.Client = s
}

func (d *chatFile) private(f *block.Field) {
	d.chat.AllowPrivate = privateAddresses(d.reader, f)
}

// chatLanguage describes the language of declarations of chats.
func chatLanguage() block.Language {
	public := func(name string) bool {
		_, known := chatSections()[0].Find(name)
		return known && name != "token"
	}
	says := sentences("A chat has no block %[1]s. Its name is the file's.", "A chat has no block.")
	return block.Language{Public: public, Remedies: true, Variable: variable(""), Says: says}
}

// wordsOfChats maps names of other programs to keys of a chat.
func wordsOfChats() map[string]string {
	return map[string]string{
		"url": "homeserver", "server": "homeserver", "host": "homeserver", "base_url": "homeserver",
		"homeserver_url": "homeserver", "address": "homeserver",
		"user_id": "user", "username": "user", "account": "user", "bot": "user", "mxid": "user",
		"access_token": "token", "key": "token", "secret": "token", "password": "token", "auth": "token",
		"admin": "owner", "owner_id": "owner", "listen_to": "owner", "allow": "owner", "owners": "owner",
		"run_as": "client", "as": "client", "private": "allow_private", "allow_local": "allow_private",
	}
}

// ChatKeys returns the schema of chats.
func ChatKeys() []Key { return keysOf(chatSections()) }

func chatSections() []block.Section {
	c := &Chat{}
	c.Account = new(inspector.Account)
	return newChatFile(block.NewFile("", nil, block.Language{}), c).schema
}
