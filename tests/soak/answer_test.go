package soak

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// message is whatever comes from the gateway.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *failure        `json:"error"`
}

// single is an answer that is one JSON text.
func (r *request) single(body []byte) (*message, error) {
	d := json.NewDecoder(bytes.NewReader(body))
	var m message
	if err := d.Decode(&m); err != nil {
		return nil, violation(fmt.Sprintf("the answer is no message: %v: %.200q", err, body))
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, violation(fmt.Sprintf("there is more behind the answer: %.200q", body))
	}
	return &m, r.mine(m)
}

// mine checks that the answer has the request's id. An error that was found before the request was read has none.
func (r *request) mine(m message) error {
	if string(m.ID) == fmt.Sprint(r.id) || m.Error != nil && (m.ID == nil || string(m.ID) == "null") {
		return nil
	}
	return violation(fmt.Sprintf("the answer is for %s: %.200q %.200q", m.ID, m.Result, m.Params))
}

// stream is an answer that is an event stream: notifications of this call alone, and then the answer, once.
func (r *request) stream(body io.Reader) (*message, error) {
	var found *message
	err := events(body, func(m message) error {
		switch {
		case found != nil:
			return violation(fmt.Sprintf("there is more behind the answer: %+v", m))
		case m.Method != "" && m.ID == nil:
			return r.progressed(m)
		}
		found = &m
		return r.mine(m)
	})
	if err == nil && found == nil {
		err = io.ErrUnexpectedEOF
	}
	return found, err
}

// events reads messages from an event stream.
func events(body io.Reader, each func(message) error) error {
	r := bufio.NewReaderSize(body, 64<<10)
	var data []byte
	for {
		line, err := r.ReadBytes('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		line = bytes.TrimRight(line, "\r\n")
		if text, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
			data = append(data, text...)
			continue
		}
		if len(line) > 0 || data == nil {
			continue
		}
		var m message
		if err := json.Unmarshal(data, &m); err != nil {
			return violation(fmt.Sprintf("an event is no message: %.200q", data))
		}
		data = nil
		if err := each(m); err != nil {
			return err
		}
	}
}

// progressed checks that progress is this call's.
func (r *request) progressed(m message) error {
	var p struct {
		Token    string `json:"progressToken"`
		Progress int    `json:"progress"`
		Message  string `json:"message"`
	}
	err := json.Unmarshal(m.Params, &p)
	if err != nil || m.Method != "notifications/progress" || p.Token != r.token() || p.Message != r.text || p.Progress <= r.progress {
		return violation(fmt.Sprintf("on the stream of another call: %s %.300q", m.Method, m.Params))
	}
	r.progress = p.Progress
	return nil
}

// judge says what an answer amounts to.
func (r *request) judge(m message) (outcome, string) {
	if m.Error != nil {
		return judgeError(*m.Error, r.server.name), fmt.Sprintf("%d %s", m.Error.Code, m.Error.Message)
	}
	var result struct {
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
		IsError bool              `json:"isError"`
		Tools   []json.RawMessage `json:"tools"`
	}
	if err := json.Unmarshal(m.Result, &result); err != nil {
		return wrong, err.Error()
	}
	if r.list {
		if result.Tools == nil {
			return wrong, fmt.Sprintf("no list: %.200q", m.Result)
		}
		return answered, ""
	}
	if len(result.Content) == 1 && result.IsError && strings.Contains(result.Content[0].Text, notRecorded) {
		return unrecorded, result.Content[0].Text
	}
	prefix, suffix := r.server.answer(r.server, r.text)
	if len(result.Content) != 1 || result.IsError || !strings.HasPrefix(result.Content[0].Text, prefix) || !strings.HasSuffix(result.Content[0].Text, suffix) {
		return wrong, fmt.Sprintf("the answer is not to %.100q: %.300q", r.text, m.Result)
	}
	return answered, strings.TrimSuffix(strings.TrimPrefix(result.Content[0].Text, prefix), suffix)
}

// listen follows what the gateway tells without being asked, and checks that no call's answer is among it. The stream
// ends with the gateway and with the session, and then there is another one.
func (c *client) listen(ctx context.Context) {
	for ctx.Err() == nil {
		if err := c.follow(ctx); err != nil {
			var broken violation
			if errors.As(err, &broken) {
				c.s.tally.violation("client %d (%s), listening: %v", c.n, c.version, err)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(c.s.between(100*time.Millisecond, time.Second)):
		}
	}
}

// follow opens a stream, in a session of its own if it needs one, and reads until it ends.
func (c *client) follow(ctx context.Context) error {
	ear := &client{s: c.s, n: c.n, version: c.version, http: c.http, host: c.host, token: c.token, sessions: map[string]session{}}
	r := request{server: c.s.pfar.servers[0], began: time.Now()}
	var response *http.Response
	var err error
	if c.version == newer {
		body := []byte(`{"jsonrpc":"2.0","id":"ear","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},"_meta":{` +
			`"io.modelcontextprotocol/protocolVersion":"` + newer + `","io.modelcontextprotocol/clientInfo":{"name":"soak","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`)
		response, err = ear.post(ctx, "/mcp", "subscriptions/listen", "", body)
	} else {
		short, cancel := context.WithTimeout(ctx, hang)
		defer cancel()
		if o, text := ear.greet(short, &r); o != answered {
			return fmt.Errorf("%s", text)
		}
		var req *http.Request
		if req, err = http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.host+"/mcp", nil); err == nil {
			ear.headers(req, "/mcp")
			response, err = c.http.Do(req)
		}
	}
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("listening: %s", response.Status)
	}
	return events(response.Body, func(m message) error {
		if m.Method == "" && string(m.ID) != `"ear"` || !strings.HasPrefix(m.Method, "notifications/") && m.Method != "" {
			return violation(fmt.Sprintf("on a stream of notifications: %+v", m))
		}
		return nil
	})
}
