// Package fenced puts fences around the texts in what an MCP server says, as raw JSON: what a model will read as text
// is fenced, every other string is cleaned in its place, and what need not change stays byte for byte.
package fenced

import (
	"slices"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/policies/fence"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/jsonrpc"
)

// Answer is what is known of one thing that a server says, with the number of its marks.
type Answer struct {
	fence.Meta
	ID     fence.ID
	Reader Reader // nil: nobody else

	// Misfit says where structuredContent is not as its client will check it, as a JSON pointer (RFC 6901), and false if
	// it is. nil: nobody checks it.
	Misfit func(content []byte) (path string, wrong bool)
}

// Reader is somebody else who reads each string of a result that is fenced, and each name of a member: with where it
// begins, and what it stands for, of which nothing is to be kept. A long one that is the same as the long one before it
// is read once.
type Reader interface {
	String(at int, text string, name bool)
}

// texts are the strings that a model reads as text, by the method and their place in the result or the parameters: they
// are fenced. A star is any member or element.
var texts = map[mcp.MCPMethod][]string{
	mcp.MethodToolsCall:             below("content/*/", content),
	mcp.MethodResourcesRead:         {"contents/*/text/"},
	mcp.MethodPromptsGet:            messages,
	mcp.MethodElicitationCreate:     {"message/"},
	mcp.MethodSamplingCreateMessage: sampled,
	progress:                        {"message/"},
	logged:                          {"data/"},
	failed:                          {"message/"},
}

var (
	// content is the texts of a block: its own, that of a resource in it, and what is said of one that it leads to.
	content = []string{"text/", "resource/text/", "description/"}
	// messages have one block each, or several.
	messages = slices.Concat(below("messages/*/content/", content), below("messages/*/content/*/", content))
	// sampled is what a server wants a model to be asked: messages, in which there may be results of tools.
	sampled = slices.Concat([]string{"systemPrompt/"}, messages, below("messages/*/content/content/*/", content),
		below("messages/*/content/*/content/*/", content))
	// asked are the texts of questions that a result of 2026-07-28 has for the client.
	asked = below("inputRequests/*/params/", append([]string{"message/"}, sampled...))
)

// below are the places that these are, seen from further up.
func below(path string, places []string) []string {
	all := make([]string, len(places))
	for i, p := range places {
		all[i] = path + p
	}
	return all
}

// mayHold are the methods whose results may reach a model whole. In these, a text is marked wherever it stands.
var mayHold = map[mcp.MCPMethod]bool{mcp.MethodToolsCall: true, mcp.MethodResourcesRead: true, mcp.MethodPromptsGet: true}

// loose is where, by the method, a server may put anything, and no schema says what. Programs go by words there, which
// stay, and by no text: that is fenced.
var loose = map[mcp.MCPMethod]string{logged: data, failed: data}

const data = "data/"

// isWord reports whether a string can be a code, a name or a short address.
func isWord(text string) bool { return len(text) <= maxWord && isAddress(text) }

