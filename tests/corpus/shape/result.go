package shape

import (
	"fmt"
	"strings"
)

// Received is what the server got: all that its answer depends on, as it came.
type Received struct {
	Method string
	Name   string   // decoded
	Params []Member // without "name", "uri" and "_meta"
	Meta   []Member // of _meta, without what is the protocol's own
}

// Reply is an answer: the name of the member, "result" or "error", and its value.
type Reply struct{ Member, Value string }

const mebibyte = 1 << 20

// Answer makes up what the server says to a request. A modern one says so in the result, as 2026-07-28 wants it.
func (v *Server) Answer(r Received, modern bool) Reply {
	compact := Source{}
	seen := compact.ordered([]Member{named("params", compact.ordered(r.Params)), named("meta", compact.ordered(r.Meta))})
	s := New(v.Seed, v.Name, r.Method, r.Name, seen)
	if s.one(16) {
		return Reply{"error", s.failure()}
	}
	var members []Member
	switch r.Method {
	case "tools/call":
		i := indexOf(v.Tools, func(t Tool) bool { return t.Name == r.Name })
		if i < 0 {
			return Reply{"error", `{"code":-32602,"message":"unknown tool"}`}
		}
		members = s.called(v.Tools[i])
	case "prompts/get":
		members = s.got()
	case "resources/read":
		members = s.contents(r.Name)
		if modern {
			members = append(members, named("ttlMs", pick(s, []string{"0", "60000", "3600000"})), named("cacheScope", pick(s, []string{`"public"`, `"private"`})))
		}
	case "completion/complete":
		members = s.completed()
	default:
		return Reply{"error", `{"code":-32601,"message":"method not found"}`}
	}
	if modern {
		members = append(members, named("resultType", `"complete"`))
	}
	members = append(append(members, s.unknown(3, 4)...), s.meta()...)
	if s.one(50) {
		members = append(members, named("x-deep", s.nested(300+s.IntN(150))))
	}
	return Reply{"result", s.object(append(members, named("x-received", seen)))}
}

func indexOf[T any](list []T, is func(T) bool) int {
	for i := range list {
		if is(list[i]) {
			return i
		}
	}
	return -1
}

// failure is an error of the server's own, with data.
func (s Source) failure() string {
	members := []Member{named("code", pick(s, []string{"-32000", "-32602", "-32603", "1", "-1", "-32099"})), named("message", s.text())}
	members = append(members, s.maybe("data", func() string { return s.value(4) })...)
	return s.object(append(members, s.unknown(2, 3)...))
}

// called is what a tool returns.
func (s Source) called(t Tool) []Member {
	failed := s.one(10)
	var members []Member
	if failed || s.one(4) {
		members = append(members, named("isError", fmt.Sprint(failed)))
	}
	switch {
	case t.output.schema != "" && (!failed || s.one(2)):
		members = append(members, named("structuredContent", t.output.value(s)))
	case t.output.schema == "" && s.one(6):
		members = append(members, named("structuredContent", s.object(s.unknown(4, 4))))
	}
	blocks := make([]string, s.IntN(4))
	for i := range blocks {
		blocks[i] = s.content()
	}
	if s.one(80) {
		blocks = append(blocks, s.object([]Member{named("type", `"text"`), named("text", s.long(mebibyte))}))
	}
	return append(members, named("content", s.array(blocks)))
}

// content is one block of any type.
func (s Source) content() string {
	members := append(s.unknown(2, 3), s.meta()...)
	members = append(members, s.maybe("annotations", s.annotations)...)
	switch s.IntN(6) {
	case 0:
		members = append(members, named("type", `"image"`), named("data", s.base64(s.IntN(300))), named("mimeType", `"image\/png"`))
	case 1:
		members = append(members, named("type", `"audio"`), named("data", s.base64(s.IntN(300))), named("mimeType", `"audio/wav"`))
	case 2:
		members = append(members, named("type", `"resource"`), named("resource", s.stored("shape://embedded/"+fmt.Sprint(s.IntN(9)))))
	case 3:
		members = append(members, named("type", `"resource_link"`), named("uri", `"shape:\/\/linked"`), named("name", s.text()))
		members = append(members, s.maybe("size", s.number)...)
	default:
		members = append(members, named("type", s.spelled("text")), named("text", s.text()))
	}
	return s.object(members)
}

// stored is the contents of a resource, as text or as bytes.
func (s Source) stored(uri string) string {
	members := append(s.unknown(2, 3), s.meta()...)
	members = append(members, named("uri", s.spelled(uri)))
	members = append(members, s.maybe("mimeType", s.text)...)
	if s.one(2) {
		return s.object(append(members, named("blob", s.base64(s.IntN(500)))))
	}
	return s.object(append(members, named("text", s.text())))
}

func (s Source) contents(uri string) []Member {
	list := make([]string, s.IntN(4))
	for i := range list {
		list[i] = s.stored(uri)
	}
	return []Member{named("contents", s.array(list))}
}

func (s Source) got() []Member {
	list := make([]string, s.IntN(4))
	for i := range list {
		list[i] = s.object(append(s.unknown(2, 3), named("role", pick(s, []string{`"user"`, `"assistant"`})), named("content", s.content())))
	}
	return append(s.maybe("description", s.text), named("messages", s.array(list)))
}

func (s Source) completed() []Member {
	values := make([]string, s.IntN(100))
	for i := range values {
		values[i] = s.text()
	}
	members := append(s.unknown(2, 2), named("values", s.array(values)))
	members = append(members, s.maybe("total", func() string { return pick(s, []string{"100", "1e2", "12345678901234567890"}) })...)
	return []Member{named("completion", s.object(append(members, s.maybe("hasMore", func() string { return "true" })...)))}
}

// Progress are the parameters of the notifications that come before an answer, under the token as it came.
func (v *Server) Progress(token, name string) []string {
	s := New(v.Seed, v.Name, "progress", name)
	list := make([]string, 1+s.IntN(3))
	for i := range list {
		members := append(s.unknown(2, 2), named("progressToken", token), named("progress", fmt.Sprintf("%d.0", i)))
		members = append(members, s.maybe("total", func() string { return "3e0" })...)
		list[i] = s.object(append(members, s.maybe("message", s.text)...))
	}
	return list
}

// Cursor is the opaque text that leads to the page which begins with item n, as a string with its quotes.
func Cursor(n int) string { return fmt.Sprintf(`"p\u0061ge\/%d=é"`, n) }

// ReadCursor reads it, decoded.
func ReadCursor(cursor string) (n int, ok bool) {
	text, ok := strings.CutPrefix(cursor, "page/")
	if !ok {
		return 0, false
	}
	c, err := fmt.Sscanf(text, "%d=é", &n)
	return n, err == nil && c == 1
}
