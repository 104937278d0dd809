package pins

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/pfar/pfar/units"
)

// Beside its pins a server has what it last offered, all of it and as it came, so that it can be listed while it
// sleeps. That says nothing of what may be served: whoever reads it asks for a review of it, as of any offer.

func (s *Store) lastPath(server string) string { return filepath.Join(s.dir, server+".last") }

// Keep replaces what is kept of a server.
func (s *Store) Keep(server string, offer []byte) error {
	if !units.IsServer(server) {
		return fmt.Errorf("%.60q is not the name of a server", server)
	}
	if len(offer) > maxFile-hex.EncodedLen(sha256.Size)-1 {
		return fmt.Errorf("keeping what %q offers: %d bytes are more than the %d that are kept of a server", server, len(offer), maxFile)
	}
	k := s.known(server, true)
	k.mu.Lock()
	defer k.mu.Unlock()
	sum := sha256.Sum256(offer)
	b := append(hex.AppendEncode(nil, sum[:]), '\n')
	if err := replace(s.disk, s.lastPath(server), append(b, offer...)); err != nil {
		return fmt.Errorf("keeping what %q offers: %w", server, err)
	}
	return nil
}

// Kept returns what is kept of a server, nil if nothing is. What is not as it was written is an error.
func (s *Store) Kept(server string) ([]byte, error) {
	if !units.IsServer(server) {
		return nil, nil
	}
	path := s.lastPath(server)
	b, err := readOwn(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading %q: %w", path, err)
	}
	want, offer, _ := bytes.Cut(b, []byte{'\n'})
	if sum := sha256.Sum256(offer); string(want) != hex.EncodeToString(sum[:]) {
		return nil, fmt.Errorf("reading %q: its digest does not match its content", path)
	}
	return offer, nil
}
