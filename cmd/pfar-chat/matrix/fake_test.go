package matrix

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pfar/pfar/units/chat"
)

// home plays a homeserver with one room and one message.
type home struct {
	*httptest.Server

	mu        sync.Mutex
	fails     map[string][]int // statuses that requests get before they succeed, by a part of their path
	keeps     bool             // it says that it redacts, and does not
	hushed    bool
	redacted  bool
	redaction []string // transactions
	syncs     int
	sent      []string

	transactions map[string]bool // that have sent a message
}

const pasted = "xoxb-12-pasted"

func playHome(t *testing.T) *home {
	t.Helper()
	h := &home{fails: map[string][]int{}, transactions: map[string]bool{}}
	h.Server = httptest.NewServer(h)
	t.Cleanup(h.Close)
	return h
}

func (h *home) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for part, statuses := range h.fails {
		if strings.Contains(r.URL.Path, part) && len(statuses) > 0 {
			h.fails[part] = statuses[1:]
			w.WriteHeader(statuses[0])
			fmt.Fprintf(w, `{"errcode":"M_PLAYED","error":"I saw %s"}`, pasted)
			return
		}
	}
	body, _ := io.ReadAll(r.Body)
	answer := "{}"
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/whoami"):
		answer = `{"user_id":"@pfar:home.test"}`
	case strings.HasSuffix(path, "/.m.rule.master/enabled"):
		h.hushed = h.hushed || r.Method == http.MethodPut && string(body) == `{"enabled":true}`
		answer = fmt.Sprintf(`{"enabled":%v}`, h.hushed)
	case strings.Contains(path, "/redact/"):
		h.redaction = append(h.redaction, path[strings.LastIndex(path, "/")+1:])
		h.redacted, answer = !h.keeps, `{"event_id":"$r"}`
	case strings.Contains(path, "/event/"):
		content := fmt.Sprintf(`{"msgtype":"m.text","body":%q}`, pasted)
		if h.redacted {
			content = "{}"
		}
		answer = `{"event_id":"$m","type":"m.room.message","sender":"@ada:home.test","content":` + content + `}`
	case strings.HasSuffix(path, "/state"):
		answer = "[" + strings.Join([]string{created, pfarIn, adaIn, private, moderate}, ",") + "]"
	case strings.HasSuffix(path, "/sync"):
		h.syncs++
		if h.syncs == 1 {
			answer = `{"next_batch":"s1"}`
			break
		}
		if r.URL.Query().Get("since") != "s1" { // nothing new
			h.mu.Unlock()
			<-r.Context().Done()
			h.mu.Lock()
			return
		}
		answer = `{"next_batch":"s2","rooms":{"join":{"!r:home.test":{"timeline":{"events":[` +
			`{"event_id":"$m","type":"m.room.message","sender":"@ada:home.test",` +
			`"content":{"msgtype":"m.text","body":"x"}},` +
			`{"event_id":"$n","type":"m.room.message","sender":"@eve:home.test",` +
			`"content":{"msgtype":"m.text","body":"y"}}]}}}}}`
	case strings.Contains(path, "/send/"):
		var content struct{ Body string }
		_ = json.Unmarshal(body, &content)
		answer = `{"event_id":"$s"}`
		if h.transactions[path] { // as Matrix has it: the same transaction is no second message
			break
		}
		h.transactions[path] = true
		h.sent, answer = append(h.sent, content.Body), `{"event_id":"$s"}`
	}
	fmt.Fprint(w, answer)
}

