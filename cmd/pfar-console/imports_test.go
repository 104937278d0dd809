package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/chores"
	"github.com/pfar/pfar/units/loopback/loopbacktest"
)

// previewed is what an import of cursor would do, with a text in every place that has one of the file's.
func previewed(text string) chores.Importing {
	return chores.Importing{Program: "cursor", Digest: strings.Repeat("ab", 32), Import: &chores.Import{
		Files: []chores.File{{File: "/home/ann/.cursor/mcp.json" + text, Servers: []chores.Server{
			{
				Name: "Echo" + text, Server: "echo", Package: "npm:echo@1" + text, Absent: true,
				Declaration: "description = \"" + text + "\"\nserver {\n}\n",
				Secrets:     []chores.Secret{{Key: "echo_token", Variable: "TOKEN" + text, Brokered: true}},
				Notes:       []chores.Note{{Text: "a note" + text}},
			},
			{Name: "Old" + text, Refused: "it exists already" + text},
		}}},
	}}
}

// TestImport: who runs pfard sees what an import would do, has exactly that done, and sees how it goes.
func TestImport(t *testing.T) {
	o := openServers(t)
	given := o.orders()
	const path = "import/cursor"
	o.site.known.Store(&attach.Known{Programs: []string{"cursor", "other<b>"}})
	turn := field.FindStringSubmatch(o.do("GET", o.home+"servers", "").text)[2]
	form := "act=import&turn=" + turn + "&seen="
	if a := o.do("GET", o.home+path, ""); a.code != 303 {
		t.Errorf("who does not run pfard: %d", a.code)
	}
	if page := o.page("add"); strings.Contains(page, path) {
		t.Errorf("who does not run pfard has a button: %s", page)
	}
	o.views(nil)
	if o.do("POST", o.home+path, form); len(given) > 0 {
		t.Error("it is not refused")
	}
	o.site.orders.allowed.Store(true)
	if page := o.page("add"); !strings.Contains(page, `href="`+o.home+path+`"`) || strings.Contains(page, "other") {
		t.Errorf("the page leads to %s", page)
	}
	for path, code := range map[string]int{
		"import/": 404, "import/other": 404, "import/..": 404, "import/cursor/x": 404, "import/again": 404,
	} {
		if a := o.do("GET", o.home+path, ""); a.code != code {
			t.Errorf("%s: %d, want %d", path, a.code, code)
		}
	}
	o.views(map[string]any{"import": chores.Importing{}, "import cursor": errors.New("there is <b>no</b> file")})
	if a := o.do("GET", o.home+path, ""); a.code != 303 || a.h.Get("Location") != o.home+"add" {
		t.Errorf("without a file: %d", a.code)
	}
	if page := o.page("add"); !strings.Contains(page, "there is <b>no</b> file") {
		t.Errorf("without a file: %s", page)
	}

	o.views(map[string]any{"import": chores.Importing{}, "import cursor": previewed("")})
	raw := o.do("GET", o.home+path, "").text
	page := html.UnescapeString(raw)
	for _, want := range []string{
		">+ server {<", "TOKEN, into the vault as echo_token; the server gets a placeholder", "a note",
		"pfar installs npm:echo@1 first", "it exists already", "Import 1 server<", "/home/ann/.cursor/mcp.json",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the preview has no %q: %s", want, page)
		}
	}
	if strings.Contains(page, "data-events") {
		t.Error("the preview is made again and again")
	}
	digest := seenOfReview.FindStringSubmatch(raw)[1]
	if a := o.do("POST", o.home+path, "act=add&turn="+turn+"&seen="+digest); a.code != 400 || len(given) > 0 {
		t.Errorf("another act: %d", a.code)
	}
	if a := o.do("POST", o.home+path+"/again", form+digest); a.code != 405 || len(given) > 0 {
		t.Errorf("a form to another page: %d", a.code)
	}
	o.do("POST", o.home+path, form+digest)
	if got := <-given; got != (attach.Order{Act: attach.OrderImport, Program: "cursor", Digest: digest}) {
		t.Errorf("pfard gets %+v", got)
	}

	under := chores.Importing{Program: "cursor", Began: time.Unix(1, 0)}
	o.views(map[string]any{"import": under})
	for _, path := range []string{path, path + "/again"} {
		if page := o.page(path); !strings.Contains(page, "The import began at") ||
			strings.Contains(page, `value="import"`) || !strings.Contains(page, `data-reload="yes"`) {
			t.Errorf("while it goes on: %s", page)
		}
	}
	done := previewed("")
	done.Began, done.Ended, done.Digest = time.Unix(1, 0), time.Unix(2, 0), ""
	done.Import.Files[0].Servers[0].Declared = "/etc/pfar/mcp.d/echo.hcl"
	o.views(map[string]any{"import": done, "import cursor": previewed("")})
	page = o.page(path)
	for _, want := range []string{
		`href="` + o.home + `server/echo"`, "Imported: server", "Not imported", `href="` + o.home + path + `/again"`,
		"pfar import --undo",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the result has no %q: %s", want, page)
		}
	}
	if strings.Contains(page, `value="import"`) || strings.Contains(page, "data-reload") {
		t.Errorf("the result has a button: %s", page)
	}
	if page := o.page(path + "/again"); !strings.Contains(page, `value="import"`) {
		t.Errorf("a new preview: %s", page)
	}
	o.views(map[string]any{"import": done, "import zed": chores.Importing{Program: "zed", Import: &chores.Import{}}})
	if page := o.page("import/zed"); strings.Contains(page, "Imported") || strings.Contains(page, `value="import"`) {
		t.Errorf("the preview of another program: %s", page)
	}
	done.Failed, done.Import = "pfar import still ran after 1h0m0s", nil
	o.views(map[string]any{"import": done})
	if page := o.page(path); !strings.Contains(page, "still ran after 1h0m0s") {
		t.Errorf("one that failed: %s", page)
	}
}

// TestHostileImport is TestHostileTexts for a file that an attacker wrote: for its preview and its result.
func TestHostileImport(t *testing.T) {
	o := openServers(t)
	o.site.orders.allowed.Store(true)
	for name, result := range map[string]bool{"preview": false, "result": true} {
		look := func(text string) []string {
			text = text[:min(len(text), 4<<10)]        // or the page does not show the import
			text = strings.ReplaceAll(text, "\n", " ") // a declaration has as many lines as it has
			i := previewed(text)
			if result {
				i.Ended, i.Failed, i.Digest = time.Unix(2, 0), text, ""
				i.Began, i.Import.Files[0].Servers[0].Failed = time.Unix(1, 0), text
			}
			o.views(map[string]any{"import": i, "import cursor": i})
			a := o.do("GET", o.home+"import/cursor", "")
			guarded(t, a.h)
			plainText(t, fmt.Sprintf("%s %.60q", name, text), a.text)
			return shape(t, a.text)
		}
		want := look("plain")
		for _, text := range loopbacktest.PayloadsOf(name, loopbacktest.Many) {
			if got := look(text); !slices.Equal(got, want) {
				t.Errorf("%s %.60q: the page is %q", name, text, got)
			}
		}
	}
}
