package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/audit/prose"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/loopback/loopbacktest"
)

// result is the file with what a verification printed.
func result(t testing.TB, list []prose.Verified) []*os.File {
	t.Helper()
	text, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	f, err := units.Sealed("view", text)
	if err != nil {
		t.Fatal(err)
	}
	return []*os.File{f}
}

// chains are a chain that holds, and one that does not.
func chains(text string) []prose.Verified {
	return []prose.Verified{
		{Report: audit.Report{Chain: "gateway" + text, Records: 6, First: 1, Last: 6, Problems: []audit.Problem{
			{File: "/var/lib/x" + text, Line: 2, Seq: 2, What: "edited" + text, Why: "one of both" + text},
		}, More: 3, Notes: []string{"11 bytes" + text}}, Journal: "nothing says so" + text},
		{Report: audit.Report{Chain: "pfard" + text, Records: 9, First: 3, Last: 11, Anchors: 2,
			Unmatched: []audit.Unmatched{{ID: "1ng41j5ccc" + text, Seq: 4}}}},
	}
}

// verified has pfard answer the next verifications.
func (o *opened) verified(answer func(attach.View) ([]*os.File, attach.Records, error)) {
	o.site.archive.asksView = func(v attach.View) error {
		files, r, err := answer(v)
		if err == nil {
			r.Question = v.Question
			go o.site.archive.answer(v.Number, archived{r, files})
		}
		return err
	}
}

// TestVerify: the page says of each chain whether it holds, from which record to which, and where it breaks, in the
// words of pfar audit verify. It never loads again by itself.
func TestVerify(t *testing.T) {
	o := openAudit(t, records()...)
	if page := o.page("audit"); !strings.Contains(page, `href="`+o.home+verifyPath+`"`) {
		t.Errorf("the audit does not lead to it: %s", page)
	}
	asked := 0
	o.verified(func(v attach.View) ([]*os.File, attach.Records, error) {
		if asked++; v.What != attach.ViewVerify || v.Subject != "" {
			t.Errorf("pfard is asked for %+v", v)
		}
		return result(t, chains("")), attach.Records{}, nil
	})
	page := o.page(verifyPath)
	last := -1
	for _, want := range []string{
		`class="warning">records were changed<`, `class="warning">BROKEN<`,
		"gateway: 6 records, 1 to 6, breaks at record 2", "/var/lib/x:2: edited: one of both", ">and 3 more<",
		">note: 11 bytes<", ">whole<", "pfard: 9 records, 3 to 11, 2 compared with the journal",
		"note: 1 call not closed: under way, or their gateway was killed: 1ng41j5ccc", "note: nothing says so", "Verified 2",
	} {
		at := strings.Index(page[last+1:], want)
		if at < 0 {
			t.Fatalf("no %q after %d: %s", want, last, page)
		}
		last += 1 + at
	}
	if strings.Contains(page, "data-events") || asked != 1 {
		t.Errorf("it was verified %d times: %s", asked, page)
	}
	o.verified(func(attach.View) ([]*os.File, attach.Records, error) {
		return result(t, chains("")[1:]), attach.Records{}, nil
	})
	if page := o.page(verifyPath); strings.Contains(page, prose.Changed) || !strings.Contains(page, ">whole<") {
		t.Errorf("all holds: %s", page)
	}
}

// TestVerifyOnlyByHand: no stream of events, form or page of another site has the audit verified.
func TestVerifyOnlyByHand(t *testing.T) {
	o := openAudit(t, records()...)
	o.verified(func(attach.View) ([]*os.File, attach.Records, error) {
		t.Error("the audit is verified")
		return nil, attach.Records{Error: "no"}, nil
	})
	for name, code := range map[string]int{
		"GET events?" + verifyPath: 404, "GET " + verifyPath + "?live": 404, "POST " + verifyPath: 404,
	} {
		method, path, _ := strings.Cut(name, " ")
		if a := o.do(method, o.home+path, ""); a.code != code {
			t.Errorf("%s: %d, want %d", name, a.code, code)
		}
	}
	if a := o.do("GET", o.home+verifyPath, "", "Sec-Fetch-Mode", "cors", "Sec-Fetch-Dest", "empty"); a.code != 404 {
		t.Errorf("by a script: %d", a.code)
	}
}

