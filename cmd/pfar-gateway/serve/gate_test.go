package serve

import (
	"encoding/json"
	"net/http/httptest"
	"testing"

	"github.com/pfar/pfar/cmd/pfar-gateway/jsonrpc"
)

// TestAsked has the gate look through all that reaches a server of the client's choosing, and nothing else.
func TestAsked(t *testing.T) {
	const own = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"x"},"io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/logLevel":"info"`
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, one := range []struct{ params, trace, want, arguments string }{
		{`{}`, "", `{}`, `{}`},
		{`{"name":"a","arguments":{"b":1}}`, "", `{"name":"a","arguments":{"b":1}}`, `{"b":1}`},
		{`{"name":"a","_meta":{"c":"d","progressToken":1}}`, "", `{"name":"a","_meta":{"c":"d","progressToken":1}}`, `{}`},
		{`{"name":"a","_meta":{` + own + `},"arguments":{"b":1}}`, "", `{"name":"a","_meta":{},"arguments":{"b":1}}`, `{"b":1}`},
		{`{"_meta":{"c":"d",` + own + `,"e":{"f":"g"}},"name":"a"}`, "", `{"_meta":{"c":"d","e":{"f":"g"}},"name":"a"}`, `{}`},
		{`{"_meta":{"IO.modelcontextprotocol/clientinfo2":"d",` + own + `},"name":"a"}`, "", `{"_meta":{"IO.modelcontextprotocol/clientinfo2":"d"},"name":"a"}`, `{}`},
		{`{"_meta":{` + own + `},"name":"a"}`, trace, `{"traceparent":"` + trace + `","_meta":{},"name":"a"}`, `{}`},
		{`{"name":"a","other":"b"}`, "", `{"name":"a","other":"b"}`, `{"other":"b"}`},
	} {
		x := &exchange{r: httptest.NewRequest("POST", "/mcp", nil), msg: jsonrpc.Message{Method: "tools/call", Params: []byte(one.params)}}
		if one.trace != "" {
			x.r.Header.Set("Traceparent", one.trace)
		}
		if err := x.readParams(); err != nil {
			t.Fatalf("%s: %v", one.params, err)
		}
		r, _ := x.asked()
		if string(r.Params) != one.want || string(r.Arguments) != one.arguments {
			t.Errorf("%s\ngot  %s %s\nwant %s %s", one.params, r.Params, r.Arguments, one.want, one.arguments)
		}
	}
}

// TestEdited: what is added to a result and what is changed in it come out as one, whatever members it has.
func TestEdited(t *testing.T) {
	meta := []jsonrpc.Edit{{Start: 1, End: 1, Text: []byte(`"_meta":{}`)}}
	for _, one := range []struct {
		result, added string
		edits         []jsonrpc.Edit
		want          string
		size          int
	}{
		{`{}`, ``, nil, `{}`, 2},
		{`{ }`, `"a":1,`, nil, `{"a":1 }`, 3},
		{`{"b":2}`, `"a":1,`, nil, `{"a":1,"b":2}`, 7},
		{`{}`, ``, meta, `{"_meta":{}}`, 12},
		{`{}`, `"a":1,`, meta, `{"a":1,"_meta":{}}`, 12},
		{` { "b" : "x" } `, `"a":1,`, []jsonrpc.Edit{{Start: 2, End: 2, Text: []byte(`"_meta":{},`)}, {Start: 9, End: 12, Text: []byte(`"yz"`)}}, ` {"a":1,"_meta":{}, "b" : "yz" } `, 27},
	} {
		re := reply{result: []byte(one.result), added: []byte(one.added), edits: one.edits}
		w := httptest.NewRecorder()
		re.write(w, []byte("7"))
		if got, want := w.Body.String(), `{"jsonrpc":"2.0","id":7,"result":`+one.want+`}`; got != want || !json.Valid([]byte(got)) {
			t.Errorf("%s: got %s, want %s", one.result, got, want)
		}
		if re.size() != one.size {
			t.Errorf("%s: %d bytes, want %d", one.result, re.size(), one.size)
		}
	}
}
