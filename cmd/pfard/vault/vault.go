// Package vault keeps secrets at rest: names and values in, one age-encrypted file per secret out.
package vault

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"filippo.io/age"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/units/durable"
)

// Errors that a caller tells apart.
var (
	ErrNotFound = errors.New("not in the vault")
	ErrExists   = errors.New("in the vault with another value")
	ErrInvalid  = errors.New("not fit for the vault")
)

// maxSecret bounds one value, in bytes.
const maxSecret = 64 << 10

// Vault is a directory of encrypted secrets, readable by its owner only. Its methods may be called at the same time.
type Vault struct {
	dir    string
	keeper Keeper

	writing sync.Mutex // held by whoever changes files

	mu   sync.RWMutex
	ids  []*age.X25519Identity // what is written is encrypted to the first; a second is of a Rekey that was cut short
	seed []byte                // once it has been asked for
}

// Open opens the vault in dir whose key lies beside the secrets, and makes it with a new key if there is none.
func Open(dir string) (*Vault, error) { return OpenWith(dir, KeyFile(dir)) }

// OpenWith opens the vault in dir with the key that the keeper has, and makes it with a new key if there is none. A key
// that cannot be read is an error, never a reason for a new one: the secrets would be lost.
func OpenWith(dir string, k Keeper) (*Vault, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the vault: %w", err)
	}
	if err := checkDir(dir); err != nil {
		return nil, err
	}
	v := &Vault{dir: dir, keeper: k}
	if err := v.clean(); err != nil {
		return nil, err
	}
	text, err := k.Load()
	if errors.Is(err, fs.ErrNotExist) {
		return v, v.create()
	}
	if err != nil {
		return nil, fmt.Errorf("reading the vault's key: %w", err)
	}
	if v.ids, err = parseKey(text); err != nil {
		return nil, fmt.Errorf("reading the vault's key: %w; restore it from a backup", err)
	}
	return v, nil
}

func (v *Vault) secretFile(k string) string { return filepath.Join(v.dir, k+suffix) }
func (v *Vault) seedFile() string           { return filepath.Join(v.dir, ".seed"+suffix) } // which no key can be

func (v *Vault) create() error {
	if left, err := v.files(); err != nil || len(left) > 0 {
		return fmt.Errorf("opening the vault %q: it holds %d encrypted files but its key is gone; restore it from a backup", v.dir, len(left))
	}
	id, err := age.GenerateX25519Identity()
	if err != nil {
		return fmt.Errorf("making the vault's key: %w", err)
	}
	return v.keep(id)
}

// Set stores a plain value under key. A crash leaves the old value or the new one.
func (v *Vault) Set(key string, value []byte) error {
	_, err := v.Put(Secret{Key: key, Value: value})
	return err
}

// Put stores a secret as of now, of the kind Plain if it has none, and returns what that has changed.
func (v *Vault) Put(s Secret) (Outcome, error) { return v.put(s, false) }

// Replace stores a secret like Put, where there is one already.
func (v *Vault) Replace(s Secret) (Outcome, error) { return v.put(s, true) }

func (v *Vault) put(s Secret, there bool) (Outcome, error) {
	s.Stored = time.Now()
	if err := s.complete(); err != nil {
		return "", err
	}
	done, err := v.begin()
	if err != nil {
		return "", err
	}
	defer done()
	outcome := v.compare(s)
	if there && outcome == New {
		return "", fmt.Errorf("secret %q is %w", s.Key, ErrNotFound)
	}
	sealed, err := v.seal(s)
	if err != nil {
		return "", err
	}
	return outcome, v.write(v.secretFile(s.Key), sealed)
}

// compare returns what it would change to store s. What is there and cannot be read is not equal.
func (v *Vault) compare(s Secret) Outcome {
	old, err := v.Read(s.Key)
	switch {
	case errors.Is(err, ErrNotFound):
		return New
	case err == nil && old.Kind == s.Kind && bytes.Equal(old.Value, s.Value):
		return Equal
	}
	return Changed
}

