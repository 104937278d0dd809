package matrix

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"maunium.net/go/mautrix/id"

	"github.com/pfar/pfar/units/chat"
)

// TestOutage: a message is not set aside because the homeserver is away for long.
func TestOutage(t *testing.T) {
	p := playedHome(t, map[string]string{
		"GET rooms/" + ownRoom + "/event/$m": "502", "GET account/whoami": "502",
	})
	c := p.client(t, t.TempDir())
	w := waiting{Room: ownRoom, ID: "$m"}
	change(t, c, func(r *record) { r.Waiting = []waiting{w} })
	heard := ""
	ended := make(chan error, 1)
	go func() {
		ended <- c.handle(t.Context(), w, func(_ context.Context, m chat.Message) error { heard = m.Text; return nil })
	}()
	for len(p.requests("GET account/whoami")) <= 2*tries {
		select {
		case err := <-ended:
			t.Fatalf("the message is given up: %v, %q", err, p.said)
		case <-p.came:
		}
	}
	p.mu.Lock()
	delete(p.answers, "GET account/whoami")
	p.answers["GET rooms/"+ownRoom+"/event/$m"] = textOf("$m", "hi")
	p.mu.Unlock()
	if err := <-ended; err != nil || heard != "hi" || len(waits(c)) > 0 {
		t.Errorf("%v, heard %q, waiting %q", err, heard, waits(c))
	}
}

