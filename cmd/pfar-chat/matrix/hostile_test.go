package matrix

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/pfar/pfar/units/chat"
)

// with is a room's state with one event more, or another one in the place of one.
func with(event string) string { return strings.TrimSuffix(goodRoom, "]") + "," + event + "]" }

// TestForgedRooms: a room that a stranger has brought pfar into by a forged invitation is left at once, with no word
// there, and does not count. So is one with others.
func TestForgedRooms(t *testing.T) {
	invite := map[string]string{}
	answers := map[string]string{}
	eve := strings.Replace(eveIs, "MEMBERSHIP", "join", 1)
	for n := range maxRooms {
		room := fmt.Sprintf("!e%d:evil.test", n)
		invite[room] = `{"invite_state":{"events":[` + invitation + `]}}`
		answers["GET rooms/"+room+"/state"] = "[" + strings.Join([]string{created, pfarIn, eve, private, moderate}, ",") + "]"
	}
	answers["GET rooms/!e0:evil.test/state"] = "500"
	answers["GET rooms/!e1:evil.test/state"] = strings.Replace(with(eve), `"join"`, `"invite"`, 2) // nobody has joined
	invite["!others:home.test"] = invite["!e0:evil.test"]
	answers["GET rooms/!others:home.test/state"] = with(eve)
	invite["!two:evil.test"] = `{"invite_state":{"events":[` + invitation + `,` + invitation + `]}}`
	answers["GET sync"] = answerWith("s1", "invite", invite)
	p := playedHome(t, answers)
	c := p.client(t, t.TempDir())
	if err := c.sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if list := c.Rooms(); len(list) > 0 {
		t.Errorf("%d rooms are kept", len(list))
	}
	for name, want := range map[string]int{
		"!e0:evil.test": 0, "!e1:evil.test": 0, "!e2:evil.test": 0, "!others:home.test": 1,
	} {
		if told := p.told(name); len(told) != want {
			t.Errorf("in %s pfar says %q", name, told)
		}
		for _, way := range []string{"/join", "/leave", "/forget"} {
			if len(p.requests("POST rooms/"+name+way)) != 1 {
				t.Errorf("no request %s for %s", way, name)
			}
		}
	}
	if len(p.requests("POST rooms/!two:evil.test")) > 0 {
		t.Error("an invitation that is there twice is followed")
	}
	p.answers["GET sync"] = answerWith("s2", "invite", map[string]string{ownRoom: invite["!e0:evil.test"]})
	if err := c.sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(c.Rooms(), " "); got != ownRoom || c.progress.now().Home != ownRoom {
		t.Errorf("after strangers' rooms pfar is in %q, want the owner's", got)
	}
}

// TestEndsAmidJoining: after a crash between joining and looking, the next process looks.
func TestEndsAmidJoining(t *testing.T) {
	eve := strings.Replace(eveIs, "MEMBERSHIP", "join", 1)
	p := playedHome(t, map[string]string{
		"GET sync":                     `{"next_batch":"s1"}`,
		"GET rooms/!e:evil.test/state": with(eve), "GET rooms/!gone:evil.test/state": "403",
	})
	c := p.client(t, t.TempDir())
	change(t, c, func(r *record) {
		r.Next, r.Rooms["!e:evil.test"], r.Rooms[ownRoom] = "s0", room{New: true}, room{New: true}
		r.Rooms["!gone:evil.test"] = room{New: true}
	})
	if err := c.sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	now := c.progress.now()
	if len(now.Rooms) != 1 || now.Rooms[ownRoom].New || len(p.requests("POST rooms/!e:evil.test/leave")) != 1 {
		t.Errorf("kept are %v, asked was %q", now.Rooms, p.requests("POST"))
	}
}

// TestAside: a room or a message about which the homeserver always fails is set aside, the owner is told once, and the
// chat goes on.
func TestAside(t *testing.T) {
	for name, test := range map[string]struct {
		bad  string
		told string // words that the owner reads once, in whichever room
	}{
		"a room cannot be joined":  {"POST rooms/!bad:x/join", "could not join that room"},
		"nor looked into":          {"GET rooms/!bad:x/state", "could not join that room"},
		"a message cannot be read": {"GET rooms/" + ownRoom + "/event/$bad", "leaves out a message"},
		"its room not looked into": {"GET rooms/!old:x/state", "leaves out a message"},
		"nor calmed":               {"PUT rooms/!old:x/state/org.matrix.room.preview_urls/", "leaves out a message"},
		"older messages":           {"GET rooms/!old:x/messages", "does not show all messages"},
	} {
		for _, failure := range []string{"502", "500", "401", "302", `[1]`} {
			if failure == "[1]" && strings.HasPrefix(test.bad, "PUT ") {
				continue // nobody reads that answer
			}
			t.Run(name+" "+failure, func(t *testing.T) {
				old := `{"timeline":{"limited":true,"prev_batch":"p","events":[` + textOf("$old", "old") + `]}}`
				news := answerWith("s1", "join", map[string]string{
					ownRoom:  `{"timeline":{"events":[` + textOf("$bad", "x") + "," + textOf("$good", "hi") + `]}}`,
					"!old:x": old,
				})
				news = strings.TrimSuffix(news, "}}") + `,"invite":{"!bad:x":{"invite_state":{"events":[` + invitation + `]}}}}}`
				p := playedHome(t, map[string]string{
					"GET sync": news, test.bad: failure,
					"GET rooms/" + ownRoom + "/event/$good": textOf("$good", "hi"),
					"GET rooms/" + ownRoom + "/event/$bad":  textOf("$bad", "x"),
					"GET rooms/!old:x/event/$old":           textOf("$old", "old"),
				})
				p.answers[test.bad] = failure
				c := p.client(t, t.TempDir())
				change(t, c, func(r *record) {
					r.Next, r.Home, r.Rooms[ownRoom], r.Rooms["!old:x"] = "s0", ownRoom, room{Seen: "$0"}, room{Seen: "$0"}
				})
				c.quiet.Store(true)
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				err := c.Run(ctx, func(_ context.Context, m chat.Message) error {
					if m.Text == "hi" {
						p.mu.Lock()
						p.answers["GET sync"] = `{"next_batch":"s2"}`
						p.mu.Unlock()
					}
					if len(c.progress.now().Waiting) == 1 { // the last one
						stop()
					}
					return nil
				})
				if err != context.Canceled {
					t.Fatal(err)
				}
				told := 0
				for _, one := range p.said {
					if strings.Contains(one, test.told) {
						told++
					}
					if strings.Contains(one, xoxb) {
						t.Errorf("pfar says the homeserver's words: %s", one)
					}
				}
				if tried := len(p.requests(test.bad)); told != 1 || tried > 3*tries {
					t.Errorf("told %d times, tried %d times: %q", told, tried, p.said)
				}
			})
		}
	}
}