// Read returns the secret under key, of a token set all of it: Deliver returns what servers may have.
func (v *Vault) Read(key string) (Secret, error) {
	if err := checkKey(key); err != nil {
		return Secret{}, err
	}
	text, at, err := v.decrypt(v.secretFile(key))
	if errors.Is(err, fs.ErrNotExist) {
		return Secret{}, fmt.Errorf("secret %q is %w: pfar vault set %s", key, ErrNotFound, key)
	}
	if err != nil {
		return Secret{}, fmt.Errorf("decrypting secret %q: %w", key, err)
	}
	return parseSecret(key, text, at)
}

// Remove forgets the value under key.
func (v *Vault) Remove(key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	done, err := v.begin()
	if err != nil {
		return err
	}
	defer done()
	err = os.Remove(v.secretFile(key))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("secret %q is %w", key, ErrNotFound)
	}
	if err != nil {
		return fmt.Errorf("removing secret %q: %w", key, err)
	}
	return durable.SyncDir(v.dir)
}

// Keys lists the names of the secrets, sorted.
func (v *Vault) Keys() ([]string, error) {
	files, err := v.files()
	if err != nil {
		return nil, err
	}
	keys := []string{}
	for _, name := range files {
		if k := strings.TrimSuffix(name, suffix); declaration.IsVaultKey(k) {
			keys = append(keys, k)
		}
	}
	return keys, nil
}

// Entry is what List tells of a secret.
type Entry struct {
	Key     string
	Kind    Kind
	Stored  time.Time
	Damaged error // why it cannot be read; then Kind and Stored are not known
}

// List describes the secrets by key. One that cannot be read is among them.
func (v *Vault) List() ([]Entry, error) {
	keys, err := v.Keys()
	if err != nil {
		return nil, err
	}
	list := []Entry{}
	for _, k := range keys {
		s, err := v.Read(k)
		if !errors.Is(err, ErrNotFound) { // removed meanwhile
			list = append(list, Entry{k, s.Kind, s.Stored, err})
		}
	}
	return list, nil
}

// seedSize is that of Seed, in bytes.
const seedSize = 32

// Seed returns the vault's random bytes from which placeholders and the authorities of servers are made. They are made
// once, stay the same when the key changes, and are not among the secrets.
func (v *Vault) Seed() ([]byte, error) {
	v.mu.RLock()
	seed := bytes.Clone(v.seed)
	v.mu.RUnlock()
	if seed != nil { // whoever asks does not wait for a change of the key
		return seed, nil
	}
	done, err := v.begin()
	if err != nil {
		return nil, err
	}
	defer done()
	if seed, err = v.readSeed(); err != nil {
		return nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.seed = bytes.Clone(seed)
	return seed, nil
}

func (v *Vault) readSeed() ([]byte, error) {
	seed, _, err := v.decrypt(v.seedFile())
	if errors.Is(err, fs.ErrNotExist) {
		return v.newSeed()
	}
	if err != nil {
		return nil, fmt.Errorf("reading the vault's seed: %w", err)
	}
	if len(seed) != seedSize {
		return nil, fmt.Errorf("reading the vault's seed %q: it has %d bytes, want %d", v.seedFile(), len(seed), seedSize)
	}
	return seed, nil
}

func (v *Vault) newSeed() ([]byte, error) {
	seed := make([]byte, seedSize)
	rand.Read(seed)
	sealed, err := encrypt(seed, v.identities()[0].Recipient())
	if err != nil {
		return nil, fmt.Errorf("encrypting the vault's seed: %w", err)
	}
	if err := v.write(v.seedFile(), sealed); err != nil {
		return nil, err
	}
	return seed, nil
}

func checkKey(key string) error {
	if !declaration.IsVaultKey(key) {
		return unfit{fmt.Errorf("%q is not a name for a secret: use 1 to 64 of a-z, 0-9, _ and -", key)}
	}
	return nil
}
