package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/loopback"
	"github.com/pfar/pfar/units/operator"
	"github.com/pfar/pfar/units/operator/ask"
	"github.com/pfar/pfar/units/operator/wording"
)

// sessions are those of each client, and what they have left in servers.
type sessions struct {
	Clients []clientSessions
	Stains  []stain
}

// clientSessions are those of one client.
type clientSessions struct {
	Name     string
	New      string // path of the question whether there is to be another one
	Sessions folded[labelled]
}

// labelled is one session of a client's, with what it has seen.
type labelled struct {
	Handle  string
	Seen    string
	Raised  bool
	Notes   []string // what a person should know of it
	Sources []string // what raised its label
	Made    string
	Used    string `json:"-"`
	Acts    []button
}

// stain is what a server has taken from labelled sessions.
type stain struct {
	Server, Seen string
	Places       string
	Sources      []string
	Act          button
}

// button leads to another page.
type button struct{ Path, Words string }

func (s *site) sessionsPage(ctx context.Context, one *session) (content, error) {
	all, err := s.desk.sessions(ctx)
	stains, lost := s.desk.stains(ctx)
	b := sessions{Clients: sessionsByClient(one, all)}
	for _, st := range stains {
		b.Stains = append(b.Stains, stainOf(one, st))
	}
	return content{title: "Sessions", template: "sessions", body: b}, cmp.Or(err, lost)
}

// sessionsByClient groups sessions as the gateway lists them: by client. Those that a person should look at come first.
func sessionsByClient(one *session, all []operator.Session) (clients []clientSessions) {
	slices.SortStableFunc(all, func(a, b operator.Session) int {
		return cmp.Or(strings.Compare(a.Client, b.Client), urgency(b)-urgency(a))
	})
	last := ""
	for i := range all {
		if i == 0 || all[i].Client != last {
			last = all[i].Client
			clients = append(clients, clientSessions{Name: visible.Reveal(last), New: orderPath(one, "new", last)})
		}
		clients[len(clients)-1].Sessions.add(func() labelled { return labelledOf(one, all[i]) })
	}
	return clients
}

// urgency is more for a session that a person should look at sooner.
func urgency(s operator.Session) int {
	switch {
	case s.Frozen != "" || s.Silent > 0:
		return 2
	case s.Label != gate.Start:
		return 1
	}
	return 0
}

func labelledOf(one *session, s operator.Session) labelled {
	l := labelled{
		Handle: visible.Reveal(s.Handle), Seen: hasRead(s),
		Raised: s.Label != gate.Start, Made: moment(s.Created), Used: moment(s.Used),
	}
	name := s.Client + "/" + s.Handle
	offer := func(act string) { l.Acts = append(l.Acts, button{orderPath(one, act, name), orders[act].button}) }
	if s.Frozen != "" {
		l.Notes = append(l.Notes, "Frozen: "+visible.Reveal(s.Frozen))
		offer("thaw")
	}
	if s.Silent > 0 {
		l.Notes = append(l.Notes, "Its client "+visible.Reveal(wording.Silence(s.Silent, name)))
	}
	if l.Raised || s.Frozen != "" {
		offer("reset")
	}
	if s.Handle != access.DefaultSession {
		offer("end")
	}
	for _, from := range s.Sources {
		l.Sources = append(l.Sources, raised(from, from.Server+"."+from.Tool))
	}
	if !s.Reset.IsZero() {
		l.Sources = append(l.Sources, "reset at "+moment(s.Reset)+" by "+visible.Reveal(s.ResetBy))
	}
	return l
}

func stainOf(one *session, s operator.Stain) stain {
	t := stain{
		Server: visible.Reveal(s.Server), Seen: mayHold(s),
		Act: button{orderPath(one, "clear", s.Server), orders["clear"].button},
	}
	if len(s.Places) > 0 {
		t.Places = "Also in " + visible.Reveal(strings.Join(s.Places, " "))
	}
	for _, from := range s.Sources {
		t.Sources = append(t.Sources, raised(from, from.Client+"/"+from.Handle+" with "+from.Tool))
	}
	return t
}

// raised says that a label rose, by whom and in which call.
func raised(s operator.Source, by string) string {
	return fmt.Sprintf("%s: %s at %s, call %s", s.Label, visible.Reveal(by), moment(s.At), visible.Reveal(s.Call))
}

// moment is a time as a page shows it; "": it is not known.
func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format(time.DateTime)
}

// order is an act on a session or a stain. A page asks before it.
type order struct {
	act      string
	question string // with room for the subject
	note     string
	button   string
	done     string // with room for the subject
}

