// Command server is an MCP server for the soak: every answer says whose it is, calls take their time, and some of its
// kind crash.
package main

import (
	"bufio"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"os"
	"sync"
	"time"
)

// options are what a declaration says in args.
type options struct {
	name    string
	crash   int // one call of so many ends the process; 0: none does
	slow    time.Duration
	edition string
	marker  string
}

func main() {
	var o options
	flag.StringVar(&o.name, "name", "", "what answers say that they are from")
	flag.IntVar(&o.crash, "crash", 0, "end with status 3 in the middle of one call of so many")
	flag.DurationVar(&o.slow, "slow", 0, "at most so much longer does every call take")
	flag.StringVar(&o.edition, "edition", "", "anything: that the declaration was edited")
	flag.StringVar(&o.marker, "marker", "", "anything: for whoever looks for this process")
	flag.Parse()
	if err := newServer(o, os.Stdout).serve(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "server:", err)
		os.Exit(1)
	}
}

// server answers on one connection.
type server struct {
	options
	incarnation string // tells one process of the same server from the next

	mu    sync.Mutex // guards what follows
	out   io.Writer
	calls map[string]chan struct{} // under way, by id; closed when cancelled
}

func newServer(o options, out io.Writer) *server {
	return &server{options: o, incarnation: rand.Text(), out: out, calls: map[string]chan struct{}{}}
}

type message struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  any             `json:"result,omitempty"`
	Error   *failure        `json:"error,omitempty"`
}

type failure struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (s *server) serve(in io.Reader) error {
	r := bufio.NewReaderSize(in, 64<<10)
	for {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var m message
		if err := json.Unmarshal(line, &m); err != nil {
			return fmt.Errorf("reading %.100q: %w", line, err)
		}
		switch {
		case m.Method == "tools/call":
			cancelled := make(chan struct{})
			s.mu.Lock()
			s.calls[string(m.ID)] = cancelled
			s.mu.Unlock()
			go s.call(m, cancelled)
		case m.Method == "notifications/cancelled":
			s.cancel(m.Params)
		case m.ID != nil:
			s.send(s.answer(m))
		}
	}
}

// answer is what needs no time. The revision without a handshake is not spoken: its question is refused as unknown.
func (s *server) answer(m message) message {
	reply := message{ID: m.ID}
	switch m.Method {
	case "initialize":
		reply.Result = json.RawMessage(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"soak","version":"1"}}`)
	case "ping":
		reply.Result = json.RawMessage(`{}`)
	case "tools/list":
		reply.Result = json.RawMessage(`{"tools":[{"name":"say","description":"returns text after a while, with progress on the way",` +
			`"inputSchema":{"type":"object","required":["text"],"properties":{"text":{"type":"string"},"milliseconds":{"type":"integer","minimum":0},"steps":{"type":"integer","minimum":0}}}}]}`)
	default:
		reply.Error = &failure{-32601, "method not found: " + m.Method}
	}
	return reply
}

// call is the tool: it waits, reports its steps, and then says the text, or nothing if the call was cancelled.
func (s *server) call(m message, cancelled <-chan struct{}) {
	defer func() {
		s.mu.Lock()
		delete(s.calls, string(m.ID))
		s.mu.Unlock()
	}()
	var p struct {
		Arguments struct {
			Text         string `json:"text"`
			Milliseconds int    `json:"milliseconds"`
			Steps        int    `json:"steps"`
		} `json:"arguments"`
		Meta struct {
			Token json.RawMessage `json:"progressToken"`
		} `json:"_meta"`
	}
	if err := json.Unmarshal(m.Params, &p); err != nil {
		s.send(message{ID: m.ID, Error: &failure{-32602, err.Error()}})
		return
	}
	took := time.Duration(p.Arguments.Milliseconds) * time.Millisecond
	if s.slow > 0 {
		took += mathrand.N(s.slow)
	}
	steps := max(1, p.Arguments.Steps)
	for i := range steps {
		select {
		case <-time.After(took / time.Duration(steps)):
		case <-cancelled:
			return // nobody waits for the answer
		}
		if p.Meta.Token != nil && p.Arguments.Steps > 0 {
			progress, _ := json.Marshal(map[string]any{"progressToken": p.Meta.Token, "progress": i + 1, "total": steps, "message": p.Arguments.Text})
			s.send(message{Method: "notifications/progress", Params: progress})
		}
	}
	if s.crash > 0 && mathrand.N(s.crash) == 0 {
		os.Exit(3)
	}
	text := s.name + " " + s.incarnation + " " + p.Arguments.Text
	s.send(message{ID: m.ID, Result: map[string]any{"content": []map[string]string{{"type": "text", "text": text}}}})
}

func (s *server) cancel(params json.RawMessage) {
	var p struct {
		ID json.RawMessage `json:"requestId"`
	}
	if json.Unmarshal(params, &p) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.calls[string(p.ID)]; c != nil {
		close(c)
		delete(s.calls, string(p.ID))
	}
}

func (s *server) send(m message) {
	m.JSONRPC = "2.0"
	b, err := json.Marshal(m)
	if err != nil {
		b, _ = json.Marshal(message{JSONRPC: "2.0", ID: m.ID, Error: &failure{-32603, err.Error()}})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.out.Write(append(b, '\n')); err != nil {
		os.Exit(1) // nobody reads
	}
}
