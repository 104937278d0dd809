// Package search ranks tools by the words of a query.
package search

import (
	"cmp"
	"database/sql"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"unicode"

	_ "modernc.org/sqlite" // the driver "sqlite", whose FTS5 is the index
)

// Tool is what the index knows of one tool. The better an earlier field matches, the higher the tool ranks; of the
// description, its first sentence counts more than the rest.
type Tool struct{ Name, Title, Description, Arguments string }

// Index finds tools. It lies in memory, never changes, and is safe for concurrent use. The garbage collector closes it.
type Index struct{ db *sql.DB }

const (
	schema = `CREATE VIRTUAL TABLE tools
		USING fts5(name, title, summary, description, arguments, tokenize = "porter unicode61")`
	insert = `INSERT INTO tools (rowid, name, title, summary, description, arguments) VALUES (?, ?, ?, ?, ?, ?)`
	ranked = `SELECT rowid, 5*bm25(tools, 1, 0, 0, 0, 0) + 3*bm25(tools, 0, 1, 1, 0, 0) + bm25(tools, 0, 0, 0, 1, 1)
		FROM tools WHERE tools MATCH ?` // lower is better
)

// New makes the index of a list. Tools keep their places in it.
func New(tools []Tool) (*Index, error) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return nil, fmt.Errorf("opening the index of tools: %w", err)
	}
	db.SetMaxOpenConns(1) // each connection to :memory: is a database of its own
	x := &Index{db}
	runtime.AddCleanup(x, func(db *sql.DB) { _ = db.Close() }, db)
	return x, x.fill(tools)
}

func (x *Index) fill(tools []Tool) error {
	tx, err := x.db.Begin()
	if err != nil {
		return fmt.Errorf("beginning the index of tools: %w", err)
	}
	defer tx.Rollback()
	if _, err := tx.Exec(schema); err != nil {
		return fmt.Errorf("making the index of tools: %w", err)
	}
	for i, t := range tools {
		summary, rest := sentence(t.Description)
		values := []any{i, joined(t.Name), joined(t.Title), joined(summary), joined(rest), joined(t.Arguments)}
		if _, err := tx.Exec(insert, values...); err != nil {
			return fmt.Errorf("filling the index of tools: %w", err)
		}
	}
	return tx.Commit()
}

// Find returns the places of the tools that match a word of the query, best first. A tool scores the BM25 of each word,
// less for words of actions and for synonyms. Tools that match more of the words score more, most of all if they match
// in the name, the title or the first sentence of the description.
func (x *Index) Find(query string) ([]int, error) {
	words := content(query)
	scores, covered := map[int]float64{}, map[int]float64{}
	for _, w := range words {
		has := map[int]float64{}
		for _, t := range terms(w) {
			if err := x.match(t, scores, has); err != nil {
				return nil, fmt.Errorf("searching tools: %w", err)
			}
		}
		for at, much := range has {
			covered[at] += much
		}
	}
	for at := range scores {
		scores[at] *= (1 + covered[at]) / float64(1+len(words))
	}
	return slices.SortedFunc(maps.Keys(scores), func(a, b int) int {
		return cmp.Or(cmp.Compare(scores[b], scores[a]), cmp.Compare(a, b))
	}), nil
}

// The columns in which match searches, and how much a match there counts. Each search ranks by how rare a word is in
// its own columns, because long descriptions share most of their words.
var parts = [...]struct {
	columns string
	covers  float64
}{{"{name title summary} : ", 1}, {"{description arguments} : ", 0.5}}

// match adds the scores of a term to scores, and notes in has how well each tool matches. It searches synonyms only in
// names, titles and first sentences.
func (x *Index) match(t term, scores, has map[int]float64) error {
	for _, part := range parts {
		found, err := x.rank(part.columns + t.expression)
		if err != nil {
			return err
		}
		for at, score := range found {
			scores[at] -= t.weight * score
			has[at] = max(has[at], part.covers)
		}
		if !t.own {
			break
		}
	}
	return nil
}

