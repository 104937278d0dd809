package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/loopback/loopbacktest"
	"github.com/pfar/pfar/units/operator"
)

// says has pfard and the gateway say everything that the pages Add, Clients and Health show, each with a text.
func (o *opened) says(text string) {
	now := reported()
	now.Version, now.Endpoint, now.PortFault = "0.1"+text, "http://127.0.0.1:7417/mcp"+text, "the port is taken"+text
	now.Socket = "/run/pfar/gateway.sock" + text
	now.Notes, now.Leftovers = []string{"the cgroups are not there" + text}, []string{"old" + text}
	now.Servers[0].Launcher, now.Servers[0].Unknown = "0.0.9"+text, "nothing is known"+text
	now.Diagnostics = []control.Diagnostic{{File: "a.hcl", Text: "Error: it is wrong" + text}}
	now.SetUps = []control.Flow{{Server: "wiki" + text, Detail: "waiting for TOKEN" + text}}
	o.site.runs.set(now)
	known := attach.Known{Offers: offers(), Clients: []attach.Client{
		{
			Name: "desk" + text, File: "/etc/pfar/clients.d/desk.hcl" + text, Identity: "1 token" + text,
			Servers: "notes" + text, Tools: "some" + text, Profile: "everyday" + text, Relax: "a desk" + text,
		},
		{Name: "default", Servers: "all", Profile: "strict"},
		{Name: "lost" + text, Off: true},
	}}
	for i := range known.Offers {
		f := &known.Offers[i]
		f.Title, f.Summary, f.Runs = f.Title+text, f.Summary+text, f.Runs+text
		f.Reaches, f.Secrets = append(f.Reaches, "a.example"+text), append(f.Secrets, "TOKEN"+text)
	}
	o.site.known.Store(&known)
	o.gate.mu.Lock()
	defer o.gate.mu.Unlock()
	o.gate.notices = []operator.Notice{
		{Name: "phone", Host: "ntfy.example"},
		{Name: "hook" + text, Host: "x.example" + text, Failed: time.Now(), Why: "401" + text},
	}
}

// TestHealth: the page says what does not hold on the machine, what is wrong with files, and which notices do not
// arrive.
func TestHealth(t *testing.T) {
	o := openServers(t)
	if page := o.do("GET", o.home+"health", "").text; !strings.Contains(page, "pfar has nothing to note") {
		t.Errorf("when all is well: %s", page)
	}
	o.says("")
	page := html.UnescapeString(o.do("GET", o.home+"health", "").text)
	for _, want := range []string{
		"0.1", "http://127.0.0.1:7417/mcp", "the port is taken", "wiki: waiting for TOKEN", "Error: it is wrong",
		"the cgroups are not there", "runs under pfar 0.0.9, and pfar is 0.1", "nothing is known of the tools of",
		"undeclared servers left something behind: old",
		`the notice "hook" has not reached x.example since`, "pfar doctor",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q: %s", want, page)
		}
	}
	if strings.Contains(page, "phone") {
		t.Errorf("it names a notice that arrives: %s", page)
	}
	o.site.runs = newRunning()
	if page := o.do("GET", o.home+"health", "").text; !strings.Contains(page, "pfard has not said yet") ||
		strings.Contains(page, "nothing to note") {
		t.Errorf("before pfard has said anything: %s", page)
	}
}

// TestClients: the page shows who may use what, and the commands for a client's configuration and token. A client that
// is built in has none.
func TestClients(t *testing.T) {
	o := openServers(t)
	if page := o.do("GET", o.home+"clients", "").text; !strings.Contains(page, "pfard has not said yet") {
		t.Errorf("before pfard has named them: %s", page)
	}
	o.says("")
	page := html.UnescapeString(o.do("GET", o.home+"clients", "").text)
	for _, want := range []string{
		"http://127.0.0.1:7417/mcp", "/run/pfar/gateway.sock", "1 token", "everyday", "a desk",
		"/etc/pfar/clients.d/desk.hcl",
		"pfar client config desk", "pfar client rotate desk", "It is let in nowhere",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q: %s", want, page)
		}
	}
	if strings.Contains(page, "config default") || strings.Count(page, "It is let in nowhere") != 1 {
		t.Errorf("the page: %s", page)
	}
}

// TestHostileNews is TestHostileTexts for the pages Add, Clients and Health.
func TestHostileNews(t *testing.T) {
	o := openServers(t)
	look := func(path, text string) []string {
		a := o.do("GET", o.home+path, "")
		guarded(t, a.h)
		plainText(t, fmt.Sprintf("%s, %.60q", path, text), a.text)
		return shape(t, a.text)
	}
	for _, path := range []string{"add", "clients", "health"} {
		o.says("plain")
		want := look(path, "plain")
		for _, text := range loopbacktest.Payloads {
			o.says(text)
			if got := look(path, text); !slices.Equal(got, want) {
				t.Errorf("%s, %.60q: the page is %q", path, text, got)
			}
		}
	}
}
