package audit

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
)

// head is what a line says of its place in the chain.
type head struct {
	seq  uint64
	prev [32]byte
}

// Hash is a line's digest, without the line break.
func Hash(line []byte) [32]byte { return sha256.Sum256(line) }

// headOf reads where a line is in the chain, if it is a record.
func headOf(line []byte) (head, bool) {
	h, _, ok := beginning(line)
	return h, ok && len(line) <= MaxLine && json.Valid(line)
}

// beginning reads the beginning of a line, which every writer writes alike, and looks at nothing else: pfard does not
// read what a gateway was told by strangers. at is the line's time, as it is written.
func beginning(line []byte) (h head, at []byte, ok bool) {
	rest, ok := bytes.CutPrefix(line, []byte(beginSeq))
	digits, rest, found := bytes.Cut(rest, []byte(beginPrev))
	if !ok || !found || len(digits) == 0 || len(digits) > 20 || digits[0] == '0' || len(rest) < 64 ||
		!bytes.HasPrefix(rest[64:], []byte(beginTime)) {
		return h, nil, false
	}
	seq, err := strconv.ParseUint(string(digits), 10, 64)
	if err != nil {
		return h, nil, false
	}
	h.seq = seq
	_, err = hex.Decode(h.prev[:], rest[:64])
	at, _, ok = bytes.Cut(rest[64+len(beginTime):], []byte{'"'})
	return h, at, ok && err == nil
}

// Parse reads a line.
func Parse(line []byte) (Record, error) {
	var r Record
	if _, ok := headOf(line); !ok {
		return r, errors.New("no record")
	}
	err := json.Unmarshal(line, &r)
	return r, err
}

// Tail is how a file ends.
type Tail struct {
	Seq  uint64   // of the last record; 0 if there is none
	Hash [32]byte // of the last record's line
	Size int64    // of the file
	Torn *Damage  // what lies behind the last record's line; nil: nothing
}

// maxTorn bounds how far back the last record is looked for, in bytes: a write is smaller than that.
const maxTorn = 64 << 20

// TailOf finds the last record of a file of so many bytes, which need not end with it.
func TailOf(r io.ReaderAt, size int64) (Tail, error) {
	t := Tail{Size: size}
	end := size // of what is looked at
	for end > 0 {
		line, begin, ended, err := lineBefore(r, end)
		if err != nil {
			return t, err
		}
		if h, ok := headOf(line); ok && ended {
			t.Seq, t.Hash = h.seq, Hash(line)
			break
		}
		if end = begin; size-end > maxTorn {
			return t, fmt.Errorf("looking for the last record: there is none in the last %d bytes", size-end)
		}
	}
	if end == size {
		return t, nil
	}
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(r, end, size-end)); err != nil {
		return t, fmt.Errorf("reading bytes after the last record: %w", err)
	}
	t.Torn = &Damage{size - end, hex.EncodeToString(h.Sum(nil))}
	return t, nil
}

// lineBefore returns the line that ends at end, without its line break, where it begins, and whether it has a line
// break. Of one that is longer than any record it returns a part.
func lineBefore(r io.ReaderAt, end int64) (line []byte, begin int64, ended bool, err error) {
	const block = 16 << 10
	for size := int64(block); ; size *= 8 {
		from := max(0, end-min(size, MaxLine+1))
		b := make([]byte, end-from)
		if n, err := r.ReadAt(b, from); n < len(b) {
			return nil, 0, false, fmt.Errorf("reading the last records: %w", err)
		}
		if b, ended = bytes.CutSuffix(b, []byte("\n")); len(b) == 0 {
			return nil, from, ended, nil
		}
		if i := bytes.LastIndexByte(b, '\n'); i >= 0 {
			return b[i+1:], from + int64(i) + 1, ended, nil
		}
		if from == 0 || end-from > MaxLine {
			return b, from, ended, nil
		}
	}
}

// Since returns when a file of so many bytes was begun, as its first record says.
func Since(r io.ReaderAt, size int64) (time.Time, error) {
	_, at, err := first(r, size)
	if err != nil {
		return time.Time{}, err
	}
	return time.Parse(time.RFC3339Nano, string(at))
}

// BaseOf returns the record that the first one of a file follows; its number is 0 at the beginning of a chain.
func BaseOf(r io.ReaderAt, size int64) (Anchor, error) {
	h, _, err := first(r, size)
	if err != nil {
		return Anchor{}, err
	}
	return Anchor{Seq: h.seq - 1, Hash: hex.EncodeToString(h.prev[:])}, nil
}

// first reads the beginning of the first record's line in a file. What stands before it is none: a disk that is full
// when a file is begun has room for a part of its first line.
func first(r io.ReaderAt, size int64) (head, []byte, error) {
	lines := bufio.NewReader(io.NewSectionReader(r, 0, min(size, maxTorn)))
	for begins := true; ; {
		part, err := lines.ReadSlice('\n')
		if begins {
			if h, at, ok := beginning(part); ok {
				return h, bytes.Clone(at), nil
			}
		}
		switch {
		case err == nil:
			begins = true
		case errors.Is(err, bufio.ErrBufferFull):
			begins = false
		case errors.Is(err, io.EOF):
			return head{}, nil, errors.New("no line at its beginning is a record")
		default:
			return head{}, nil, fmt.Errorf("reading the first record: %w", err)
		}
	}
}
