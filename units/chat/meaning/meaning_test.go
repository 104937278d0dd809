package meaning

import (
	"encoding/base64"
	"encoding/hex"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/pfar/pfar/units/control"
)

// Secrets of tests, put together so that no scanner of the repository takes them for real ones.
var (
	notionToken = "ntn" + "_26501193847aB3dEfGhIjKlMnOpQrStUvWxYz0123456789"
	githubToken = "ghp" + "_0aB1cD2eF3gH4iJ5kL6mN7oP8qR9sT0uV1wX"
	slackToken  = "xoxb" + "-2048-4096-aB3dEfGhIjKlMnOp"
	plainToken  = "4f1c0de9aa27b36d58e0" // of a service whose tokens have no form
)

var (
	wantsNotion = Situation{
		Wanted: &control.Wanted{Key: "notion_token", Prefixes: []string{"ntn_", "secret_"}}, Formed: true, Known: known,
	}
	wantsPlain = Situation{Wanted: &control.Wanted{Key: "plain_key"}, Known: known}
	nothing    = Situation{Known: known}
	unknown    = Situation{Unknown: true, Known: known}
	checking   = Situation{UnderWay: true, Formed: true, Known: known}
)

func known(service string) bool {
	return service == "notion" || service == "github" || service == "slack"
}

// apart writes something between each few characters of a text.
func apart(text, between string, every int) string {
	var b strings.Builder
	for i := 0; i < len(text); i += every {
		if i > 0 {
			b.WriteString(between)
		}
		b.WriteString(text[i:min(i+every, len(text))])
	}
	return b.String()
}

// disguises are ways in which a secret comes into a conversation by mistake.
func disguises(token string) map[string]string {
	return map[string]string{
		"alone":                         token,
		"blanks around":                 " \t" + token + "\n\n",
		"capital letters":               strings.ToUpper(token),
		"small letters":                 strings.ToLower(token),
		"double quotes":                 `"` + token + `"`,
		"single quotes":                 "'" + token + "'",
		"typographic quotes":            "“" + token + "”",
		"guillemets":                    "« " + token + " »",
		"code marks":                    "`" + token + "`",
		"a code block":                  "```\n" + token + "\n```",
		"a code block of a language":    "```text\n" + token + "\n```",
		"a code block in one line":      "```" + token + "```",
		"a spoiler":                     "||" + token + "||",
		"angle brackets":                "<" + token + ">",
		"words before":                  "here is my token: " + token,
		"words after":                   token + " is the token",
		"words around":                  "use " + token + " for it, please",
		"a full stop":                   "my token is " + token + ".",
		"words and code marks":          "it is `" + token + "`, thanks",
		"words on other lines":          "hello\n" + token + "\nthanks",
		"a variable":                    "NOTION_TOKEN=" + token,
		"a variable that is exported":   "export API_TOKEN=\"" + token + "\"",
		"a header":                      "Authorization: Bearer " + token,
		"a query":                       "https://api.example.com/v1?token=" + token,
		"JSON":                          `{"token": "` + token + `"}`,
		"two lines":                     apart(token, "\n", len(token)/2+1),
		"three lines":                   apart(token, "\n  ", len(token)/3+1),
		"lines of Windows":              apart(token, "\r\n", len(token)/2+1),
		"blanks between groups":         apart(token, " ", 4),
		"a blank between characters":    apart(token, " ", 1),
		"no-break spaces":               apart(token, "\u00a0", 6),
		"zero-width spaces":             apart(token, "\u200b", 3),
		"zero-width joiners":            apart(token, "\u200d", 3),
		"zero-width non-joiners":        apart(token, "\u200c", 1),
		"word joiners":                  apart(token, "\u2060", 2),
		"soft hyphens":                  apart(token, "\u00ad", 5),
		"a byte order mark":             "\ufeff" + token,
		"overrides of the direction":    "\u202e" + token + "\u202c",
		"tags":                          token + "\U000e0041",
		"variation selectors":           apart(token, "\ufe0f", 4),
		"wide letters":                  wide(token),
		"wide letters in a sentence":    "it is " + wide(token),
		"zero-width, words, quotes":     "it is \"" + apart(token, "\u200b", 2) + "\"",
		"a command":                     "connect " + token,
		"a command with another word":   "add token " + token,
		"twice":                         token + " " + token,
		"behind a word that cancels":    "cancel " + token,
		"behind a yes":                  "yes " + token,
		"a question":                    "why does " + token + " not work?",
		"a long question":               strings.Repeat("please help me with this. ", 700) + token,
		"a mark of a line of a message": "> " + token,
		"a list":                        "- " + token,
		"bytes that are not UTF-8":      "\xff " + token,
	}
}

