package main

import (
	"bufio"
	"encoding/json"
	"io"
)

// schemaRole makes this program an MCP server whose one tool says what it takes and what it gives, so that both are
// validated on the way.
const schemaRole = "schema"

const schemaTool = `{"name":"measure","description":"returns message, and what there is to say of it",
"inputSchema":{"type":"object","additionalProperties":false,"required":["message"],"properties":{
"message":{"type":"string","minLength":1,"maxLength":100000},
"unit":{"enum":["byte","word","line"]},
"limits":{"type":"object","properties":{"least":{"type":"integer","minimum":0},"most":{"type":"integer","minimum":0}}},
"tags":{"type":"array","items":{"type":"string","pattern":"^[a-z-]+$"},"maxItems":16}}},
"outputSchema":{"type":"object","additionalProperties":false,"required":["message","length","parts"],"properties":{
"message":{"type":"string"},
"length":{"type":"integer","minimum":0},
"parts":{"type":"array","items":{"type":"object","required":["name","size"],"properties":{
"name":{"type":"string"},"size":{"type":"number","minimum":0},"kind":{"enum":["a","b","c"]}}}}}}}`

// runSchema answers on stdin and stdout, one request after the other.
func runSchema(in io.Reader, out io.Writer) error {
	r, encoder := bufio.NewReaderSize(in, 64<<10), json.NewEncoder(out)
	for {
		line, err := r.ReadBytes('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params struct {
				Version   string `json:"protocolVersion"`
				Arguments struct {
					Message string `json:"message"`
				} `json:"arguments"`
			} `json:"params"`
		}
		if err := json.Unmarshal(line, &m); err != nil || m.ID == nil {
			continue
		}
		answer := struct {
			JSONRPC string          `json:"jsonrpc"`
			ID      json.RawMessage `json:"id"`
			Result  any             `json:"result,omitempty"`
			Error   json.RawMessage `json:"error,omitempty"`
		}{JSONRPC: "2.0", ID: m.ID, Result: schemaResult(m.Method, m.Params.Arguments.Message)}
		if answer.Result == nil {
			answer.Error = json.RawMessage(`{"code":-32601,"message":"method not found"}`)
		}
		if err := encoder.Encode(answer); err != nil {
			return err
		}
	}
}

func schemaResult(method, message string) any {
	switch method {
	case "initialize":
		return json.RawMessage(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"schema","version":"1"}}`)
	case "ping":
		return json.RawMessage(`{}`)
	case "tools/list":
		return json.RawMessage(`{"tools":[` + schemaTool + `]}`)
	case "tools/call":
		type part struct {
			Name string  `json:"name"`
			Size float64 `json:"size"`
			Kind string  `json:"kind"`
		}
		type found struct {
			Message string `json:"message"`
			Length  int    `json:"length"`
			Parts   []part `json:"parts"`
		}
		f := found{message, len(message), []part{{"first", 1, "a"}, {"second", 2.5, "b"}, {"third", 3e2, "c"}}}
		text, _ := json.Marshal(f) // of strings and numbers, which cannot fail
		return map[string]any{"content": []map[string]string{{"type": "text", "text": string(text)}}, "structuredContent": f}
	}
	return nil
}
