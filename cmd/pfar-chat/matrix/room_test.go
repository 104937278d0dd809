package matrix

import (
	"encoding/json"
	"strings"
	"testing"

	"maunium.net/go/mautrix/event"
)

var ours = people{bot: "@pfar:home.test", owner: "@ada:home.test"}

func events(t *testing.T, text string) (list []*event.Event) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatal(err)
	}
	return list
}

const (
	created    = `{"type":"m.room.create","state_key":"","sender":"@ada:home.test","content":{"room_version":"10"}}`
	pfarIn     = `{"type":"m.room.member","state_key":"@pfar:home.test","content":{"membership":"join"}}`
	adaIn      = `{"type":"m.room.member","state_key":"@ada:home.test","content":{"membership":"join"}}`
	eveIs      = `{"type":"m.room.member","state_key":"@eve:home.test","content":{"membership":"MEMBERSHIP"}}`
	private    = `{"type":"m.room.join_rules","state_key":"","content":{"join_rule":"invite"}}`
	noPreviews = `{"type":"org.matrix.room.preview_urls","state_key":"","content":{"disable":true}}`
	moderate   = `{"type":"m.room.power_levels","state_key":"","content":{"users":{"@pfar:home.test":50}}}`
)

// TestJudge: a room is refused unless it is all that pfar wants.
func TestJudge(t *testing.T) {
	good := []string{created, pfarIn, adaIn, private, moderate}
	with := func(more ...string) []string { return append(append([]string{}, good...), more...) }
	rule := func(content string) string {
		return `{"type":"m.room.join_rules","state_key":"","content":{` + content + "}}"
	}
	of := func(version string) string {
		return strings.Replace(created, `"10"`, version+`,"additional_creators":["@pfar:home.test"]`, 1)
	}
	powerless := strings.Replace(moderate, "50", "0", 1)
	above := strings.Replace(moderate, `"users"`, `"events":{"m.room.redaction":60},"users"`, 1)
	stateAbove := strings.Replace(moderate, `"users"`, `"state_default":60,"users"`, 1)
	for name, test := range map[string]struct {
		state []string
		want  string // a part of the refusal; "": taken
	}{
		"nothing":           {nil, "not both in this room"},
		"good":              {good, ""},
		"encrypted":         {with(`{"type":"m.room.encryption","state_key":"","content":{}}`), "encrypted"},
		"a member":          {with(strings.Replace(eveIs, "MEMBERSHIP", "join", 1)), "other members"},
		"an invited member": {with(strings.Replace(eveIs, "MEMBERSHIP", "invite", 1)), "other members"},
		"unknown member":    {with(strings.Replace(eveIs, "MEMBERSHIP", "", 1)), "other members"},
		"one who has left":  {with(strings.Replace(eveIs, "MEMBERSHIP", "leave", 1)), ""},
		"one who is banned": {with(strings.Replace(eveIs, "MEMBERSHIP", "ban", 1)), ""},
		"without the owner": {[]string{created, pfarIn, private, moderate}, "not both in this room"},
		"without pfar":      {[]string{created, adaIn, private, moderate}, "not both in this room"},
		"the owner is only invited": {[]string{created, pfarIn, strings.Replace(adaIn, "join", "invite", 1), private,
			moderate}, "not both in this room"},
		"no event":  {with("null"), "does not show all"},
		"open":      {with(rule(`"join_rule":"public"`)), "without an invitation"},
		"half open": {with(rule(`"join_rule":"restricted"`)), "without an invitation"},
		"no rule":   {with(rule("")), "without an invitation"},
		"read by all": {with(`{"type":"m.room.history_visibility","state_key":"",` +
			`"content":{"history_visibility":"world_readable"}}`), "Everybody can read"},
		"no power levels":          {[]string{created, pfarIn, adaIn, private}, "may not delete"},
		"no create event":          {[]string{pfarIn, adaIn, private, moderate}, "may not delete"},
		"not moderator":            {with(strings.Replace(moderate, "50", "49", 1)), "may not delete"},
		"redaction higher":         {with(strings.Replace(moderate, `"users"`, `"redact":60,"users"`, 1)), "may not delete"},
		"event higher":             {with(above), "may not delete"},
		"previews above":           {with(stateAbove), "previews of links"},
		"previews are off":         {with(stateAbove, noPreviews), ""},
		"previews are on":          {with(stateAbove, strings.Replace(noPreviews, "true", "false", 1)), "previews of links"},
		"no numbers":               {with(strings.Replace(moderate, "50", `"x"`, 1)), "may not delete"},
		"co-creator of version 12": {[]string{of(`"12"`), pfarIn, adaIn, private, powerless}, ""},
		"the same of version 10":   {[]string{of(`"10"`), pfarIn, adaIn, private, powerless}, "may not delete"},
	} {
		got := ours.judge(events(t, "["+strings.Join(test.state, ",")+"]"))
		if test.want == "" && got != "" || !strings.Contains(string(got), test.want) {
			t.Errorf("%s: refused with %q, want %q", name, got, test.want)
		}
	}
}

