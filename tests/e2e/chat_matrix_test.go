package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// matrixHome plays a Matrix homeserver with one room, to which the owner invites pfar. tests/homeserver has a real one.
type matrixHome struct {
	token string

	mu       sync.Mutex
	changed  chan struct{} // closed when there is news
	stranger int           // requests with another token
	joined   bool
	texts    []string // of the room, by the number of the event
	senders  []string
	redacted map[int]bool
	quiet    bool
}

const matrixPfar, matrixOwner = "@pfar:home.test", "@ada:home.test"

// says writes a message into the room, and returns its number.
func (h *matrixHome) says(who, text string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.add(who, text)
}

func (h *matrixHome) add(who, text string) int {
	h.texts, h.senders = append(h.texts, text), append(h.senders, who)
	close(h.changed)
	h.changed = make(chan struct{})
	return len(h.texts) - 1
}

// said reports whether pfar has said something with these words.
func (h *matrixHome) said(words string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, text := range h.texts {
		if h.senders[i] == matrixPfar && strings.Contains(text, words) {
			return true
		}
	}
	return false
}

func (h *matrixHome) gone(n int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.redacted[n]
}

// event is one of the room as the homeserver shows it now.
func (h *matrixHome) event(n int) map[string]any {
	content := map[string]any{}
	if !h.redacted[n] {
		content = map[string]any{"msgtype": "m.text", "body": h.texts[n]}
	}
	return map[string]any{
		"event_id": fmt.Sprint("$", n), "type": "m.room.message", "sender": h.senders[n], "content": content,
	}
}

