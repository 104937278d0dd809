// Package search ranks tools by the words of a query.
package search

import (
	"database/sql"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"unicode"

	_ "modernc.org/sqlite" // the driver "sqlite", whose FTS5 is the index
)

// Tool is what the index knows of one tool. The better an earlier field matches, the higher the tool ranks.
type Tool struct{ Name, Title, Description, Arguments string }

// Index finds tools. It lies in memory, never changes, and is safe for concurrent use. The garbage collector closes it.
type Index struct{ db *sql.DB }

const (
	schema = `CREATE VIRTUAL TABLE tools USING fts5(name, title, description, arguments, tokenize = "porter unicode61")`
	insert = `INSERT INTO tools (rowid, name, title, description, arguments) VALUES (?, ?, ?, ?, ?)`
	ranked = `SELECT rowid FROM tools WHERE tools MATCH ? ORDER BY bm25(tools, 10, 5, 2, 1), rowid`
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
		values := []any{i, joined(t.Name), joined(t.Title), joined(t.Description), joined(t.Arguments)}
		if _, err := tx.Exec(insert, values...); err != nil {
			return fmt.Errorf("filling the index of tools: %w", err)
		}
	}
	return tx.Commit()
}

// Find returns the places of the tools that match a word of the query: first those that match every word, then the
// others, both by BM25, best first.
func (x *Index) Find(query string) ([]int, error) {
	var found []int
	terms := expression(query)
	for _, operator := range [...]string{" AND ", " OR "} {
		places, err := x.match(strings.Join(terms, operator))
		if err != nil {
			return nil, fmt.Errorf("searching tools: %w", err)
		}
		found = append(found, slices.DeleteFunc(places, func(at int) bool { return slices.Contains(found, at) })...)
	}
	return found, nil
}

func (x *Index) match(expression string) (places []int, err error) {
	if expression == "" {
		return nil, nil
	}
	rows, err := x.db.Query(ranked, expression)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var at int
		if err := rows.Scan(&at); err != nil {
			return nil, err
		}
		places = append(places, at)
	}
	return places, rows.Err()
}

// maxWords bounds what one query costs.
const maxWords = 32

// expression is a query in FTS5's language, a term for each word, which may also begin a longer one. Each stands in
// quotes, so that nothing in it is an operator (https://sqlite.org/fts5.html, section 3).
func expression(query string) []string {
	terms := unique(split(query))
	for i, w := range terms {
		terms[i] = `"` + w + `"*`
	}
	return terms[:min(len(terms), maxWords)]
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
