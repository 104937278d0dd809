package vault

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"filippo.io/age"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/units/durable"
)

// Keeper keeps the text of a vault's key: one identity a line, as age-keygen(1) writes them.
type Keeper interface {
	Load() ([]byte, error)   // wraps fs.ErrNotExist if there is none
	Store(text []byte) error // a crash leaves the old text or the new one
}

// KeyFile keeps the key in a file of the vault's directory.
func KeyFile(dir string) Keeper { return keyFile(filepath.Join(dir, KeyName)) }

// KeyName is the name of the file that KeyFile keeps the key in.
const KeyName = "key.txt"

type keyFile string

const maxKey = 4 << 10 // bytes

func (k keyFile) Load() ([]byte, error) {
	b, _, err := read(string(k), maxKey)
	return b, err
}

func (k keyFile) Store(text []byte) error { return durable.WriteFile(string(k), text) }

// NewKey returns the text of a key that no vault has.
func NewKey() ([]byte, error) {
	id, err := age.GenerateX25519Identity()
	if err != nil {
		return nil, fmt.Errorf("making the vault's key: %w", err)
	}
	return keyText(id), nil
}

func keyText(ids ...*age.X25519Identity) []byte {
	var b strings.Builder
	for _, id := range ids {
		fmt.Fprintln(&b, id)
	}
	return []byte(b.String())
}

// parseKey reads the text of a key. Its errors quote nothing of it.
func parseKey(text []byte) ([]*age.X25519Identity, error) {
	parsed, err := age.ParseIdentities(bytes.NewReader(text))
	if err != nil || len(parsed) > 2 {
		return nil, errors.New("the key is not one age identity, or two of a change of keys")
	}
	var ids []*age.X25519Identity
	for _, p := range parsed {
		id, ok := p.(*age.X25519Identity)
		if !ok {
			return nil, fmt.Errorf("the key is a %T, want an X25519 identity", p)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

func (v *Vault) identities() []*age.X25519Identity {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.ids
}

// keep has the keeper store the identities, and then uses them.
func (v *Vault) keep(ids ...*age.X25519Identity) error {
	if err := v.keeper.Store(keyText(ids...)); err != nil {
		return fmt.Errorf("storing the vault's key: %w", err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.ids = ids
	return nil
}

// Rekey gives the vault a new key and encrypts all that it holds to it. Wherever it is cut short, all can be read: the
// old key is kept beside the new one until nothing needs it, and Settle or another Rekey goes on.
func (v *Vault) Rekey() error {
	done, err := v.begin()
	if err != nil {
		return err
	}
	defer done()
	if err := v.settle(); err != nil {
		return err
	}
	files, err := v.files()
	if err != nil {
		return err
	}
	for _, name := range files { // what cannot be read would keep the old key for ever
		if _, _, err := v.decrypt(filepath.Join(v.dir, name)); err != nil {
			return fmt.Errorf("decrypting %q, without which the key stays as it is: %w; %s", name, err, remedy(name))
		}
	}
	id, err := age.GenerateX25519Identity()
	if err != nil {
		return fmt.Errorf("making the vault's key: %w", err)
	}
	if err := v.keep(id, v.identities()[0]); err != nil {
		return err
	}
	return v.settle()
}

// remedy says what can be done about a file that cannot be read.
func remedy(name string) string {
	if key := strings.TrimSuffix(name, suffix); declaration.IsVaultKey(key) {
		return "pfar vault remove " + key + " gives it up"
	}
	return "restore it from a backup, or remove it"
}

// Settle finishes a Rekey that was cut short, if there was one.
func (v *Vault) Settle() error {
	done, err := v.begin()
	if err != nil {
		return err
	}
	defer done()
	return v.settle()
}

func (v *Vault) settle() error {
	ids := v.identities()
	if len(ids) == 1 {
		return nil
	}
	files, err := v.files()
	if err != nil {
		return err
	}
	for _, name := range files {
		if err := v.reencrypt(filepath.Join(v.dir, name), ids[0]); err != nil {
			return fmt.Errorf("encrypting %q to the vault's new key, the old one is kept as well: %w; pfar vault rekey goes on", name, err)
		}
	}
	return v.keep(ids[0])
}

// reencrypt encrypts a file to id, unless it is already.
func (v *Vault) reencrypt(path string, id *age.X25519Identity) error {
	b, _, err := read(path, maxFile)
	if err != nil {
		return err
	}
	if _, err := decrypt(b, id); err == nil {
		return nil
	}
	text, _, err := v.decrypt(path)
	if err != nil {
		return err
	}
	sealed, err := encrypt(text, id.Recipient())
	if err != nil {
		return err
	}
	return v.write(path, sealed)
}
