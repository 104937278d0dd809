package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/pfar/pfar/units/operator"
)

// TestWaitingIn: calls are found by client, in their order, however the gateway writes them; of many the first ones,
// and the number of the rest.
func TestWaitingIn(t *testing.T) {
	var many, wide []operator.Shown
	for i := range 3 * maxOfClient {
		c := tempting()
		c.Client = []string{"desk", `la"p\top`, ""}[i%3]
		many = append(many, c)
	}
	for range 2 {
		for i := range maxClients + 7 {
			c := tempting()
			c.Client = fmt.Sprint("client", i)
			wide = append(wide, c)
		}
	}
	many = append(many, many[:9]...)
	text, err := json.MarshalIndent(many, " ", "\t")
	if err != nil {
		t.Fatal(err)
	}
	all, others, err := waitingIn(text)
	if err != nil || others > 0 || len(all) != 3 {
		t.Fatalf("%d clients and %d others, %v", len(all), others, err)
	}
	for i, of := range all {
		if of.client != many[i].Client || len(of.calls) != maxOfClient || of.left != 3 {
			t.Errorf("%q: %d calls and %d more", of.client, len(of.calls), of.left)
		}
		for k, call := range of.calls {
			if want := many[3*k+i]; call.ID != want.ID || call.Client != want.Client || len(call.Findings) != 1 {
				t.Errorf("call %d of %q is %+v, want %+v", k, of.client, call, want)
			}
		}
	}
	if text, err = json.Marshal(wide); err != nil {
		t.Fatal(err)
	}
	if all, others, err := waitingIn(text); err != nil || len(all) != maxClients || others != 7 || all[0].left > 0 ||
		len(all[0].calls) != 2 {
		t.Errorf("%d clients and %d others, %v", len(all), others, err)
	}
}

// TestWaitingInNothing: an empty list is one, and what is no list of calls is an error.
func TestWaitingInNothing(t *testing.T) {
	for _, text := range []string{"[]", "null", " [ ] \n"} {
		if all, others, err := waitingIn([]byte(text)); err != nil || len(all) > 0 || others > 0 {
			t.Errorf("%s: %v, %d, %v", text, all, others, err)
		}
	}
	for _, text := range []string{
		"", "{}", "7", "[", "[7]", `["x"]`, `[{"client":"a"`, `[{"client":"a"},]`, `[{"client":7,"client":"a","left":"x"}]`,
		`[{"state":"perhaps"}]`, `[{"client":"a","left":1}`, `{"client":[]}`, "[[]]",
	} {
		if all, _, err := waitingIn([]byte(text)); err == nil {
			t.Errorf("%s: %+v", text, all)
		}
	}
}

// TestTooMuchWaits: more than the console can hold is an error, with what to do, and not the end of its process.
func TestTooMuchWaits(t *testing.T) {
	o := open(t)
	o.gate.listed = []byte("[" + strings.Repeat(" ", maxWaiting) + "]")
	o.enter()
	if page := o.page(""); !strings.Contains(page, "more calls wait than the console can read; run pfar approvals") {
		t.Errorf("%.2000s", page)
	}
}

// TestManyClients: a page names a bounded number of clients, and how many others there are.
func TestManyClients(t *testing.T) {
	var calls []operator.Shown
	for i := range maxClients + 7 {
		c := tempting()
		c.Client = fmt.Sprint("client", i)
		calls = append(calls, c)
	}
	o := open(t, calls...)
	o.enter()
	page := o.page("")
	if !strings.Contains(page, "the calls of 7 more clients") || strings.Count(page, "<h2>Client") != maxClients {
		t.Errorf("%.2000s", page)
	}
}
