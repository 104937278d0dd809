// Package seal keeps the key of the vault sealed to this machine.
package seal

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/pfar/pfar/cmd/pfard/vault"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/durable"
)

// Key keeps the vault's key as a credential that systemd-creds(1) has sealed to this machine, by its TPM or its
// host key. systemd opens it, for pfard.service alone (LoadCredentialEncrypted=, systemd.exec(5)). What seals it is
// pfar-vault-key.service, before pfard starts and for a new key: pfard reaches no TPM. Where a
// machine cannot seal, the key lies in a file beside the secrets.
type Key struct {
	files  keyFiles
	opened bool         // systemd has opened a sealed key for this process
	seal   func() error // has pfar-vault-key.service run and returns when it has
}

// keyFiles are the places of the vault's key.
type keyFiles struct {
	plain    string // in the vault, in the clear
	handover string // a new key on its way to pfar-vault-key.service, in memory
	sealed   string // where systemd looks for it
}

// keyCredential is the sealed key's name, which is part of what is sealed.
const keyCredential = "pfar-vault-key"

// Unit seals.
const Unit = "pfar-vault-key.service"

func keyFilesIn(d control.Dirs) keyFiles {
	return keyFiles{
		plain: filepath.Join(d.Vault(), vault.KeyName), handover: filepath.Join(d.Run, "vault-key"),
		sealed: "/etc/credstore.encrypted/" + keyCredential,
	}
}

// NotSealed refuses the vault of the installed system to a pfard that is no unit: with a key of its own in there, the
// unit would have two.
func NotSealed(d control.Dirs, uid int) error { return keyFilesIn(d).notSealed(d, uid) }

func (f keyFiles) notSealed(d control.Dirs, uid int) error {
	if uid != 0 || d.State != control.DefaultDirs(func(string) string { return "" }, 0).State {
		return nil
	}
	if _, err := os.Lstat(f.sealed); err == nil {
		return fmt.Errorf("the key of the vault %q is sealed for pfard.service: systemctl start pfar.target, or set "+
			"PFAR_STATE_DIR to another directory", d.Vault())
	}
	return nil
}

// NewKey returns the key of a vault. seal has pfar-vault-key.service run, and returns when it has.
func NewKey(dirs control.Dirs, seal func() error) *Key {
	return &Key{files: keyFilesIn(dirs), seal: seal}
}

// Opened reports whether systemd has opened a sealed key for this process.
func (k *Key) Opened() bool { return k.opened }

// Load implements vault.Keeper.
func (k *Key) Load() ([]byte, error) {
	plain, perr := vault.KeyFile(filepath.Dir(k.files.plain)).Load()
	opened, err := units.Credential(keyCredential)
	k.opened = err == nil
	if k.opened {
		// That of a change of keys that was cut short, and could not be sealed before this start: nothing is encrypted to it.
		if err := os.Remove(k.files.handover); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if perr == nil && !bytes.Equal(plain, opened) {
			return nil, fmt.Errorf("%q and %q hold different keys: remove the one that is not this vault's", k.files.plain, k.files.sealed)
		}
		return opened, nil
	}
	if _, err := os.Lstat(k.files.sealed); err == nil && errors.Is(perr, fs.ErrNotExist) {
		return nil, fmt.Errorf("systemd has not given %q to pfard.service: is its LoadCredentialEncrypted= overridden?", k.files.sealed)
	}
	return plain, perr
}

// Store implements vault.Keeper.
func (k *Key) Store(text []byte) error {
	if !k.opened {
		return vault.KeyFile(filepath.Dir(k.files.plain)).Store(text)
	}
	if err := durable.WriteFile(k.files.handover, text); err != nil {
		return err
	}
	err := k.seal()
	if _, left := os.Lstat(k.files.handover); left == nil { // it goes when it is sealed
		err = errors.Join(err, fmt.Errorf("%s has not sealed it: journalctl -u %[1]s", Unit), os.Remove(k.files.handover))
	}
	return err
}
