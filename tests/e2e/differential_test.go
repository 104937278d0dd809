package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/fence"
)

// original is a server, as it is when spoken to without pfar.
type original struct {
	name   string
	direct speaker
	lists  map[string][][]byte // its items, by the list's member
}

// way is one way to reach servers through pfar: by a client of one generation, on one transport, one endpoint.
type way struct {
	name string
	speaker
	server string // "" is all
}

// list is a method that lists, and how it speaks of what it lists.
type list struct{ method, member, key string }

var lists = []list{
	{"tools/list", "tools", "name"}, {"prompts/list", "prompts", "name"},
	{"resources/list", "resources", "uri"}, {"resources/templates/list", "resourceTemplates", "uriTemplate"},
}

// newOriginal starts a server, as pfar would speak to it, and lists what it has.
func newOriginal(t testing.TB, name string, env []string, program string, args ...string) *original {
	t.Helper()
	o := &original{name: name, lists: map[string][][]byte{}}
	o.direct = speak(t, generation(t, env, program, args...), env, program, args...)
	for _, l := range lists {
		items, err := all(o.direct, l)
		if err != nil && !strings.Contains(err.Error(), "-32601") {
			t.Fatalf("%s of %s itself: %v", l.method, name, err)
		}
		o.lists[l.member] = items
	}
	return o
}

// ways are all that lead to the servers: both generations on both transports, to each alone and to all of them.
func (p *pfar) ways(servers []*original) []*way {
	p.t.Helper()
	var list []*way
	add := func(name, server string, s speaker) { list = append(list, &way{name, s, server}) }
	for _, young := range []bool{false, true} {
		era := map[bool]string{false: "legacy", true: "modern"}[young]
		add(era+" http to all", "", p.speakHTTP(young, "/mcp"))
		add(era+" stdio to all", "", speak(p.t, young, p.env, program(p.t, "pfar"), "connect"))
		for _, o := range servers {
			add(era+" http to "+o.name, o.name, p.speakHTTP(young, "/mcp/"+o.name))
			add(era+" stdio to "+o.name, o.name, speak(p.t, young, p.env, program(p.t, "pfar"), "connect", o.name))
		}
	}
	return list
}

// all lists, page after page.
func all(s speaker, l list) ([][]byte, error) {
	var items [][]byte
	meta := ""
	if s.modern() {
		meta = `"_meta":{` + modernMeta + `}`
	}
	params := "{" + meta + "}"
	for page := range 1000 {
		a, err := s.ask(l.method, params, fmt.Sprintf(`"%s %d"`, l.member, page), "", "")
		if err != nil {
			return nil, err
		}
		if a.member != "result" {
			return nil, fmt.Errorf("%s: %s", l.method, a.value)
		}
		got, err := values(member(a.value, l.member))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.method, err)
		}
		items = append(items, got...)
		next := member(a.value, "nextCursor")
		if next == nil {
			return items, nil
		}
		if params = `{"cursor":` + string(next) + `}`; meta != "" {
			params = `{"cursor":` + string(next) + `,` + meta + `}`
		}
	}
	return nil, fmt.Errorf("%s has no end", l.method)
}

// sameLists compares what a way lists with what its servers list, in order.
func (w *way) sameLists(t testing.TB, servers []*original) {
	t.Helper()
	for _, l := range lists {
		got, err := all(w, l)
		if err != nil {
			t.Errorf("%s: %v", w.name, err)
			continue
		}
		for _, o := range servers {
			if w.server != "" && w.server != o.name {
				continue
			}
			for _, direct := range o.lists[l.member] {
				name := w.named(o.name, l, direct)
				if len(got) == 0 || text(member(got[0], l.key)) != name {
					t.Errorf("%s: %s has no %q where it is to be: %.500q", w.name, l.method, name, direct)
					continue
				}
				if d := w.sameItem(got[0], direct, o.name, l); d != "" {
					t.Errorf("%s: %s of %s: %s", w.name, l.method, o.name, d)
				}
				got = got[1:]
			}
		}
		if len(got) > 0 {
			t.Errorf("%s: %s has %d more, the first %.200s", w.name, l.method, len(got), got[0])
		}
	}
}

// named is what a client of the way calls an item.
func (w *way) named(server string, l list, item []byte) string {
	own := text(member(item, l.key))
	if w.server == "" && l.key == "name" {
		return server + "__" + own
	}
	return own
}

func text(raw []byte) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return fmt.Sprintf("not a string: %.100q", raw)
	}
	return s
}

// sameItem compares one definition.
func (w *way) sameItem(through, direct []byte, server string, l list) string {
	got, err := unmarked(through, direct, server)
	if err == nil && w.server == "" && l.key == "name" {
		got, err = replaced(got, "name", member(direct, "name"))
	}
	if err != nil {
		return err.Error()
	}
	if l.member == "resources" || l.member == "resourceTemplates" {
		return differCleaned(got, direct)
	}
	return differ(got, direct)
}

// literal is a string of JSON.
var literal = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// differCleaned is differ of what nobody has accepted: only strings that hide something may be others, and must be as
// fence.Clean leaves them. A name that was changed goes on behind a tilde.
func differCleaned(got, want []byte) string {
	theirs, ours := literal.FindAllIndex(want, -1), literal.FindAllIndex(got, -1)
	expected, from := []byte{}, 0
	for i, at := range theirs {
		quoted := want[at[0]:at[1]]
		if cleaned, changed := fence.Clean(text(quoted)); changed && i < len(ours) {
			if s := got[ours[i][0]:ours[i][1]]; text(s) == cleaned || strings.HasPrefix(text(s), cleaned+"~") {
				quoted = s
			}
		}
		expected = append(append(expected, want[from:at[0]]...), quoted...)
		from = at[1]
	}
	return differ(got, append(expected, want[from:]...))
}

// sameAnswer compares an answer and what came before it.
func (w *way) sameAnswer(method string, through, direct spoken, o *original) string {
	if through.member != direct.member {
		return fmt.Sprintf("%s %.300q, want %s %.300q", through.member, through.value, direct.member, direct.value)
	}
	got, err := through.value, error(nil)
	if through.member == "result" {
		if w.modern() && !o.direct.modern() {
			got, err = younger(got, direct.value)
		}
		marked := string(member(member(got, "_meta"), "pfar/server")) == strconv.Quote(o.name)
		if err == nil && (marked || slices.Contains([]string{"tools/call", "prompts/get", "resources/read"}, method)) {
			got, err = unmarked(got, direct.value, o.name)
		}
	}
	if through.member == "error" {
		got, err = unclassed(got, direct.value)
	}
	if err != nil {
		return err.Error()
	}
	if d := differ(got, direct.value); d != "" {
		return d
	}
	if !slices.EqualFunc(through.progress, direct.progress, bytes.Equal) {
		return fmt.Sprintf("progress %q, want %q", through.progress, direct.progress)
	}
	return ""
}
