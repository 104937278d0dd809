package meaning

import (
	"encoding/base64"
	"encoding/hex"
	"strings"
	"testing"

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
		Wanted: &control.Wanted{Key: "notion_token", Prefixes: []string{"ntn_", "secret_"}}, Known: known,
	}
	wantsPlain = Situation{Wanted: &control.Wanted{Key: "plain_key"}, Known: known}
	nothing    = Situation{Known: known}
	unknown    = Situation{Unknown: true, Known: known}
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
		{"notion", wantsNotion, Meaning{Kind: Question, Value: "notion"}},
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
		{"what is new?", unknown, Meaning{Kind: Unsure}}, {"connect notion", unknown, Meaning{Kind: Unsure}},
		{"yes", unknown, Meaning{Kind: Unsure}},
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
		for _, in := range []Situation{wantsNotion, nothing, unknown} {
			if is := Of(before+" "+githubToken+" "+after, in); is.Kind != Withheld && is.Kind != Token {
				t.Errorf("%q, %q: kind %d", before, after, is.Kind)
			}
			is := Of(before+after, in)
			if is.Kind == Token && (in.Wanted == nil || is.Value == "") || is.Kind == Connect && is.Service == "" ||
				is.Kind == Question && (is.Value == "" || len(is.Value) > MaxQuestion) || is.Kind != Token && is.Kind != Cancel &&
				is.Kind != Question && is.Value != "" {
				t.Errorf("%q: %+v", before+after, is)
			}
		}
	})
}
