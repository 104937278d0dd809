// Package vault keeps secrets at rest: names and values in, one age-encrypted file per secret out.
package vault

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"filippo.io/age"
)

// ErrNotFound is wrapped by errors about a key that is not in the vault.
var ErrNotFound = errors.New("not in the vault")

// maxSecret bounds one value, in bytes.
const maxSecret = 64 << 10

var validKey = regexp.MustCompile(`^[a-z0-9_-]{1,64}$`)

// Vault is a directory of encrypted secrets with the key beside them, readable by its owner only.
type Vault struct {
	dir      string
	identity age.Identity
	to       age.Recipient
}

// Open opens the vault in dir, and makes it with a new key if there is none. A key that cannot be read is an error,
// never a reason for a new one: the secrets would be lost.
func Open(dir string) (*Vault, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the vault: %w", err)
	}
	if st, err := os.Lstat(dir); err != nil {
		return nil, fmt.Errorf("opening the vault: %w", err)
	} else if st.Mode().Perm()&0o077 != 0 || !st.IsDir() {
		return nil, fmt.Errorf("opening the vault %q: others may read it (mode %04o); make it 0700", dir, st.Mode().Perm())
	}
	v := &Vault{dir: dir}
	if err := v.clean(); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(v.keyFile())
	if errors.Is(err, fs.ErrNotExist) {
		return v, v.create()
	}
	if err != nil {
		return nil, fmt.Errorf("reading the vault's key: %w", err)
	}
	ids, err := age.ParseIdentities(bytes.NewReader(text))
	if err != nil || len(ids) != 1 {
		return nil, fmt.Errorf("reading the vault's key %q: want one age identity; restore it from a backup", v.keyFile())
	}
	id, ok := ids[0].(*age.X25519Identity)
	if !ok {
		return nil, fmt.Errorf("reading the vault's key %q: it is a %T, want an X25519 identity", v.keyFile(), ids[0])
	}
	v.identity, v.to = id, id.Recipient()
	return v, nil
}

func (v *Vault) keyFile() string            { return filepath.Join(v.dir, "key.txt") }
func (v *Vault) secretFile(k string) string { return filepath.Join(v.dir, k+".age") }

func (v *Vault) create() error {
	if left, err := filepath.Glob(filepath.Join(v.dir, "*.age")); err != nil || len(left) > 0 {
		return fmt.Errorf("opening the vault %q: it holds %d secrets but its key.txt is gone; restore it from a backup", v.dir, len(left))
	}
	id, err := age.GenerateX25519Identity()
	if err != nil {
		return fmt.Errorf("making the vault's key: %w", err)
	}
	v.identity, v.to = id, id.Recipient()
	return v.write(v.keyFile(), []byte(id.String()+"\n"))
}

// Set stores value under key. A crash leaves the old value or the new one.
func (v *Vault) Set(key string, value []byte) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if len(value) == 0 || len(value) > maxSecret {
		return fmt.Errorf("storing %q: a secret has 1 to %d bytes, this one %d", key, maxSecret, len(value))
	}
	if bytes.IndexByte(value, 0) >= 0 {
		return fmt.Errorf("storing %q: a secret cannot hold a NUL byte: no environment variable can", key)
	}
	return v.store(key, value)
}

// store encrypts the text of the file of a valid key.
func (v *Vault) store(key string, value []byte) error {
	var b bytes.Buffer
	w, err := age.Encrypt(&b, v.to)
	if err != nil {
		return fmt.Errorf("encrypting %q: %w", key, err)
	}
	if _, err := w.Write(value); err != nil {
		return fmt.Errorf("encrypting %q: %w", key, err)
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("encrypting %q: %w", key, err)
	}
	return v.write(v.secretFile(key), b.Bytes())
}

// text returns what the file of a key holds.
func (v *Vault) text(key string) ([]byte, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	f, err := os.Open(v.secretFile(key))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("secret %q is %w: pfar vault set %s", key, ErrNotFound, key)
	}
	if err != nil {
		return nil, fmt.Errorf("reading secret %q: %w", key, err)
	}
	defer f.Close()
	r, err := age.Decrypt(f, v.identity)
	if err != nil {
		return nil, fmt.Errorf("decrypting secret %q: %w", key, err)
	}
	value, err := io.ReadAll(io.LimitReader(r, 2*maxSecret))
	if err != nil {
		return nil, fmt.Errorf("decrypting secret %q: %w", key, err)
	}
	return value, nil
}

// Remove forgets the value under key.
func (v *Vault) Remove(key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	err := os.Remove(v.secretFile(key))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("secret %q is %w", key, ErrNotFound)
	}
	if err != nil {
		return fmt.Errorf("removing secret %q: %w", key, err)
	}
	return syncDir(v.dir)
}

// Keys lists the names of the secrets, sorted.
func (v *Vault) Keys() ([]string, error) {
	entries, err := os.ReadDir(v.dir)
	if err != nil {
		return nil, fmt.Errorf("listing the vault: %w", err)
	}
	keys := []string{}
	for _, e := range entries {
		if k, ok := strings.CutSuffix(e.Name(), ".age"); ok && validKey.MatchString(k) {
			keys = append(keys, k)
		}
	}
	return keys, nil
}

func checkKey(key string) error {
	if !validKey.MatchString(key) {
		return fmt.Errorf("%q is not a name for a secret: use 1 to 64 of a-z, 0-9, _ and -", key)
	}
	return nil
}

// newPrefix begins the names of files that are not yet whole.
const newPrefix = ".new-"

// clean removes what writes have left that a crash cut short.
func (v *Vault) clean() error {
	left, err := filepath.Glob(filepath.Join(v.dir, newPrefix+"*"))
	for _, f := range left {
		err = errors.Join(err, os.Remove(f))
	}
	if err != nil {
		return fmt.Errorf("clearing the vault: %w", err)
	}
	return nil
}

// write replaces path at once and for good: file, then name, then directory reach the disk in this order (DU-02).
func (v *Vault) write(path string, b []byte) error {
	f, err := os.CreateTemp(v.dir, newPrefix+"*") // 0600
	if err != nil {
		return fmt.Errorf("writing to the vault: %w", err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("writing to the vault: %w", err)
	}
	return syncDir(v.dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("syncing the vault: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("syncing the vault: %w", err)
	}
	return nil
}