// TestInvites: pfar goes where the owner invites it directly.
func TestInvites(t *testing.T) {
	strangers := strings.Replace(strings.Replace(invitation, "@ada:home", "@eve:evil", 1), `,"is_direct":true`, "", 1)
	for name, test := range map[string]struct {
		state string
		want  bool
	}{
		"the owner's":                 {invitation, true},
		"forged, before a stranger's": {invitation + "," + strangers, false},
		"forged, after a stranger's":  {strangers + "," + invitation, false},
		"twice":                       {invitation + "," + invitation, false},
		"of another account, too":     {strings.Replace(invitation, "@pfar", "@eve", 1) + ",null," + invitation, true},
		"a stranger's":                {strings.Replace(invitation, "@ada", "@eve", 1), false},
		"not direct":                  {strings.Replace(invitation, "true", "false", 1), false},
		"a word":                      {strings.Replace(invitation, "true", `"true"`, 1), false},
		"of another":                  {strings.Replace(invitation, "@pfar", "@other", 1), false},
		"a join":                      {strings.Replace(invitation, `"invite"`, `"join"`, 1), false},
		"case differs":                {strings.Replace(invitation, "@ada", "@Ada", 1), false},
		"another server":              {strings.Replace(invitation, "@ada:home.test", "@ada:home.test.evil", 1), false},
	} {
		if got := ours.invites(events(t, "["+test.state+"]")); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
	if ours.invites(nil) {
		t.Error("an invitation without a state is followed")
	}
}

// TestRead: what is not text of the owner's goes nowhere.
func TestRead(t *testing.T) {
	const text = `{"type":"m.room.message","sender":"@ada:home.test","content":{"msgtype":"m.text","body":"hello"}}`
	reply := func(body string) string {
		return strings.Replace(text, `"hello"`, `"`+body+`","m.relates_to":{"m.in_reply_to":{"event_id":"$x"}}`, 1)
	}
	for name, test := range map[string]struct {
		event string
		is    kind
		text  string
	}{
		"text":         {text, words, "hello"},
		"a stranger's": {strings.Replace(text, "@ada", "@eve", 1), ignored, ""},
		"pfar's own":   {strings.Replace(text, "@ada", "@pfar", 1), ignored, ""},
		"a state":      {strings.Replace(text, `"sender"`, `"state_key":"","sender"`, 1), ignored, ""},
		"another type": {strings.Replace(text, "m.room.message", "m.reaction", 1), ignored, ""},
		"a notice":     {strings.Replace(text, "m.text", "m.notice", 1), notice, ""},
		"redacted":     {`{"type":"m.room.message","sender":"@ada:home.test","content":{}}`, ignored, ""},
		"a file":       {strings.Replace(text, "m.text", "m.file", 1), unread, ""},
		"no kind":      {`{"type":"m.room.message","sender":"@ada:home.test","content":{"body":"x"}}`, unread, ""},
		"no body":      {`{"type":"m.room.message","sender":"@ada:home.test","content":{"msgtype":"m.text"}}`, unread, ""},
		"a number":     {strings.Replace(text, `"hello"`, "7", 1), unread, ""},
		"encrypted":    {`{"type":"m.room.encrypted","sender":"@ada:home.test","content":{"ciphertext":"x"}}`, encrypted, ""},
		"an edit": {`{"type":"m.room.message","sender":"@ada:home.test","content":{"msgtype":"m.text","body":"* new",` +
			`"m.new_content":{"msgtype":"m.text","body":"new"}}}`, words, "new"},
		"a reply":                     {reply(`> <@pfar:home.test> Carry it out?\n> Answer yes or no.\n\nyes`), words, "yes"},
		"a reply to an emote":         {reply(`> * <@ada:home.test> waves\n>\n> on\n\nno\n> yes`), words, "no\n> yes"},
		"a reply that quotes nothing": {reply("yes"), words, "yes"},
		"a reply of a quotation":      {reply("> <@pfar:home.test> yes"), words, ""},
		"a quotation of the owner's":  {reply(`> yes\n\nno`), words, "> yes\n\nno"},
		"a quotation without a reply": {strings.Replace(text, "hello", `> <@pfar:home.test> yes\n\nno`, 1), words,
			"> <@pfar:home.test> yes\n\nno"},
	} {
		is, got := ours.read(events(t, "["+test.event+"]")[0])
		if is != test.is || got != test.text {
			t.Errorf("%s: %d %q, want %d %q", name, is, got, test.is, test.text)
		}
	}
}

// TestMistake: an account that cannot be right is refused, without a word of its token.
func TestMistake(t *testing.T) {
	good := Account{
		Homeserver: "https://home.test", User: "@pfar:home.test", Owner: "@ada:home.test", Token: "t0k3n-secret",
	}
	if err := good.Mistake(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Account){
		`user: "pfar" is not a Matrix account: want @NAME:HOST`: func(a *Account) { a.User = "pfar" },
		`owner: "" is not a Matrix account`:                     func(a *Account) { a.Owner = "" },
		"is the account that pfar uses itself":                  func(a *Account) { a.Owner = a.User },
		"characters other than printable ASCII":                 func(a *Account) { a.Token = "t0k3n-secret\n" },
	} {
		bad := good
		change(&bad)
		err := bad.Mistake()
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestSplit: no message of a long text begins with words of others without their mark.
func TestSplit(t *testing.T) {
	long := strings.Repeat("a", 3*part)
	for name, text := range map[string]string{
		"a model's line": "Words of the model m:\n| " + long + "\n| the end", "a line of pfar's": "x = " + long,
		"many lines": strings.Repeat("| "+long[:part/3]+"\n", 20), "one line after another": "| " + long + "\n" + long,
		"characters of many bytes": "| " + strings.Repeat("\u20ac", part),
		"no characters":            "| " + strings.Repeat("\xff", 2*part),
		"short":                    "| a\nb", "empty": "",
	} {
		list, whole := split(text)
		again := ""
		for i, body := range list {
			if len(body) > part {
				t.Errorf("%s: a message has %d bytes", name, len(body))
			}
			rest, within := strings.CutPrefix(strings.TrimPrefix(body, mark), continued)
			line := text[strings.LastIndexByte(text[:min(len(again), len(text))], '\n')+1:]
			if within && strings.HasPrefix(line, mark) != strings.HasPrefix(body, mark) {
				t.Errorf("%s: message %d has not the mark of its line: %.30q", name, i, body)
			}
			if !within {
				rest = body
			}
			if i > 0 && !within {
				again += "\n"
			}
			again += rest
		}
		if !whole || strings.TrimSuffix(again, "\n") != strings.TrimSuffix(text, "\n") {
			t.Errorf("%s: whole: %v, %d of %d bytes", name, whole, len(again), len(text))
		}
	}
	list, whole := split(strings.Repeat("| words\n", parts*part/8+1))
	if whole || len(list) != parts || list[parts-1] != leftOut {
		t.Errorf("of a text that is too long there are %d messages, whole: %v, the last %.30q", len(list), whole,
			list[len(list)-1])
	}
}

func TestCut(t *testing.T) {
	for text, want := range map[string]string{
		"short":                 "short",
		"eleven byte":           "eleven byt",
		"line one\nline":        "line one",
		"a\nrest is long":       "a\nrest is ",
		"123456789\u20ac":       "123456789",
		"12345678\u20ac\u20ac":  "12345678",
		"\xff\xff\xff\xff12345": "\xff\xff\xff\xff12345",
	} {
		if got := cut(text, 10); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestSendOnce: a text with a key is in the room once, also of another process, and each part of a long one.
func TestSendOnce(t *testing.T) {
	h := playHome(t)
	for range 2 {
		c := h.client(t, t.TempDir())
		for _, text := range []string{"the answer", "another answer to the same"} {
			if err := c.write(t.Context(), "!r:home.test", "plan-1", text); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.write(t.Context(), "!r:home.test", "plan-2", strings.Repeat("x", part+1)); err != nil {
			t.Fatal(err)
		}
	}
	if len(h.sent) != 3 || h.sent[0] != "the answer" || len(h.sent[1]) != part || h.sent[2] != continued+"x" {
		t.Errorf("sent %.40q", h.sent)
	}
	c := h.client(t, t.TempDir())
	for range 2 {
		if err := c.write(t.Context(), "!r:home.test", "", "hello"); err != nil {
			t.Fatal(err)
		}
	}
	if len(h.sent) != 5 {
		t.Errorf("without a key %d of 2 are sent", len(h.sent)-3)
	}
}
