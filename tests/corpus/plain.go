package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
)

// One pixel, and one sample.
const (
	picture = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
	sound   = "UklGRiUAAABXQVZFZm10IBAAAAABAAEARKwAAESsAAABAAgAZGF0YQEAAACA"
)

// plain is what clients understand: one of each thing that the protocol has.
type plain struct {
	name string
	srv  *server

	mu       sync.Mutex
	received int               // tools/call
	waiting  map[string]string // label of a call of the tool wait, by its id
	held     map[string]func() // answers the call of the tool steps with the label
	gone     map[string]chan struct{}
}

func newPlain(name string, s *server) *plain {
	return &plain{name: name, srv: s, waiting: map[string]string{}, held: map[string]func(){}, gone: map[string]chan struct{}{}}
}

func (p *plain) info() (string, string) {
	return fmt.Sprintf(`{"name":"corpus-%s","version":"1.2.3","title":"A corpus"}`, p.name), `"Call text first."`
}

const (
	stringInput = `{"type":"object","properties":{%q:{"type":"string","minLength":1}},"required":[%q],"additionalProperties":false}`
	sumSchema   = `{"type":"object","properties":{"sum":{"type":"number"},"words":{"type":"array","items":{"type":"string"}}},"required":["sum"]}`
	sumInput    = `{"type":"object","properties":{"a":{"type":"number"},"b":{"type":"number","maximum":100}},"required":["a","b"],"additionalProperties":false}`
)

func (p *plain) items(list string) []string {
	label := fmt.Sprintf(stringInput, "label", "label")
	switch list {
	case "tools":
		return []string{
			`{"name":"text","title":"Text","description":"returns message","inputSchema":` + fmt.Sprintf(stringInput, "message", "message") + `,"annotations":{"readOnlyHint":true}}`,
			`{"name":"sum","description":"adds","inputSchema":` + sumInput + `,"outputSchema":` + sumSchema + `}`,
			`{"name":"wrong","description":"returns what its output schema forbids","inputSchema":{"type":"object"},"outputSchema":` + sumSchema + `}`,
			`{"name":"media","description":"returns content of every type","inputSchema":{"type":"object"}}`,
			`{"name":"steps","description":"reports progress, and answers once released","inputSchema":{"type":"object","properties":{"steps":{"type":"integer","minimum":1,"maximum":9},"label":{"type":"string"}},"required":["steps","label"]}}`,
			`{"name":"release","description":"has the call of steps with this label answered","inputSchema":` + label + `}`,
			`{"name":"fail","description":"fails","inputSchema":{"type":"object"}}`,
			`{"name":"wait","description":"waits until it is cancelled","inputSchema":` + label + `}`,
			`{"name":"cancelled","description":"returns once the call of wait with this label was cancelled","inputSchema":` + label + `}`,
			`{"name":"received","description":"returns how many calls came before","inputSchema":{"type":"object"}}`,
			`{"name":"touch","description":"says that the resource text has changed","inputSchema":{"type":"object"}}`,
		}
	case "prompts":
		return []string{`{"name":"greet","description":"greets somebody","arguments":[{"name":"name","description":"who","required":true}]}`}
	case "resources":
		return []string{
			fmt.Sprintf(`{"uri":"plain://%s/text","name":"text","mimeType":"text/plain"}`, p.name),
			fmt.Sprintf(`{"uri":"plain://%s/blob","name":"blob","mimeType":"image/png"}`, p.name),
		}
	}
	return []string{fmt.Sprintf(`{"uriTemplate":"plain://%s/item/{id}","name":"item","mimeType":"text/plain"}`, p.name)}
}

// answer does one thing after the other, but for a call that waits for what is to come.
func (p *plain) answer(q *request) {
	switch q.Method {
	case "tools/call":
		p.mu.Lock()
		p.received++
		p.mu.Unlock()
		if q.Name == "cancelled" {
			go p.call(q)
			return
		}
		p.call(q)
	case "prompts/get":
		p.result(q, fmt.Sprintf(`"description":"a greeting","messages":[{"role":"user","content":{"type":"text","text":%s}}]`, quote("Hello, "+q.argument("name")+"!")))
	case "resources/read":
		p.read(q)
	case "completion/complete":
		p.complete(q)
	default:
		p.srv.fail(q, -32601, "method not found: "+q.Method)
	}
}

// argument returns a string argument.
func (q *request) argument(name string) string {
	var all map[string]json.RawMessage
	var text string
	if json.Unmarshal(q.members["arguments"], &all) == nil {
		json.Unmarshal(all[name], &text)
	}
	return text
}

// result sends members, with what 2026-07-28 has every result say.
func (p *plain) result(q *request, members string) {
	if q.modern {
		members = `"resultType":"complete",` + members
		if q.Method == "resources/read" {
			members = `"ttlMs":60000,"cacheScope":"public",` + members
		}
	}
	p.srv.result(q, "{"+members+"}")
}

func (p *plain) text(q *request, text string) {
	p.result(q, `"content":[{"type":"text","text":`+quote(text)+`}]`)
}

