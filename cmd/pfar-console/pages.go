package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"strings"

	"github.com/pfar/pfar/cmd/pfar-console/entrance"
	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/loopback"
	"github.com/pfar/pfar/units/operator/ask"
	"github.com/pfar/pfar/units/operator/wording"
)

var (
	//go:embed console.css
	ownStyle string
	//go:embed console.js
	script string
	//go:embed pages.html
	text string

	style     = loopback.Style + ownStyle
	templates = template.Must(template.New("").Parse(text))

	// The policy lets a page apply its own style and run its own script, which makes no markup of a text (Trusted
	// Types), ask this site whether something has changed, and send its forms to it. Whatever text comes into a page
	// loads nothing, runs nothing, and sends nothing anywhere. Nor does another page show it in a frame.
	policy       = policyOf(loopback.Digest(script), "")
	remotePolicy = policyOf(loopback.Digest(script)+" "+loopback.Digest(entrance.Script), entrance.Loads)
)

// policyOf is the Content-Security-Policy of pages with some scripts, and with more that they may load.
func policyOf(scripts, more string) string {
	const words = "default-src 'none'; style-src %s; script-src %s; connect-src 'self'; %sform-action 'self'; " +
		"frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
	return fmt.Sprintf(words, loopback.Digest(style), scripts, more)
}

// maker makes the content of one page. If a source fails, it returns the rest with the error.
type maker func(ctx context.Context, one *session) (content, error)

// content is what a page shows. Each text of a stranger's in it has been made visible.
type content struct {
	title    string
	template string
	body     any  // of the template; nil: there is nothing to show
	seen     any  // the page is out of date when its JSON changes; nil: when that of body does
	quiet    bool // the page shows a question, and does not change by itself
	copies   bool // it has texts to copy, for which it needs the script, also if the page does not change
	again    bool // the script loads the page again by itself, as it does a list: the page waits for something, or follows
}

// pages are those of the navigation, by their paths. The script does not load a long one again while a person reads it.
var pages = []struct {
	path, name string
	long       bool
}{
	{"", "Waiting calls", false}, {"wants", "Wants", false}, {"sessions", "Sessions", false},
	{"servers", "Servers", false}, {"add", "Add", true}, {"clients", "Clients", false}, {"audit", "Audit", true},
	{"health", "Health", false},
}

// taker carries out a form.
type taker func(w http.ResponseWriter, r *http.Request, one *session, form map[string]string)

const (
	eventsPath = "events"
	nothing    = "nothing was done: "
)

// verifyPath is the path of the page that has the audit verified. A page that is open never loads it again by itself.
const verifyPath = "verify"

// live is the query of a page that a browser loads again by itself.
const live = "live"

// view is what the layout shows.
type view struct {
	Title  string
	Pages  []tab
	Leave  string // paths
	Events string // "": the page does not change
	Turn   string
	Notice notice
	Seen   string // tells the page from the same page at another time
	Reload bool   // the script may load it again
	Lost   string // why not everything is known
	Home   string // path of the session's pages, if an operator signs each act; "": nobody signs
	Who    string // the operator
	Style  template.CSS
	Script template.JS // "": the page needs none
	Signs  template.JS
	Body   any
}

// tab is one page in the navigation.
type tab struct {
	Path, Name string
	Here       bool
}

