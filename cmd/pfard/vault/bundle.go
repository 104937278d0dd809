package vault

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"filippo.io/age"

	"github.com/pfar/pfar/units/bundle"
)

// bundleFormat names what Export writes and Import reads.
const bundleFormat = "pfar-vault-1"

// contents are secrets on their way from one vault to another, in JSON.
type contents struct {
	Format  string   `json:"format"`
	Secrets []Secret `json:"secrets"` // values in base64
}

// readBundle returns the secrets of a bundle, all fit to be stored. Its errors quote no value.
func readBundle(text []byte) ([]Secret, error) {
	var b contents
	if err := json.Unmarshal(text, &b); err != nil || b.Format != bundleFormat {
		return nil, unfit{fmt.Errorf("reading the bundle: it is not one JSON object with format %q", bundleFormat)}
	}
	if len(b.Secrets) == 0 {
		return nil, unfit{errors.New("reading the bundle: it holds no secrets")}
	}
	for i := range b.Secrets {
		s := &b.Secrets[i]
		if err := s.complete(); err != nil {
			return nil, fmt.Errorf("reading the bundle: %w", err)
		}
		if slices.ContainsFunc(b.Secrets[:i], func(o Secret) bool { return o.Key == s.Key }) {
			return nil, unfit{fmt.Errorf("reading the bundle: it holds %q twice", s.Key)}
		}
	}
	return b.Secrets, nil
}

// Export returns the secrets under the keys, or all if none is named, as a bundle that is encrypted to an age
// recipient.
func (v *Vault) Export(keys []string, recipient string) ([]byte, error) {
	to, err := age.ParseX25519Recipient(recipient)
	if err != nil {
		return nil, unfit{errors.New("exporting: the recipient is not an age public key")}
	}
	if len(keys) == 0 {
		if keys, err = v.Keys(); err != nil {
			return nil, err
		}
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("exporting: nothing is %w", ErrNotFound)
	}
	var secrets []Secret
	for _, k := range slices.Compact(slices.Sorted(slices.Values(keys))) {
		s, err := v.Read(k)
		if err != nil {
			return nil, fmt.Errorf("exporting: %w", err)
		}
		secrets = append(secrets, s)
	}
	text, err := json.Marshal(contents{bundleFormat, secrets})
	if err != nil {
		return nil, fmt.Errorf("exporting: %w", err)
	}
	if len(text) > bundle.Max {
		return nil, fmt.Errorf("exporting: the secrets make %d bytes, more than %d; name some of them", len(text), bundle.Max)
	}
	sealed, err := encrypt(text, to)
	if err != nil {
		return nil, fmt.Errorf("exporting: %w", err)
	}
	return sealed, nil
}

// Change is what an import does with one secret.
type Change struct {
	Key     string
	Outcome Outcome
}

// Import stores the secrets of a bundle, all or none, also when it is cut short, and returns what that has changed.
// Unless it may replace, one that is there with another value is ErrExists.
func (v *Vault) Import(text []byte, replace bool) ([]Change, error) {
	secrets, err := readBundle(text)
	if err != nil {
		return nil, err
	}
	done, err := v.begin()
	if err != nil {
		return nil, err
	}
	defer done()
	var changes []Change
	var others []string
	files := map[string][]byte{}
	for _, s := range secrets {
		c := Change{s.Key, v.compare(s)}
		changes = append(changes, c)
		if c.Outcome == Changed {
			others = append(others, s.Key)
		}
		if c.Outcome == Equal {
			continue
		}
		if files[s.Key+suffix], err = v.seal(s); err != nil {
			return nil, err
		}
	}
	if len(others) > 0 && !replace {
		return nil, fmt.Errorf("nothing is imported: %s: %w", strings.Join(others, ", "), ErrExists)
	}
	if len(files) == 0 {
		return changes, nil
	}
	return changes, v.commit(files)
}
