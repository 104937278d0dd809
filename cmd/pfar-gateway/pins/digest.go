package pins

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"unicode/utf8"

	"github.com/pfar/pfar/units/jsonrpc"
)

// passing members of a definition are not compared. _meta is where servers put what changes from run to run: times, ids
// of requests, counters; a tool would be held for each of them, and owners learn to accept without a look. Models do
// not read it. icons are for people's eyes, and their URLs may be signed anew each time. Only members of the definition
// itself are meant: an argument that is called icons is one like any other.
var passing = []string{"_meta", "icons"}

// canonical returns the definition without what is passing, in its canonical form (jsonrpc.Canonical). What two parsers
// may read differently has none, and is an error: of {"description":"harmless","description":"evil"} some programs take
// the first (RFC 7493 section 2). Whatever stands in what is passing, nobody reads it.
func canonical(raw []byte) ([]byte, error) {
	switch {
	case !utf8.Valid(raw):
		return nil, errors.New("the definition is not UTF-8")
	case !json.Valid(raw):
		return nil, errors.New("the definition is not JSON")
	}
	raw, err := covered(raw)
	if err != nil {
		return nil, err
	}
	return jsonrpc.Canonical(make([]byte, 0, len(raw)), raw)
}

// covered is the definition without what is passing, which is not shipped either.
func covered(raw []byte) ([]byte, error) {
	if raw = bytes.TrimLeft(raw, " \t\r\n"); raw[0] != '{' {
		return bytes.Clone(raw), nil
	}
	members, err := jsonrpc.Object(raw, nil)
	if err != nil {
		return nil, err
	}
	return members.Merge(make([]byte, 0, len(raw)), func(name []byte) bool { return !slices.Contains(passing, string(name)) }, nil), nil
}

// digest is the SHA-256 of a definition in its canonical form, in hexadecimal.
func digest(raw []byte) (string, error) {
	c, err := canonical(raw)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(c)
	return hex.EncodeToString(sum[:]), nil
}
