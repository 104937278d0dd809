package native

import (
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/gate"
)

// markOfStat tells a file from every other one, and from itself after somebody has written to it: by its inode, its
// size, and when it was last written to. A file that was copied back has another mark.
func markOfStat(st *unix.Stat_t) string {
	return fmt.Sprintf("%d.%d.%d.%09d", st.Ino, st.Size, st.Mtim.Sec, st.Mtim.Nsec)
}

// markOf is the mark of an open file.
func markOf(f *os.File) (string, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return "", err
	}
	return markOfStat(&st), nil
}

// find returns the mark of the file with a path; "": there is none that a flow could read. The lock is held.
func (f *Files) find(client, path string) (string, error) {
	if f.checkPath(path) != nil {
		return "", nil
	}
	dir, err := f.folder(client)
	if err != nil {
		return "", fmt.Errorf("opening the folder of the client's flows: %w", err)
	}
	defer dir.Close()
	file, err := open(dir, path, unix.O_PATH)
	if err != nil {
		return "", nil
	}
	defer file.Close()
	return markOf(file)
}

// label is that of a file with a mark. One that flows have not left so has the worst.
func (f *Files) label(client, path, mark string) (gate.Label, error) {
	var n int
	var marks string
	const query = `SELECT label, marks FROM flow_files JOIN flow_file_marks USING (client, path)
		WHERE client = ? AND path = ?`
	err := f.DB.QueryRow(query, client, path).Scan(&n, &marks)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return gate.Worst.Output, nil
	case err == nil && (mark == "" || !slices.Contains(strings.Split(marks, " "), mark)):
		return gate.Worst.Output, nil
	}
	l := unpack(n)
	if err != nil || !l.Known() {
		return gate.Label{}, fmt.Errorf("reading the label of %q: %w", path, cmp.Or(err, errors.New("the label is unknown")))
	}
	return l, nil
}

// setLabel has a file have a label from now on, as long as it has one of these marks.
func (f *Files) setLabel(client, path string, l gate.Label, marks ...string) error {
	err := f.DB.Do(func(tx *sql.Tx) error {
		_, err := tx.Exec("INSERT OR REPLACE INTO flow_files (client, path, label) VALUES (?, ?, ?)",
			client, path, pack(l))
		if err != nil {
			return err
		}
		_, err = tx.Exec("INSERT OR REPLACE INTO flow_file_marks (client, path, marks) VALUES (?, ?, ?)",
			client, path, strings.Join(marks, " "))
		return err
	})
	if err != nil {
		return fmt.Errorf("writing down the label of %q: %w", path, err)
	}
	return nil
}
