// Package reply writes answers: a server's result with pfar's changes, or an error.
package reply

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/jsonrpc"
)

// Reply is a result: the object that came or was made, and members to put before the others in it, each with a comma
// behind it.
type Reply struct {
	Result []byte
	Edits  []jsonrpc.Edit // of Result, that are made as it is written, and leave it one member at least
	Added  []byte
	Closed bool // the byte behind Result is the bracket that ends the message: lists are kept like that

	Members jsonrpc.Members // of Result before it is edited, nil if they have not been read
	Hint    registry.Hint   // for lists, which say nothing of it themselves

	ToolError bool  // the tool says that it failed
	Refused   bool  // pfar has not called it
	Why       error // it has not
}

// Empty is the result that says nothing.
var Empty = Reply{Result: []byte("{}")}

// ErrorOf returns an error as the client gets it, nil for none. One whose class is known says it in its data, with the
// remedy. In words it has the remedy as well, unless a person reads it: pfar's own command shows that beside the error.
func ErrorOf(err error, person bool) *jsonrpc.Error {
	if err == nil {
		return nil
	}
	e, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok {
		return jsonrpc.Errorf(mcp.INTERNAL_ERROR, "%v", err)
	}
	f, ok := errors.AsType[*failure.Error](err)
	if !ok {
		return e
	}
	told := f.Told()
	if e.Raw != nil {
		return &jsonrpc.Error{Raw: classed(e.Raw, told)}
	}
	is := *e // it may be one for all
	is.Data = jsonrpc.Amend(jsonrpc.OrEmpty(is.Data), anybodys, member(told))
	if !person {
		is.Text += "; " + told.Remedy
	}
	return &is
}

// classed is a server's error object that says of what class it is. Its words stay. In data that is no object there is
// no room for a class.
func classed(raw []byte, told failure.Told) []byte {
	ms, err := jsonrpc.Object(raw, make(jsonrpc.Members, 0, 4))
	if err != nil {
		return raw
	}
	i := ms.Index("data")
	switch {
	case i < 0:
		data := slices.Concat([]byte(`"data":{`), member(told), []byte("}"))
		return jsonrpc.Splice(nil, raw, ms.Prepend(raw, data))
	case ms[i].Raw()[0] != '{':
		return raw
	}
	return jsonrpc.Splice(nil, raw, ms.Replace(i, jsonrpc.Amend(ms[i].Raw(), anybodys, member(told))))
}

func anybodys(name []byte) bool { return string(name) != failure.Key }

// member is the member that tells of a failure.
func member(told failure.Told) []byte {
	b, _ := json.Marshal(told) // numbers and pfar's words
	return append(append(jsonrpc.Quote(failure.Key), ':'), b...)
}

// Bytes is the response as one message: the error, or the result if there is none.
func (re Reply) Bytes(id []byte, e *jsonrpc.Error) []byte {
	if e != nil {
		return append(append(jsonrpc.AppendHead(nil, id, "error"), e.JSON()...), '}')
	}
	return re.append(nil, id)
}

// Size is how many bytes the result has, without what is added.
func (re Reply) Size() int {
	n := len(re.Result)
	for _, e := range re.Edits {
		n += len(e.Text) - (e.End - e.Start)
	}
	return n
}

// most is the longest answer that is copied to be written at once: a second write costs more than that.
const most = 256 << 10

var buffers = sync.Pool{New: func() any { return new([]byte) }}

// Write answers with the result of a request.
func (re Reply) Write(w http.ResponseWriter, id []byte) {
	if len(re.Result) > most && len(re.Edits) == 0 {
		rest := [][]byte{re.Result[re.open():], []byte("}")}
		if re.Closed {
			rest = [][]byte{re.Result[re.open() : len(re.Result)+1]}
		}
		Write(w, http.StatusOK, append([][]byte{re.appendHead(nil, id)}, rest...)...)
		return
	}
	b := buffers.Get().(*[]byte)
	*b = re.append((*b)[:0], id)
	Write(w, http.StatusOK, *b)
	if cap(*b) <= 2*most {
		buffers.Put(b)
	}
}