// TestVerifyFails: a verification that cannot be done leads back to the audit, which says why. No file stays open.
func TestVerifyFails(t *testing.T) {
	o := openAudit(t, records()...)
	null := func() []*os.File {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		return []*os.File{f}
	}
	before := descriptors(t, os.DevNull)
	for want, answer := range map[string]func(attach.View) ([]*os.File, attach.Records, error){
		"verified here: it is being verified already <b>": func(attach.View) ([]*os.File, attach.Records, error) {
			return null(), attach.Records{Error: "it is being verified already <b>\x1b"}, nil
		},
		"pfard does not answer": func(attach.View) ([]*os.File, attach.Records, error) {
			return nil, attach.Records{}, errors.New("broken pipe")
		},
		"pfard sent no result": func(attach.View) ([]*os.File, attach.Records, error) {
			return nil, attach.Records{}, nil
		},
		"the result cannot be read": func(attach.View) ([]*os.File, attach.Records, error) {
			return null(), attach.Records{}, nil
		},
	} {
		o.verified(answer)
		a := o.do("GET", o.home+verifyPath, "")
		if a.code != http.StatusSeeOther || a.h.Get("Location") != o.home+"audit" {
			t.Fatalf("%s: %d, to %q", want, a.code, a.h.Get("Location"))
		}
		if page := o.page("audit"); !strings.Contains(page, want) || strings.Contains(page, "\x1b") {
			t.Errorf("no %q in %s", want, page)
		}
	}
	if after := descriptors(t, os.DevNull); after > before {
		t.Errorf("%d files stay open", after-before)
	}
}

// TestVerifyEndsWithTheRequest: a browser that hangs up ends the verification; meanwhile another page is refused, and
// other questions are answered.
func TestVerifyEndsWithTheRequest(t *testing.T) {
	o := openAudit(t, records()...)
	asked, dropped := make(chan uint64, 9), make(chan uint64, 9)
	o.site.archive.asksView = func(v attach.View) error { asked <- v.Number; return nil }
	o.site.archive.verifying.drops = func(q attach.Question) error { dropped <- q.Number; return nil }
	ctx, hangUp := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, o.base+o.home+verifyPath, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Cookie": o.cookie, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document", "Sec-Fetch-Site": "same-origin",
	} {
		r.Header.Set(name, value)
	}
	over := make(chan error)
	go func() { _, err := http.DefaultTransport.RoundTrip(r); over <- err }()
	number := <-asked
	if a := o.do("GET", o.home+verifyPath, ""); a.code != http.StatusSeeOther {
		t.Errorf("another page: %d", a.code)
	}
	if page := o.page("audit"); !strings.Contains(page, "another page has the audit verified") ||
		!strings.Contains(page, "notion.search") {
		t.Errorf("while the audit is verified: %s", page)
	}
	hangUp()
	if err := <-over; !errors.Is(err, context.Canceled) {
		t.Errorf("the request: %v", err)
	}
	if got := <-dropped; got != number || len(asked) > 0 {
		t.Errorf("dropped: %d, want %d", got, number)
	}
	ours, theirs := descriptors(t, "/memfd:view"), result(t, nil)
	o.site.archive.answer(number, archived{attach.Records{}, theirs}) // too late
	if after := descriptors(t, "/memfd:view"); after > ours {
		t.Error("the late answer stays open")
	}
}

// TestHostileVerify is TestHostileTexts for verifications, which quote what files have.
func TestHostileVerify(t *testing.T) {
	o := openAudit(t, records()...)
	look := func(text string) []string {
		o.verified(func(attach.View) ([]*os.File, attach.Records, error) {
			return result(t, chains(text)), attach.Records{}, nil
		})
		a := o.do("GET", o.home+verifyPath, "")
		guarded(t, a.h)
		plainText(t, text[:min(len(text), 60)], a.text)
		return shape(t, a.text)
	}
	want := look("plain")
	for _, text := range loopbacktest.PayloadsOf("verified", loopbacktest.Many) {
		if got := look(text); !slices.Equal(got, want) {
			t.Errorf("%.60q: the page is %q", text, got)
		}
	}
}
