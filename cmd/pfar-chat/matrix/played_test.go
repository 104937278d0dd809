package matrix

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// played is a homeserver that answers as a test wants it, and notes what it is asked.
type played struct {
	*httptest.Server

	mu      sync.Mutex
	answers map[string]string // by "METHOD path"; a number is a status; else the usual answer
	asked   []string          // "METHOD path", without the base of the API
	queries []url.Values
	said    []string // "ROOM text"
	refuse  string   // what begins so gets 403; "": nothing

	came chan struct{} // has something when there was a request
}

// A secret, and a room of the owner's.
const (
	xoxb    = "xoxb-1234567890-abcdefghijkl"
	ownRoom = "!r:home.test"
)

var goodRoom = "[" + strings.Join([]string{created, pfarIn, adaIn, private, moderate}, ",") + "]"

// textOf is an event of the owner's with a text.
func textOf(message, text string) string {
	return contentOf(message, fmt.Sprintf(`{"msgtype":"m.text","body":%q}`, text))
}

func contentOf(message, content string) string {
	return fmt.Sprintf(`{"event_id":%q,"type":"m.room.message","sender":"@ada:home.test","content":%s}`, message, content)
}

func playedHome(t *testing.T, answers map[string]string) *played {
	t.Helper()
	p := &played{answers: answers, came: make(chan struct{}, 1)}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

func (p *played) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case p.came <- struct{}{}:
	default: // it has
	}
	body, _ := io.ReadAll(r.Body)
	line := r.Method + " " + strings.TrimPrefix(r.URL.Path, "/_matrix/client/v3/")
	p.asked, p.queries = append(p.asked, line), append(p.queries, r.URL.Query())
	room, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/_matrix/client/v3/rooms/"), "/")
	answer, is := p.answers[line]
	if !is {
		switch {
		case strings.HasSuffix(line, "/whoami"):
			answer = `{"user_id":"@pfar:home.test"}`
		case strings.HasSuffix(line, "/enabled"):
			answer = `{"enabled":true}`
		case rest == "state":
			answer = goodRoom
		case strings.HasPrefix(rest, "redact/"):
			answer = `{"event_id":"$r"}`
			p.answers["GET rooms/"+room+"/event/"+strings.Split(rest, "/")[1]] = "404"
		case strings.HasPrefix(rest, "send/"):
			answer = `{"event_id":"$s"}`
		default:
			answer = "{}"
		}
	}
	if p.refuse != "" && strings.HasPrefix(line, p.refuse) {
		answer = "403"
	}
	var status int
	if _, err := fmt.Sscanf(answer, "%d", &status); err == nil {
		w.WriteHeader(status)
		code := map[int]string{404: "M_NOT_FOUND", 403: "M_FORBIDDEN"}[status]
		answer = fmt.Sprintf(`{"errcode":%q,"error":"I saw %s"}`, code, xoxb)
	} else if strings.HasPrefix(rest, "send/") {
		var content struct{ Body string }
		_ = json.Unmarshal(body, &content)
		p.said = append(p.said, room+" "+content.Body)
	}
	fmt.Fprint(w, answer)
}

// client is one whose notifications are off.
func (p *played) client(t *testing.T, state string) *Client {
	t.Helper()
	c, err := New(Config{
		Account: Account{Homeserver: p.URL, User: "@pfar:home.test", Owner: "@ada:home.test", Token: "t0k3n"},
		HTTP:    &http.Client{}, State: state, Pause: time.Microsecond, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// requests are those that begin with a method and a path.
func (p *played) requests(begin string) (list []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.asked {
		if strings.HasPrefix(one, begin) {
			list = append(list, one)
		}
	}
	return list
}

// told is what the owner reads in a room.
func (p *played) told(room string) (list []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.said {
		if in, text, _ := strings.Cut(one, " "); in == room {
			list = append(list, text)
		}
	}
	return list
}

// change is a record on the disk before a test.
func change(t *testing.T, c *Client, edit func(*record)) {
	t.Helper()
	if err := c.progress.change(edit); err != nil {
		t.Fatal(err)
	}
}

// waits are the messages that are not done.
func waits(c *Client) (list []string) {
	for _, w := range c.progress.now().Waiting {
		list = append(list, string(w.ID))
	}
	slices.Sort(list)
	return list
}

// answerWith is an answer of a homeserver to a request for news.
func answerWith(next, kind string, rooms map[string]string) string {
	var list []string
	for name, one := range rooms {
		list = append(list, fmt.Sprintf("%q:%s", name, one))
	}
	return fmt.Sprintf(`{"next_batch":%q,"rooms":{%q:{%s}}}`, next, kind, strings.Join(list, ","))
}

const invitation = `{"type":"m.room.member","sender":"@ada:home.test","state_key":"@pfar:home.test",` +
	`"content":{"membership":"invite","is_direct":true}}`
