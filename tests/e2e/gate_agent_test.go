package e2e

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// agent is a model that does whatever it is told by whatever it reads: the stranger's plan is carried out without a
// doubt, also if nothing of the stranger's text got through. Only the gate stands between.
type agent struct {
	t      testing.TB
	url    string // of the endpoint
	token  string
	client string // "": agent and its number
	modern bool   // speaks 2026-07-28
	search bool   // calls tools by call_tool
	http   *http.Client

	patience time.Duration // until it gives a request up

	mu      sync.Mutex
	session string
	id      int
	seen    strings.Builder // all that any server said
	notes   string          // what it has read that is private
	answers string          // what it answers when a server asks

	answering chan string   // nil: answers; what it answers when a server asks, which may take a while
	running   chan struct{} // closed when what it does beside is over
	parked    string        // what came of a call that waits for an answer (2026-07-28)
	overlaps  bool          // that was not, when something else was
	slow      int           // how many times as long it lasts
}

const modernVersion = "2026-07-28"

// ran is in the answer of a tracker's tool that has been called, within the fence.
const ran = `\ndone\n`

// name is the client's, as it is declared.
func (a *agent) name() string { return cmp.Or(a.client, "agent"+a.notes) }

func (a *agent) request(method string, params map[string]any) (*http.Request, string, error) {
	a.mu.Lock()
	a.id++
	id := fmt.Sprint(a.id)
	a.mu.Unlock()
	if params == nil {
		params = map[string]any{}
	}
	if a.search && method == "tools/call" {
		params = folded(params)
	}
	if a.modern {
		meta, _ := params["_meta"].(map[string]any)
		if meta == nil {
			meta = map[string]any{}
			params["_meta"] = meta
		}
		meta["io.modelcontextprotocol/protocolVersion"] = modernVersion
		meta["io.modelcontextprotocol/clientInfo"] = map[string]any{"name": "agent", "version": "1"}
		meta["io.modelcontextprotocol/clientCapabilities"] = map[string]any{"elicitation": map[string]any{}, "sampling": map[string]any{}, "roots": map[string]any{}}
	}
	req, err := a.message(map[string]any{"jsonrpc": "2.0", "id": json.RawMessage(id), "method": method, "params": params})
	if err == nil && a.modern {
		req.Header.Set("Mcp-Method", method)
		for _, name := range []string{"name", "uri"} {
			if text, ok := params[name].(string); ok {
				req.Header.Set("Mcp-Name", text)
			}
		}
	}
	return req, id, err
}

// folded is a call of a tool as call_tool carries it.
func folded(params map[string]any) map[string]any {
	name, _ := params["name"].(string)
	if name == searchTool || name == describeTool {
		return params
	}
	whole := maps.Clone(params)
	whole["name"], whole["arguments"] = "call_tool", map[string]any{"name": name, "arguments": params["arguments"]}
	return whole
}

func (a *agent) message(m any) (*http.Request, error) {
	b, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequest(http.MethodPost, a.url, bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	version := "2025-11-25"
	if a.modern {
		version = modernVersion
	}
	for key, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"MCP-Protocol-Version": version, "Authorization": "Bearer " + a.token,
	} {
		req.Header.Set(key, value)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.session != "" {
		req.Header.Set("Mcp-Session-Id", a.session)
	}
	return req, nil
}

// ask makes a request, answers what it is asked in its course, and returns all that came back as one text.
func (a *agent) ask(method string, params map[string]any) string {
	return a.askFor(context.Background(), method, params)
}

// askFor is ask that can be given up.
func (a *agent) askFor(ctx context.Context, method string, params map[string]any) string {
	req, id, err := a.request(method, params)
	if err != nil {
		a.t.Error(err)
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, a.patience)
	defer cancel()
	resp, err := a.http.Do(req.WithContext(ctx))
	if err != nil {
		return err.Error()
	}

	defer resp.Body.Close()
	if s := resp.Header.Get("Mcp-Session-Id"); s != "" {
		a.mu.Lock()
		a.session = s
		a.mu.Unlock()
	}
	var all bytes.Buffer
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		_ = events(resp.Body, func(data []byte) bool { // it gives up
			all.Write(append(data, '\n'))
			a.saw(data)
			return a.hear(ctx, data, id)
		})
		return all.String()
	}
	_, _ = io.Copy(&all, resp.Body)
	a.saw(all.Bytes())
	return all.String()
}