// isAddress reports whether a string can be an address.
func isAddress(text string) bool {
	for i := range len(text) {
		if text[i] <= ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}

const maxWord = 128 // bytes

// links are the addresses that a client may follow.
var links = []string{"content/*/uri/", "content/*/icons/*/src/", "messages/*/content/uri/", "messages/*/content/*/uri/",
	"messages/*/content/icons/*/src/",
	"messages/*/content/*/icons/*/src/", "contents/*/icons/*/src/", "icons/*/src/", "inputRequests/*/params/url/", "url/",
	"data/elicitations/*/url/"}

// embedded are the addresses of resources that are in an answer, which a client may show.
var embedded = slices.Concat([]string{"contents/*/uri/", "content/*/resource/uri/"}, below("messages/*/content/",
	inBlocks), below("inputRequests/*/params/messages/*/content/", inBlocks))

var inBlocks = []string{"resource/uri/", "*/resource/uri/", "content/*/resource/uri/", "*/content/*/resource/uri/"}

const (
	progress mcp.MCPMethod = "notifications/progress"
	logged   mcp.MCPMethod = "notifications/message"
	failed   mcp.MCPMethod = "" // an error, which has none
)

// Forged are words of marks and of chat templates that stood in a text, and are neutral now. The zero value is none.
type Forged struct {
	Count int
	Near  string // the text around the first, as it is now
}

// Result returns what is to change in the result of a request with these members: it is labelled, and fenced unless it
// is clean: text that is typed as an extract has typed values beside text that no schema binds. And it returns what is
// taken out of it. With ErrUnmarked the client must not get it.
func (a Answer) Result(method string, result []byte, ms jsonrpc.Members) ([]jsonrpc.Edit, Forged, error) {
	own := a.members()
	at := ms.Index("_meta")
	if at < 0 {
		own = append(append([]byte(`"_meta":{`), own...), '}')
	}
	w := walk{answer: a, b: result, texts: texts[mcp.MCPMethod(method)], result: mayHold[mcp.MCPMethod(method)]}
	if ms.Index("inputRequests") >= 0 {
		w.texts = slices.Concat(w.texts, asked)
	}
	if at < 0 {
		w.edits = append(w.edits, ms.Prepend(result, own))
	}
	w.tokens.Reset(result)
	clean := a.Label.Integrity == gate.Clean
	switch {
	case at < 0 && !clean:
		w.run(nowhere)
	case at >= 0:
		if !clean {
			w.run(ms[at].NameStart)
			meta := walk{
				answer: a, b: ms[at].Raw(), before: ms[at].ValueStart, result: w.result, fences: w.fences, renamed: w.renamed,
				forged: w.forged, sound: w.sound, line: w.line,
			}
			meta.tokens.Remember(&w.tokens)
			w.edits = append(w.edits, ms.Replace(at, jsonrpc.Amend(meta.whole(), Theirs, own)))
			w.fences, w.renamed, w.forged, w.sound, w.line = meta.fences, meta.renamed, meta.forged, meta.sound, meta.line
			_, _, _ = w.tokens.Skip(w.tokens.Known())
			w.run(nowhere)
			break
		}
		w.edits = append(w.edits, ms.Replace(at, jsonrpc.Amend(ms[at].Raw(), Theirs, own)))
	}
	w.tokens.Close()
	return w.edits, w.forged, w.fit(ms)
}

// Typed is the result of a tool that has typed values, JSON in which no text is a server's, and nothing else: it needs
// no fence.
func (a Answer) Typed(values []byte) []byte {
	b := append([]byte(`{"_meta":{`), a.labels()...)
	b = append(append(b, `},"content":[{"type":"text","text":`...), jsonrpc.Quote(string(values))...)
	b = append(append(b, `}],"structuredContent":`...), values...)
	return append(b, '}')
}

// members are the members of _meta that say whose a result is, and how far to trust it, beside the text and not in it.
func (a Answer) members() []byte {
	b := a.labels()
	if a.Label.Integrity != gate.Clean {
		b = append(append(b, `,"pfar/fence":`...), jsonrpc.Quote(a.ID.String())...)
	}
	return b
}

// labels are those of them that any result has.
func (a Answer) labels() []byte {
	b := append([]byte(`"pfar/server":`), jsonrpc.Quote(a.Server)...)
	b = append(append(b, `,"pfar/label":`...), jsonrpc.Quote(a.Label.Confidentiality.String())...)
	return append(append(b, `,"pfar/integrity":`...), jsonrpc.Quote(a.Label.Integrity.String())...)
}

// Error returns a server's error object, its message fenced unless it is clean.
func (a Answer) Error(raw []byte) []byte { return a.Message(string(failed), raw) }

// Message returns the parameters of a notification or a request that a server sends, fenced unless they are clean.
func (a Answer) Message(method string, params []byte) []byte {
	if a.Label.Integrity == gate.Clean {
		return params
	}
	w := walk{answer: a, b: params, texts: texts[mcp.MCPMethod(method)], loose: loose[mcp.MCPMethod(method)]}
	return w.whole()
}

// Data returns what stands in the data of an error of pfar's that a server has chosen words of, fenced unless it is
// clean.
func (a Answer) Data(raw []byte) []byte {
	if a.Label.Integrity == gate.Clean {
		return raw
	}
	w := walk{answer: a, b: raw, path: []byte(data), loose: data}
	return w.whole()
}

// Text returns a text of a server's that stands alone, fenced unless it is clean.
func (a Answer) Text(text string) string {
	if a.Label.Integrity == gate.Clean {
		return text
	}
	return string(fence.Fence(nil, text, a.Meta, a.ID))
}

// Definition returns what a server says of its tools, prompts or resources, cleaned: no text of it is fenced, for
// clients show and compare it.
func Definition(raw []byte) []byte { return Answer{}.cleaned(raw) }

func (a Answer) cleaned(raw []byte) []byte {
	w := walk{answer: a, b: raw}
	return w.whole()
}

// blank is where a link leads that led to the client's own machine or ran a script in it.
const blank = "about:blank"

// mayFollow reports whether an address is none that reads files, runs scripts or holds what it shows.
func mayFollow(uri string) bool { return mayShow(uri) && scheme(uri) != "file" }

// mayShow reports whether an address of what is shown is none that runs scripts or holds something else. data://config
// is a name, as servers give their resources, and no data.
func mayShow(uri string) bool {
	switch scheme(uri) {
	case "javascript", "vbscript", "view-source":
		return false
	case "data", "blob", "filesystem":
		_, rest, _ := strings.Cut(uri, ":")
		return strings.HasPrefix(rest, "//")
	}
	return true
}

// scheme returns the scheme of a URI in small letters; "" if it has none.
func scheme(uri string) string {
	var head []byte
	for i := 0; i < len(uri) && len(head) < 64; i++ {
		switch c := uri[i]; {
		case c == ':':
			return strings.ToLower(string(head))
		case c > ' ' && c != 0x7f: // browsers pass over those
			head = append(head, c)
		}
	}
	return ""
}