func (h *matrixHome) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.Header.Get("Authorization") != "Bearer "+h.token {
		h.stranger++
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	var answer any = map[string]any{}
	last := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/whoami"):
		answer = map[string]any{"user_id": matrixPfar}
	case strings.HasSuffix(path, ".m.rule.master/enabled"):
		h.quiet = h.quiet || r.Method == http.MethodPut
		answer = map[string]any{"enabled": h.quiet}
	case strings.HasSuffix(path, "/join"):
		h.joined = true
	case strings.HasSuffix(path, "/state"):
		answer = json.RawMessage(matrixState)
	case strings.Contains(path, "/send/"):
		var content struct{ Body string }
		_ = json.Unmarshal(body, &content)
		answer = map[string]any{"event_id": fmt.Sprint("$", h.add(matrixPfar, content.Body))}
	case strings.Contains(path, "/redact/"):
		var n int
		_, _ = fmt.Sscanf(path[strings.Index(path, "/redact/"):], "/redact/$%d", &n)
		h.redacted[n], answer = true, map[string]any{"event_id": "$r"}
	case strings.Contains(path, "/event/"):
		var n int
		_, _ = fmt.Sscanf(last, "$%d", &n)
		answer = h.event(n)
	case strings.HasSuffix(path, "/sync"):
		answer = h.news(r)
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// news is what there is since the last time. It waits for some.
func (h *matrixHome) news(r *http.Request) any {
	var since int
	begun, _ := fmt.Sscanf(r.URL.Query().Get("since"), "s%d", &since)
	for h.joined && begun == 1 && since == len(h.texts) && r.Context().Err() == nil {
		changed := h.changed
		h.mu.Unlock()
		select {
		case <-changed:
		case <-r.Context().Done():
		}
		h.mu.Lock()
	}
	rooms := map[string]any{}
	if !h.joined {
		rooms["invite"] = map[string]any{"!r:home.test": map[string]any{"invite_state": map[string]any{"events": []any{
			map[string]any{
				"type": "m.room.member", "sender": matrixOwner, "state_key": matrixPfar,
				"content": map[string]any{"membership": "invite", "is_direct": true},
			},
		}}}}
	}
	var events []any
	for n := since; n < len(h.texts); n++ {
		events = append(events, h.event(n))
	}
	if h.joined && len(events) > 0 {
		rooms["join"] = map[string]any{"!r:home.test": map[string]any{"timeline": map[string]any{"events": events}}}
	}
	return map[string]any{"next_batch": fmt.Sprint("s", len(h.texts)), "rooms": rooms}
}

const matrixState = `[{"type":"m.room.create","state_key":"","sender":"@ada:home.test","content":{}},
{"type":"m.room.member","state_key":"@ada:home.test","content":{"membership":"join"}},
{"type":"m.room.member","state_key":"@pfar:home.test","content":{"membership":"join"}},
{"type":"m.room.power_levels","state_key":"","content":{"users":{"@pfar:home.test":100}}}]`

// TestMatrix: under pfar up a chat that is declared holds a conversation at its homeserver. The access token is in the
// vault, and neither it nor what an owner pastes is in a file of pfar's. A notice for the chat tells the owner there
// that another client's call waits, without its arguments, and no word in the chat answers the call.
func TestMatrix(t *testing.T) {
	t.Parallel()
	const token, pasted = "syt_cGZhcg_Kq81LmX0aTgVb7RkPw3s", "ghp_7r21KmX0aTgVb7RkPw3sYh5dWc2Q9eZ4uJ6n"
	h := &matrixHome{token: token, changed: make(chan struct{}), redacted: map[int]bool{}}
	home := httptest.NewServer(h)
	t.Cleanup(home.Close)
	w := newWatched(t, `
ask "comments" {
  reason = "A person looks."
  tools  = ["comment"]
}
notice "owner" {
  chat  = "home"
  every = "1s"
}`)
	p := w.pfar
	until(t, "pfar says that there is no such chat", func() bool {
		out, _, _ := p.command("check", "--json")
		return strings.Contains(out, `for the chat \"home\", which is not declared. Write chat.d/home.hcl`)
	})
	check(t, os.MkdirAll(filepath.Join(p.home, "chat.d"), 0o755))
	put(t, filepath.Join(p.home, "chat.d", "home.hcl"), fmt.Sprintf(
		"homeserver = %q\nuser = %q\ntoken = \"vault:matrix_token\"\nowner = %q\n", home.URL, matrixPfar, matrixOwner))
	if os.Getuid() == 0 {
		until(t, "pfar says that root holds no chat", func() bool {
			out, _, _ := p.command("status")
			return strings.Contains(out, "for an ordinary user, not for root")
		})
		return
	}
	until(t, "pfar says that the chat has no token", func() bool {
		out, _, _ := p.command("status")
		return strings.Contains(out, `the chat "home" has no key`)
	})
	p.keep("set", "matrix_token", token)
	t.Cleanup(func() {
		if t.Failed() {
			h.mu.Lock()
			defer h.mu.Unlock()
			t.Logf("the room has %q", h.texts)
		}
	})
	until(t, "pfar is in the room", func() bool { return h.said("pfar is here") })
	h.says("@eve:home.test", "question of a stranger")
	h.says(matrixOwner, "what is new?")
	until(t, "the owner reads that there is no model", func() bool { return h.said("models.d") })
	h.says(matrixOwner, "connect notion")
	until(t, "the owner reads which key is missing", func() bool { return h.said("connect = true in " + p.home) })
	n := h.says(matrixOwner, pasted)
	until(t, "the secret is deleted", func() bool { return h.gone(n) && h.said("looks as if it held a secret") })
	const private = "kanarihunter2hunter2"
	a := w.agent(false)
	a.call("tracker__read_issue", map[string]any{})
	c := a.send("tracker__comment", map[string]any{"body": private})
	one := w.awaitPending(a)
	until(t, "the owner reads that the call waits", func() bool {
		return h.said("pfar: a call waits for approval\n" + a.name() + " calls tracker.comment (reversible)\n")
	})
	h.says(matrixOwner, "yes")
	until(t, "the owner reads where to approve", func() bool {
		return h.said("Approvals of the gate are given elsewhere")
	})
	if h.said(private) || w.awaitPending(a).ID != one.ID {
		t.Error("the chat has the arguments of the call, or has answered it")
	}
	w.operate(0, "approvals", "approve", "--yes", one.ID)
	c.says(t, ran)
	p.stop()
	if h.stranger > 0 {
		t.Errorf("the homeserver had %d requests without the token of the vault", h.stranger)
	}
	check(t, filepath.WalkDir(p.home, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		for _, secret := range []string{token, pasted} {
			if strings.Contains(string(b), secret) {
				t.Errorf("%s has a secret", path)
			}
		}
		return err
	}))
}
