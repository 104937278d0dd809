package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	classes "github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/policies/inspector"
)

// chatAPI is a model that answers with what f makes of a request.
func chatAPI(t *testing.T, f func(w http.ResponseWriter, r *http.Request, asked chat)) inspector.External {
	t.Helper()
	e := api(t, f)
	e.URL = strings.TrimSuffix(e.URL, "/chat/completions")
	e.Chat = &inspector.Chat{}
	return e
}

// chatSays has a model asked, and returns its answer.
func chatSays(t *testing.T, e inspector.External, key string, p any) inspector.Said {
	t.Helper()
	e, err := e.Declared()
	if err != nil {
		t.Fatal(err)
	}
	m, err := newModel(e, key, newDialer(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return saidBy(t, m, p)
}

func saidBy(t *testing.T, m *model, p any) (answer inspector.Said) {
	t.Helper()
	q, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	b, err := m.say(t.Context(), q)
	if err == nil {
		err = json.Unmarshal(b, &answer)
	}
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

var greeting = inspector.Prompt{Version: 1, Messages: []inspector.Message{
	{Role: inspector.System, Text: "be brief"}, {Role: inspector.User, Text: "hello-secret"},
}}

func classOf(s inspector.Said) classes.Class { return classes.Read(s.Failure).Class }

// TestChatFails: each way in which a model gives no text has its class, and neither key, prompt nor answer is quoted.
func TestChatFails(t *testing.T) {
	whole := said("words of the model")
	wants := strings.Replace(whole, `"role"`, `"tool_calls":[{"id":"1"}],"role"`, 1)
	for name, c := range map[string]struct {
		status int
		answer string
		class  classes.Class
	}{
		"asked too often":     {429, "", classes.RateLimited},
		"a bad key":           {401, "hunter2 is no key", classes.Unauthorized},
		"no right":            {403, "", classes.Forbidden},
		"no such model":       {404, "", classes.NotFound},
		"it is broken":        {500, "", classes.ServerError},
		"elsewhere":           {302, "", classes.Schema},
		"nothing":             {200, "", classes.Schema},
		"no JSON":             {200, "hunter2", classes.Schema},
		"no choices":          {200, `{"choices":[]}`, classes.Schema},
		"cut":                 {200, strings.Replace(whole, `"stop"`, `"length"`, 1), classes.Schema},
		"an end of its own":   {200, strings.Replace(whole, `"stop"`, `"hunter2"`, 1), classes.Schema},
		"it wants a tool":     {200, wants, classes.Schema},
		"it refuses":          {200, strings.Replace(whole, `"role"`, `"refusal":"no","role"`, 1), classes.Schema},
		"more than there may": {200, said(strings.Repeat("x", inspector.MaxSaid+1)), classes.Schema},
		"without an end":      {200, said(strings.Repeat("x", maxChat)), classes.Schema},
	} {
		e := chatAPI(t, func(w http.ResponseWriter, r *http.Request, _ chat) {
			if r.URL.Path == "/elsewhere" {
				t.Error("it follows")
			}
			w.Header().Set("Location", "/elsewhere")
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(c.status)
			fmt.Fprint(w, c.answer)
		})
		e.Key = "vault:llm"
		got := chatSays(t, e, "hunter2", greeting)
		if got.Text != "" || got.Error == "" || classOf(got) != c.class {
			t.Errorf("%s: %+v, want %s", name, got, c.class)
		}
		if f := classes.Read(got.Failure); c.status == 429 && (f.After != 7 || f.Status != 429) {
			t.Errorf("%s: %+v", name, f)
		}
		for _, secret := range []string{"hunter2", "hello-secret", "words of", "127.0.0.1"} {
			if strings.Contains(got.Error, secret) {
				t.Errorf("%s: it quotes %q: %s", name, secret, got.Error)
			}
		}
	}
	e := inspector.External{Name: "llm", URL: "http://127.0.0.1:1/", Model: "m"}
	e.Chat = &inspector.Chat{}
	if got := chatSays(t, e, "", greeting); classOf(got) != classes.NetworkError {
		t.Errorf("nobody there: %+v", got)
	}
	asked := chatAPI(t, func(http.ResponseWriter, *http.Request, chat) { t.Error("it is asked") })
	for name, p := range map[string]any{
		"another version": inspector.Prompt{Version: 2, Messages: greeting.Messages},
		"nothing":         inspector.Prompt{Version: 1},
		"no prompt":       "hello",
		"too long": inspector.Prompt{Version: 1, Messages: []inspector.Message{
			{Role: "user", Text: strings.Repeat("x", 1<<20+1)},
		}},
	} {
		if got := chatSays(t, asked, "", p); classOf(got) != classes.Schema || got.Error == "" {
			t.Errorf("%s: %+v", name, got)
		}
	}
	m, err := newModel(inspector.External{Name: "a", URL: "http://127.0.0.1:1/", Model: "m"}, "", newDialer(), nil)
	if err != nil {
		t.Fatal(err)
	}
	m.lacks = errors.New("the key is missing")
	if got := saidBy(t, m, greeting); classOf(got) != classes.Unauthorized || got.Error != "the key is missing" {
		t.Errorf("without its key: %+v", got)
	}
}

// TestChatTimeout: an answer that does not come in time is a timeout.
func TestChatTimeout(t *testing.T) {
	e := chatAPI(t, func(_ http.ResponseWriter, r *http.Request, _ chat) { <-r.Context().Done() })
	e, err := e.Declared()
	if err != nil {
		t.Fatal(err)
	}
	m, err := newModel(e, "", newDialer(), nil)
	if err != nil {
		t.Fatal(err)
	}
	m.client.Timeout = time.Millisecond
	if got := saidBy(t, m, greeting); classOf(got) != classes.Timeout {
		t.Errorf("%+v", got)
	}
}

// TestChatSays: the whole prompt arrives, with the key as a bearer token, and its text comes back as it is.
func TestChatSays(t *testing.T) {
	warm := 0.3
	for name, c := range map[string]struct {
		change func(*inspector.Prompt)
		want   chat
	}{
		"as declared": {func(*inspector.Prompt) {}, chat{MaxTokens: 2048}},
		"with limits": {
			func(p *inspector.Prompt) { p.Tokens, p.Temperature, p.Object = 9, &warm, true },
			chat{MaxTokens: 9, Temperature: warm, Format: map[string]string{"type": "json_object"}},
		},
		"with more": {func(p *inspector.Prompt) { p.Tokens = 1 << 20 }, chat{MaxTokens: 2048}},
	} {
		e := chatAPI(t, func(w http.ResponseWriter, r *http.Request, got chat) {
			want := c.want
			want.Model, want.Messages = "m", []message{{"system", "be brief"}, {"user", "hello-secret"}}
			key := r.Header.Get("Authorization")
			if fmt.Sprint(got) != fmt.Sprint(want) || r.URL.Path != "/v1/chat/completions" || key != "Bearer k1" {
				t.Errorf("%s: asked %+v, want %+v", name, got, want)
			}
			fmt.Fprint(w, said("<two>\nlines\u2028"))
		})
		e.Key = "vault:llm"
		p := greeting
		c.change(&p)
		if got := chatSays(t, e, "k1", p); got.Text != "<two>\nlines\u2028" || got.Error != "" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
