package search

import (
	"slices"
	"strings"
	"sync"
	"testing"
)

var tools = []Tool{
	{"github__create_issue", "Create issue", "Creates a new issue in a repository", "owner repo title body"},
	{"github__search_issues", "", "Searches issues and pull requests", "q"},
	{"slack__slack_post_message", "", "Posts a message to a channel", "channel text"},
	{"calendar__createEvent", "", "Adds an appointment", "summary start end"},
	{"files__read_text_file", "", "Reads a file. Never mentions issues", "path"},
	{"notion__API-post-search", "Search by title", "Finds pages", "query"},
	{"evil__x", "", strings.Repeat("issue ", 400), "issue"},
}

func find(t *testing.T, x *Index, query string) []string {
	t.Helper()
	places, err := x.Find(query)
	if err != nil {
		t.Fatalf("Find(%q): %v", query, err)
	}
	var names []string
	for _, at := range places {
		names = append(names, tools[at].Name)
	}
	return names
}

func TestFind(t *testing.T) {
	x, err := New(tools)
	if err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string][]string{
		"":                        nil,
		" \x00\"*()-":             nil,
		"nothingofthekind":        nil,
		`" OR name:"github`:       {"github__search_issues", "github__create_issue"},
		"NOT github":              {"notion__API-post-search", "github__search_issues"}, // "not" begins "notion"
		"messages":                {"slack__slack_post_message"},
		"posting a message":       {"slack__slack_post_message"},
		"event":                   {"calendar__createEvent"},
		"appointments":            {"calendar__createEvent"},
		"schedule a meeting":      {"calendar__createEvent"},
		"of the":                  nil,
		"github__create_issue":    {"github__create_issue", "github__search_issues"},
		"createEvent":             {"calendar__createEvent"},
		"API-post-search":         {"notion__API-post-search"},
		"create issue":            {"github__create_issue"},
		"ÜBER pages":              {"notion__API-post-search"},
		strings.Repeat("x ", 1e5): {"evil__x"},
	} {
		got := find(t, x, query)
		if len(want) == 0 && len(got) > 0 || len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
			t.Errorf("Find(%.40q) = %q, want first %q", query, got, want)
		}
	}
}

// TestNoStuffing: a description that repeats a word does not push a tool before one whose name has it.
func TestNoStuffing(t *testing.T) {
	x, err := New(tools)
	if err != nil {
		t.Fatal(err)
	}
	if got := find(t, x, "issues"); slices.Index(got, "evil__x") < slices.Index(got, "github__search_issues") {
		t.Errorf("issues: %q", got)
	}
}

func TestAtOnce(t *testing.T) {
	x, err := New(tools)
	if err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for range 20 {
				if got := find(t, x, "message"); len(got) != 1 {
					t.Errorf("message: %q", got)
				}
			}
		})
	}
	wait.Wait()
}
