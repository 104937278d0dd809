package remote

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

var quiet = log.New(io.Discard, "", 0)

func TestMain(m *testing.M) {
	log.SetOutput(io.Discard) // as the program does
	m.Run()
}

// TestSession: the server is told its session and revision with everything, and that the session is over.
func TestSession(t *testing.T) {
	h := &honest{t: t, session: "abc-1"}
	h.call = func(w http.ResponseWriter, r *http.Request, m received) {
		for name, want := range map[string]string{
			"Mcp-Session-Id": "abc-1", "Mcp-Protocol-Version": "2025-11-25", "Content-Type": "application/json",
			"Accept": "application/json, text/event-stream", "Authorization": "Bearer placeholder-1234", "Mcp-Method": "",
			"Accept-Encoding": "identity", "Cookie": "",
		} {
			if got := r.Header.Get(name); got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
		w.Header().Set("Set-Cookie", "a=b")
		asJSON(w, "{\"jsonrpc\":\"2.0\",\n \"id\":%s,\r\n\"result\":{\"x\":1.0,  \"y\":\"\\u00e9\"}}\n", m.ID)
	}
	const calls = 8
	inWorld(t, place{handler: h, token: "placeholder-1234"}, func(t *testing.T, w *world) {
		w.begin()
		for id := 2; id < 2+calls; id++ {
			w.send(call, id)
			w.want(fmt.Sprintf(`{"jsonrpc":"2.0",  "id":%d,  "result":{"x":1.0,  "y":"\u00e9"}} `, id))
		}
		synctest.Wait()
		w.dials.mu.Lock()
		defer w.dials.mu.Unlock()
		// One for the requests, one for the stream, and one that http.Transport may dial while another becomes free.
		if n := len(w.dials.asked); n > 3 {
			t.Errorf("%d connections were made for %d requests", n, 3+calls)
		}
	})
	want := []string{"initialize ", "notifications/initialized abc-1", "GET "}
	want = append(want, slices.Repeat([]string{"tools/call abc-1"}, calls)...)
	want = append(want, "DELETE abc-1")
	got := h.noted()
	slices.Sort(got[2 : len(got)-1]) // the stream is opened while calls are under way
	if !slices.Equal(got, want) {
		t.Errorf("the server has heard %q, want %q", got, want)
	}
}

// TestTransportIsOurs: the server does not say by which transport it was found, and what else is in _meta stays.
func TestTransportIsOurs(t *testing.T) {
	h := &honest{t: t}
	h.other = func(w http.ResponseWriter, _ *http.Request, m received) bool {
		if m.Method == "initialize" {
			asJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{},`+
				`"_meta":{"PFAR/transport":"sse","a":[1],"pfar/transport":"sse"}}}`, m.ID)
		}
		return m.Method == "initialize"
	}
	inWorld(t, place{handler: h}, func(t *testing.T, w *world) {
		w.send(initialize)
		w.want(`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{},` +
			`"_meta":{"a":[1],"pfar/transport":"stream-http"}}}`)
	})
}

// TestAnswerOnStream: notifications and questions go out before the answer, and the answer is the message with our id.
func TestAnswerOnStream(t *testing.T) {
	replied := make(chan received, 1)
	h := &honest{t: t}
	h.call = func(w http.ResponseWriter, r *http.Request, m received) {
		asStream(w)
		event(w, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}`)
		event(w, `{"jsonrpc":"2.0","id":"q","method":"sampling/createMessage","params":{}}`)
		reply := <-replied
		event(w, `{"jsonrpc":"2.0","id":%s,"result":{"said":%s}}`, m.ID, reply.Result)
	}
	h.other = func(w http.ResponseWriter, r *http.Request, m received) bool {
		if m.Method == "" {
			replied <- m
		}
		return false
	}
	inWorld(t, place{handler: h}, func(t *testing.T, w *world) {
		w.begin()
		w.send(call, 2)
		w.want(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}`)
		w.want(`{"jsonrpc":"2.0","id":"q","method":"sampling/createMessage","params":{}}`)
		w.send(`{"jsonrpc":"2.0","id":"q","result":{"model":"m"}}`)
		w.want(`{"jsonrpc":"2.0","id":2,"result":{"said":{"model":"m"}}}`)
	})
}

// TestAnswerElsewhere: an answer may come on the session's own stream.
func TestAnswerElsewhere(t *testing.T) {
	ids := make(chan string, 1)
	open := make(chan bool)
	h := &honest{t: t}
	h.get = func(w http.ResponseWriter, r *http.Request) {
		asStream(w)
		close(open)
		event(w, answer, <-waitFor(r, ids))
		<-r.Context().Done()
	}
	h.call = func(w http.ResponseWriter, r *http.Request, m received) {
		w.WriteHeader(http.StatusAccepted)
		ids <- string(m.ID)
	}
	inWorld(t, place{handler: h}, func(t *testing.T, w *world) {
		open, ids = make(chan bool), make(chan string, 1)
		w.begin()
		<-open
		synctest.Wait()
		w.send(call, 2)
		w.want(fmt.Sprintf(answer, 2))
	})
}

// waitFor makes the id a number that a format can take.
func waitFor(r *http.Request, ids chan string) chan int {
	out := make(chan int, 1)
	select {
	case id := <-ids:
		var n int
		fmt.Sscan(id, &n)
		out <- n
	case <-r.Context().Done():
		out <- 0
	}
	return out
}

// TestCancelled: the gateway's cancellation reaches the server, and ends the response that is waited for.
func TestCancelled(t *testing.T) {
	h := &honest{t: t}
	h.call = func(w http.ResponseWriter, r *http.Request, m received) {
		asStream(w)
		<-r.Context().Done()
		h.note("left")
	}
	inWorld(t, place{handler: h}, func(t *testing.T, w *world) {
		w.begin()
		w.send(call, 2)
		synctest.Wait()
		w.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2,"reason":"x"}}`)
		w.silent(time.Minute)
		for _, want := range []string{"notifications/cancelled ", "left"} {
			if !slices.Contains(h.noted(), want) {
				t.Errorf("the server has heard %q, and not %q", h.noted(), want)
			}
		}
	})
}
