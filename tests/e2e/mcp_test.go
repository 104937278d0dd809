package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// client speaks MCP over streamable HTTP, as little of it as is needed to be a correct client.
type client struct {
	t       testing.TB
	http    *http.Client
	url     string
	token   string
	session string
	id      atomic.Int64
}

// client connects to the gateway's Unix socket. The path is "/mcp" or "/mcp/NAME".
func (p *pfar) client(path string) *client {
	p.t.Helper()
	socket := p.last().Socket
	return open(p.t, "http://pfar"+path, "", func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	})
}

// loopback connects to the endpoint on loopback with the token.
func (p *pfar) loopback() *client {
	p.t.Helper()
	return open(p.t, p.last().Endpoint, p.token(), (&net.Dialer{}).DialContext)
}

func (p *pfar) token() string {
	p.t.Helper()
	b, err := os.ReadFile(p.last().TokenFile)
	if err != nil {
		p.t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func open(t testing.TB, url, token string, dial func(context.Context, string, string) (net.Conn, error)) *client {
	t.Helper()
	transport := &http.Transport{DialContext: dial}
	t.Cleanup(transport.CloseIdleConnections)
	c := &client{t: t, url: url, token: token, http: &http.Client{Transport: transport, Timeout: soon}}
	if _, err := c.request("initialize", map[string]any{
		"protocolVersion": "2025-11-25", "capabilities": map[string]any{},
		"clientInfo": map[string]any{"name": "e2e", "version": "1"},
	}); err != nil {
		t.Fatalf("handshake with %s: %v", url, err)
	}
	resp, err := c.post(map[string]any{"jsonrpc": "2.0", "method": "notifications/initialized"})
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return c
}

func (c *client) post(message any) (*http.Response, error) {
	b, err := json.Marshal(message)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequest(http.MethodPost, c.url, bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	c.headers(req)
	return c.http.Do(req)
}

func (c *client) headers(req *http.Request) {
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("MCP-Protocol-Version", "2025-11-25")
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if c.session != "" {
		req.Header.Set("Mcp-Session-Id", c.session)
	}
}

// answer is a JSON-RPC response.
type answer struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// request makes one request and returns its result.
func (c *client) request(method string, params any) (json.RawMessage, error) {
	id := c.id.Add(1)
	resp, err := c.post(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return nil, fmt.Errorf("%s: %s %s", method, resp.Status, b)
	}
	if s := resp.Header.Get("Mcp-Session-Id"); s != "" {
		c.session = s
	}
	a, err := response(resp, fmt.Sprint(id))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	if a.Error != nil {
		return nil, fmt.Errorf("%s: error %d: %s", method, a.Error.Code, a.Error.Message)
	}
	return a.Result, nil
}

// response reads the answer with the id, from JSON or from a stream of events.
func response(resp *http.Response, id string) (answer, error) {
	var a answer
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		err := json.NewDecoder(resp.Body).Decode(&a)
		return a, err
	}
	err := events(resp.Body, func(data []byte) bool {
		a = answer{}
		return json.Unmarshal(data, &a) == nil && string(a.ID) == id && a.Method == ""
	})
	return a, err
}

// events reads a stream until one event was the last that is wanted.
func events(r io.Reader, last func(data []byte) bool) error {
	lines := bufio.NewReader(r)
	var data []byte
	for {
		line, err := lines.ReadBytes('\n')
		line = bytes.TrimRight(line, "\r\n")
		if text, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			data = append(data, bytes.TrimPrefix(text, []byte(" "))...)
		} else if len(line) == 0 && len(data) > 0 {
			if last(data) {
				return nil
			}
			data = nil
		}
		if err != nil {
			return err
		}
	}
}

// names lists all tools, page after page, sorted.
func (c *client) names() []string {
	c.t.Helper()
	var names []string
	cursor := ""
	for {
		params := map[string]any{}
		if cursor != "" {
			params["cursor"] = cursor
		}
		raw, err := c.request("tools/list", params)
		if err != nil {
			c.t.Fatal(err)
		}
		var page struct {
			Tools []struct {
				Name string `json:"name"`
			} `json:"tools"`
			NextCursor string `json:"nextCursor"`
		}
		if err := json.Unmarshal(raw, &page); err != nil {
			c.t.Fatal(err)
		}
		for _, tool := range page.Tools {
			names = append(names, tool.Name)
		}
		if cursor = page.NextCursor; cursor == "" {
			slices.Sort(names)
			return names
		}
	}
}

// result is what a tool returned: the texts of it.
type result struct {
	text    string
	isError bool
}

// call calls a tool; err is set if there was no result at all.
func (c *client) call(tool string, arguments any) (result, error) {
	raw, err := c.request("tools/call", map[string]any{"name": tool, "arguments": arguments})
	if err != nil {
		return result{}, err
	}
	var r struct {
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
		IsError bool `json:"isError"`
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return result{}, err
	}
	var texts []string
	for _, block := range r.Content {
		texts = append(texts, block.Text)
	}
	return result{strings.Join(texts, "\n"), r.IsError}, nil
}

// must calls a tool and fails the test if it fails.
func (c *client) must(tool string, arguments any) string {
	c.t.Helper()
	r, err := c.call(tool, arguments)
	if err != nil {
		c.t.Fatalf("calling %s: %v", tool, err)
	}
	if r.isError {
		c.t.Fatalf("calling %s: the tool says: %s", tool, r.text)
	}
	return r.text
}