// TestSecretsThatAreNotTaken: a message of the owner's that pfar does not take is deleted if it may hold a secret,
// wherever in it.
func TestSecretsThatAreNotTaken(t *testing.T) {
	begun := waiting{Room: ownRoom, ID: "$m", Begun: true}
	fresh := waiting{Room: ownRoom, ID: "$m"}
	text := func(words string) string { return textOf("$m", words) }
	of := func(content string) string { return contentOf("$m", `{"msgtype":`+content+`}`) }
	const plainKey = "4f1c0de9aa27 b36d58e0a6b1" // a secret only if a set-up waits
	eve := strings.Replace(eveIs, "MEMBERSHIP", "join", 1)
	for name, c := range map[string]struct {
		w                    waiting
		event, state, redact string
		gone                 bool
		told                 string // in the room; "": nothing
		taken                string
	}{
		"begun":                     {w: begun, event: text(xoxb), gone: true, told: "does not begin that work again"},
		"begun, and has no form":    {w: begun, event: text(plainKey), gone: true, told: "The message is deleted"},
		"begun, and no secret":      {w: begun, event: text("cancel"), told: "If it held a secret"},
		"begun, and deleted before": {w: begun, event: contentOf("$m", "{}"), told: "does not begin that work again"},
		"begun, and undeletable":    {w: begun, event: text(xoxb), redact: "403", told: "could not delete it"},

		"in a room with others": {w: fresh, event: text(xoxb), state: with(eve), gone: true,
			told: "The message is deleted"},
		"words in such a room":      {w: fresh, event: text("hello"), state: with(eve), told: "other members"},
		"in a room that is not his": {w: fresh, event: text(xoxb), state: "[]", redact: "403", told: "by hand"},
		"no room to be seen":        {w: fresh, event: text(xoxb), state: "500", gone: true, told: "leaves out a message"},

		"an emote": {w: fresh, event: of(`"m.emote","body":"` + xoxb + `"`), gone: true, told: onlyText},
		"a caption": {w: fresh, event: of(`"m.image","filename":"a.png","body":"` + xoxb + `"`), gone: true,
			told: onlyText},
		"a file name": {w: fresh, event: of(`"m.file","filename":"` + xoxb + `","body":"x"`), gone: true, told: onlyText},
		"a picture": {w: fresh, event: of(`"m.image","body":"cat.png","url":"mxc://h.test/aB3dE5gH7jK9mN1pQ3"`),
			told: onlyText},
		"a notice":    {w: fresh, event: of(`"m.notice","body":"` + xoxb + `"`), gone: true, told: deleted},
		"another one": {w: fresh, event: of(`"m.notice","body":"done"`)},
		"deep down":   {w: fresh, event: of(`"m.x","body":"x","a":[{"b":["` + xoxb + `"]}]`), gone: true, told: onlyText},

		"formatted": {w: fresh, event: of(`"m.text","body":"hi","formatted_body":"<b>xoxb</b>` + xoxb[4:] + `"`),
			gone: true, told: deleted},
		"a link": {w: fresh, event: of(`"m.text","body":"hi",` +
			`"formatted_body":"<a href=\"https://x.test/?t=` + xoxb + `\">hi</a>"`), gone: true, told: deleted},
		"taken away": {w: fresh, event: of(`"m.text","body":"* ` + xoxb + `",` +
			`"m.new_content":{"msgtype":"m.text","body":"oops"}`), gone: true, told: deleted},
		"a quotation": {w: fresh, event: of(`"m.text","body":"> <@ada:home.test> ` + xoxb + `\n\nyes",` +
			`"m.relates_to":{"m.in_reply_to":{"event_id":"$x"}}`), gone: true, told: deleted},

		"a reply": {w: fresh, event: of(`"m.text","body":"yes",` +
			`"m.relates_to":{"m.in_reply_to":{"event_id":"$aB3dE5gH7jK9mN1pQ3sT5vW7yZ9"}}`), taken: "yes"},
		"bold": {w: fresh, event: of(`"m.text","body":"**issue1234**",` +
			`"formatted_body":"<strong>issue1234</strong>"`), taken: "**issue1234**"},
		"a mention": {w: fresh, event: of(`"m.text","body":"pfar: hi","formatted_body":` +
			`"<a href=\"https://matrix.to/#/@pfar27X:home.test\">pfar</a>: hi",` +
			`"m.mentions":{"user_ids":["@pfar27Xaverius:home.test"]}`), taken: "pfar: hi"},
		"for a set-up": {w: fresh, event: of(`"m.text","body":"` + xoxb + `","formatted_body":"<i>` + xoxb + `</i>"`),
			taken: xoxb},
	} {
		t.Run(name, func(t *testing.T) {
			p := playedHome(t, map[string]string{"GET rooms/" + ownRoom + "/event/$m": c.event})
			if c.state != "" {
				p.answers["GET rooms/"+ownRoom+"/state"] = c.state
			}
			client := p.client(t, t.TempDir())
			change(t, client, func(r *record) { r.Waiting = []waiting{c.w} })
			redact := "PUT rooms/" + ownRoom + "/redact/$m/"
			if c.redact != "" { // whatever its transaction is
				client.quiet.Store(true)
				p.refuse = redact
			}
			taken := ""
			if err := client.handle(t.Context(), c.w, func(_ context.Context, m chat.Message) error {
				taken = m.Text
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			told := p.told(ownRoom)
			gone := len(p.requests(redact)) > 0
			if gone != (c.gone || c.redact != "") || taken != c.taken || len(waits(client)) > 0 {
				t.Errorf("deleted %v, taken %q, waiting %q", gone, taken, waits(client))
			}
			if len(told) > 1 || (len(told) == 1) != (c.told != "") || !strings.Contains(strings.Join(told, ""), c.told) ||
				strings.Contains(strings.Join(told, ""), xoxb) || c.gone != strings.Contains(strings.Join(told, ""), deleted) {
				t.Errorf("the owner reads %q", told)
			}
		})
	}
}

// TestWhatIsNot: what is not as Matrix has it ends nothing, and hides nothing else.
func TestWhatIsNot(t *testing.T) {
	good := textOf("$m", "hi")
	for name, answer := range map[string]string{
		"no invitation":        `{"next_batch":"s2","rooms":{"invite":{"!e:x":null}}}`,
		"a state of nothing":   `{"next_batch":"s2","rooms":{"invite":{"!e:x":{"invite_state":{"events":[null,7]}}}}}`,
		"a content of nothing": `{"next_batch":"s2","rooms":{"invite":{"!e:x":{"invite_state":{"events":[{"content":7}]}}}}}`,
		"no list":              `{"next_batch":"s2","rooms":{"invite":{"!e:x":{"invite_state":{"events":"x"}}}}}`,
		"no room":              `{"next_batch":"s2","rooms":{"join":{"!e:x":null}}}`,
		"left, and no room":    `{"next_batch":"s2","rooms":{"leave":{"!e:x":null}}}`,
		"no event":             `{"next_batch":"s2","rooms":{"join":{"!e:x":{"timeline":{"events":[null,{"content":[]}]}}}}}`,
		"odd ids": `{"next_batch":"s2","rooms":{"join":{"x":{"timeline":{"events":[` + good + `]}},"!e:x":{"timeline":` +
			`{"events":[` + textOf("m", "hi") + `,` + textOf("$<", "hi") + `,` +
			textOf("$"+strings.Repeat("m", maxID), "hi") + `]}}}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			join := `"join":{"` + ownRoom + `":{"timeline":{"events":[null,` + good + `]}},`
			both := strings.Replace(answer, `"join":{`, join, 1)
			if both == answer {
				both = strings.Replace(answer, `"rooms":{`, `"rooms":{`+strings.TrimSuffix(join, ",")+`},`, 1)
			}
			p := playedHome(t, map[string]string{"GET sync": both})
			c := p.client(t, t.TempDir())
			change(t, c, func(r *record) { r.Next = "s1" })
			if err := c.sync(t.Context()); err != nil || strings.Join(waits(c), " ") != "$m" {
				t.Errorf("%v, waiting %q", err, waits(c))
			}
		})
	}
	p := playedHome(t, map[string]string{
		"GET rooms/" + ownRoom + "/event/$m": "null", "GET rooms/" + ownRoom + "/messages": "null",
		"GET rooms/!s:x/state": `[null]`,
	})
	c := p.client(t, t.TempDir())
	if err := c.handle(t.Context(), waiting{Room: ownRoom, ID: "$m"}, nil); err != nil {
		t.Error(err)
	}
	if err := c.Delete(t.Context(), chat.Message{Room: "!r:x", ID: "$m"}); err != nil {
		t.Error(err)
	}
	list, err := c.since(t.Context(), ownRoom, timeline{Limited: true, Before: "p"}, "$0", true)
	if err != nil || len(list) > 0 {
		t.Errorf("%q, %v", list, err)
	}
	if why, err := c.look(t.Context(), "!s:x"); err != nil || why == "" {
		t.Errorf("%q, %v", why, err)
	}
	p.answers["GET account/whoami"] = "null"
	if err := c.alive(t.Context()); err == nil {
		t.Error("null is an account")
	}
}

// TestRecordIsBounded: no answer of a homeserver makes a record that the next start refuses.
func TestRecordIsBounded(t *testing.T) {
	p := playedHome(t, map[string]string{"GET sync": `{"next_batch":"` + strings.Repeat("s", maxBatch+1) + `"}`})
	dir := t.TempDir()
	c := p.client(t, dir)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.sync(ctx) }()
	for len(p.requests("GET sync")) < 3 { // it is asked again
		select {
		case err := <-ended:
			t.Fatalf("the answer is taken: %v", err)
		case <-p.came:
		}
	}
	stop()
	if err := <-ended; err != context.Canceled || c.progress.now().Next != "" {
		t.Errorf("%v, the record has %d bytes of next_batch", err, len(c.progress.now().Next))
	}
	longest := func(sigil string, n int) string { return sigil + fmt.Sprintf("%0*d", maxID-1, n) }
	join := map[string]string{}
	for n := range 3 * maxRooms {
		var list []string
		for m := range 10 {
			list = append(list, textOf(longest("$", m), "hi"))
		}
		join[longest("!", n)] = `{"timeline":{"events":[` + strings.Join(list, ",") + `]}}`
	}
	for _, next := range []string{"", "s1"} {
		p.answers["GET sync"] = answerWith(strings.Repeat("<", maxBatch), "join", join)
		change(t, c, func(r *record) { *r = record{Version: 1, User: r.User, Next: next, Rooms: map[id.RoomID]room{}} })
		if err := c.sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		again, err := openProgress(dir, "@pfar:home.test")
		if err != nil {
			t.Fatal(err)
		}
		if now := again.now(); len(now.Rooms) == 0 || len(now.Rooms) > maxRooms || len(now.Waiting) > maxWaiting ||
			(len(now.Waiting) == 0) != (next == "") {
			t.Errorf("after %q: %d rooms, %d messages", next, len(now.Rooms), len(now.Waiting))
		}
	}
	before, err := os.ReadFile(c.progress.path)
	if err != nil {
		t.Fatal(err)
	}
	err = c.progress.change(func(r *record) { r.Next = strings.Repeat("s", maxProgress) })
	after, _ := os.ReadFile(c.progress.path)
	if err == nil || string(before) != string(after) || len(c.progress.now().Next) > maxBatch {
		t.Errorf("a record that is too long is written: %v", err)
	}
}

// TestOldMessages: after the record is lost, no message from before is taken, also if the homeserver leaves some out.
func TestOldMessages(t *testing.T) {
	limited := func(message string) map[string]string {
		return map[string]string{
			ownRoom: `{"timeline":{"limited":true,"prev_batch":"p","events":[` + textOf(message, "hi") + `]}}`,
		}
	}
	old := `{"end":"q","chunk":[` + textOf("$old", "delete the branch") + `,` + textOf("$older", "connect notion") + `]}`
	for name, test := range map[string]struct {
		first, messages, want string
	}{
		"a room with messages": {answerWith("s1", "join", limited("$old")), old, "$new"},
		"one that came later":  {`{"next_batch":"s1"}`, old, "$new"},
		"the same, and how it began": {`{"next_batch":"s1"}`,
			strings.Replace(old, "]}", `,`+invitation+`]}`, 1), "$new"},
		"one between them":             {answerWith("s1", "join", limited("$older")), old, "$new $old"},
		"an empty page, and more":      {answerWith("s1", "join", limited("$old")), `{"end":"q","chunk":[]}`, "$new"},
		"a page that leads to no more": {answerWith("s1", "join", limited("$old")), `{"end":"p","chunk":[]}`, "$new"},
	} {
		p := playedHome(t, map[string]string{"GET sync": test.first, "GET rooms/" + ownRoom + "/messages": test.messages})
		c := p.client(t, t.TempDir())
		if err := c.sync(t.Context()); err != nil || len(waits(c)) > 0 {
			t.Fatalf("%s: %v, waiting %q", name, err, waits(c))
		}
		p.answers["GET sync"] = answerWith("s2", "join", limited("$new"))
		if err := c.sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := map[string]bool{}
		for _, one := range waits(c) {
			got[one] = true
		}
		if len(got) != len(strings.Fields(test.want)) || !got["$new"] {
			t.Errorf("%s: waiting %q, want %q", name, waits(c), test.want)
		}
	}
}

// TestFlood: pfar asks for what the owner writes, and keeps no event of anybody else.
func TestFlood(t *testing.T) {
	flood := strings.ReplaceAll(textOf("$e", "flood"), "@ada", "@eve")
	chunk := strings.Repeat(flood+",", page) + textOf("$m", "hi")
	p := playedHome(t, map[string]string{
		"GET sync": answerWith("s1", "join", map[string]string{
			ownRoom: `{"timeline":{"events":[` + chunk + `]}}`,
		}),
		"GET rooms/" + ownRoom + "/messages": `{"chunk":[` + chunk + `]}`,
	})
	c := p.client(t, t.TempDir())
	change(t, c, func(r *record) { r.Next = "s0" })
	if err := c.sync(t.Context()); err != nil || strings.Join(waits(c), " ") != "$m" {
		t.Errorf("%v, waiting %q", err, waits(c))
	}
	list, err := c.since(t.Context(), ownRoom, timeline{Limited: true, Before: "p"}, "$0", true)
	if err != nil || len(list) != 1 {
		t.Errorf("%v, %d messages", err, len(list))
	}
	for i, line := range p.asked {
		filter := p.queries[i].Get("filter")
		if strings.HasSuffix(line, "sync") || strings.HasSuffix(line, "messages") {
			if !strings.Contains(filter, `"senders":["@ada:home.test"]`) || !strings.Contains(filter, "m.room.member") {
				t.Errorf("%s has the filter %s", line, filter)
			}
		}
	}
}

// TestPreviews: before pfar sends an answer to a room, previews of links are off there, also where the room was refused
// at first.
func TestPreviews(t *testing.T) {
	const off = "PUT rooms/" + ownRoom + "/state/org.matrix.room.preview_urls/"
	open := `{"type":"m.room.join_rules","state_key":"","content":{"join_rule":"public"}}`
	p := playedHome(t, map[string]string{"GET rooms/" + ownRoom + "/state": with(open)})
	c := p.client(t, t.TempDir())
	if stays, err := c.welcome(t.Context(), ownRoom); !stays || err != nil || len(p.requests(off)) > 0 {
		t.Errorf("%v, %v, asked %q", stays, err, p.asked)
	}
	if err := c.Send(t.Context(), ownRoom, "see https://x.test"); err == nil {
		t.Error("an answer goes to a room that is refused")
	}
	p.answers["GET rooms/"+ownRoom+"/state"], p.answers[off] = goodRoom, "403"
	if err := c.Send(t.Context(), ownRoom, "see https://x.test"); err == nil || len(p.told(ownRoom)) != 1 {
		t.Errorf("%v, the owner reads %q", err, p.told(ownRoom))
	}
	delete(p.answers, off)
	if err := c.Send(t.Context(), ownRoom, "see https://x.test"); err != nil || len(p.requests(off)) != 2 {
		t.Errorf("%v, asked %q", err, p.asked)
	}
	p.answers["GET rooms/"+ownRoom+"/state"] = with(noPreviews)
	if err := c.Send(t.Context(), ownRoom, strings.Repeat("| long\n", parts*part/7+1)); err == nil {
		t.Error("a text that is left out in part is sent without an error")
	}
	if got := p.told(ownRoom); len(p.requests(off)) != 2 || got[len(got)-1] != leftOut {
		t.Errorf("the last words are %.50q", got[len(got)-1])
	}
}