// show sends a page.
func (s *site) show(w http.ResponseWriter, r *http.Request, one *session, rest string, make maker) {
	c, err := make(r.Context(), one)
	if c.body == nil {
		s.say(one, notice{Words: words(err), Bad: true})
		http.Redirect(w, r, one.path(parent(rest)), http.StatusSeeOther)
		return
	}
	v := view{
		Title: c.title, Leave: one.path("leave"), Turn: one.turn, Notice: s.said(one, r.URL.RawQuery == live), Body: c.body,
		Style: template.CSS(style),
	}
	if one.operator != "" {
		v.Home, v.Who, v.Signs = one.path(""), visible.Reveal(one.operator), template.JS(entrance.Script)
	}
	at := rest
	if strings.HasPrefix(rest, "audit/") || rest == verifyPath { // with a filter, and if it follows, it is the same page
		at = "audit"
	}
	for _, p := range pages {
		if p.path == "add" && one.operator != "" { // one-time pages are on this machine
			continue
		}
		v.Pages = append(v.Pages, tab{one.path(p.path), p.name, p.path == at})
		v.Reload = v.Reload || p.path == at && !p.long
	}
	if !c.quiet && v.Notice.Link+v.Notice.Token == "" { // a reload would lose them
		v.Events, v.Seen = one.path(eventsPath), c.fingerprint()
		if rest != "" {
			v.Events += "?" + rest
		}
		v.Reload = v.Reload || c.again
	}
	if v.Events != "" || c.copies {
		v.Script = template.JS(script)
	}
	if err != nil {
		v.Lost = words(err)
	}
	send(w, c.template, v)
}

// parent is the page that a page belongs to.
func parent(rest string) string {
	switch kind, _, _ := strings.Cut(rest, "/"); kind {
	case "do":
		return "sessions"
	case "server", "log", "explain", "learn", offerLearned:
		return "servers"
	case "review", offerRefused:
		return "wants"
	case "import":
		return "add"
	case "record", verifyPath:
		return "audit"
	case "checks":
		return "health"
	default:
		return ""
	}
}

// words are why not everything is known.
func words(err error) string {
	if refusal, ok := errors.AsType[*ask.Refusal](err); ok {
		return visible.Reveal(refusal.Error())
	}
	return "The gateway does not answer: " + visible.Reveal(err.Error())
}

// fingerprint tells a page from the same page at another time. It is a whole digest: a server could find two pages of
// its own that share a part of one.
func (c content) fingerprint() string {
	b, err := json.Marshal(cmp.Or(c.seen, c.body))
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// finish tells on the next page what came of an act that the gateway was asked for.
func (s *site) finish(w http.ResponseWriter, r *http.Request, one *session, next string, n notice, err error) {
	refusal, refused := errors.AsType[*ask.Refusal](err)
	switch {
	case errors.Is(err, loopback.ErrForm):
		loopback.Unreadable(w, nothing, err)
		return
	case refused:
		n = notice{Words: "Nothing was done: " + visible.Reveal(refusal.Error()), Bad: true}
	case errors.Is(err, control.ErrDenied), errors.Is(err, control.ErrNotRunning): // it was not asked
		n = notice{Words: "Nothing was done: " + visible.Reveal(err.Error()), Bad: true}
	case err != nil:
		const unknown = "The gateway gave no answer, so pfar does not know whether this was done. " +
			"When the gateway is back, this page shows it: "
		n = notice{Words: unknown + visible.Reveal(err.Error()), Bad: true}
	}
	s.say(one, n)
	http.Redirect(w, r, one.path(next), http.StatusSeeOther)
}

// rows are texts of a page, each with a name.
type rows []wording.Row

// add adds a row, unless its text is empty.
func (r *rows) add(name, text string) {
	if text != "" {
		*r = append(*r, wording.Row{Name: name, Text: visible.Reveal(text)})
	}
}

// folded is a list: a page shows First, unfolds More, and prints how many entries are Left.
type folded[T any] struct {
	First, More []T
	Left        int // that are in neither
}

// maxFirst is how many entries a list shows at once, and maxMore how many unfold below them.
const (
	maxFirst = 4
	maxMore  = 60
)

// add adds an entry, which is made only if it is shown.
func (f *folded[T]) add(entry func() T) {
	switch {
	case len(f.First) < maxFirst:
		f.First = append(f.First, entry())
	case len(f.More) < maxMore:
		f.More = append(f.More, entry())
	default:
		f.Left++
	}
}

// send sends what a template makes.
func send(w http.ResponseWriter, template string, v view) {
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, template, v); err != nil {
		loopback.Refuse(w, http.StatusInternalServerError, "the page cannot be shown")
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(b.Bytes()) // the browser may have hung up
}
