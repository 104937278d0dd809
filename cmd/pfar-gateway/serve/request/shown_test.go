package request

import (
	"net/http"
	"testing"

	"github.com/pfar/pfar/units/jsonrpc"
)

// TestShown has the gate look through all that reaches a server of the client's choosing, and nothing else.
func TestShown(t *testing.T) {
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
		req := &Request{Header: make(http.Header), Message: jsonrpc.Message{Method: "tools/call", Params: []byte(one.params)}}
		if one.trace != "" {
			req.Header.Set("Traceparent", one.trace)
		}
		if err := req.readParams(); err != nil {
			t.Fatalf("%s: %v", one.params, err)
		}
		r, _ := req.Shown()
		if string(r.Params) != one.want || string(r.Arguments) != one.arguments {
			t.Errorf("%s\ngot  %s %s\nwant %s %s", one.params, r.Params, r.Arguments, one.want, one.arguments)
		}
	}
}