func wide(text string) string {
	return strings.Map(func(r rune) rune {
		if r > ' ' && r < 0x7f {
			return r + 0xfee0
		}
		return r
	}, text)
}

// TestSecretsGoNowhere: however a secret comes, it is for the set-up that waits, or it is withheld. It is never a
// question, a name or an answer.
func TestSecretsGoNowhere(t *testing.T) {
	for name, c := range map[string]struct {
		token string
		in    Situation
	}{
		"a set-up waits for it":                       {notionToken, wantsNotion},
		"a set-up waits for another service's":        {githubToken, wantsNotion},
		"a set-up waits for one that has no form":     {plainToken, wantsPlain},
		"a set-up waits, and another has no form":     {plainToken, wantsNotion},
		"nothing waits":                               {notionToken, nothing},
		"nothing waits, another service":              {githubToken, nothing},
		"nothing waits, a third service":              {slackToken, nothing},
		"whether one waits is not known":              {notionToken, unknown},
		"whether one waits is not known, and no form": {plainToken, unknown},
	} {
		for how, text := range disguises(c.token) {
			is := Of(text, c.in)
			if is.Kind != Withheld && is.Kind != Token {
				t.Errorf("%s: %s: kind %d, %q", name, how, is.Kind, text)
			}
			if is.Kind == Token && (c.in.Wanted == nil || strings.ContainsAny(is.Value, " \n\u200b\u200d\"'`")) {
				t.Errorf("%s: %s: the secret %q is taken", name, how, is.Value)
			}
		}
	}
}

// TestEncodedSecretsGoNowhere: the inspector undoes encodings of tokens that have a form.
func TestEncodedSecretsGoNowhere(t *testing.T) {
	for _, in := range []Situation{wantsNotion, nothing, unknown} {
		for _, text := range []string{
			base64.StdEncoding.EncodeToString([]byte(githubToken)), hex.EncodeToString([]byte(githubToken)),
			"the key is " + base64.StdEncoding.EncodeToString([]byte("token: "+githubToken)),
			"-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAA\n-----END OPENSSH PRIVATE KEY-----",
			"https://me:hunter2hunter2@example.com/x",
		} {
			if is := Of(text, in); is.Kind != Withheld && (is.Kind != Token || in.Wanted == nil) {
				t.Errorf("%q: kind %d", text, is.Kind)
			}
		}
	}
}

// TestLinesOfASecret: where each line is a message, no line of a secret is a question while a set-up may wait.
func TestLinesOfASecret(t *testing.T) {
	for _, token := range []string{notionToken, githubToken, plainToken} {
		for _, in := range []Situation{wantsNotion, wantsPlain, unknown} {
			for line := range strings.Lines(apart(token, "\n", 10)) {
				if is := Of(line, in); len(line) > leastBody && is.Kind != Withheld && is.Kind != Token {
					t.Errorf("%q: kind %d", line, is.Kind)
				}
			}
		}
	}
}

// TestZero: nothing is known of a message that nobody has looked at, and it goes nowhere.
func TestZero(t *testing.T) {
	if (Meaning{}).Kind != Withheld {
		t.Error("the zero value is not withheld")
	}
	if is := Of(githubToken, Situation{}); is.Kind != Withheld {
		t.Errorf("without a catalogue: %+v", is)
	}
	if is := Of("connect notion", Situation{}); is.Kind != Connect {
		t.Errorf("without a catalogue: %+v", is)
	}
}

// passwords are secrets that nothing tells from other words, in the ways in which they come into a conversation.
func passwords() []string {
	return []string{
		"hunter2", "swordfish", "12345678", "p@ss!w#rd$", "päßwörtchen", "x", "yes", "notion", "Tr0ub4",
		"abcd efgh ijkl mnop", "correct horse battery staple", "pass: swordfish", "connect swordfish", "cancel swordfish",
		"> <@pfar:home.test> postgres needs postgres_password.\n\nswordfish", "first line of it\nsecond line of it",
		"swordfish\xff", "\u200bswordfish", "the password is swordfish, thanks", "what is new?",
	}
}

// TestPasswords: while a set-up may take a secret that has no form, nothing is a question. One word is the secret.
func TestPasswords(t *testing.T) {
	over := Situation{UnderWay: true, Known: known}
	for _, text := range passwords() {
		word := utf8.ValidString(text) && !strings.Contains(text, " ")
		for _, in := range []Situation{wantsPlain, over, unknown} {
			want := Meaning{}
			if word && in.Wanted != nil {
				want = Meaning{Kind: Token, Value: strings.Trim(text, "\u200b")}
			}
			if is := Of(text, in); is != want {
				t.Errorf("%q, waits %v: %+v, want %+v", text, in.Wanted != nil, is, want)
			}
		}
	}
}

