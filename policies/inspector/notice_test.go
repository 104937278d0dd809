package inspector

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestNoticeDeclared(t *testing.T) {
	hook := External{Name: "phone", URL: "https://hooks.example.com/x", Role: Role{Notice: &Notice{}}}
	e, err := hook.Declared()
	if err != nil || e.Notice.Format != Webhook || e.Notice.Every != time.Minute || e.Timeout == 0 || e.Parallel != 1 {
		t.Errorf("%+v, %+v, %v", e, e.Notice, err)
	}
	if *hook.Notice != (Notice{}) {
		t.Errorf("defaults were written into what was given: %+v", hook.Notice)
	}
	b, err := json.Marshal(e)
	var again External
	if err == nil {
		err = json.Unmarshal(b, &again)
	}
	if err != nil || !reflect.DeepEqual(e, again) {
		t.Errorf("%s became %+v, %v", b, again, err)
	}
	with := func(f func(*External)) External {
		e := hook
		e.Notice = &Notice{}
		f(&e)
		return e
	}
	inChat := func(f func(*External)) External {
		e := External{Name: "phone", Role: Role{Notice: &Notice{Chat: "matrix"}}}
		f(&e)
		return e
	}
	for _, good := range []External{
		inChat(func(*External) {}),
		with(func(e *External) { e.URL, e.Notice.Format = "https://ntfy.example.com/topic", Ntfy }),
		with(func(e *External) { e.URL, e.Notice.Format = "http://127.0.0.1:8080/topic", Ntfy }),
		with(func(e *External) { e.URL, e.Key = "https://hooks.example.com/services/{key}", "vault:hook" }),
		with(func(e *External) { e.Notice.Every = time.Hour }),
	} {
		if _, err := good.Declared(); err != nil {
			t.Errorf("%+v: %v", good, err)
		}
	}
	for want, e := range map[string]External{
		"neither url nor chat":               with(func(e *External) { e.URL = "" }),
		"url stands beside chat":             inChat(func(e *External) { e.URL = "https://hooks.example.com/x" }),
		"format stands beside chat":          inChat(func(e *External) { e.Notice.Format = Ntfy }),
		"key stands beside chat":             inChat(func(e *External) { e.Key = "vault:k" }),
		"allow_private stands beside chat":   inChat(func(e *External) { e.AllowPrivate = []string{"10.0.0.1"} }),
		`chat "../x" is not the name`:        inChat(func(e *External) { e.Notice.Chat = "../x" }),
		"want https":                         with(func(e *External) { e.URL = "http://hooks.example.com/x" }),
		"in place of localhost":              with(func(e *External) { e.URL = "http://localhost:1/x" }),
		"without a user name and a password": with(func(e *External) { e.URL = "https://me:secret@hooks.test/" }),
		"url must be an address":             with(func(e *External) { e.URL, e.Key = "https://{key}.test/", "vault:k" }),
		"url has {key}, and there is no key": with(func(e *External) { e.URL = "https://hooks.example.com/{key}" }),
		"url has no topic":                   with(func(e *External) { e.URL, e.Notice.Format = "https://ntfy.test/", Ntfy }),
		"not the key itself":                 with(func(e *External) { e.Key = "tk_1234" }),
		`format "fax" is not one of`:         with(func(e *External) { e.Notice.Format = "fax" }),
		"every 10ms: want":                   with(func(e *External) { e.Notice.Every = 10 * time.Millisecond }),
		"every 2h0m0s: want":                 with(func(e *External) { e.Notice.Every = 2 * time.Hour }),
		"timeout 10m":                        with(func(e *External) { e.Timeout = 10 * time.Minute }),
		"neither exec nor model":             with(func(e *External) { e.Exec = []string{"/bin/sh"} }),
		`"A" is not a name`:                  with(func(e *External) { e.Name = "A" }),
		"allow_private ":                     with(func(e *External) { e.AllowPrivate = []string{"x"} }),
	} {
		if _, err := e.Declared(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", e, err, want)
		}
	}
}

// TestNoticeSays: a notice counts the calls and names the first ones, and no name of a stranger's reads as more.
func TestNoticeSays(t *testing.T) {
	one := Waiting{Count: 1, Calls: []WaitingCall{{"laptop", "mail", "send", "irreversible", ""}}}
	if one.Title() != "pfar: a call waits for approval" || one.Text() != "laptop calls mail.send (irreversible)" {
		t.Errorf("%q, %q", one.Title(), one.Text())
	}
	more := Waiting{Count: 9, Calls: []WaitingCall{
		{"laptop", "mail", "", "none", ""}, {"desk", "notes", "add", "reversible", ""},
	}}
	if want := "laptop calls mail (only reads)\ndesk calls notes.add (reversible)\nand 7 more"; more.Text() != want ||
		more.Title() != "pfar: 9 calls wait for approval" {
		t.Errorf("%q, %q", more.Title(), more.Text())
	}
	const link = "https://pfar.test:7443/call/id"
	one.Calls[0].Link, more.Calls[1].Link = link, link
	if one.Link() != link || one.Text() != "laptop calls mail.send (irreversible)\n"+link {
		t.Errorf("with a link: %q, %q", one.Link(), one.Text())
	}
	if more.Link() != "" || !strings.Contains(more.Text(), "desk calls notes.add (reversible)\n"+link+"\nand 7 more") {
		t.Errorf("several with a link: %q, %q", more.Link(), more.Text())
	}
	for name, want := range map[string]string{
		"send_email-2": "send_email-2", "": "", "evil.example": "", "a/b": "", "send\nnow": "", "sénd": "",
		"call 911 now":          "",
		strings.Repeat("a", 65): "", strings.Repeat("a", 64): strings.Repeat("a", 64),
	} {
		if got := PlainName(name); got != want {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
	}
}

func TestNoticeAddress(t *testing.T) {
	for _, c := range []struct {
		url, key, want string
		bearer         bool
	}{
		{"https://h/x", "", "https://h/x", false},
		{"https://h/x", "k", "https://h/x", true},
		{"https://h/{key}?a={key}", "k/..?&=", "https://h/k%2F..%3F%26%3D?a=k%2F..%3F%26%3D", false},
	} {
		if got, bearer := (External{URL: c.url}).Address(c.key); got != c.want || bearer != c.bearer {
			t.Errorf("%+v: %q, %t", c, got, bearer)
		}
	}
}
