package inspector

import (
	"math"
	"strings"
	"testing"
	"time"
)

// TestDeclaredChat: a model that answers has its defaults, and each mistake is told with what is wanted.
func TestDeclaredChat(t *testing.T) {
	good := External{Name: "gpt", URL: "https://api.example.com/v1/", Model: "m", Key: "vault:gpt"}
	good.Chat = &Chat{}
	e, err := good.Declared()
	if err != nil || e.Chat.Tokens != 2048 || e.Size != 256<<10 || e.Timeout != 2*time.Minute || e.Parallel != 2 {
		t.Errorf("%+v, %v", e, err)
	}
	if good.Chat.Tokens != 0 {
		t.Error("Declared changes what it was given")
	}
	if got := e.Completions(); got != "https://api.example.com/v1/chat/completions" {
		t.Errorf("it is asked at %q", got)
	}
	if e.String() != "model gpt" {
		t.Errorf("it is %q", e)
	}
	change := func(f func(*External)) External {
		e := good
		c := *e.Chat
		e.Chat = &c
		f(&e)
		return e
	}
	for want, e := range map[string]External{
		"model is missing":                change(func(e *External) { e.Model = "" }),
		"url is missing":                  change(func(e *External) { e.URL = "" }),
		`"https://api.example.com/v1`:     change(func(e *External) { e.URL += "chat/completions/" }),
		"url has a question mark":         change(func(e *External) { e.URL += "?key=x" }),
		"want https":                      change(func(e *External) { e.URL = "http://api.example.com/v1" }),
		"in place of localhost":           change(func(e *External) { e.URL = "http://localhost:1/v1" }),
		"key is not the name of a secret": change(func(e *External) { e.Key = "sk-live" }),
		"max_tokens -1":                   change(func(e *External) { e.Chat.Tokens = -1 }),
		"max_tokens 32769":                change(func(e *External) { e.Chat.Tokens = 32769 }),
		"size 1048577":                    change(func(e *External) { e.Size = 1<<20 + 1 }),
		"which has no program":            change(func(e *External) { e.Exec = []string{"/bin/sh"} }),
		"timeout 10m":                     change(func(e *External) { e.Timeout = 10 * time.Minute }),
		"allow_private ":                  change(func(e *External) { e.AllowPrivate = []string{"x"} }),
	} {
		if _, err := e.Declared(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", e, err, want)
		}
	}
	three := change(func(e *External) { e.Model, e.URL, e.Chat.Tokens = "", "", -1 })
	if _, err := three.Declared(); len(Mistakes(err)) != 3 {
		t.Errorf("not all mistakes at once: %v", err)
	}
}

// TestPromptBounds: what a model may not be asked is refused before it is sent, and never quoted.
func TestPromptBounds(t *testing.T) {
	e, err := External{Name: "gpt", URL: "https://a.example.com/", Model: "m", Role: Role{Chat: &Chat{}}}.Declared()
	if err != nil {
		t.Fatal(err)
	}
	one := []Message{{User, "secret-words"}}
	warm := func(f float64) *float64 { return &f }
	for want, p := range map[string]Prompt{
		"":                          {Version: 1, Messages: one, Temperature: warm(0.3)},
		"version 0":                 {Messages: one},
		"no message":                {Version: 1},
		"65 messages":               {Version: 1, Messages: make65()},
		"must have the role system": {Version: 1, Messages: []Message{{"tool", "secret-words"}}},
		"262145 bytes":              {Version: 1, Messages: []Message{{User, strings.Repeat("x", 256<<10)}, {User, "y"}}},
		"max_tokens is -1":          {Version: 1, Messages: one, Tokens: -1},
		"not from 0 to 2":           {Version: 1, Messages: one, Temperature: warm(2.1)},
		"the temperature is ":       {Version: 1, Messages: one, Temperature: warm(math.NaN())},
	} {
		got := ""
		if err := p.Check(e); err != nil {
			got = err.Error()
		}
		if (got == "") != (want == "") || !strings.Contains(got, want) || strings.Contains(got, "secret-words") {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func make65() []Message {
	all := make([]Message, MaxMessages+1)
	for i := range all {
		all[i] = Message{User, "x"}
	}
	return all
}
