package importer

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pfar/pfar/generator/foreign"
	"github.com/pfar/pfar/policies/block"
	"github.com/pfar/pfar/policies/visible"
)

// Entry is one server as a file has it.
type Entry struct {
	Name   string
	Line   int
	Folder string // of the project that it is for; "": none

	command Word
	args    []Word
	env     []Variable
	cwd     Word
	path    Word // of a socket or a pair of FIFOs
	tools   tools
	remote
	running

	Disabled bool
	Refused  string // why no declaration can be made of it; "": one may
	Notes    []Note
}

// remote is a server that runs elsewhere.
type remote struct {
	url     Word
	headers []Variable
	kind    string // of transport, in the file's word; "": not said
}

// running is how a server is started and called.
type running struct {
	timeout time.Duration // of a call; 0: not said
	version string        // that it is expected to have; "": not said
	waits   bool          // it is started by the first call
}

// Word is a text whose variables are known, or not.
type Word struct {
	Text  string
	Line  int
	lacks []reference
}

// Variable is one of the environment, or a header.
type Variable struct {
	Name string
	Word
}

// tools are those that a client may use, and those that it may not.
type tools struct {
	allow, deny []string
	listed      bool // allow has all of them
}

func (e *Entry) note(line int, format string, args ...any) {
	e.Notes = append(e.Notes, Note{line, fmt.Sprintf(format, args...)})
}

// refuse says why no declaration can be made. The first reason counts.
func (e *Entry) refuse(line int, format string, args ...any) {
	if e.Refused == "" {
		e.Refused = fmt.Sprintf(format, args...)
		e.Notes = append([]Note{{line, e.Refused}}, e.Notes...)
	}
}

// entryReader reads the members of one server.
type entryReader struct {
	*Entry
	known
}

func readEntry(m foreign.Member, k known) Entry {
	r := entryReader{&Entry{Name: m.Name, Line: m.Line}, k}
	if m.Value.Kind != foreign.Object {
		r.refuse(m.Line, "it is %s, and not a server", m.Value.Kind)
		return *r.Entry
	}
	all := members()
	for _, m := range m.Value.Members {
		read, ok := all[m.Name]
		switch {
		case m.Value.Kind == foreign.Null:
		case ok:
			read(r, m)
		default:
			r.note(m.Line, "%s is not translated: pfar has no such setting", block.QuoteName(m.Name))
		}
	}
	return *r.Entry
}

// members are what programs call what a server has.
func members() map[string]func(entryReader, foreign.Member) {
	ignored := func(entryReader, foreign.Member) {}
	said := func(why string) func(entryReader, foreign.Member) {
		return func(r entryReader, m foreign.Member) { r.note(m.Line, "%s is not translated: %s", m.Name, why) }
	}
	off := said("the gate decides about each call; pfar approvals approve ID --grant allows more calls for a time")
	all := map[string]func(entryReader, foreign.Member){
		"command": entryReader.readCommand, "cmd": entryReader.readCommand,
		"args": func(r entryReader, m foreign.Member) { r.args = append(r.args, r.words(m)...) },
		"env":  entryReader.readEnv, "environment": entryReader.readEnv, "envs": entryReader.readEnv,
		"env_keys": func(r entryReader, m foreign.Member) { r.named(m, true) },
		"env_vars": func(r entryReader, m foreign.Member) { r.named(m, false) },
		"headers":  entryReader.readHeaders, "http_headers": entryReader.readHeaders,
		"env_http_headers": entryReader.readEnvHeaders, "bearer_token_env_var": entryReader.readBearer,
		"token_env": entryReader.readBearer, "auth": entryReader.readAuth, oneName: ignored,
		"cwd":  func(r entryReader, m foreign.Member) { r.cwd = r.word(m) },
		"path": func(r entryReader, m foreign.Member) { r.path = r.word(m) },
		"disabled": func(r entryReader, m foreign.Member) {
			r.Disabled = r.Disabled || m.Value.Text == "true"
		},
		"enabled": func(r entryReader, m foreign.Member) {
			r.Disabled = r.Disabled || m.Value.Text == "false"
		},
		"autostart":    func(r entryReader, m foreign.Member) { r.waits = m.Value.Text == "false" },
		"version":      func(r entryReader, m foreign.Member) { r.version = m.Value.Text },
		"includeTools": entryReader.readAllowed, "enabled_tools": entryReader.readAllowed,
		"available_tools": entryReader.readAllowed, "allowedTools": entryReader.readAllowed,
		"excludeTools": entryReader.readDenied, "disabled_tools": entryReader.readDenied,
		"disabledTools":    entryReader.readDenied,
		"tool_timeout_sec": func(r entryReader, m foreign.Member) { r.readTimeout(m, time.Second) },
		"timeout":          func(r entryReader, m foreign.Member) { r.readTimeout(m, time.Millisecond) },
		"envFile":          said("pfar does not read the file; store its secrets with pfar vault set, and name them in auth"),
		"trust":            off, "autoApprove": off, "alwaysAllow": off, "default_tools_approval_mode": off,
		"source": entryReader.readKind, "type": entryReader.readKind, "transport": entryReader.readKind,
		"code": func(r entryReader, m foreign.Member) {
			r.refuse(m.Line, "the file contains its source text; save that as a program, and declare the program")
		},
	}
	for _, name := range []string{"url", "serverUrl", "httpUrl", "uri"} {
		all[name] = func(r entryReader, m foreign.Member) { r.url = r.word(m) }
	}
	for _, name := range []string{"name", "display_name", "description", "gallery", "bundled", "startup_timeout_sec",
		"startup_timeout_ms", "oauth", "required"} {
		all[name] = ignored
	}
	return all
}

