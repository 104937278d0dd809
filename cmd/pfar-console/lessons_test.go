package main

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/chores"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/loopback/loopbacktest"
	"github.com/pfar/pfar/units/wants"
)

// learned is what pfard has learned of notes, with a text of the server's in every place that has one.
func learned(text string) chores.Learning {
	return chores.Learning{
		Began: time.Unix(1, 0), Ended: time.Unix(121, 0), Failed: text,
		Found: &wants.Lesson{
			Server: "notes", LeftOut: 3,
			Suggested: []wants.Suggestion{
				{Entry: "api.example.com:8443", Times: 2, Ports: []uint16{8443}, Protocols: []string{"tls" + text}},
				{Entry: text, LookedUp: true, Times: 1},
			},
			Refused: []wants.Denial{{Target: "10.0.0.1:443" + text, Reason: "special" + text, Times: 2}, {}},
		},
	}
}

// TestLesson: who runs pfard has a server learn, sees how that goes, and is asked about each host that was found.
func TestLesson(t *testing.T) {
	o := openServers(t)
	given := o.orders()
	const path = "learn/notes"
	turn := field.FindStringSubmatch(o.do("GET", o.home+"servers", "").text)[2]
	form := "act=learn&turn=" + turn
	if a := o.do("GET", o.home+path, ""); a.code != 303 {
		t.Errorf("who does not run pfard: %d", a.code)
	}
	if page := o.page("server/notes"); strings.Contains(page, `value="learn"`) || strings.Contains(page, path) {
		t.Errorf("who does not run pfard has a button: %s", page)
	}
	o.do("POST", o.home+path, form)
	if page := o.page("servers"); !strings.Contains(page, "only the user who runs pfard") || len(given) > 0 {
		t.Errorf("it is not refused: %s", page)
	}
	o.site.orders.allowed.Store(true)
	o.views(map[string]any{"lesson notes": chores.Learning{}})
	for _, at := range []string{"server/notes", path} {
		if page := o.page(at); !strings.Contains(page, `action="`+o.home+path+`"`) ||
			!strings.Contains(page, "restarts again after two minutes") {
			t.Errorf("%s has no button: %s", at, page)
		}
	}
	for path, code := range map[string]int{"learn/": 404, "learn/..": 404, "learn/other": 303, "learn/notes/x": 404} {
		if a := o.do("GET", o.home+path, ""); a.code != code {
			t.Errorf("%s: %d, want %d", path, a.code, code)
		}
	}
	for form, code := range map[string]int{"act=start&turn=" + turn: 400, "act=learn&turn=x": 403} {
		if a := o.do("POST", o.home+path, form); a.code != code || len(given) > 0 {
			t.Errorf("%s: %d, want %d", form, a.code, code)
		}
	}
	if a := o.do("POST", o.home+path, form); a.code != 303 || a.h.Get("Location") != o.home+path {
		t.Errorf("%d %s", a.code, a.text)
	}
	if got := <-given; got != (attach.Order{Act: attach.OrderLearn, Server: "notes"}) {
		t.Errorf("pfard gets %+v", got)
	}

	o.views(map[string]any{"lesson notes": chores.Learning{Began: time.Unix(1, 0)}})
	if page := o.page(path); !strings.Contains(page, "pfar has watched since") ||
		strings.Contains(page, `value="learn"`) || !strings.Contains(page, `data-reload="yes"`) {
		t.Errorf("while it learns: %s", page)
	}
	o.views(map[string]any{"lesson notes": learned("")})
	page := o.page(path)
	to := o.home + "learned/notes/" + url.PathEscape("api.example.com:8443")
	for _, want := range []string{
		"api.example.com:8443: 2 times, port 8443 (tls)", `href="` + to + `"`, "10.0.0.1:443: special (2 times)",
		"no target:", "asked for more than this page shows", `value="learn"`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the result has no %q: %s", want, page)
		}
	}
	asked := o.do("GET", to, "").text
	if page := html.UnescapeString(asked); !strings.Contains(page, "Let notes reach api.example.com:8443?") ||
		!strings.Contains(page, `href="`+o.home+path+`"`) {
		t.Errorf("the question: %s", page)
	}
	answer := "act=allow&turn=" + turn + "&seen=" + seenOfReview.FindStringSubmatch(asked)[1]
	other := o.home + "learned/notes/" + url.PathEscape("other.example.com")
	if o.do("POST", other, answer); len(given) > 0 {
		t.Error("a host that was not found is allowed")
	}
	if a := o.do("POST", to, answer); a.code != 303 || a.h.Get("Location") != o.home+path {
		t.Errorf("after the answer: %d %s", a.code, a.h.Get("Location"))
	}
	want := attach.Order{Act: attach.OrderAllow, Server: "notes", Host: "api.example.com:8443"}
	if got := <-given; got != want {
		t.Errorf("pfard gets %+v", got)
	}
	now := reported()
	now.Servers[1].Domains = []string{"api.example.com:8443"}
	o.site.runs.set(now)
	if page := o.page(path); !strings.Contains(page, "Its declaration allows this host") || strings.Contains(page, to) {
		t.Errorf("once it is allowed: %s", page)
	}
}

// TestLearnable: the button is there if the server can learn.
func TestLearnable(t *testing.T) {
	one := &session{}
	for name, test := range map[string]struct {
		server control.Server
		begins bool
	}{
		"running":  {control.Server{State: control.Running}, true},
		"stopped":  {control.Server{State: control.Stopped}, true},
		"failed":   {control.Server{State: control.Failed}, true},
		"learning": {control.Server{State: control.Running, Reach: control.Reach{Learning: true}}, false},
		"broken":   {control.Server{State: control.Stopped, Broken: true}, false},
		"waiting":  {control.Server{State: control.Waiting}, false},
		"sign-in":  {control.Server{State: control.NeedsLogin}, false},
		"disabled": {control.Server{State: control.Stopped, Owed: control.Owed{Off: control.OffByFile}}, false},
		"off":      {control.Server{State: control.Stopped, Owed: control.Owed{Off: control.OffByOperator}}, false},
	} {
		if got := learnOf(one, test.server).Begins; got != test.begins {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestHostileLesson is TestHostileTexts for what a server asked for: the server chooses the names.
func TestHostileLesson(t *testing.T) {
	o := openServers(t)
	o.site.orders.allowed.Store(true)
	look := func(text string) []string {
		text = text[:min(len(text), 4<<10)] // or the page does not show the result
		o.views(map[string]any{"lesson notes": learned(text)})
		a := o.do("GET", o.home+"learn/notes", "")
		guarded(t, a.h)
		plainText(t, fmt.Sprintf("%.60q", text), a.text)
		return shape(t, a.text)
	}
	want := look("not a host")
	for _, text := range loopbacktest.PayloadsOf("lesson", loopbacktest.Many) {
		if got := look(text); !slices.Equal(got, want) {
			t.Errorf("%.60q: the page is %q", text, got)
		}
	}
}
