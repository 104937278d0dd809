package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
)

// wire is one kept HTTP/1.1 connection of the cheapest client that there is, so that what is measured is the gateway.
type wire struct {
	conn net.Conn
	r    *bufio.Reader
	out  []byte // a request
	in   []byte // the body of an answer
	id   string // Mcp-Session-Id of the last answer
}

func dialWire(address string) (*wire, error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	return &wire{conn: c, r: bufio.NewReaderSize(c, 64<<10)}, nil
}

func (w *wire) close() { w.conn.Close() }

// post sends one request, whose head ends before Content-Length, and returns the answer's status and body. The next
// post overwrites both.
func (w *wire) post(head, body []byte) (status int, answer []byte, err error) {
	w.out = append(append(w.out[:0], head...), "Content-Length: "...)
	w.out = strconv.AppendInt(w.out, int64(len(body)), 10)
	w.out = append(append(w.out, "\r\n\r\n"...), body...)
	if _, err := w.conn.Write(w.out); err != nil {
		return 0, nil, err
	}
	status, length, err := w.head()
	if err != nil {
		return 0, nil, err
	}
	if cap(w.in) < length {
		w.in = make([]byte, length)
	}
	w.in = w.in[:length]
	_, err = io.ReadFull(w.r, w.in)
	return status, w.in, err
}

// head reads an answer up to its body, whose length it must tell: no answer of these calls is a stream.
func (w *wire) head() (status, length int, err error) {
	line, err := w.r.ReadSlice('\n')
	if err != nil {
		return 0, 0, err
	}
	if len(line) < len("HTTP/1.1 200 ") {
		return 0, 0, fmt.Errorf("an answer that begins with %q", line)
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, 0, fmt.Errorf("an answer that begins with %q", line)
	}
	length = -1
	for {
		if line, err = w.r.ReadSlice('\n'); err != nil {
			return 0, 0, err
		}
		if len(line) == len("\r\n") {
			break
		}
		if v, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(v))); err != nil {
				return 0, 0, err
			}
		}
		if v, ok := bytes.CutPrefix(line, []byte("Mcp-Session-Id: ")); ok {
			w.id = string(bytes.TrimSpace(v))
		}
	}
	if length < 0 && status == 202 {
		length = 0
	}
	if length < 0 {
		return 0, 0, errors.New("an answer without its length")
	}
	return status, length, nil
}

// Generations of the protocol, as clients name them.
const (
	older = "2025-11-25"
	newer = "2026-07-28"
)

// route is one way to a tool: an endpoint, a generation, and what the tool is called there.
type route struct {
	name    string // in the table
	address string // host and port
	path    string
	token   string // which a floor gets too, and does not look at
	floor   bool   // it knows no sessions, and is sent nothing that has no answer
	version string // older or newer
	tool    string
	list    bool   // tools/list instead of a call
	message string // what is echoed, beside the call's number; "" for a tool that answers something of its own
	members string // of the arguments, as JSON, instead
	answer  int    // least bytes of the answer
	fixed   bool   // the answer is the same for every call
}

// client is one connection on a route.
type client struct {
	*wire
	route
	head []byte
	body []byte
	want []byte
}

// open connects, and initializes where the generation wants that. The floor answers initialize as its server does.
func (r route) open() (*client, error) {
	w, err := dialWire(r.address)
	if err != nil {
		return nil, err
	}
	c := &client{wire: w, route: r}
	if err := c.begin(); err != nil {
		w.close()
		return nil, fmt.Errorf("%s: %w", r.name, err)
	}
	return c, nil
}

func (c *client) begin() error {
	common := "POST " + c.path + " HTTP/1.1\r\nHost: " + c.address +
		"\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n" +
		"Authorization: Bearer " + c.token + "\r\n"
	method := "tools/call"
	if c.list {
		method = "tools/list"
	}
	if c.version == newer {
		common += "Mcp-Protocol-Version: " + newer + "\r\nMcp-Method: " + method + "\r\n"
		if !c.list {
			common += "Mcp-Name: " + c.tool + "\r\n"
		}
		c.head = []byte(common)
		return nil
	}
	initialize := `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"` + older +
		`","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`
	status, answer, err := c.post([]byte(common), []byte(initialize))
	if err != nil || status != 200 || !bytes.Contains(answer, []byte(`"result"`)) {
		return fmt.Errorf("initializing: %d %.200s %w", status, answer, err)
	}
	if c.floor {
		c.id = anySession
	}
	common += "Mcp-Session-Id: " + c.id + "\r\nMcp-Protocol-Version: " + older + "\r\n"
	c.head = []byte(common)
	if c.floor {
		return nil // it waits for an answer to whatever it passes on
	}
	if len(c.id) != len(anySession) {
		return fmt.Errorf("initializing: the session is %q, and a floor's clients say %q", c.id, anySession)
	}
	status, answer, err = c.post(c.head, []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
	if err == nil && status != 202 {
		err = fmt.Errorf("initialized: %d %.200s", status, answer)
	}
	return err
}

// anySession is what the clients of a floor send in the place of a session's id, as long as pfar's.
const anySession = "0000000000000000000000"

// meta is what every request of the newer generation says of itself.
const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"` + newer +
	`","io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`

// request writes the call of this number into c.body, and into c.want what its answer must hold and no other's has.
func (c *client) request(n int) {
	b := strconv.AppendInt(append(c.body[:0], `{"jsonrpc":"2.0","id":`...), int64(n), 10)
	c.want = c.want[:0]
	if c.list {
		b = append(b, `,"method":"tools/list","params":{`...)
	} else {
		b = append(append(b, `,"method":"tools/call","params":{"name":"`...), c.tool...)
		b = append(append(b, `","arguments":{`...), c.members...)
		if c.message != "" {
			c.want = strconv.AppendInt(append(c.want, '"'), int64(n), 10)
			c.want = append(append(append(c.want, ' '), c.message...), '"')
			b = append(append(b, `"message":`...), c.want...)
		}
		b = append(b, '}')
	}
	if c.version == newer {
		if !c.list {
			b = append(b, ',')
		}
		b = append(b, meta...)
	}
	c.body = append(b, "}}"...)
}

// call makes the call of a number and checks that the answer is that call's own and whole.
func (c *client) call(n int) error {
	c.request(n)
	status, answer, err := c.post(c.head, c.body)
	if err != nil {
		return fmt.Errorf("%s: call %d: %w", c.name, n, err)
	}
	own := bytes.HasPrefix(answer, strconv.AppendInt([]byte(`{"jsonrpc":"2.0","id":`), int64(n), 10)) || c.fixed
	if status != 200 || !own || len(answer) < c.answer || !bytes.Contains(answer, c.want) ||
		!bytes.Contains(answer[:min(len(answer), 64)], []byte(`,"result":{`)) {
		return fmt.Errorf("%s: call %d is answered %d %.300q (%d bytes)", c.name, n, status, answer, len(answer))
	}
	return nil
}