// word reads a text in which variables may be. A number and a truth are their text.
func (r entryReader) word(m foreign.Member) Word {
	return r.wordOf(m.Value, m.Name)
}

const maxWord = 64 << 10

func (r entryReader) wordOf(n *foreign.Node, of string) Word {
	if n.Kind == foreign.Object || n.Kind == foreign.List || n.Kind == foreign.Null {
		r.refuse(n.Line, "%s is %s, but must be a text", block.QuoteName(of), n.Kind)
		return Word{Line: n.Line}
	}
	out, lacks := r.expand(n.Text)
	switch {
	case len(out) > maxWord:
		r.refuse(n.Line, "%s has more than %d bytes", block.QuoteName(of), maxWord)
		return Word{Line: n.Line}
	case strings.ContainsFunc(out, unseen):
		r.refuse(n.Line, "%s has an invisible character, or one that reorders text", block.QuoteName(of))
		return Word{Line: n.Line}
	}
	return Word{Text: out, Line: n.Line, lacks: lacks}
}

func (r entryReader) words(m foreign.Member) (list []Word) {
	if m.Value.Kind != foreign.List {
		r.refuse(m.Line, "%s is %s, but must be a list", block.QuoteName(m.Name), m.Value.Kind)
		return nil
	}
	for _, i := range m.Value.Items {
		list = append(list, r.wordOf(i, m.Name))
	}
	return list
}

// readCommand reads a program, alone, in a list with its arguments, or as older versions of Zed have it.
func (r entryReader) readCommand(m foreign.Member) {
	switch m.Value.Kind {
	case foreign.List:
		words := r.words(m)
		if len(words) > 0 {
			r.command, r.args = words[0], append(words[1:], r.args...)
		}
	case foreign.Object:
		for _, part := range m.Value.Members {
			switch part.Name {
			case "path":
				r.command = r.word(part)
			case "args":
				r.args = append(r.args, r.words(part)...)
			case "env":
				r.readEnv(part)
			default:
				r.note(part.Line, "%s is not translated: pfar has no such setting", block.QuoteName(part.Name))
			}
		}
	default:
		r.command = r.word(m)
	}
}

func (r entryReader) variables(m foreign.Member) (list []Variable) {
	if m.Value.Kind != foreign.Object {
		r.refuse(m.Line, "%s is %s, but must be an object of names and values", block.QuoteName(m.Name), m.Value.Kind)
		return nil
	}
	for _, v := range m.Value.Members {
		if v.Value.Kind != foreign.Null {
			list = append(list, Variable{v.Name, r.word(v)})
		}
	}
	return list
}

func (r entryReader) readEnv(m foreign.Member) { r.env = append(r.env, r.variables(m)...) }

