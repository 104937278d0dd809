package state

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func opened(t *testing.T, dir string) *DB {
	t.Helper()
	db, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// put writes a session down.
func put(db *DB, client string, label int) error { return putBy(db.Do, client, label) }

func putBy(do func(func(*sql.Tx) error) error, client string, label int) error {
	return do(func(tx *sql.Tx) error {
		_, err := tx.Exec("INSERT INTO sessions (client, handle, label, connection, created, used) VALUES (?, 'default', ?, 0, 0, 0) ON CONFLICT DO UPDATE SET label = excluded.label", client, label)
		return err
	})
}

// got is the label of a session: -1 for none, -2 if it cannot be read.
func got(db *DB, client string) int {
	label := -1
	err := db.QueryRow("SELECT label FROM sessions WHERE client = ?", client).Scan(&label)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return -2
	}
	return label
}

// seeded is a directory whose file has sessions in the file itself, and later ones in its log.
func seeded(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	db := opened(t, dir)
	for i := range 200 {
		if err := put(db, fmt.Sprint("client", i), 51); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestRefuses: what is no whole file of this version is refused with advice, and stays as it is.
func TestRefuses(t *testing.T) {
	dir := seeded(t)
	whole, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	sqlite := func(statement string) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			db, err := connect(path)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if _, err := db.Exec(statement); err != nil {
				t.Fatal(err)
			}
		}
	}
	content := func(b []byte) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	broken := append(append(append([]byte{}, whole[:8192]...), strings.Repeat("\xff", 4096)...), whole[12288:]...)
	for what, c := range map[string]struct {
		do     func(*testing.T, string)
		advice string
	}{
		"empty":          {content(nil), "not a file of pfar"},
		"text":           {content([]byte(strings.Repeat("hello\n", 2000))), "not a file of pfar"},
		"a page of ff":   {content(broken), "move it"},
		"later":          {sqlite("PRAGMA user_version = 2"), "(format 2, this one has 1): install that again"},
		"earlier":        {sqlite("PRAGMA user_version = 0"), "the format 0 is not known"},
		"other program":  {sqlite("PRAGMA application_id = 1"), "not a file of pfar"},
		"other journal":  {sqlite("PRAGMA journal_mode = DELETE"), "a journal of the kind"},
		"a directory":    {func(t *testing.T, path string) { os.Remove(path); os.Mkdir(path, 0o700) }, "not a file of pfar"},
		"log alone left": {func(t *testing.T, path string) { os.WriteFile(path+"-wal", []byte("x"), 0o600); os.Remove(path) }, "is gone"},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, name)
		content(whole)(t, path)
		c.do(t, path)
		before, _ := os.ReadFile(path)
		db, err := Open(dir)
		if err == nil {
			db.Close()
			t.Errorf("%s: it is opened", what)
			continue
		}
		if !strings.Contains(err.Error(), c.advice) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "put a backup in its place") {
			t.Errorf("%s: %v", what, err)
		}
		if after, _ := os.ReadFile(path); string(after) != string(before) {
			t.Errorf("%s: it was changed", what)
		}
	}
}

// TestTruncated: a file that is cut anywhere is refused, or whole; never silently empty.
func TestTruncated(t *testing.T) {
	dir := seeded(t)
	whole, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	for cut := 0; cut < len(whole); cut += 1021 {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, name), whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		db, err := Open(dir)
		if err != nil {
			continue
		}
		if got(db, "client0") != 51 || got(db, "client199") != 51 {
			t.Errorf("cut at %d of %d bytes, sessions are gone", cut, len(whole))
		}
		db.Close()
	}
}

// TestPrivate: the directory is nobody else's, and one process's at a time.
func TestPrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gateway")
	db := opened(t, dir)
	if second, err := Open(dir); err == nil || !strings.Contains(err.Error(), "another gateway uses") {
		t.Errorf("%v, %v", second, err)
	}
	if err := os.Rename(filepath.Join(dir, name), filepath.Join(dir, "other")); err != nil { // as a backup that is put back
		t.Fatal(err)
	}
	if second, err := Open(dir); err == nil {
		t.Errorf("%v, %v", second, err)
	}
	db.Close()
	os.Chmod(dir, 0o777)
	os.Rename(filepath.Join(dir, "other"), filepath.Join(dir, name))
	db = opened(t, dir)
	db.Close()
	if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	if st, err := os.Stat(filepath.Join(dir, name)); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(link); err == nil {
		t.Error("through a link")
	}
	odd := filepath.Join(t.TempDir(), "odd%20?mode=memory#x")
	opened(t, odd).Close()
	if _, err := os.Stat(filepath.Join(odd, name)); err != nil {
		t.Error(err)
	}
}

