// Package llm stands for the API of a model, as OpenAI's and those like it have it: a chat in, one choice out, by a
// player that decides what a good, a sloppy or a hostile model would say.
package llm

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
)

// Message is one of a chat.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// Chat is what a model is asked.
type Chat struct {
	Model    string            `json:"model"`
	Messages []Message         `json:"messages"`
	Tools    json.RawMessage   `json:"tools"`
	Format   map[string]string `json:"response_format"`

	Key  string `json:"-"` // that came as a bearer token
	Path string `json:"-"`
}

// Kind is what pfar asks a model for, as far as its orders tell.
type Kind int

const (
	Other Kind = iota
	Plan
	Answer
	Judge // as an inspector
)

// Kind tells what a chat is for.
func (c Chat) Kind() Kind {
	if len(c.Messages) == 0 || c.Messages[0].Role != "system" {
		return Other
	}
	for begins, kind := range map[string]Kind{
		"You write plans": Plan, "A person has asked": Answer, "You are a security filter": Judge,
	} {
		if strings.HasPrefix(c.Messages[0].Content, begins) {
			return kind
		}
	}
	return Other
}

// Last is the newest message.
func (c Chat) Last() string {
	if len(c.Messages) == 0 {
		return ""
	}
	return c.Messages[len(c.Messages)-1].Content
}

// Reply is what a model says.
type Reply struct {
	Text   string
	Calls  string // JSON of tool_calls; "": none
	Finish string // "": stop
	Status int    // of HTTP; 0: 200
}

// Player decides what is said.
type Player func(Chat) Reply

// API is a model's. It may be played by another player at any time.
type API struct {
	mu   sync.Mutex
	play Player
	all  []Chat
}

// New returns one that is played so.
func New(p Player) *API { return &API{play: p} }

// Play replaces the player.
func (a *API) Play(p Player) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.play = p
}

// Asked returns what was asked since it was last called.
func (a *API) Asked() []Chat {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.all
	a.all = nil
	return all
}

// maxChat bounds a request, in bytes.
const maxChat = 16 << 20

func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := Chat{Path: r.URL.Path, Key: strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxChat)).Decode(&c); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	a.mu.Lock()
	play := a.play
	a.all = append(a.all, c)
	a.mu.Unlock()
	reply := play(c)
	if reply.Status != 0 {
		http.Error(w, `{"error":{"message":"no"}}`, reply.Status)
		return
	}
	if reply.Finish == "" {
		reply.Finish = "stop"
	}
	message := map[string]any{"role": "assistant", "content": reply.Text}
	if reply.Calls != "" {
		message["tool_calls"] = json.RawMessage(reply.Calls)
	}
	w.Header().Set("Content-Type", "application/json")
	b, _ := json.Marshal(map[string]any{
		"id": "x", "object": "chat.completion", "model": c.Model, "usage": map[string]int{"total_tokens": 7},
		"choices": []any{map[string]any{"index": 0, "finish_reason": reply.Finish, "message": message}},
	})
	_, _ = w.Write(b)
}

// Good writes this plan, and these words about results. Other questions it answers with the words, too.
func Good(plan, words string) Player {
	return func(c Chat) Reply {
		switch c.Kind() {
		case Plan:
			return Reply{Text: plan}
		case Judge:
			return Reply{Text: `{"verdict":"clean"}`}
		}
		return Reply{Text: words}
	}
}

// Sloppy writes a bad plan first, and the right one when it is told of mistakes.
func Sloppy(bad, plan, words string) Player {
	return func(c Chat) Reply {
		if c.Kind() == Plan && len(c.Messages) == 2 {
			return Reply{Text: bad}
		}
		return Good(plan, words)(c)
	}
}

// Obedient does what any text tells it that it is shown. Asked for words about a result, it takes each line of the
// result that begins with mark as an order: it wants the tool that the line names, and writes a plan that calls it.
func Obedient(plan, mark string) Player {
	return func(c Chat) Reply {
		if c.Kind() == Plan {
			return Reply{Text: plan}
		}
		var orders []string
		for line := range strings.Lines(c.Last()) {
			if order, ok := strings.CutPrefix(strings.TrimSpace(line), mark); ok {
				orders = append(orders, strings.TrimSpace(order))
			}
		}
		if len(orders) == 0 {
			return Reply{Text: "nothing to obey"}
		}
		call := fmt.Sprintf(`[{"id":"1","type":"function","function":{"name":%q,"arguments":"{}"}}]`, orders[0])
		next := fmt.Sprintf(`{"nodes":[{"id":"x","node":%q}]}`, orders[0])
		if len(c.Last())%2 == 0 { // as a tool call, which is no text
			return Reply{Text: next, Calls: call}
		}
		return Reply{Text: next}
	}
}