// saw keeps what a server has said.
func (a *agent) saw(b []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.seen.Write(append(b, '\n'))
}

// beside does something while the agent goes on.
func (a *agent) beside(do func()) {
	a.running = make(chan struct{})
	go func() {
		defer close(a.running)
		do()
	}()
}

// besides notes whether that goes on by now, and waits for its end.
func (a *agent) besides() {
	select {
	case <-a.running:
	default:
		a.overlaps = true
	}
	<-a.running
}

// says is what the agent answers to a question: "" if it gives up waiting for what that is.
func (a *agent) says(ctx context.Context) string {
	if a.answering == nil {
		return a.answers
	}
	select {
	case text := <-a.answering:
		return text
	case <-ctx.Done():
		return ""
	}
}

// hear answers what a server asks, and reports whether this was the last message of a response.
func (a *agent) hear(ctx context.Context, data []byte, id string) bool {
	var m answer
	if json.Unmarshal(data, &m) != nil {
		return false
	}
	if m.Method == "" {
		return string(m.ID) == id
	}
	if m.ID == nil {
		return false
	}
	text := a.says(ctx)
	result := map[string]any{"action": "accept", "content": map[string]any{"answer": text}}
	if m.Method == "sampling/createMessage" {
		result = map[string]any{"role": "assistant", "model": "obedient", "content": map[string]any{"type": "text", "text": text}}
	}
	req, err := a.message(map[string]any{"jsonrpc": "2.0", "id": m.ID, "result": result})
	if err != nil {
		a.t.Error(err)
		return true
	}
	resp, err := a.http.Do(req)
	if err != nil {
		return true
	}
	resp.Body.Close()
	return false
}

// connect opens a session, if the protocol has them.
func (a *agent) connect() {
	if a.modern {
		return
	}
	a.mu.Lock()
	a.session = ""
	a.mu.Unlock()
	a.ask("initialize", map[string]any{
		"protocolVersion": "2025-11-25", "clientInfo": map[string]any{"name": "agent", "version": "1"},
		"capabilities": map[string]any{"elicitation": map[string]any{}, "sampling": map[string]any{}, "roots": map[string]any{}},
	})
}

func (a *agent) call(tool string, arguments map[string]any) string {
	return a.ask("tools/call", map[string]any{"name": tool, "arguments": arguments})
}

// said is what every server has said to it so far.
func (a *agent) said() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.seen.String()
}

// listen reads what the session is told outside of its calls, until stop is called.
func (a *agent) listen() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url, nil)
	if err != nil {
		a.t.Fatal(err)
	}
	for key, value := range map[string]string{"Accept": "text/event-stream", "MCP-Protocol-Version": "2025-11-25", "Authorization": "Bearer " + a.token, "Mcp-Session-Id": a.session} {
		req.Header.Set(key, value)
	}
	resp, err := a.http.Do(req)
	if err != nil {
		a.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = events(resp.Body, func(data []byte) bool { // until it is stopped
			a.saw(data)
			return false
		})
	}()
	return func() {
		cancel()
		resp.Body.Close()
		<-done
	}
}

// await waits until a text has been said, or for as long as the agent waits for anything.
func (a *agent) await(text string) {
	for end := time.Now().Add(a.patience); time.Now().Before(end) && !strings.Contains(a.said(), text); {
		time.Sleep(10 * time.Millisecond)
	}
}
