// Package page is what pfard and the process of a one-time page say to each other about it: what the page shows, and
// what a person has done there.
//
// A one-time page takes one secret, or a yes, for one set-up. pfard knows the set-up and parses no HTTP; the process
// (pfar-setup) parses HTTP and knows only what is here.
package page

import (
	"crypto/rand"
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/policies/visible"
)

const (
	MaxTask  = 64 << 10 // bytes of a Task in JSON
	MaxValue = 16 << 10 // bytes of a secret that a person enters
	maxText  = 1 << 10  // bytes of one text
	maxItems = 64       // of one list
)

// Task is one page. Of all that is in it, only Nonce is secret: who has it may answer for the person.
type Task struct {
	Nonce string `json:"nonce"`
	Port  uint16 `json:"port,omitempty"` // of 127.0.0.1 (egress.IsPagePort); 0: any that is free

	Title   string   `json:"title"`             // of the service, in words
	Server  string   `json:"server"`            // the name that it is to have
	Asker   string   `json:"asker,omitempty"`   // the client whose model began it; "": a person at a terminal did
	Program string   `json:"program,omitempty"` // that will run: "npm:NAME@VERSION"
	Remote  string   `json:"remote,omitempty"`  // in place of Program: where the server runs, which nobody here confines
	Sees    []string `json:"sees,omitempty"`    // files and folders
	Reaches []string `json:"reaches,omitempty"` // hosts
	Holds   []string `json:"holds,omitempty"`   // secrets, by what they are called
	State   State    `json:"state"`             // at the beginning
}

// State is how far the set-up has come.
type State struct {
	Phase  Phase   `json:"phase"`
	Words  string  `json:"words,omitempty"`  // what is being done, or what the service or pfar has said
	Left   int     `json:"left,omitempty"`   // of Waiting: values that may still be tried
	Wanted *Wanted `json:"wanted,omitempty"` // of Waiting; nil: nothing but a yes
	Device *Device `json:"device,omitempty"` // of SigningIn

	Deadline time.Time `json:"deadline,omitzero"` // of Waiting and SigningIn: until when
	Tools    int       `json:"tools,omitempty"`   // of Done
	Tested   bool      `json:"tested,omitempty"`  // of Done: a call has shown that the secret is right
}

// Phase is what a page is for at the moment. The zero value is none: such a page shows nothing and takes nothing.
type Phase string

const (
	Waiting   Phase = "waiting"    // for the person
	SigningIn Phase = "signing-in" // for the person, who is to enter a code on a page of the provider
	Working   Phase = "working"
	Done      Phase = "done"
	Failed    Phase = "failed"
)

// Over reports whether nothing comes after it.
func (p Phase) Over() bool { return p == Done || p == Failed }

// Wanted is the secret that a person is to enter.
type Wanted struct {
	Key      string   `json:"key,omitempty"`   // of the vault, by which pfard knows it again
	Name     string   `json:"name"`            // what it is called: "NOTION_TOKEN"
	Where    string   `json:"where,omitempty"` // how a person gets one, in words
	URL      string   `json:"url,omitempty"`   // the page for that
	Scopes   []string `json:"scopes,omitempty"`
	Optional bool     `json:"optional,omitempty"`
	SignIn   bool     `json:"sign_in,omitempty"` // a sign-in with a code can get it
}

// Device is a sign-in with a code (RFC 8628): the person enters Code at URL, on any device.
type Device struct {
	URL      string    `json:"url"`
	Complete string    `json:"complete,omitempty"` // the same with the code in it
	Code     string    `json:"code"`
	Until    time.Time `json:"until,omitzero"` // the code is good
}

// Act is what a person does on a page. The zero value is nothing.
type Act string

const (
	Enter  Act = "enter"  // the value that comes with it; without a Wanted, a yes
	Skip   Act = "skip"   // an optional secret
	Cancel Act = "cancel" // the set-up

	SignIn Act = "sign-in" // begin a sign-in with a code, where Wanted offers one
	GiveUp Act = "give-up" // the sign-in: the secret is entered instead
)

// NewNonce returns 130 random bits in 26 letters and digits, which are themselves in a URL.
func NewNonce() string { return rand.Text() }

// LinkTime is how long a link to a console is good.
const LinkTime = 10 * time.Minute

// minNonce is how long a nonce is at least: 128 bits in base32.
const minNonce = 26

// Path is that of a page's URL. It says nothing of the service: browsers show and keep addresses.
func Path(nonce string) string { return "/" + nonce }

// Link is the URL of a page that listens on that port.
func Link(nonce string, port uint16) string {
	return fmt.Sprintf("http://127.0.0.1:%d%s", port, Path(nonce))
}

// Check says why a page cannot be made of a task.
func (t Task) Check() error {
	switch {
	case len(t.Nonce) < minNonce || strings.Trim(t.Nonce, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") != "":
		return fmt.Errorf("the nonce is not %d letters and digits", minNonce)
	case t.Port != 0 && !egress.IsPagePort(t.Port):
		return fmt.Errorf("the port %d is not from %d to %d", t.Port, egress.FirstPagePort, egress.LastPagePort)
	case t.Title == "" || t.Server == "":
		return fmt.Errorf("the task names no service")
	case t.State.Phase == "":
		return fmt.Errorf("the task has no phase")
	}
	return nil
}

// Clean returns the task as it may be shown: what a service's file or a server says is bounded, in one line, and has no
// characters that change the direction of what stands beside it.
func (t Task) Clean() Task {
	t.Title, t.Server = clean(t.Title), clean(t.Server) // Check wants them
	t.Asker, t.Program, t.Remote = line(t.Asker), line(t.Program), line(t.Remote)
	t.Sees, t.Reaches, t.Holds = lines(t.Sees), lines(t.Reaches), lines(t.Holds)
	t.State = t.State.Clean()
	return t
}

// Clean is like that of Task.
func (s State) Clean() State {
	s.Words = line(s.Words)
	if s.Wanted != nil {
		w := *s.Wanted
		w.Key, w.Name, w.Where = line(w.Key), line(w.Name), line(w.Where)
		w.URL, w.Scopes = httpsOnly(w.URL), lines(w.Scopes)
		s.Wanted = &w
	}
	if s.Device != nil {
		d := s.Device
		s.Device = &Device{httpsOnly(d.URL), httpsOnly(d.Complete), line(d.Code), d.Until}
	}
	return s
}

// httpsOnly returns a URL that a person may be sent to, or "".
func httpsOnly(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || len(text) > maxText {
		return ""
	}
	return u.String()
}

func lines(list []string) (clean []string) {
	for i, s := range list {
		if i == maxItems {
			return append(clean, fmt.Sprintf("and %d more", len(list)-i))
		}
		clean = append(clean, line(s))
	}
	return clean
}

// unseen is shown in place of a text in which nothing can be seen. An empty text would look as if there were none.
const unseen = "(no printable text)"

// line is clean, but a text that has nothing to see becomes unseen.
func line(s string) string {
	if c := clean(s); c != "" || s == "" {
		return c
	}
	return unseen
}

// clean makes one line of characters that a person can see. unicode.IsPrint leaves out control characters and format
// characters, such as U+202E, which would show the rest of a line backwards. It takes fillers such as U+3164 for
// letters.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		if r != ' ' && !unicode.IsPrint(r) || r == utf8.RuneError || visible.Deceptive(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, " "))
	s = strings.Join(strings.Fields(s), " ")
	const cut = "..."
	if len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText-len(cut)], "") + cut
	}
	return s
}
