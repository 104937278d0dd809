package homeserver

import (
	"bytes"
	"database/sql"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	_ "modernc.org/sqlite" // reads the databases of the homeserver
)

// forms are those in which a text may stand in a file.
func forms(text string) map[string][]byte {
	all := map[string][]byte{"as it is": []byte(text), "in hexadecimal": []byte(hex.EncodeToString([]byte(text)))}
	for shift := range 3 { // what stands before it moves the bits
		b := base64.RawStdEncoding.EncodeToString(append(make([]byte, shift), text...))
		all[fmt.Sprintf("in base64, after %d bytes", shift)] = []byte(b[(shift*8+5)/6 : len(b)-1])
	}
	return all
}

// Find returns the places where a text is kept: in which table of which database, and in which file of the queue. The
// server has ended before. rows is how many rows it has looked at.
func (s *Server) Find(t testing.TB, text string) (places []string, rows int) {
	t.Helper()
	if s.process != nil {
		t.Fatal("the homeserver still runs")
	}
	databases, err := filepath.Glob(filepath.Join(s.Dir, "*.db"))
	if err != nil || len(databases) == 0 {
		t.Fatalf("the databases of the homeserver are not there: %v", err)
	}
	for _, file := range databases {
		found, n := findIn(t, file, text)
		places, rows = append(places, found...), rows+n
	}
	err = filepath.WalkDir(s.Queue(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		for how, form := range forms(text) {
			if bytes.Contains(b, form) {
				places = append(places, fmt.Sprintf("queue %s, %s", strings.TrimPrefix(path, s.Queue()), how))
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return places, rows
}

// findIn looks into every row of every table of a database.
func findIn(t testing.TB, file, text string) (places []string, rows int) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var tables []string
	list, err := db.Query("SELECT name FROM sqlite_master WHERE type = 'table'")
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	for list.Next() {
		var name string
		if err := list.Scan(&name); err != nil {
			t.Fatal(err)
		}
		tables = append(tables, name)
	}
	if err := list.Err(); err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		n, how := findRow(t, db, table, forms(text))
		rows += n
		for _, one := range how {
			places = append(places, fmt.Sprintf("%s, table %s, %s", filepath.Base(file), table, one))
		}
	}
	return places, rows
}

func findRow(t testing.TB, db *sql.DB, table string, forms map[string][]byte) (n int, how []string) {
	t.Helper()
	rows, err := db.Query(`SELECT * FROM "` + table + `"`)
	if err != nil {
		t.Fatalf("reading table %s: %v", table, err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	cells := make([]sql.RawBytes, len(columns))
	into := make([]any, len(columns))
	for i := range cells {
		into[i] = &cells[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		n++
		for i, cell := range cells {
			for name, form := range forms {
				if bytes.Contains(cell, form) {
					how = append(how, "column "+columns[i]+", "+name)
				}
			}
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatalf("reading table %s: %v", table, err)
	}
	return n, how
}
