package fenced

import (
	"math/bits"
	"slices"
	"strings"
	"unsafe"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/policies/scan"
	"github.com/pfar/pfar/units/jsonrpc"
)

// A page is HTML of a server's that a client runs beside the conversation: of MCP Apps (SEP-1865), of mcp-ui, of
// OpenAI's Apps SDK. It calls tools, speaks to the model, and reaches the hosts that the server names, all of which
// neither its owner nor egress nor the gate sees. So none is in a list or a result.

// IsPage reports whether a resource with this URI is one.
func IsPage(uri string) bool {
	return begins(uri, "ui://") || begins(uri, "ui-app://")
}

// begins reports whether a text begins with some ASCII, in whatever letters.
func begins(text, with string) bool {
	return len(text) >= len(with) && strings.EqualFold(text[:len(with)], with)
}

// IsPageType reports whether a resource of this MIME type is one.
func IsPageType(mime string) bool {
	mime = strings.ToLower(mime)
	return slices.ContainsFunc([]string{"mcp-app", "mcp-ui", "text/html+mcp", "+skybridge"},
		func(s string) bool { return strings.Contains(mime, s) })
}

// mayRun reports whether some clients run what has this MIME type.
func mayRun(mime string) bool {
	kind, _, _ := strings.Cut(strings.ToLower(mime), ";")
	switch strings.TrimSpace(kind) {
	case "text/html", "application/xhtml+xml", "text/uri-list":
		return true
	}
	return IsPageType(mime)
}

// plainText is the MIME type of what is not to be run.
const plainText = "text/plain"

// Theirs reports whether a server may set a member of _meta: what begins with pfar/ is what pfar says, and nothing is
// to lead to a page.
func Theirs(name []byte) bool {
	switch name := strings.ToLower(string(name)); {
	case strings.HasPrefix(name, "pfar/"):
		return false
	case name == "ui", strings.HasPrefix(name, "ui/"), strings.HasPrefix(name, "openai/"), strings.HasPrefix(name, "openai.com/"):
		return false
	}
	return true
}

// Pageless returns the result of a request that is not fenced, and its members: as it came, but that nothing in it is a
// page or leads to one.
func Pageless(method string, result []byte, ms jsonrpc.Members) ([]byte, jsonrpc.Members) {
	if !mayHavePages(result) {
		return result, ms
	}
	w := walk{b: result, texts: texts[mcp.MCPMethod(method)], trusted: true}
	pageless := w.whole()
	if len(w.edits) == 0 {
		return result, ms
	}
	ms, _ = jsonrpc.Object(pageless, nil) // as it was one before
	return pageless, ms
}

// hints are what a result with a page has one of, in whatever letters: of its address, its MIME type, or an escape.
var hints = []string{"ui:/", `ui:\`, "app:/", `app:\`, "mcp-", "+mcp", "+skybridge", `\u00`}

var hintWords = func() (w scan.Words) {
	for group, hint := range hints {
		w.Add(hint, group)
	}
	return w
}()

// mayHavePages is a first look, as few results have any.
func mayHavePages(result []byte) bool {
	text := unsafe.String(unsafe.SliceData(result), len(result))
	var marks [scan.Ahead]uint64
	for at := 0; at < len(text); {
		for _, m := range marks[:hintWords.Mark(marks[:], text, at)] {
			if m == ^uint64(0) && len(text)-at > 2*scan.Block { // a machine that does not look for words
				return true
			}
			for ; m != 0; m &= m - 1 {
				i := at + bits.TrailingZeros64(m)
				if i >= len(text) { // the last words are marked to the end of their block
					break
				}
				rest := text[i:]
				if slices.ContainsFunc(hints, func(hint string) bool { return begins(rest, hint) }) {
					return true
				}
			}
			at += scan.Block
		}
	}
	return false
}