// TestHidden: at a hidden prompt the line is the secret, unless it is empty, cancels, or nothing waits by now.
func TestHidden(t *testing.T) {
	for text, want := range map[string]Meaning{
		"":                       {Kind: Empty},
		" Cancel ":               {Kind: Cancel, Value: "cancel"},
		"\xff":                   {},
		" correct horse \n":      {Kind: Token, Value: "correct horse"},
		"connect notion":         {Kind: Token, Value: "connect notion"},
		"what is new in it?":     {Kind: Token, Value: "what is new in it?"},
		"`p a s s`":              {Kind: Token, Value: "`p a s s`"},
		"`" + notionToken + "`":  {Kind: Token, Value: notionToken},
		githubToken + " is mine": {Kind: Token, Value: githubToken + " is mine"},
	} {
		in := wantsNotion
		in.Hidden = true
		if is := Of(text, in); is != want {
			t.Errorf("%q: %+v, want %+v", text, is, want)
		}
		in.Wanted = nil
		if is := Of(text, in); is.Kind != Withheld && want.Kind != Empty && want.Kind != Cancel {
			t.Errorf("%q, and nothing waits: %+v", text, is)
		}
	}
}

// TestFormedSetUp: while the form of all secrets is known, only three words or more are a question, of which none may
// be a part of a secret. Nothing but the form makes a secret.
func TestFormedSetUp(t *testing.T) {
	for _, text := range []string{
		"hunter2", "notion", "correct horse", "hunter2 - !", "https://example.com/how-do-I-get-one", "/home/ada/notes.txt",
		"hmmmmmmmmmmmmmmmm", "qwertzuiopasdfghjkl", "abcdefgh-ijklmnop-qrstuvwx", "is it antidisestablishmentarianism maybe?",
		"my key: 9f8e7d6c5b4a39281706f5e4d3c2b1a0", "here it is 9f8e7d6c5b4a39281706f5e4d3c2b1a0 ok",
		"it begins with aB3dEfGh I think", "it begins with 26501193 I think", "add milk", "connect swordfish", githubToken,
	} {
		for _, in := range []Situation{wantsNotion, checking} {
			if is := Of(text, in); is != (Meaning{}) {
				t.Errorf("%q, waits %v: %+v", text, in.Wanted != nil, is)
			}
		}
	}
	for _, in := range []Situation{wantsNotion, checking} {
		for text, kind := range map[string]Kind{
			"what is new?": Question, "where do I find it?": Question, "no": No, "Yes": Yes, "connect github": Connect,
		} {
			if is := Of(text, in); is.Kind != kind {
				t.Errorf("%q, waits %v: %+v", text, in.Wanted != nil, is)
			}
		}
	}
}

// TestConnectSecret: a name that nobody knows may be a secret.
func TestConnectSecret(t *testing.T) {
	for _, text := range []string{
		"connect 9f8e7d6c5b4a39281706f5e4d3c2b1a0", "set up 9f8e7d6c5b4a39281706f5e4d3c2b1a0",
		"add qwertzuiopasdfghjklyxcvbnm", "set  up abc123def456abc123def456", "enable 4b1de9aa",
	} {
		if is := Of(text, nothing); is != (Meaning{}) {
			t.Errorf("%q: %+v", text, is)
		}
	}
}

