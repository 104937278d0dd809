package vault

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"filippo.io/age"
	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units/durable"
)

const (
	suffix    = ".age"
	committed = ".commit" // a directory of files that take their places in the vault, whatever happens

	maxText = 2 * maxSecret // bytes of a file, decrypted: a secret in base64, with what else there is
	maxFile = maxText + 4<<10
)

// checkDir refuses a vault that somebody else may read, or has made.
func checkDir(dir string) error {
	st, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("opening the vault: %w", err)
	}
	if !st.IsDir() || st.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("opening the vault %q: others may read it (mode %v); make it a directory of mode 0700", dir, st.Mode())
	}
	if owner := st.Sys().(*syscall.Stat_t).Uid; int(owner) != os.Geteuid() {
		return fmt.Errorf("opening the vault %q: it belongs to uid %d, not to %d", dir, owner, os.Geteuid())
	}
	return nil
}

// files are the names of the encrypted files, sorted.
func (v *Vault) files() ([]string, error) {
	entries, err := os.ReadDir(v.dir)
	if err != nil {
		return nil, fmt.Errorf("listing the vault: %w", err)
	}
	var names []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), suffix) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// clean removes what writes have left that a crash cut short, and finishes those that count.
func (v *Vault) clean() error {
	if err := durable.Sweep(v.dir); err != nil {
		return fmt.Errorf("clearing the vault: %w", err)
	}
	return v.apply()
}

// begin keeps others from changing the vault until the returned function is called.
func (v *Vault) begin() (done func(), err error) {
	v.writing.Lock()
	if err := v.apply(); err != nil { // what an error has cut short must not come after what follows
		v.writing.Unlock()
		return nil, err
	}
	return v.writing.Unlock, nil
}

func (v *Vault) write(path string, b []byte) error {
	if err := durable.WriteFile(path, b); err != nil {
		return fmt.Errorf("writing to the vault: %w", err)
	}
	return nil
}

// commit replaces all of the files, by name, or none of them.
func (v *Vault) commit(files map[string][]byte) error {
	dir, err := os.MkdirTemp(v.dir, durable.Prefix+"*") // 0700
	if err != nil {
		return fmt.Errorf("writing to the vault: %w", err)
	}
	for name, b := range files {
		var staged string
		if staged, err = durable.Stage(dir, b); err == nil {
			err = os.Rename(staged, filepath.Join(dir, name))
		}
		if err != nil {
			break
		}
	}
	if err == nil {
		err = durable.SyncDir(dir)
	}
	if err == nil {
		err = os.Rename(dir, filepath.Join(v.dir, committed))
	}
	if err != nil {
		os.RemoveAll(dir)
		return fmt.Errorf("writing to the vault: %w", err)
	}
	if err := durable.SyncDir(v.dir); err != nil {
		return fmt.Errorf("writing to the vault: %w", err)
	}
	return v.apply()
}

// apply brings what is committed to its places, from wherever that was cut short.
func (v *Vault) apply() error {
	dir := filepath.Join(v.dir, committed)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if err == nil {
			err = os.Rename(filepath.Join(dir, e.Name()), filepath.Join(v.dir, e.Name()))
		}
	}
	if err == nil {
		err = durable.SyncDir(v.dir)
	}
	if err == nil {
		err = os.Remove(dir)
	}
	if err == nil {
		err = durable.SyncDir(v.dir)
	}
	if err != nil {
		return fmt.Errorf("bringing what was imported to its places, which the next change or start goes on with: %w", err)
	}
	return nil
}

// read returns a regular file that is no link and not larger than what the vault writes, and when it was written.
func read(path string, limit int64) ([]byte, time.Time, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, time.Time{}, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, time.Time{}, err
	}
	if !st.Mode().IsRegular() || st.Size() > limit {
		return nil, time.Time{}, fmt.Errorf("%q is %v with %d bytes, want a file with at most %d", path, st.Mode(), st.Size(), limit)
	}
	b, err := io.ReadAll(io.LimitReader(f, limit))
	return b, st.ModTime(), err
}

// decrypt returns what a file of the vault's holds, and when it was written. A Rekey may take the file and the key away
// between a look at one and at the other.
func (v *Vault) decrypt(path string) ([]byte, time.Time, error) {
	for {
		keys := v.identities()
		b, at, err := read(path, maxFile)
		if err != nil {
			return nil, at, err
		}
		var ids []age.Identity
		for _, id := range keys {
			ids = append(ids, id)
		}
		text, err := decrypt(b, ids...)
		if err == nil || slices.Equal(keys, v.identities()) {
			return text, at, err
		}
	}
}

func decrypt(b []byte, ids ...age.Identity) ([]byte, error) {
	r, err := age.Decrypt(bytes.NewReader(b), ids...)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(r, maxText+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxText {
		return nil, fmt.Errorf("the secret holds more than %d bytes", maxText)
	}
	return text, nil
}

func encrypt(text []byte, to age.Recipient) ([]byte, error) {
	var b bytes.Buffer
	w, err := age.Encrypt(&b, to)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(text); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
