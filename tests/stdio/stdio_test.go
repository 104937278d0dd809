package stdio

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func TestServe(t *testing.T) {
	tools := []Tool{
		{Name: "a", Call: func(json.RawMessage) (string, error) { return "A", nil }},
		{Name: "b", Call: func(json.RawMessage) (string, error) { return "", errors.New("no B today") }},
		{Name: "c", Call: func(json.RawMessage) (string, error) { return "C", nil }},
	}
	tests := []struct{ name, request, want string }{
		{"handshake", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2024-11-05"}}`, `"protocolVersion":"2024-11-05"`},
		{"revision from the future", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2026-07-28"}}`, `"protocolVersion":"2025-11-25"`},
		{"first page", `{"jsonrpc":"2.0","id":"x","method":"tools/list"}`, `"nextCursor":"c"`},
		{"last page", `{"jsonrpc":"2.0","id":3,"method":"tools/list","params":{"cursor":"c"}}`, `"tools":[{"description":"","inputSchema":{"type":"object"},"name":"c"}]`},
		{"unknown method", `{"jsonrpc":"2.0","id":4,"method":"server/discover"}`, `"code":-32601`},
		{"notification", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, ``},
		{"not JSON", `{`, ``},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &Server{Name: "test", PageSize: 2}
			s.SetTools(tools)
			var out bytes.Buffer
			if err := s.Serve(strings.NewReader(tt.request), &out); err != nil {
				t.Fatal(err)
			}
			if tt.want == "" && out.Len() > 0 || !strings.Contains(out.String(), tt.want) {
				t.Errorf("answer %q, want %q in it", out.String(), tt.want)
			}
		})
	}
}

func TestCall(t *testing.T) {
	s := &Server{Name: "test"}
	s.SetTools([]Tool{
		{Name: "good", Call: func(a json.RawMessage) (string, error) { return string(a), nil }},
		{Name: "bad", Call: func(json.RawMessage) (string, error) { return "", errors.New("no") }},
	})
	for params, want := range map[string]string{
		`{"name":"good","arguments":{"x":1}}`: `{"content":[{"text":"{\"x\":1}","type":"text"}],"isError":false}`,
		`{"name":"bad"}`:                      `{"content":[{"text":"no","type":"text"}],"isError":true}`,
	} {
		m := s.call(message{ID: json.RawMessage("1"), Params: json.RawMessage(params)})
		got, err := json.Marshal(m.Result)
		if err != nil || string(got) != want {
			t.Errorf("call %s = %s, %v; want %s", params, got, err, want)
		}
	}
	if m := s.call(message{ID: json.RawMessage("1"), Params: json.RawMessage(`{"name":"none"}`)}); m.Error == nil {
		t.Error("calling an unknown tool succeeded")
	}
}