// orders are all, by their acts. The subject of "new" is a client, of "clear" a server, of the others CLIENT/HANDLE.
var orders = map[string]order{
	"new": {"new", "Make a clean session for %s?", "The client uses it at an address of its own. Its other sessions " +
		"stay as they are: if its program goes on at its old address, reset the session there.", "New session", ""},
	"reset": {"reset", wording.ResetQuestion, "Calls of the session that wait are denied, and its grants end.",
		"Reset", "%s has a clean label."},
	"thaw": {"thaw", wording.ThawQuestion, "It was frozen because its calls were denied again and again.",
		"Let it go on", "%s may call again."},
	"end": {"end", wording.EndQuestion, "Its calls that wait are denied, and its grants end. Its address is void.",
		"End", "%s has ended."},
	"clear": {"clear", wording.ClearQuestion, "Look at what is stored there first.",
		"Remove the stain", "The stain of %s is removed."},
}

// orderAt reads the path of an order behind "do/": ACT/SUBJECT.
func orderAt(rest string) (o order, subject string, ok bool) {
	act, subject, _ := strings.Cut(rest, "/")
	o, ok = orders[act]
	return o, subject, ok && subject != ""
}

func orderPath(one *session, act, subject string) string {
	client, handle, named := strings.Cut(subject, "/")
	path := one.path("do/" + act + "/" + url.PathEscape(client))
	if named {
		path += "/" + url.PathEscape(handle)
	}
	return path
}

// question asks a person whether an order is to be carried out.
type question struct {
	Path, Act, Words, Note, Button, Back string

	Seen string // what the person has seen of the subject
}

func (s *site) question(ctx context.Context, one *session, o order, subject string) (content, error) {
	words, seen, err := s.desk.knows(ctx, o, subject)
	if err != nil {
		return content{}, err
	}
	q := question{
		orderPath(one, o.act, subject), o.act, fmt.Sprintf(o.question, visible.Reveal(subject)), words + o.note, o.button,
		one.path("sessions"), seen,
	}
	return content{title: o.button, template: "question", body: q, quiet: true}, nil
}

// carryOut has the gateway carry out an order that a person has confirmed. The gateway records it under that person's
// name.
func (s *site) carryOut(o order, subject string) taker {
	return func(w http.ResponseWriter, r *http.Request, one *session, form map[string]string) {
		n, err := notice{}, error(loopback.ErrForm)
		if form["act"] == o.act {
			n, err = s.desk.order(r.Context(), o, subject, form["seen"])
		}
		s.finish(w, r, one, "sessions", n, err)
	}
}

var errChanged = &ask.Refusal{Reason: "it has changed since you were asked; look at it again"}

// order has the gateway do it, if the subject is still as the person has seen it.
func (d desk) order(ctx context.Context, o order, subject, seen string) (notice, error) {
	_, now, err := d.knows(ctx, o, subject)
	if err == nil && now != seen {
		err = errChanged
	}
	if err != nil {
		return notice{}, err
	}
	var path string
	var body any = struct{}{}
	client, handle, _ := strings.Cut(subject, "/")
	switch o.act {
	case "new":
		path, body = "/sessions", map[string]string{"client": subject}
	case "clear":
		path = "/stains/" + url.PathEscape(subject) + "/clear"
	default:
		path = "/sessions/" + url.PathEscape(client) + "/" + url.PathEscape(handle) + "/" + o.act
	}
	var answer map[string]string
	err = d.ask(ctx, http.MethodPost, path, body, &answer)
	if o.act == "new" {
		client, handle = visible.Reveal(answer["client"]), visible.Reveal(answer["handle"])
		return notice{Words: fmt.Sprintf("%s has the session %s. The client uses it at /mcp/%[1]s/%s.", client, handle)}, err
	}
	return notice{Words: fmt.Sprintf(o.done, visible.Reveal(subject))}, err
}

// knows says what the subject of an order is, in words and as a fingerprint, or why there is none: only what the
// gateway names gets into a path.
func (d desk) knows(ctx context.Context, o order, subject string) (words, seen string, err error) {
	if o.act == "clear" {
		all, err := d.stains(ctx)
		for _, s := range all {
			if s.Server == subject {
				return mayHold(s) + " ", content{body: s}.fingerprint(), nil
			}
		}
		return "", "", cmp.Or(err, error(&ask.Refusal{Reason: "this server is not stained"}))
	}
	all, err := d.sessions(ctx)
	for _, s := range all {
		switch {
		case o.act == "new" && subject == s.Client:
			return "", "", nil
		case subject == s.Client+"/"+s.Handle:
			state := []any{s.Label, s.Frozen, len(s.Sources)}
			return hasRead(s) + " ", content{body: state}.fingerprint(), nil
		}
	}
	return "", "", cmp.Or(err, error(&ask.Refusal{Reason: "there is no such session"}))
}

// hasRead and mayHold are what a session and a server hold, in a sentence.
func hasRead(s operator.Session) string {
	return "It has read " + wording.Seen(s.Label, s.Sources) + "."
}
func mayHold(s operator.Stain) string { return "It may hold " + wording.Seen(s.Label, nil) + "." }