// TestOf is what messages are where they hold no secret, and where a set-up takes one.
func TestOf(t *testing.T) {
	long := strings.Repeat("word ", MaxQuestion/5)
	for _, c := range []struct {
		text string
		in   Situation
		want Meaning
	}{
		// For the set-up.
		{notionToken, wantsNotion, Meaning{Kind: Token, Value: notionToken}},
		{" `" + notionToken + "`\n", wantsNotion, Meaning{Kind: Token, Value: notionToken}},
		{"```sh\n" + notionToken + "\n```", wantsNotion, Meaning{Kind: Token, Value: notionToken}},
		{apart(notionToken, "\u200b", 7), wantsNotion, Meaning{Kind: Token, Value: notionToken}},
		{plainToken, wantsPlain, Meaning{Kind: Token, Value: plainToken}},
		{"internationalization", wantsPlain, Meaning{Kind: Token, Value: "internationalization"}},
		{"ntn_short", wantsNotion, Meaning{Kind: Token, Value: "ntn_short"}},

		// Words that cancel do so in any case, whatever waits.
		{"cancel", wantsNotion, Meaning{Kind: Cancel, Value: "cancel"}},
		{" NeverMind ", wantsNotion, Meaning{Kind: Cancel, Value: "nevermind"}},
		{"SKIP", wantsPlain, Meaning{Kind: Cancel, Value: "skip"}},
		{"cancel", nothing, Meaning{Kind: Cancel, Value: "cancel"}},
		{"Cancel", unknown, Meaning{Kind: Cancel, Value: "cancel"}},

		// A verb and a name. A name alone is none.
		{"connect notion", nothing, Meaning{Kind: Connect, Service: "notion"}},
		{"Set up GitHub", nothing, Meaning{Kind: Connect, Service: "github"}},
		{"set  up\tslack", wantsNotion, Meaning{Kind: Connect, Service: "slack"}},
		{"enable my_tool", nothing, Meaning{Kind: Connect, Service: "my_tool"}},
		{"notion", nothing, Meaning{Kind: Question, Value: "notion"}},
		{"add milk to the list", nothing, Meaning{Kind: Question, Value: "add milk to the list"}},
		{"connect notion and github", nothing, Meaning{Kind: Question, Value: "connect notion and github"}},
		{"please connect notion", nothing, Meaning{Kind: Question, Value: "please connect notion"}},

		// Answers.
		{"yes", nothing, Meaning{Kind: Yes}}, {" Y\n", nothing, Meaning{Kind: Yes}}, {"YES", wantsNotion, Meaning{Kind: Yes}},
		{"no", nothing, Meaning{Kind: No}}, {"N", nothing, Meaning{Kind: No}},
		{"yes please", nothing, Meaning{Kind: Question, Value: "yes please"}},

		// Questions, also while a set-up waits.
		{"what does it need the token for?", wantsNotion, Meaning{Kind: Question, Value: "what does it need the token for?"}},
		{"where do I find the ntn_ token?", wantsNotion, Meaning{Kind: Question, Value: "where do I find the ntn_ token?"}},
		{"what is new in acme/site?", nothing, Meaning{Kind: Question, Value: "what is new in acme/site?"}},
		{"is https://example.com/docs/page-7 right?", nothing,
			Meaning{Kind: Question, Value: "is https://example.com/docs/page-7 right?"}},
		{"https://example.com/docs/page-7", nothing, Meaning{Kind: Question, Value: "https://example.com/docs/page-7"}},
		{"what changed in 3f786850e387550fdab836ed7e6dc881de23001b?", nothing,
			Meaning{Kind: Question, Value: "what changed in 3f786850e387550fdab836ed7e6dc881de23001b?"}},
		{"how do I make a ghp_ token in 2026?", nothing,
			Meaning{Kind: Question, Value: "how do I make a ghp_ token in 2026?"}},
		{"patience is a virtue, asia is a continent", nothing,
			Meaning{Kind: Question, Value: "patience is a virtue, asia is a continent"}},
		{"internationalization", nothing, Meaning{Kind: Question, Value: "internationalization"}},
		{"wie geht es dir, Straße?", nothing, Meaning{Kind: Question, Value: "wie geht es dir, Straße?"}},

		// Nothing to do anything with.
		{"", nothing, Meaning{Kind: Empty}}, {" \n\u200b", wantsNotion, Meaning{Kind: Empty}},
		{"``", nothing, Meaning{Kind: Empty}},
		{"\xff \xfe", nothing, Meaning{Kind: Unfit}}, {long + long, nothing, Meaning{Kind: Unfit}},
		{"connect notion", unknown, Meaning{Kind: Unsure}},
	} {
		if is := Of(c.text, c.in); is != c.want {
			t.Errorf("%.60q, %+v:\n is %+v\nwant %+v", c.text, c.in.Wanted, is, c.want)
		}
	}
}

// FuzzOf: a message with a token in it is for the set-up that waits, or withheld, whatever stands around the token.
// Without one its kind has the parts that it is to have.
func FuzzOf(f *testing.F) {
	for _, s := range []string{"", "here it is: ", "```\n", "connect ", "\u200b", "yes\n", "\xff", "> ", "skip ", "<"} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		for _, in := range []Situation{wantsNotion, wantsPlain, checking, nothing, unknown} {
			if is := Of(before+" "+githubToken+" "+after, in); is.Kind != Withheld && is.Kind != Token {
				t.Errorf("%q, %q: kind %d", before, after, is.Kind)
			}
			is := Of(before+after, in)
			if is.Kind == Question && in.formless() {
				t.Errorf("%q is a question, and a secret of any form may come", before+after)
			}
			if is.Kind == Token && (in.Wanted == nil || is.Value == "") || is.Kind == Connect && is.Service == "" ||
				is.Kind == Question && (is.Value == "" || len(is.Value) > MaxQuestion) || is.Kind != Token && is.Kind != Cancel &&
				is.Kind != Question && is.Value != "" {
				t.Errorf("%q: %+v", before+after, is)
			}
		}
	})
}
