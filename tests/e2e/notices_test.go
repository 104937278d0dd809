package e2e

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/pfar/pfar/units/control"
)

// noticed is what a host of notices got.
type noticed struct{ path, title, key, body string }

// noticeHost stands for a host of webhooks and for ntfy, over HTTPS.
type noticeHost struct {
	*httptest.Server
	roots  string        // file with its certificate
	topic  chan noticed  // what ntfy got
	hooks  chan noticed  // what the webhook got
	closed atomic.Int32  // what ntfy answers; 0: 200
	slow   atomic.Bool   // the webhook answers once hangs is closed
	hangs  chan struct{} // and else at once
	begun  chan struct{} // it has a request that hangs
}

func newNoticeHost(t *testing.T) *noticeHost {
	t.Helper()
	h := &noticeHost{
		topic: make(chan noticed, 99), hooks: make(chan noticed, 99),
		hangs: make(chan struct{}), begun: make(chan struct{}, 99),
	}
	h.Server = httptest.NewUnstartedServer(h)
	h.Config.ErrorLog = log.New(io.Discard, "", 0)
	h.StartTLS()
	t.Cleanup(h.Close)
	h.roots = filepath.Join(directory(t, ""), "roots.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw})
	check(t, os.WriteFile(h.roots, text, 0o644))
	return h
}

func (h *noticeHost) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	n := noticed{r.URL.Path, r.Header.Get("Title"), r.Header.Get("Authorization"), string(b)}
	switch status := int(h.closed.Load()); {
	case r.URL.Path != "/topic":
		if h.slow.Load() {
			h.begun <- struct{}{}
			select {
			case <-h.hangs:
			case <-r.Context().Done():
			}
		}
		h.hooks <- n
	case status != 0:
		w.WriteHeader(status)
		fmt.Fprint(w, "the host's own words")
	default:
		h.topic <- n
	}
}

// got is the next notice of a kind.
func got(t *testing.T, what string, from <-chan noticed) (n noticed) {
	t.Helper()
	until(t, what+" is told", func() bool {
		select {
		case n = <-from:
			return true
		default:
			return false
		}
	})
	return n
}

// TestNotices: who is declared is told that a call waits, in pfar's own words, each with the key that the vault has for
// it. A host that hangs or refuses delays no call, and the status says so.
func TestNotices(t *testing.T) {
	t.Parallel()
	const topicKey, hookKey, private = "tk_hunter2hunter2", "B00-hunter2hunter2", "kanarihunter2hunter2"
	h := newNoticeHost(t)
	declared := fmt.Sprintf(`
ask "comments" {
  reason = "A person looks."
  tools  = ["comment"]
}
notice "phone" {
  url    = "%[1]s/topic"
  format = "ntfy"
  key    = "vault:ntfy"
  every  = "1s"
}
notice "hook" {
  url     = "%[1]s/hooks/{key}"
  key     = "vault:hook"
  every   = "1s"
  timeout = "5m"
}
`, h.URL)
	w := newWatched(t, declared, "SSL_CERT_FILE="+h.roots)
	for key, value := range map[string]string{"ntfy": topicKey, "hook": hookKey} {
		w.await("the key is missing", soon, func(r control.Report) bool {
			return strings.Contains(strings.Join(r.Notes, "\n"), "has no key, and it is not sent") &&
				strings.Contains(strings.Join(r.Notes, "\n"), "pfar vault set "+key)
		})
		w.stdin = value
		w.operate(0, "vault", "set", key)
	}
	w.await("the keys are there", soon, func(r control.Report) bool {
		return !strings.Contains(strings.Join(r.Notes, "\n"), "has no key")
	})
	a := w.agent(false)
	a.call("tracker__read_issue", map[string]any{})
	comments := func(body string) (sent, waiting) {
		t.Helper()
		c := a.send("tracker__comment", map[string]any{"body": body + private})
		return c, w.awaitPending(a)
	}
	approved := func(c sent, one waiting) {
		t.Helper()
		w.operate(0, "approvals", "approve", "--yes", one.ID)
		c.says(t, ran)
	}
	text := a.name() + " calls tracker.comment (reversible)"

	c, one := comments("first ")
	want := noticed{"/topic", "pfar: a call waits for approval", "Bearer " + topicKey, text}
	if n := got(t, "ntfy", h.topic); n != want {
		t.Errorf("ntfy got %+v", n)
	}
	n := got(t, "the webhook", h.hooks)
	var hook struct {
		Version, Waiting int
		Text             string
		Calls            []map[string]string
	}
	err := json.Unmarshal([]byte(n.body), &hook)
	if err != nil || n.path != "/hooks/"+hookKey || n.key != "" || hook.Version != 1 || hook.Waiting != 1 ||
		hook.Text != "pfar: a call waits for approval\n"+text || len(hook.Calls) != 1 ||
		hook.Calls[0]["client"] != a.name() || strings.Contains(n.body, "hunter2") {
		t.Errorf("the webhook got %+v, %v", n, err)
	}
	w.search(t, topicKey, hookKey)
	approved(c, one)

	h.slow.Store(true)
	h.closed.Store(http.StatusUnauthorized)
	c, one = comments("second ")
	until(t, "the webhook hangs", func() bool { return len(h.begun) == 1 })
	var status string
	until(t, "the status says what ntfy answers", func() bool {
		status = w.operate(0, "status")
		return strings.Contains(status, `the notice "phone" has not reached 127.0.0.1 since `) &&
			strings.Contains(status, "the host answers 401")
	})
	doctor, _, _ := w.command("doctor", "--json")
	if !strings.Contains(doctor, "the host answers 401") || strings.Contains(doctor+status, "own words") {
		t.Errorf("doctor says %s, the status %s", doctor, status)
	}
	approved(c, one) // while one host hangs and the other one refuses
	c, one = comments("third ")
	h.closed.Store(0)
	close(h.hangs)
	if n := got(t, "ntfy", h.topic); n.body != text {
		t.Errorf("ntfy got %+v", n)
	}
	until(t, "the status is as before", func() bool {
		return !strings.Contains(w.operate(0, "status"), "has not reached")
	})
	approved(c, one)
	until(t, "no process that sends notices is left", func() bool { return w.child("--model") == 0 })
	w.search(t, topicKey, hookKey)
	w.policy("")
	until(t, "their sockets are gone", func() bool {
		left, _ := filepath.Glob(filepath.Join(w.run, "inspect", "*.sock"))
		return len(left) == 0
	})
}
