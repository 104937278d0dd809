// Package state keeps the one SQLite file of the gateway: a directory in, a database whose schema is this version's
// out, or the reason why not.
package state

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	_ "modernc.org/sqlite" // the driver "sqlite"
)

// name of the file in the directory; SQLite has another one beside it, with -wal behind its name.
const name = "gateway.db"

// application marks the file as ours (PRAGMA application_id): "pfar".
const application = 0x70666172

// DB is the open file. Everything that a commit has answered is on the disk.
type DB struct {
	*sql.DB
	lock *os.File
}

// Open opens the file in dir, which it makes if it is not there. A file that is damaged, or of a later version of pfar,
// is an error that says what to do: what sessions have seen is never forgotten by itself. So is a second process on the
// same directory.
func Open(dir string) (*DB, error) {
	if err := private(dir); err != nil {
		return nil, err
	}
	lock, err := locked(dir)
	if err != nil {
		return nil, err
	}
	db, err := open(filepath.Join(dir, name))
	if err != nil {
		lock.Close()
		return nil, err
	}
	return &DB{db, lock}, nil
}

// Close writes the log of changes into the file and lets the next process have it.
func (d *DB) Close() error {
	return errors.Join(d.DB.Close(), d.lock.Close())
}

// private makes the directory, and makes sure that nobody else can put files into it.
func private(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("making the gateway's directory: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return fmt.Errorf("reading %q: %w", dir, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("the gateway's directory, %q, must be a directory of uid %d; it is one of uid %d", dir, os.Geteuid(), st.Uid)
	}
	if st.Mode&0o077 != 0 {
		if err := os.Chmod(dir, 0o700); err != nil {
			return fmt.Errorf("closing the gateway's directory: %w", err)
		}
	}
	return nil
}

// locked holds the directory itself, which is not replaced when a file in it is.
func locked(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("locking the gateway's directory: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("another gateway uses %q: stop it, or give this one another directory", dir)
	}
	return f, nil
}

func open(path string) (*sql.DB, error) {
	err := ours(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = create(path)
	}
	if err != nil {
		return nil, fmt.Errorf("opening %q: %w", path, err)
	}
	db, err := connect(path)
	if err == nil {
		if err = check(db); err == nil {
			if _, err = db.Exec(additions); err == nil {
				return db, nil
			}
		}
		db.Close()
	}
	return nil, fmt.Errorf("opening %q: %w", path, err)
}

// ours looks at a file before SQLite does, which takes an empty one for a new database.
func ours(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	head := make([]byte, 100) // sqlite.org/fileformat.html, section 1.3
	if _, err := io.ReadFull(f, head); err != nil || !bytes.HasPrefix(head, []byte("SQLite format 3\x00")) ||
		binary.BigEndian.Uint32(head[68:]) != application {
		return fmt.Errorf("not a file of pfar: %w", errDamaged)
	}
	return nil
}

// create makes the file whole before it has its name: an empty file of that name is none that pfar has made.
func create(path string) error {
	if _, err := os.Lstat(path + "-wal"); err == nil {
		return fmt.Errorf("%q is gone, but what was to be written into it is still there: %w", path, errDamaged)
	}
	temporary := path + ".new"
	for _, left := range []string{temporary, temporary + "-wal"} { // by a crash at this place
		if err := os.Remove(left); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	f, err := os.OpenFile(temporary, os.O_CREATE|os.O_EXCL|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	db, err := connect(temporary)
	if err != nil {
		return err
	}
	_, err = db.Exec("PRAGMA journal_mode = WAL;" + schema)
	if err = errors.Join(err, db.Close()); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Rename(temporary, path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// connect opens one connection, which keeps the file to itself: so there is no memory shared with others, and each
// commit is one write and one fsync of the log. That there is a log stands in the file: the driver would ask for it
// before it asks for the file, for it sorts these by their names.
func connect(path string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+escape(path)+"?mode=rw&_pragma=locking_mode(EXCLUSIVE)&_pragma=synchronous(FULL)&_pragma=foreign_keys(1)&_pragma=temp_store(MEMORY)&_pragma=trusted_schema(0)")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	db.SetMaxIdleConns(1)
	return db, nil
}

// escape makes a path one of a URI (sqlite.org/uri.html).
func escape(path string) string {
	var b []byte
	for _, c := range []byte(path) {
		if c == '%' || c == '?' || c == '#' {
			b = fmt.Appendf(b, "%%%02X", c)
		} else {
			b = append(b, c)
		}
	}
	return string(b)
}

// errDamaged is what to do about a file that is of no use.
var errDamaged = errors.New("stop the gateway and put a backup in its place, or move it and the file with -wal " +
	"behind its name away to begin anew; what sessions have seen is forgotten then")

// check wants the file to be of this version, and whole.
func check(db *sql.DB) error {
	var is int
	var journal string
	err := db.QueryRow("PRAGMA user_version").Scan(&is)
	if err == nil {
		err = db.QueryRow("PRAGMA journal_mode").Scan(&journal)
	}
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", err, errDamaged)
	case journal != "wal":
		return fmt.Errorf("another program has made it keep a journal of the kind %.20q: %w", journal, errDamaged)
	case is > version:
		return fmt.Errorf("a later pfar wrote the file (format %d, this one has %d): install that again; or: %w", is, version,
			errDamaged)
	case is < version:
		return fmt.Errorf("the format %d is not known: %w", is, errDamaged)
	}
	return whole(db)
}

func whole(db *sql.DB) error {
	var said string
	if err := db.QueryRow("PRAGMA quick_check(1)").Scan(&said); err != nil {
		return fmt.Errorf("%w: %w", err, errDamaged)
	}
	if said != "ok" {
		return fmt.Errorf("the file is damaged (%.200q): %w", said, errDamaged)
	}
	return nil
}

// Each calls take for each row of a query, with the columns in the variables that to points to.
func (d *DB) Each(query string, to []any, take func() error) error {
	rows, err := d.Query(query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		err := rows.Scan(to...)
		if err == nil {
			err = take()
		}
		if err != nil {
			return err
		}
	}
	return rows.Err()
}

// Do carries out changes, all or none.
func (d *DB) Do(changes func(*sql.Tx) error) error {
	tx, err := d.BeginTx(context.Background(), nil)
	if err != nil {
		return err
	}
	if err := changes(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// DoLater is Do, but does not wait until the changes are on the disk: if this process is killed they are in the file,
// and if the machine loses power the last ones may be lost, those of Do before never. The next Do has them on the disk.
func (d *DB) DoLater(changes func(*sql.Tx) error) (err error) {
	ctx := context.Background()
	conn, err := d.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, "PRAGMA synchronous = NORMAL"); err != nil {
		return err
	}
	defer func() {
		if _, failed := conn.ExecContext(ctx, "PRAGMA synchronous = FULL"); failed != nil {
			_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // the next connection waits for the disk
			err = errors.Join(err, failed)
		}
	}()
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // before the connection waits again: in a transaction it cannot
	if err := changes(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}
