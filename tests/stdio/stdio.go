// Package stdio speaks the least of MCP that a client needs to list and call tools: messages on stdin in, answers on
// stdout out.
package stdio

import (
	"bufio"
	"cmp"
	"encoding/json"
	"io"
	"sync"
)

// Tool is one tool and what it does. Call returns the text of the result; an error becomes a result with isError.
type Tool struct {
	Name        string
	Description string
	Schema      string // JSON Schema of the arguments; "" takes none
	Output      string // JSON Schema of the text, which is JSON and structured content then; "": it is text alone
	Call        func(arguments json.RawMessage) (string, error)
}

// Server answers one client. The fields are to be set before Serve; Tools may be changed by SetTools while it runs.
type Server struct {
	Name     string
	Version  string // "": 1
	PageSize int    // tools per page of tools/list; 0: all in one

	mu    sync.Mutex // guards tools and the writer
	tools []Tool
	out   io.Writer
}

type message struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  any             `json:"result,omitempty"`
	Error   *rpcError       `json:"error,omitempty"`
}

type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

type object map[string]any

// SetTools replaces the tools, and tells the client so once Serve runs.
func (s *Server) SetTools(tools []Tool) {
	s.mu.Lock()
	s.tools = tools
	running := s.out != nil
	s.mu.Unlock()
	if running {
		s.send(message{Method: "notifications/tools/list_changed"})
	}
}

// Serve answers until in ends. A call runs beside the others, so a slow tool does not hold up the next one.
func (s *Server) Serve(in io.Reader, out io.Writer) error {
	s.mu.Lock()
	s.out = out
	s.mu.Unlock()
	var calls sync.WaitGroup
	defer calls.Wait()
	r := bufio.NewReader(in)
	for {
		line, err := r.ReadBytes('\n')
		if len(line) > 1 {
			var m message
			if json.Unmarshal(line, &m) == nil && m.Method != "" && len(m.ID) > 0 {
				s.answer(m, &calls)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (s *Server) answer(m message, calls *sync.WaitGroup) {
	reply := message{ID: m.ID}
	switch m.Method {
	case "initialize":
		reply.Result = s.initialize(m.Params)
	case "ping":
		reply.Result = object{}
	case "tools/list":
		reply.Result = s.list(m.Params)
	case "tools/call":
		calls.Go(func() { s.send(s.call(m)) })
		return
	default:
		reply.Error = &rpcError{-32601, "method not found: " + m.Method}
	}
	s.send(reply)
}

func (s *Server) initialize(params json.RawMessage) object {
	var p struct {
		ProtocolVersion string `json:"protocolVersion"`
	}
	json.Unmarshal(params, &p)
	if p.ProtocolVersion == "" || p.ProtocolVersion > "2025-11-25" {
		p.ProtocolVersion = "2025-11-25"
	}
	return object{
		"protocolVersion": p.ProtocolVersion,
		"capabilities":    object{"tools": object{"listChanged": true}},
		"serverInfo":      object{"name": s.Name, "version": cmp.Or(s.Version, "1")},
	}
}

func (s *Server) list(params json.RawMessage) object {
	var p struct {
		Cursor string `json:"cursor"`
	}
	json.Unmarshal(params, &p)
	s.mu.Lock()
	defer s.mu.Unlock()
	page, next := s.tools, ""
	if s.PageSize > 0 {
		start := 0
		for i, t := range s.tools {
			if t.Name == p.Cursor {
				start = i
			}
		}
		end := min(start+s.PageSize, len(s.tools))
		page = s.tools[start:end]
		if end < len(s.tools) {
			next = s.tools[end].Name
		}
	}
	list := make([]object, 0, len(page))
	for _, t := range page {
		schema := t.Schema
		if schema == "" {
			schema = `{"type":"object"}`
		}
		one := object{"name": t.Name, "description": t.Description, "inputSchema": json.RawMessage(schema)}
		if t.Output != "" {
			one["outputSchema"] = json.RawMessage(t.Output)
		}
		list = append(list, one)
	}
	result := object{"tools": list}
	if next != "" {
		result["nextCursor"] = next
	}
	return result
}

func (s *Server) call(m message) message {
	var p struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	json.Unmarshal(m.Params, &p)
	s.mu.Lock()
	tools := s.tools
	s.mu.Unlock()
	for _, t := range tools {
		if t.Name != p.Name {
			continue
		}
		text, err := t.Call(p.Arguments)
		if err != nil {
			text = err.Error()
		}
		result := object{"content": []object{{"type": "text", "text": text}}, "isError": err != nil}
		if t.Output != "" && err == nil {
			result["structuredContent"] = json.RawMessage(text)
		}
		return message{ID: m.ID, Result: result}
	}
	return message{ID: m.ID, Error: &rpcError{-32602, "unknown tool: " + p.Name}}
}

func (s *Server) send(m message) {
	m.JSONRPC = "2.0"
	b, err := json.Marshal(m)
	if err != nil {
		b, _ = json.Marshal(message{JSONRPC: "2.0", ID: m.ID, Error: &rpcError{-32603, err.Error()}})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out.Write(append(b, '\n'))
}