// TestBegunAnew: a start that was killed while it made the file is no obstacle, and leaves nothing.
func TestBegunAnew(t *testing.T) {
	dir := t.TempDir()
	for _, left := range []string{".new", ".new-wal"} {
		if err := os.WriteFile(filepath.Join(dir, name+left), []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	db := opened(t, dir)
	defer db.Close()
	if err := put(db, "a", 51); err != nil {
		t.Fatal(err)
	}
	var files []string
	list, _ := os.ReadDir(dir)
	for _, f := range list {
		files = append(files, f.Name())
	}
	if got := strings.Join(files, " "); got != name+" "+name+"-wal" { // nor a file that is shared memory
		t.Errorf("there are %s", got)
	}
}

// TestMain lets the test's binary be the process that is killed, and the one whose disk is full.
func TestMain(m *testing.M) {
	switch os.Getenv("PFAR_STATE_TEST") {
	case "write":
		writeForever(os.Args[1])
	case "full":
		fmt.Print(fillDisk(os.Args[1]))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// writeForever counts up in the file, and says each number after it has been written down.
func writeForever(dir string) {
	db, err := Open(dir)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for n := got(db, "n") + 1; ; n++ {
		do := db.Do
		if n%2 == 0 {
			do = db.DoLater
		}
		if err := putBy(do, "n", n); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(n)
	}
}

// TestKilled: what has been written down outlives kill -9 at any moment, and nothing else is there.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	said, kills := 0, 40
	for i := range kills {
		cmd := exec.Command(os.Args[0], dir)
		cmd.Env = append(os.Environ(), "PFAR_STATE_TEST=write")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Duration(20+i*7)*time.Millisecond, func() { cmd.Process.Kill() })
		for {
			n := 0
			if _, err := fmt.Fscan(out, &n); err != nil {
				break
			}
			said = n
		}
		_ = cmd.Wait()
		db := opened(t, dir)
		if n := got(db, "n"); n != said && n != said+1 && !(said == 0 && n == -1) {
			t.Fatalf("%d had been said, and %d is there", said, n)
		}
		said = max(0, got(db, "n"))
		db.Close()
	}
	if said < 20 {
		t.Errorf("only %d writes between %d kills", said, kills)
	}
}

// TestFullDisk: a write that has no room is an error, what was there stays, and it goes on when there is room again.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], dir)
	cmd.Env = append(os.Environ(), "PFAR_STATE_TEST=full")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWUSER, Pdeathsig: unix.SIGKILL,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}}
	out, err := cmd.CombinedOutput()
	if err != nil || string(out) != "ok" {
		t.Errorf("%v: %s", err, out)
	}
	if list, _ := os.ReadDir(dir); len(list) != 0 {
		t.Errorf("on the real disk: %v", list)
	}
}

// fillDisk runs in a mount namespace of its own.
func fillDisk(dir string) string {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err.Error()
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=400k,mode=700"); err != nil {
		return err.Error()
	}
	db, err := Open(dir)
	if err != nil {
		return err.Error()
	}
	if err := put(db, "first", 17); err != nil {
		return err.Error()
	}
	if err := os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		return fmt.Sprintf("the disk is not full: %v", err)
	}
	failed := 0
	for i := range 50 {
		if put(db, strings.Repeat("x", 4000)+fmt.Sprint(i), 51) != nil {
			failed++
		}
	}
	if failed == 0 {
		return "everything is written on a full disk"
	}
	if n := got(db, "first"); n != 17 {
		return fmt.Sprintf("the first is %d", n)
	}
	if err := os.Remove(filepath.Join(dir, "filler")); err != nil {
		return err.Error()
	}
	if err := put(db, "last", 51); err != nil {
		return fmt.Sprintf("with room again: %v", err)
	}
	if err := db.Close(); err != nil {
		return err.Error()
	}
	if db, err = Open(dir); err != nil {
		return err.Error()
	}
	if got(db, "first") != 17 || got(db, "last") != 51 {
		return "something is gone"
	}
	return "ok"
}

// TestDoLater: only the changes of DoLater itself do not wait for the disk, whatever becomes of them.
func TestDoLater(t *testing.T) {
	db := opened(t, t.TempDir())
	defer db.Close()
	waits := func(q interface {
		QueryRow(string, ...any) *sql.Row
	}) int {
		n := -1
		if err := q.QueryRow("PRAGMA synchronous").Scan(&n); err != nil {
			t.Error(err)
		}
		return n
	}
	const normal, full = 1, 2 // sqlite.org/pragma.html#pragma_synchronous
	refused := errors.New("refused")
	for name, end := range map[string]func() error{
		"done":     func() error { return nil },
		"refused":  func() error { return refused },
		"panicked": func() error { panic(refused) },
	} {
		var err error
		func() {
			defer func() {
				if fault := recover(); fault != nil {
					err = fault.(error)
				}
			}()
			err = db.DoLater(func(tx *sql.Tx) error {
				if n := waits(tx); n != normal {
					t.Errorf("%s: inside it is %d", name, n)
				}
				if _, err := tx.Exec("INSERT INTO cleared (server, label, at) VALUES (?, 1, 1)", name); err != nil {
					t.Error(err)
				}
				return end()
			})
		}()
		if (err == nil) != (name == "done") || err != nil && !errors.Is(err, refused) {
			t.Errorf("%s: %v", name, err)
		}
		if n := waits(db); n != full {
			t.Errorf("%s: afterwards it is %d", name, n)
		}
	}
	var list string
	if err := db.QueryRow("SELECT group_concat(server) FROM cleared").Scan(&list); err != nil || list != "done" {
		t.Errorf("%q is there, %v", list, err)
	}
}
