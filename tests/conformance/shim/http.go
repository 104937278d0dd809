package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
)

// post sends one message with the headers that its revision asks for.
func (r *relay) post(ctx context.Context, m message, line []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, bytes.NewReader(line))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	r.head(req.Header, m)
	return r.http.Do(req)
}

// head sets the headers of the two generations: a stateless request repeats its revision, method and name there
// (2026-07-28, transports), one of a session carries the session's id and revision (2025-11-25, transports).
func (r *relay) head(h http.Header, m message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if revision := m.revision(); revision != "" {
		h.Set("MCP-Protocol-Version", revision)
		h.Set("Mcp-Method", m.Method)
		if name := m.Params.Name + m.Params.URI; name != "" {
			h.Set("Mcp-Name", headerValue(name))
		}
		return
	}
	if r.protocol != "" {
		h.Set("MCP-Protocol-Version", r.protocol)
	}
	if r.session != "" {
		h.Set("Mcp-Session-Id", r.session)
	}
}

// headerValue writes what a header cannot hold as it is in Base64 (2026-07-28, transports, value encoding).
func headerValue(s string) string {
	plain := s == strings.TrimSpace(s) && !strings.HasPrefix(s, "=?base64?")
	for _, c := range []byte(s) {
		plain = plain && c >= ' ' && c <= '~'
	}
	if plain {
		return s
	}
	return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(s)) + "?="
}

// messages calls write for each message in a response, be it one, none or a stream.
func messages(resp *http.Response, write func([]byte)) error {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if kind == "text/event-stream" {
		return events(resp.Body, write)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxLine))
	if err != nil {
		return err
	}
	if !json.Valid(b) {
		return fmt.Errorf("the server says %s and %.200q", resp.Status, b)
	}
	write(b)
	return nil
}

// events reads a stream of server-sent events (HTML standard, 9.2.6), of which only the data matters here.
func events(body io.Reader, write func([]byte)) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, maxLine)
	var data []byte
	for lines.Scan() {
		line := lines.Bytes()
		if value, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			data = append(append(data, bytes.TrimPrefix(value, []byte(" "))...), '\n')
		}
		if len(line) == 0 && len(bytes.TrimSpace(data)) > 0 {
			write(data)
		}
		if len(line) == 0 {
			data = nil
		}
	}
	return lines.Err()
}

// oneLine removes what JSON may have between its tokens; a message that is none stays as it is, but for line ends.
func oneLine(b []byte) []byte {
	var line bytes.Buffer
	if json.Compact(&line, b) != nil {
		return bytes.ReplaceAll(b, []byte("\n"), nil)
	}
	return line.Bytes()
}