// open is how much of the result appendHead stands in for.
func (re Reply) open() int {
	if len(re.Added) == 0 {
		return 0
	}
	return bytes.IndexByte(re.Result, '{') + 1
}

// appendHead appends the response up to what stands in the result as it came.
func (re Reply) appendHead(dst, id []byte) []byte {
	dst = jsonrpc.AppendHead(dst, id, "result")
	if len(re.Added) == 0 {
		return dst
	}
	dst = append(append(dst, '{'), re.Added...)
	if rest := bytes.TrimLeft(re.Result[re.open():], " \t\r\n"); len(rest) > 0 && rest[0] == '}' {
		dst = dst[:len(dst)-1] // no comma before the end
	}
	return dst
}

// append appends the whole response.
func (re Reply) append(dst, id []byte) []byte {
	dst = slices.Grow(dst, 128+len(re.Added)+re.Size())
	if len(re.Edits) > 0 {
		edits := re.Edits
		if at := re.open(); at > 0 {
			edits = slices.Concat([]jsonrpc.Edit{{Start: at, End: at, Text: re.Added}}, edits)
		}
		return append(jsonrpc.Splice(jsonrpc.AppendHead(dst, id, "result"), re.Result, edits...), '}')
	}
	return append(append(re.appendHead(dst, id), re.Result[re.open():]...), '}')
}

// Complete adds what results have since 2026-07-28 where it is missing: an older server's is complete, and nothing of
// it is to be kept by anybody but this client, nor for any time.
func (re Reply) Complete(method string) (Reply, error) {
	hints := false
	switch mcp.MCPMethod(method) {
	case mcp.MethodToolsList, mcp.MethodPromptsList, mcp.MethodResourcesList, mcp.MethodResourcesTemplatesList: // our own
		re.Added = append(append([]byte(`"resultType":"complete",`), re.Hint.Members()...), ',')
		return re, nil
	case mcp.MethodResourcesRead, mcp.MethodServerDiscover:
		hints = true
	}
	ms := re.Members
	if ms == nil {
		var err error
		if ms, err = jsonrpc.Object(re.Result, nil); err != nil {
			return Reply{}, jsonrpc.Errorf(mcp.INTERNAL_ERROR, "reading the result: %v", err)
		}
	}
	var added []byte
	if ms.Index("resultType") < 0 {
		added = append(added, `"resultType":"complete",`...)
	}
	if hints && ms.Index("inputRequests") < 0 {
		if ms.Index("ttlMs") < 0 {
			added = append(added, `"ttlMs":0,`...)
		}
		if ms.Index("cacheScope") < 0 {
			added = append(added, `"cacheScope":"private",`...)
		}
	}
	if len(added) > 0 {
		re.Added = append(added, re.Added...)
	}
	return re, nil
}

// Refuse answers a request that never became a message.
func Refuse(w http.ResponseWriter, status int, text string) {
	WriteError(w, status, nil, jsonrpc.Errorf(mcp.INVALID_REQUEST, "%s", text))
}

// WriteError answers with an error.
func WriteError(w http.ResponseWriter, status int, id []byte, e *jsonrpc.Error) {
	Write(w, status, Reply{}.Bytes(id, e))
}

// Write answers with parts of one JSON text, so that a long one is not copied to be put between brackets.
func Write(w http.ResponseWriter, status int, parts ...[]byte) {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	h := w.Header()
	h["Content-Type"] = contentJSON
	h["X-Content-Type-Options"] = NoSniff
	h["Content-Length"] = []string{strconv.Itoa(n)}
	w.WriteHeader(status)
	for _, p := range parts {
		if _, err := w.Write(p); err != nil {
			return // the client hung up
		}
	}
}

var contentJSON = []string{"application/json"}

// NoSniff is the value of X-Content-Type-Options in every answer.
var NoSniff = []string{"nosniff"}

// Cut shortens text to at most n bytes, at a character's border.
func Cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return visible.Cut(text, n) + " [...]"
}
