package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/pfar/pfar/tests/corpus/shape"
)

const (
	latestLegacy = "2025-11-25"
	latestModern = "2026-07-28"
	ownKeys      = "io.modelcontextprotocol/" // in _meta
)

// offer is what a server has; every text is JSON.
type offer interface {
	info() (serverInfo, instructions string)
	items(list string) []string // "tools", "prompts", "resources" or "resourceTemplates"
	answer(q *request)          // sends one reply, if there is to be one
	cancelled(id string)
}

// server speaks the protocol, byte for byte as the offer says.
type server struct {
	offer          offer
	page           int
	modern, legacy bool

	mu      sync.Mutex
	out     io.Writer
	watched map[string]bool     // by resources/subscribe
	listens map[string][]string // resources of each stream, by the request's id
}

// request is one that came.
type request struct {
	id     string
	modern bool
	token  string // of progress, "" for none
	shape.Received
	members map[string]json.RawMessage // of the parameters
}

// serve answers until in ends, one request after the other.
func (s *server) serve(in io.Reader) error {
	lines := bufio.NewReaderSize(in, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			s.take(line)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (s *server) take(line []byte) {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
	}
	if err := json.Unmarshal(line, &m); err != nil {
		s.send(`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":` + quote(err.Error()) + `}}`)
		return
	}
	q := &request{id: string(m.ID), Received: shape.Received{Method: m.Method}, members: map[string]json.RawMessage{}}
	err := q.read(m.Params)
	switch {
	case m.ID == nil:
		if m.Method == "notifications/cancelled" {
			delete(s.listens, string(q.members["requestId"]))
			s.offer.cancelled(string(q.members["requestId"]))
		}
	case err != nil:
		s.fail(q, -32602, err.Error())
	case !s.modern && q.Method == "server/discover", !s.legacy && q.Method == "initialize":
		s.fail(q, -32601, "method not found")
	case !s.legacy && !q.modern:
		s.fail(q, -32602, "_meta is not that of protocol "+latestModern)
	default:
		s.protocol(q)
	}
}

// protocol answers what every server answers alike.
func (s *server) protocol(q *request) {
	switch q.Method {
	case "initialize":
		info, instructions := s.offer.info()
		s.result(q, fmt.Sprintf(`{"protocolVersion":%q,"capabilities":%s,"serverInfo":%s,"instructions":%s}`, latestLegacy, capabilities(false), info, instructions))
	case "server/discover":
		info, instructions := s.offer.info()
		versions := `["` + latestModern + `"]`
		if s.legacy {
			versions = `["` + latestModern + `","` + latestLegacy + `"]`
		}
		s.result(q, fmt.Sprintf(`{"resultType":"complete","ttlMs":0,"cacheScope":"public","supportedVersions":%s,"capabilities":%s,"instructions":%s,"_meta":{%q:%s}}`,
			versions, capabilities(true), instructions, ownKeys+"serverInfo", info))
	case "tools/list":
		s.list(q, "tools")
	case "prompts/list":
		s.list(q, "prompts")
	case "resources/list":
		s.list(q, "resources")
	case "resources/templates/list":
		s.list(q, "resourceTemplates")
	case "ping", "logging/setLevel":
		s.result(q, "{}")
	case "resources/subscribe", "resources/unsubscribe":
		s.watched[q.Name] = q.Method == "resources/subscribe"
		s.result(q, "{}")
	case "subscriptions/listen":
		s.listen(q)
	default:
		s.offer.answer(q)
	}
}

// listen opens a stream, which stays open: the request has no answer until it is cancelled.
func (s *server) listen(q *request) {
	var filter struct{ ResourceSubscriptions []string }
	json.Unmarshal(q.members["notifications"], &filter)
	s.listens[q.id] = filter.ResourceSubscriptions
	s.notify("notifications/subscriptions/acknowledged", fmt.Sprintf(`{"notifications":%s,"_meta":{%q:%s}}`, q.members["notifications"], ownKeys+"subscriptionId", q.id))
}

// updated tells whoever watches the resource.
func (s *server) updated(uri string) {
	if s.watched[uri] {
		s.notify("notifications/resources/updated", `{"uri":`+quote(uri)+`}`)
	}
	for id, uris := range s.listens {
		if slices.Contains(uris, uri) {
			s.notify("notifications/resources/updated", fmt.Sprintf(`{"uri":%s,"_meta":{%q:%s}}`, quote(uri), ownKeys+"subscriptionId", id))
		}
	}
}

func capabilities(modern bool) string {
	logging := `"logging":{},`
	if modern {
		logging = ""
	}
	return `{` + logging + `"completions":{},"prompts":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true},"tools":{"listChanged":true},"x-own":{"a":1.0}}`
}

// list answers with one page.
func (s *server) list(q *request, member string) {
	items := s.offer.items(member)
	start, end := 0, len(items)
	if raw, ok := q.members["cursor"]; ok {
		var cursor string
		if json.Unmarshal(raw, &cursor) == nil {
			start, ok = shape.ReadCursor(cursor)
		}
		if !ok || start > end {
			s.fail(q, -32602, "no such cursor")
			return
		}
	}
	more := ""
	if s.page > 0 && start+s.page < end {
		end = start + s.page
		more = `,"nextCursor":` + shape.Cursor(end)
	}
	if q.modern {
		more += `,"resultType":"complete","ttlMs":1000,"cacheScope":"private"`
	}
	s.result(q, fmt.Sprintf(`{%q:[%s]%s}`, member, strings.Join(items[start:end], ","), more))
}

// read takes the parameters apart.
func (q *request) read(params json.RawMessage) error {
	all, err := members(params)
	if err != nil {
		return fmt.Errorf("reading params: %w", err)
	}
	var meta []shape.Member
	for _, m := range all {
		var name string
		if err := json.Unmarshal([]byte(m.Name), &name); err != nil {
			return err
		}
		q.members[name] = json.RawMessage(m.Value)
		switch name {
		case "_meta":
			if meta, err = members(json.RawMessage(m.Value)); err != nil {
				return fmt.Errorf("reading _meta: %w", err)
			}
		case "name", "uri":
			if err := json.Unmarshal([]byte(m.Value), &q.Name); err != nil {
				return err
			}
		case "ref":
			if m.Value, err = q.readRef(m.Value); err != nil {
				return err
			}
			q.Params = append(q.Params, m)
		default:
			q.Params = append(q.Params, m)
		}
	}
	return q.readMeta(meta)
}

// readRef takes the name or URI out of a reference, and returns the rest of it as it came.
func (q *request) readRef(ref string) (string, error) {
	list, err := members(json.RawMessage(ref))
	if err != nil {
		return "", fmt.Errorf("reading ref: %w", err)
	}
	for _, m := range list {
		if m.Name == `"name"` || m.Name == `"uri"` {
			ref = strings.Replace(ref, m.Value, "null", 1)
			if err := json.Unmarshal([]byte(m.Value), &q.Name); err != nil {
				return "", err
			}
		}
	}
	return ref, nil
}

// readMeta tells what is the protocol's own from the rest. A request of 2026-07-28 has all of it.
func (q *request) readMeta(meta []shape.Member) error {
	own := map[string]string{}
	for _, m := range meta {
		var name string
		if err := json.Unmarshal([]byte(m.Name), &name); err != nil {
			return err
		}
		switch {
		case name == "progressToken":
			q.token = m.Value
		case strings.HasPrefix(name, ownKeys):
			own[strings.TrimPrefix(name, ownKeys)] = m.Value
		default:
			q.Meta = append(q.Meta, m)
		}
	}
	if len(own) == 0 {
		return nil
	}
	q.modern = own["protocolVersion"] == `"`+latestModern+`"`
	if !q.modern || !strings.HasPrefix(own["clientCapabilities"], "{") || !strings.HasPrefix(own["clientInfo"], "{") {
		return fmt.Errorf("_meta has %v", own)
	}
	return nil
}

// members splits an object; names and values are as they came.
func members(object json.RawMessage) ([]shape.Member, error) {
	if len(object) == 0 {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(object))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, fmt.Errorf("%.100s is not an object", object)
	}
	var list []shape.Member
	for d.More() {
		before := d.InputOffset()
		if _, err := d.Token(); err != nil {
			return nil, err
		}
		name := strings.TrimLeft(string(object[before:d.InputOffset()]), ", \t\r\n")
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		list = append(list, shape.Member{Name: name, Value: string(value)})
	}
	return list, nil
}

func quote(text string) string {
	b, _ := json.Marshal(text)
	return string(b)
}

func (s *server) result(q *request, value string) {
	s.reply(q, shape.Reply{Member: "result", Value: value})
}

func (s *server) fail(q *request, code int, text string) {
	s.reply(q, shape.Reply{Member: "error", Value: fmt.Sprintf(`{"code":%d,"message":%s}`, code, quote(text))})
}

func (s *server) reply(q *request, r shape.Reply) {
	s.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,%q:%s}`, q.id, r.Member, r.Value))
}

func (s *server) notify(method, params string) {
	s.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":%q,"params":%s}`, method, params))
}

func (s *server) send(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	io.WriteString(s.out, line+"\n")
}