func (h *home) client(t *testing.T, state string) *Client {
	t.Helper()
	c, err := New(Config{
		Account: Account{Homeserver: h.URL, User: "@pfar:home.test", Owner: "@ada:home.test", Token: "t0k3n"},
		HTTP:    &http.Client{}, State: state, Pause: time.Microsecond, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var message = chat.Message{ID: "$m", Room: "!r:home.test", From: "@ada:home.test"}

// TestDelete: a deletion is tried again, and succeeds when the homeserver no longer shows the message.
func TestDelete(t *testing.T) {
	for name, test := range map[string]struct {
		fails map[string][]int
		keeps bool
		want  string // a part of the error; "": deleted
	}{
		"at once":            {nil, false, ""},
		"after two failures": {map[string][]int{"/redact/": {502, 503}}, false, ""},
		"too many":           {map[string][]int{"/redact/": {429, 429}}, false, ""},
		"gone already":       {map[string][]int{"/event/": {404}}, false, "404"}, // M_PLAYED does not say that it is gone
		"forbidden":          {map[string][]int{"/redact/": {403}}, false, "the homeserver answers 403 M_PLAYED"},
		"never": {map[string][]int{"/redact/": {502, 502, 502, 502, 502, 502, 502}}, false,
			"the homeserver answers 502"},
		"a lie":                 {nil, true, "still shows it"},
		"notifications stay on": {map[string][]int{"/pushrules/": {403}}, false, "notifications"},
	} {
		t.Run(name, func(t *testing.T) {
			h := playHome(t)
			h.keeps = test.keeps
			for part, statuses := range test.fails {
				h.fails[part] = statuses
			}
			err := h.client(t, t.TempDir()).Delete(t.Context(), message)
			switch {
			case (err == nil) != (test.want == ""), err != nil && !strings.Contains(err.Error(), test.want):
				t.Errorf("%v, want %q", err, test.want)
			case err != nil && strings.Contains(err.Error(), pasted):
				t.Errorf("the error has the homeserver's words: %v", err)
			case test.want == "" && (!h.redacted || !h.hushed):
				t.Errorf("redacted: %v, notifications off before: %v", h.redacted, h.hushed)
			}
			for _, txn := range h.redaction {
				if txn != h.redaction[0] {
					t.Errorf("redacted in the transactions %q, want one", h.redaction)
				}
			}
		})
	}
}

// TestOneMessage has one message of the owner's taken, once, and nothing of it on the disk.
func TestOneMessage(t *testing.T) {
	h := playHome(t)
	state := t.TempDir()
	c := h.client(t, state)
	taken := make(chan chat.Message, 8)
	run := func(c *Client, answer func(context.Context) error) (end func()) {
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			err := c.Connect(ctx)
			if err == nil {
				err = c.Run(ctx, func(ctx context.Context, m chat.Message) error {
					taken <- m
					return answer(ctx)
				})
			}
			ended <- err
		}()
		return func() { stop(); <-ended }
	}
	busy := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	end := run(c, busy)
	want := message
	want.Text = pasted
	if got := <-taken; got != want {
		t.Errorf("took %+v", got)
	}
	raw, err := os.ReadFile(filepath.Join(state, progressFile))
	if err != nil || !strings.Contains(string(raw), `"$m"`) || strings.Contains(string(raw), pasted) {
		t.Errorf("on the disk is %s, %v", raw, err)
	}
	end()

	c = h.client(t, state)
	if err := c.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	w := c.progress.now().Waiting
	if len(w) != 1 || !w[0].Begun {
		t.Fatalf("after a crash %+v waits, want the message that was begun", w)
	}
	if err := c.handle(t.Context(), w[0], func(context.Context, chat.Message) error {
		t.Error("the message is handled twice")
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(h.sent) != 1 || !strings.Contains(h.sent[0], "does not begin that work again") {
		t.Errorf("the owner reads %q", h.sent)
	}
	if w := c.progress.now().Waiting; len(w) != 0 {
		t.Errorf("%+v still waits", w)
	}
}

// TestConnect: without the right token, and as long as notifications are on, nothing begins.
func TestConnect(t *testing.T) {
	h := playHome(t)
	h.fails["/whoami"] = []int{502, 502, 502, 502, 502, 502, 500}
	h.fails["/pushrules/"] = []int{500}
	c := h.client(t, t.TempDir())
	if err := c.Run(t.Context(), nil); err == nil {
		t.Error("messages are read while notifications are on")
	}
	if err := c.Connect(t.Context()); err != nil || !h.hushed {
		t.Errorf("connected with %v, notifications off: %v", err, h.hushed)
	}
	other := h.client(t, t.TempDir())
	other.bot = "@other:home.test"
	if err := other.Connect(t.Context()); err == nil || !strings.Contains(err.Error(), "@other:home.test") {
		t.Errorf("the token of another account: %v", err)
	}
}

// TestProgress: a file that pfar cannot read is an error that says what to do.
func TestProgress(t *testing.T) {
	for content, want := range map[string]string{
		"{":                                "Remove it to begin with new messages",
		`{"version":2}`:                    "has version 2, want 1",
		strings.Repeat(" ", maxProgress+1): "has more than",
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, progressFile), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := openProgress(dir, "@pfar:home.test"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want %q", content, err, want)
		}
	}
	dir := t.TempDir()
	p, err := openProgress(dir, "@pfar:home.test")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.change(func(r *record) { r.Next = "s9" }); err != nil {
		t.Fatal(err)
	}
	if p, err = openProgress(dir, "@pfar:home.test"); err != nil || p.now().Next != "s9" {
		t.Errorf("read again: %+v, %v", p.now(), err)
	}
	if p, err = openProgress(dir, "@new:home.test"); err != nil || p.now().Next != "" {
		t.Errorf("of another account: %+v, %v", p.now(), err)
	}
}
