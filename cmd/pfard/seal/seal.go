package seal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/pfar/pfar/cmd/pfard/vault"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/durable"
)

// Sealer is what pfar-vault-key.service runs: it seals a key that pfard hands over, or the one that lies in the vault
// in the clear, or one for a vault that has none yet.
type Sealer struct {
	files keyFiles
	log   *slog.Logger
	creds func(ctx context.Context, input []byte, args ...string) ([]byte, error) // systemd-creds(1)
	tpm   string                                                                  // the device, which may not be there
}

// NewSealer returns what seals the key of a vault by systemd-creds(1).
func NewSealer(dirs control.Dirs, log *slog.Logger) Sealer {
	return Sealer{keyFilesIn(dirs), log, systemdCreds, tpmDevice}
}

// Run leaves things as they are where this machine cannot seal, which is an error only for what pfard waits for.
func (s Sealer) Run(ctx context.Context) error {
	text, from, err := s.key()
	if err != nil || text == nil {
		return err
	}
	if err := s.seal(ctx, text, from); err != nil {
		if from == s.files.handover {
			return err
		}
		s.log.Warn("the vault's key stays in a file in the clear: this machine does not seal it", "path", s.files.plain, "error", err)
		return nil
	}
	s.log.Info("the vault's key is sealed to this machine", "path", s.files.sealed)
	var gone error
	for _, path := range []string{s.files.handover, s.files.plain} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			gone = errors.Join(gone, err)
		}
	}
	return gone
}

// key returns what is to be sealed, and where it was; nil if there is nothing to do.
func (s Sealer) key() (text []byte, from string, err error) {
	for _, path := range []string{s.files.handover, s.files.plain} {
		if text, err := os.ReadFile(path); !errors.Is(err, fs.ErrNotExist) {
			return text, path, err
		}
	}
	if _, err := os.Lstat(s.files.sealed); !errors.Is(err, fs.ErrNotExist) {
		return nil, "", err
	}
	entries, err := os.ReadDir(filepath.Dir(s.files.plain))
	if err != nil && !errors.Is(err, fs.ErrNotExist) || slices.ContainsFunc(entries,
		func(e fs.DirEntry) bool { return strings.HasSuffix(e.Name(), ".age") }) {
		return nil, "", err // its key is missing, and pfard says so
	}
	text, err = vault.NewKey()
	return text, "", err
}

// seal replaces the sealed key once what systemd opens of the new one is what was sealed.
func (s Sealer) seal(ctx context.Context, text []byte, from string) error {
	if err := s.able(ctx); err != nil {
		return err
	}
	if from == s.files.plain {
		if there, err := s.creds(ctx, nil, "decrypt", "--name="+keyCredential, s.files.sealed, "-"); err == nil && !bytes.Equal(there, text) {
			return fmt.Errorf("%q holds another key: remove the one that is not this vault's", s.files.sealed)
		} else if err == nil {
			return nil // and only what lies in the clear is to go
		}
	}
	sealed, err := s.sealed(ctx, text)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(s.files.sealed), 0o700); err != nil {
		return err
	}
	return durable.WriteFile(s.files.sealed, sealed)
}

// tpmDevice is there if the kernel has a TPM 2.0.
const tpmDevice = "/dev/tpmrm0"

// way is one of sealing, for systemd-creds(1).
type way struct{ key, pcrs string }

// sealed returns the key as this machine alone opens it: with its TPM, too, if it has one. That is not left to
// systemd-creds, which would ask the TPM only where the firmware is UEFI.
func (s Sealer) sealed(ctx context.Context, text []byte) ([]byte, error) {
	ways := []way{{key: "host"}}
	if _, err := os.Stat(s.tpm); err == nil {
		// Not to PCRs that updates of firmware or kernel change: the secrets would be lost. systemd 252 does not open what is
		// sealed to none at all, and the last is for applications, which have no use for it.
		ways = []way{{key: "host+tpm2"}, {key: "host+tpm2", pcrs: "23"}, {key: "host"}}
	}
	var all error
	for _, w := range ways {
		sealed, err := s.sealedBy(ctx, text, w)
		if err == nil {
			if all != nil && w.key == "host" {
				s.log.Warn("the vault's key is sealed without the TPM, which does not take it", "error", all)
			}
			return sealed, nil
		}
		all = errors.Join(all, err)
	}
	return nil, all
}

func (s Sealer) sealedBy(ctx context.Context, text []byte, w way) ([]byte, error) {
	sealed, err := s.creds(ctx, text, "encrypt", "--with-key="+w.key, "--tpm2-pcrs="+w.pcrs, "--name="+keyCredential, "-", "-")
	if err != nil {
		return nil, err
	}
	opened, err := s.creds(ctx, sealed, "decrypt", "--name="+keyCredential, "-", "-")
	if err != nil || !bytes.Equal(opened, text) {
		return nil, errors.Join(errors.New("the sealed secret cannot be opened again"), err)
	}
	return sealed, nil
}

// oldestSystemd looks for credentials where the key is put.
const oldestSystemd = 252

func (s Sealer) able(ctx context.Context) error {
	out, err := s.creds(ctx, nil, "--version")
	if err != nil {
		return err
	}
	version := regexp.MustCompile(`^systemd (\d+)`).FindSubmatch(out)
	if version == nil {
		return fmt.Errorf("systemd-creds does not say its version: %q", out)
	}
	if n, _ := strconv.Atoi(string(version[1])); n < oldestSystemd {
		return fmt.Errorf("systemd is %d, older than %d", n, oldestSystemd)
	}
	return nil
}

// systemdCreds runs systemd-creds(1). Keys pass through its standard input and output alone.
func systemdCreds(ctx context.Context, input []byte, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "systemd-creds", args...)
	cmd.Stdin = bytes.NewReader(input)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("running systemd-creds %s: %w: %s", args[0], err, strings.TrimSpace(complaint.String()))
	}
	return out, nil
}
