package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/health"
	"github.com/pfar/pfar/units/loopback/loopbacktest"
)

// checked has pfard say what the checks found.
func (o *opened) checked(found health.Checks) {
	o.t.Helper()
	text, err := json.Marshal(found)
	if err != nil {
		o.t.Fatal(err)
	}
	o.viewed(attach.ViewChecks, "", string(text))
}

// findings are one of each outcome, and one that no pfar of this version has.
func findings(text string) health.Checks {
	return health.Checks{At: time.Now(), Findings: []health.Finding{
		{Check: "lingering" + text, Outcome: health.None, Detail: "not needed" + text},
		{Check: "cgroups" + text, Outcome: health.Pass, Detail: "cgroup v2" + text},
		{Check: "node" + text, Outcome: health.Warn, Detail: "not there" + text, Remedy: "apt install nodejs" + text},
		{Check: "bubblewrap" + text, Outcome: health.Fault, Detail: "old" + text, Remedy: "first\nthen" + text},
		{Check: "future" + text, Outcome: "splendid" + health.Outcome(text), Detail: "odd" + text},
	}}
}

// TestChecks: the page shows what each check found, what needs somebody first. An outcome that is not known is a
// failure.
func TestChecks(t *testing.T) {
	o := openServers(t)
	o.checked(findings(""))
	page := o.page("checks")
	last := -1
	for _, want := range []string{
		"bubblewrap", `class="warning">failed<`, ">old<", ">first<", ">then<", "future", `class="warning">failed<`, ">odd<",
		"node", ">warning<", ">not there<", ">apt install nodejs<", "cgroups", ">pass<", "lingering", ">n/a<", "Checked 2",
	} {
		at := strings.Index(page[last+1:], want)
		if at < 0 {
			t.Fatalf("no %q after %d: %s", want, last, page)
		}
		last += 1 + at
	}
	if strings.Contains(page, "data-events") || strings.Contains(page, "under way") {
		t.Errorf("it waits for something: %s", page)
	}
}

// TestChecksUnderWay: a page that waits for the checks loads again when they have ended.
func TestChecksUnderWay(t *testing.T) {
	o := openServers(t)
	o.checked(health.Checks{Running: true})
	page := o.page("checks")
	for _, want := range []string{"The checks are under way", `events?checks"`, `data-reload="yes"`} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in %s", want, page)
		}
	}
	before := seen.FindStringSubmatch(page)[1]
	o.checked(findings(""))
	now, err := checksPage(t.Context(), o.site)
	if err != nil || now.fingerprint() == before {
		t.Errorf("when they have ended, the page is the same: %v", err)
	}
}

// TestChecksFail: if the checks could not run, the page says why, and shows no old result.
func TestChecksFail(t *testing.T) {
	o := openServers(t)
	for name, set := range map[string]func(){
		"did not end well: no <b>bus</b>": func() { o.checked(health.Checks{At: time.Now(), Error: "no <b>bus</b>"}) },
		"cannot read the checks: run":     func() { o.viewed(attach.ViewChecks, "", "[]") },
		"cannot read the checks: late":    func() { o.views(map[string]any{"checks": errors.New("late")}) },
	} {
		set()
		if page := o.page("checks"); !strings.Contains(page, name) || strings.Contains(page, "Checked ") {
			t.Errorf("%s: %s", name, page)
		}
	}
}

// TestHostileChecks is TestHostileTexts for checks, which quote what programs print.
func TestHostileChecks(t *testing.T) {
	o := openServers(t)
	look := func(text string) []string {
		text = text[:min(len(text), 1<<10)] // a view has a bound
		o.checked(findings(strings.ReplaceAll(text, "\n", " ")))
		a := o.do("GET", o.home+"checks", "")
		guarded(t, a.h)
		plainText(t, fmt.Sprintf("%.60q", text), a.text)
		return shape(t, a.text)
	}
	want := look("plain")
	for _, text := range loopbacktest.PayloadsOf("checks", loopbacktest.Many) {
		if got := look(text); !slices.Equal(got, want) {
			t.Errorf("%.60q: the page is %q", text, got)
		}
	}
}