func (r entryReader) readHeaders(m foreign.Member) { r.headers = append(r.headers, r.variables(m)...) }

// readEnvHeaders reads headers whose values are in variables of the client's environment.
func (r entryReader) readEnvHeaders(m foreign.Member) {
	for _, v := range r.variables(m) {
		r.headers = append(r.headers, Variable{v.Name, r.absent(v.Word, "")})
	}
}

// readBearer reads the name of the variable that has the token.
func (r entryReader) readBearer(m foreign.Member) {
	r.headers = append(r.headers, Variable{"Authorization", r.absent(r.word(m), "Bearer ")})
}

// readAuth reads the token of a remote server. Its service says which scopes a token has.
func (r entryReader) readAuth(m foreign.Member) {
	if m.Value.Kind != foreign.Object {
		r.note(m.Line, "auth is not translated: it is %s", m.Value.Kind)
		return
	}
	for _, m := range m.Value.Members {
		switch m.Name {
		case "token_env":
			r.readBearer(m)
		case "scopes":
			r.note(m.Line, "scopes are not translated: give them to the token where you make it; pfar status says which its "+
				"service finds missing")
		default:
			r.note(m.Line, "%s of auth is not translated: pfar has no such setting", block.QuoteName(m.Name))
		}
	}
}

// absent is the value of a variable of the client's environment, which the file does not have.
func (entryReader) absent(name Word, before string) Word {
	from := reference{written: "${" + name.Text + "}", secret: true}
	return Word{Text: before + from.written, Line: name.Line, lacks: []reference{from}}
}

// named reads variables that a program takes from its own environment, or from its keyring.
func (r entryReader) named(m foreign.Member, secret bool) {
	for _, w := range r.words(m) {
		if slices.ContainsFunc(r.env, func(v Variable) bool { return v.Name == w.Text }) {
			continue
		}
		from := reference{written: "${" + w.Text + "}", secret: secret}
		r.env = append(r.env, Variable{w.Text, Word{Text: from.written, Line: w.Line, lacks: []reference{from}}})
	}
}

var toolName = regexp.MustCompile(`^[A-Za-z0-9_./:-]{1,128}$`)

func (r entryReader) toolNames(m foreign.Member) (list []string) {
	for _, w := range r.words(m) {
		if name := w.Text; toolName.MatchString(name) {
			list = append(list, name)
		} else {
			r.note(w.Line, "%s in %s is not the name of a tool", block.QuoteName(name), m.Name)
		}
	}
	return list
}

// readAllowed reads the tools that a client may use. For goose and Gemini CLI an empty list has all of them.
func (r entryReader) readAllowed(m foreign.Member) {
	r.tools.allow = append(r.tools.allow, r.toolNames(m)...)
	r.tools.listed = len(r.tools.allow) > 0 || m.Name == "enabled_tools"
}

func (r entryReader) readDenied(m foreign.Member) {
	r.tools.deny = append(r.tools.deny, r.toolNames(m)...)
}

// readTimeout reads how long a call may take. A small number is one of seconds: goose has those.
func (r entryReader) readTimeout(m foreign.Member, unit time.Duration) {
	n, err := strconv.ParseFloat(m.Value.Text, 64)
	if unit == time.Millisecond && n <= 600 {
		unit = time.Second
	}
	d := time.Duration(n * float64(unit)).Round(time.Second)
	if err != nil || !(n > 0) || n > 1e9 || d < time.Second || d > time.Hour {
		r.note(m.Line, "%s is not translated: pfar takes 1 second to 1 hour", m.Name)
		return
	}
	r.timeout = d
}

func (r entryReader) readKind(m foreign.Member) {
	switch kind := m.Value.Text; kind {
	case "custom", "": // Zed's word for a server that is not its own
	case "builtin", "platform", "frontend":
		r.refuse(m.Line, "it is a part of the program, and cannot run elsewhere")
	case "extension":
		r.refuse(m.Line, "an extension of the program starts it, and the file has no command")
	case "inline_python":
		r.refuse(m.Line, "the file contains its source text; save that as a program, and declare the program")
	default:
		r.kind = kind
	}
}

// unseen reports whether a character of a text is not seen. A key in PEM has lines.
func unseen(r rune) bool { return r != '\n' && r != '\t' && visible.Deceptive(r) }