func (p *plain) call(q *request) {
	switch q.Name {
	case "text":
		p.text(q, q.argument("message"))
	case "sum":
		var a struct{ Arguments struct{ A, B float64 } }
		json.Unmarshal([]byte(`{"arguments":`+string(q.members["arguments"])+`}`), &a)
		sum := quoteNumber(a.Arguments.A + a.Arguments.B)
		p.result(q, `"content":[{"type":"text","text":"`+sum+`"}],"structuredContent":{"sum":`+sum+`,"words":["a","b"]}`)
	case "wrong":
		p.result(q, `"content":[],"structuredContent":{"sum":"three","words":["a"]}`)
	case "media":
		p.media(q)
	case "steps":
		p.steps(q)
	case "release":
		p.release(q)
	case "fail":
		p.result(q, `"content":[{"type":"text","text":"failed as told"}],"isError":true`)
	case "wait":
		p.wait(q)
	case "cancelled":
		<-p.gate(q.argument("label"))
		p.text(q, q.argument("label"))
	case "received":
		p.mu.Lock()
		n := p.received
		p.mu.Unlock()
		p.text(q, fmt.Sprint(n-1))
	case "touch":
		p.touch(q)
	default:
		p.srv.fail(q, -32602, "unknown tool: "+q.Name)
	}
}

func quoteNumber(n float64) string {
	b, _ := json.Marshal(n)
	return string(b)
}

func (p *plain) media(q *request) {
	p.result(q, strings.NewReplacer("PICTURE", picture, "SOUND", sound, "NAME", p.name).Replace(`"content":[`+
		`{"type":"text","text":"all of them","annotations":{"audience":["user"],"priority":0.5}},`+
		`{"type":"image","data":"PICTURE","mimeType":"image/png"},`+
		`{"type":"audio","data":"SOUND","mimeType":"audio/wav"},`+
		`{"type":"resource","resource":{"uri":"plain://NAME/text","mimeType":"text/plain","text":"embedded"}},`+
		`{"type":"resource","resource":{"uri":"plain://NAME/blob","mimeType":"image/png","blob":"PICTURE"}},`+
		`{"type":"resource_link","uri":"plain://NAME/item/1","name":"item 1","description":"the first","mimeType":"text/plain"}]`))
}

func (p *plain) steps(q *request) {
	var a struct{ Steps int }
	json.Unmarshal(q.members["arguments"], &a)
	for i := range a.Steps {
		if q.token != "" {
			p.srv.notify("notifications/progress", fmt.Sprintf(`{"progressToken":%s,"progress":%d,"total":%d,"message":"step %d"}`, q.token, i+1, a.Steps, i+1))
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held[q.argument("label")] = func() { p.text(q, fmt.Sprintf("%d steps", a.Steps)) }
}

// release answers a call of the tool steps: by then its client has seen the progress, which some libraries drop if the
// answer comes with it.
func (p *plain) release(q *request) {
	p.mu.Lock()
	answer := p.held[q.argument("label")]
	delete(p.held, q.argument("label"))
	p.mu.Unlock()
	if answer == nil {
		p.srv.fail(q, -32602, "no call of steps has this label")
		return
	}
	answer()
	p.text(q, "released")
}

// wait says that it waits, if somebody listens, and then nothing any more: an answer to a cancelled call is not wanted.
func (p *plain) wait(q *request) {
	p.mu.Lock()
	p.waiting[q.id] = q.argument("label")
	p.mu.Unlock()
	if q.token != "" {
		p.srv.notify("notifications/progress", fmt.Sprintf(`{"progressToken":%s,"progress":0,"message":"waiting"}`, q.token))
	}
}

func (p *plain) cancelled(id string) {
	p.mu.Lock()
	label, ok := p.waiting[id]
	delete(p.waiting, id)
	p.mu.Unlock()
	if ok {
		close(p.gate(label))
	}
}

// gate is closed when the call with the label was cancelled.
func (p *plain) gate(label string) chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone[label] == nil {
		p.gone[label] = make(chan struct{})
	}
	return p.gone[label]
}

func (p *plain) read(q *request) {
	base := "plain://" + p.name + "/"
	contents := ""
	switch {
	case q.Name == base+"text":
		contents = `"mimeType":"text/plain","text":"some text"`
	case q.Name == base+"blob":
		contents = `"mimeType":"image/png","blob":"` + picture + `"`
	case strings.HasPrefix(q.Name, base+"item/"):
		contents = `"mimeType":"text/plain","text":` + quote("item "+strings.TrimPrefix(q.Name, base+"item/"))
	default:
		p.srv.fail(q, -32002, "resource not found")
		return
	}
	p.result(q, `"contents":[{"uri":`+quote(q.Name)+`,`+contents+`}]`)
}

func (p *plain) complete(q *request) {
	var argument struct{ Value string }
	json.Unmarshal(q.members["argument"], &argument)
	var found []string
	for _, name := range []string{"Ada", "Alan", "Grace"} {
		if strings.HasPrefix(name, argument.Value) {
			found = append(found, quote(name))
		}
	}
	p.result(q, fmt.Sprintf(`"completion":{"values":[%s],"total":%d,"hasMore":false}`, strings.Join(found, ","), len(found)))
}

// touch tells whoever subscribed.
func (p *plain) touch(q *request) {
	p.srv.updated("plain://" + p.name + "/text")
	p.text(q, "touched")
}
