package inspector

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Chat is how a model answers in words.
type Chat struct {
	Tokens int `json:"max_tokens"` // of one answer, at most; the model's own count
}

const (
	chatTokens = 2048
	chatSize   = 256 << 10 // bytes of all messages of a prompt
	maxPrompt  = 1 << 20   // bytes, likewise
)

// MaxTokens bounds Chat.Tokens.
const MaxTokens = 32768

// MaxMessages bounds the messages of one prompt.
const MaxMessages = 64

// MaxSaid bounds what a model says, in bytes of UTF-8: a longer answer is an error.
const MaxSaid = 512 << 10

// chat checks what is said of a model that answers in words, and adds its defaults. It has a Chat of its own from then
// on.
func (e *External) chat(bad func(attribute, format string, args ...any)) {
	c := *e.Chat
	e.Chat = &c
	defaults(&e.Chunk, modelChunk) // which it does not need
	defaults(&e.Size, chatSize)
	defaults(&e.Parallel, 2)
	defaults(&e.Timeout, 2*time.Minute)
	defaults(&c.Tokens, chatTokens)
	if c.Tokens < 1 || c.Tokens > MaxTokens {
		bad("max_tokens", "%d: want 1 to %d", c.Tokens, MaxTokens)
	}
	if e.Size > maxPrompt {
		bad("size", "%d: want at most 1 MiB", e.Size)
	}
	if len(e.Exec) > 0 || len(e.ReadOnly) > 0 || e.Memory != 0 {
		bad("", "is a model, which has no program")
	}
	if e.Model == "" {
		bad("model", "is missing: want the name that the API has for it")
	}
	if e.URL == "" {
		bad("url", "is missing: want the base address of the API, such as https://api.example.com/v1")
		return
	}
	if u, err := url.Parse(e.URL); err == nil {
		switch {
		case u.RawQuery != "" || u.ForceQuery:
			bad("url", "has a question mark: want the base address of the API, such as https://api.example.com/v1")
			return
		case strings.HasSuffix(strings.TrimRight(u.Path, "/"), completions):
			base := strings.TrimSuffix(strings.TrimRight(e.URL, "/"), completions)
			bad("url", "ends in %s, which pfar adds: want %.100q", completions, base)
			return
		}
	}
	e.remote(bad)
}

// completions is where an API like OpenAI's is asked, below its base address.
const completions = "/chat/completions"

// Completions is where the model is asked.
func (e External) Completions() string {
	if e.Chat == nil {
		return e.URL
	}
	return strings.TrimRight(e.URL, "/") + completions
}

// Prompt is what a model is asked, as JSON.
type Prompt struct {
	Version     int       `json:"version"` // 1
	Messages    []Message `json:"messages"`
	Tokens      int       `json:"max_tokens,omitempty"`  // of the answer, at most; 0: as declared
	Temperature *float64  `json:"temperature,omitempty"` // 0 to 2; nil: 0
	Object      bool      `json:"object,omitempty"`      // the answer is to be one JSON object
}

// Message is one of a prompt.
type Message struct {
	Role string `json:"role"` // one of those below
	Text string `json:"text"`
}

// The roles of messages.
const (
	System    = "system"
	User      = "user"
	Assistant = "assistant"
)

// Check returns what is wrong with a prompt for a model, or nil. Its errors quote nothing of the prompt.
func (p Prompt) Check(e External) error {
	size := 0
	for i, m := range p.Messages {
		if m.Role != System && m.Role != User && m.Role != Assistant {
			return fmt.Errorf("message %d must have the role system, user or assistant", i+1)
		}
		size += len(m.Text)
	}
	switch {
	case p.Version != 1:
		return fmt.Errorf("the prompt has version %d, want 1", p.Version)
	case len(p.Messages) == 0:
		return errors.New("the prompt has no message")
	case len(p.Messages) > MaxMessages:
		return fmt.Errorf("the prompt has %d messages, and %d is the most", len(p.Messages), MaxMessages)
	case size > e.Size:
		return fmt.Errorf("the prompt has %d bytes, and %d is the most", size, e.Size)
	case p.Tokens < 0:
		return fmt.Errorf("max_tokens is %d: want 1 or more", p.Tokens)
	case p.Temperature != nil && !(*p.Temperature >= 0 && *p.Temperature <= 2):
		return errors.New("the temperature is not from 0 to 2")
	}
	return nil
}

// Said is what a model has answered: a text, or why there is none.
type Said struct {
	Text    string          `json:"text,omitempty"`
	Error   string          `json:"error,omitempty"`   // in words of pfar's; "": there is a text
	Failure json.RawMessage `json:"failure,omitempty"` // failure.Read reads it; nil: it has no class
}