// rank returns the scores of the tools that match an expression.
func (x *Index) rank(expression string) (map[int]float64, error) {
	rows, err := x.db.Query(ranked, expression)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	found := map[int]float64{}
	for rows.Next() {
		var at int
		var score float64
		if err := rows.Scan(&at, &score); err != nil {
			return nil, err
		}
		found[at] = score
	}
	return found, rows.Err()
}

// maxWords bounds what one query costs.
const maxWords = 12

// content are the words of a query that are looked for. Words that only connect others count if there are no others.
func content(query string) []string {
	words := unique(split(query))
	if more := slices.DeleteFunc(slices.Clone(words), func(w string) bool { return connecting[w] }); len(more) > 0 {
		words = more
	}
	return words[:min(len(words), maxWords)]
}

// term is a query in FTS5's language, and how much it counts.
type term struct {
	expression string
	weight     float64
	own        bool // it is the word itself
}

// terms are those of a word: itself, and words that stand for the same.
func terms(word string) []term {
	list := []term{{quoted(word), 1, true}}
	for i, alike := range synonyms {
		if !slices.Contains(alike, word) && !slices.Contains(alike, strings.TrimSuffix(word, "s")) {
			continue
		}
		if i < actions {
			list[0].weight = 0.7
		}
		var others []string
		for _, other := range alike {
			if other != word {
				others = append(others, quoted(other))
			}
		}
		list = append(list, term{"(" + strings.Join(others, " OR ") + ")", 0.3, false})
	}
	return list
}

// quoted is a word as a term of FTS5, which may also begin a longer one unless it is short. It stands in quotes, so
// that nothing in it is an operator (https://sqlite.org/fts5.html, section 3).
func quoted(word string) string {
	if len(word) < leastPrefix {
		return `"` + word + `"`
	}
	return `"` + word + `"*`
}

// leastPrefix is how many bytes a word has that may begin a longer one: "a" begins too many.
const leastPrefix = 3

// synonyms are words that models and the makers of tools use for the same. The first say what is done: they tell tools
// apart less than what it is done with.
var synonyms = [...][]string{
	{"add", "create", "insert", "make", "new", "schedule"},
	{"find", "look", "search"},
	{"get", "fetch", "list", "read", "retrieve", "see", "show", "view", "what", "which"},
	{"delete", "remove", "drop"},
	{"change", "edit", "modify", "set", "update"},
	{"post", "send", "write"},
	{"navigate", "open", "visit"},
	{"execute", "perform", "run"},
	{"appointment", "event", "meeting"},
	{"email", "mail"},
	{"directory", "folder"},
	{"bug", "issue", "ticket"},
	{"doc", "document", "file"},
	{"page", "site", "url", "website"},
}

// actions is how many of them say what is done.
const actions = 8

// connecting are words that nearly every description has.
var connecting = func() map[string]bool {
	words := make(map[string]bool)
	for _, w := range strings.Fields("a all an and are as at be by can do for from had has have how i if in into is it " +
		"its me my of on or our please some that the their there these this those to up us want was we when where who will " +
		"with you your") {
		words[w] = true
	}
	return words
}()

// sentence returns the first sentence of a text, and the rest. It ends with a line, too.
func sentence(text string) (first, rest string) {
	text = strings.TrimSpace(text)
	end := len(text)
	for _, sign := range []string{". ", ".\n", "\n"} {
		if i := strings.Index(text, sign); i >= 0 {
			end = min(end, i+len(sign))
		}
	}
	return text[:end], text[end:]
}

func joined(text string) string { return strings.Join(unique(split(text)), " ") }

// unique leaves each word once: a text that repeats a word ranks no better for it.
func unique(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}

// split returns the words of a text in lower case. Those of "createIssue" are two.
func split(text string) []string {
	var b strings.Builder
	lower := false
	for _, r := range text {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			r = ' '
		case lower && unicode.IsUpper(r):
			b.WriteByte(' ')
		}
		b.WriteRune(unicode.ToLower(r))
		lower = unicode.IsLower(r)
	}
	return strings.Fields(b.String())
}
