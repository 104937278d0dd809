package trail

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/audit"
)

// torn is a piece of the file behind the last complete record.
type torn struct {
	bytes  int64
	digest hash.Hash
}

func (t *torn) add(b []byte) {
	t.digest.Write(b)
	t.bytes += int64(len(b))
}

func (t *torn) damage() *audit.Damage {
	if t == nil {
		return nil
	}
	return &audit.Damage{Bytes: t.bytes, SHA256: hex.EncodeToString(t.digest.Sum(nil))}
}

// spoiler is put behind what is no record, and a line break: where only the line break was cut, it would be one
// otherwise.
const spoiler = "~\n"

// spoiled is the damage with the spoiler's mark, in the file where it is.
func (t *torn) spoiled() *audit.Damage {
	digest, err := t.digest.(hash.Cloner).Clone()
	if err != nil {
		panic(err) // SHA-256 has no reason to
	}
	marked := torn{t.bytes, digest}
	marked.add([]byte(spoiler[:1]))
	return marked.damage()
}

// lines are records on their way to the file, in one write.
type lines struct {
	bytes  []byte
	ends   []int // of each line, behind its line break
	hashes [][32]byte
	first  uint64 // number of the first
}

func (n *lines) add(s *state, at time.Time, body []byte) {
	seq, prev := s.seq+1, s.hash
	if k := len(n.hashes); k > 0 {
		seq, prev = n.first+uint64(k), n.hashes[k-1]
	} else {
		n.first = seq
	}
	begin := len(n.bytes)
	n.bytes = audit.Line(n.bytes, seq, prev, at, body)
	n.hashes = append(n.hashes, audit.Hash(n.bytes[begin:]))
	n.bytes = append(n.bytes, '\n')
	n.ends = append(n.ends, len(n.bytes))
}

// put writes the records of a batch, after what is to come before them, and returns how many of them are in the file
// and why the others are not. l.writing is held.
func (l *Log) put(b *batch) (in int, err error) {
	if err := l.usable(); err != nil {
		return 0, err
	}
	n := lines{bytes: l.buffer[:0]}
	if l.torn != nil {
		n.bytes = append(n.bytes, spoiler...)
		r := audit.Record{Kind: audit.Torn, Gap: audit.Gap{Torn: l.torn.spoiled()}}
		l.sign(&r)
		n.add(&l.state, r.Time, r.Body(nil))
	}
	for _, body := range l.prelude {
		n.add(&l.state, l.options.Now(), body)
	}
	before := len(n.ends)
	begin := 0
	for i, end := range b.ends {
		n.add(&l.state, b.times[i], b.bodies[begin:end])
		begin = end
	}
	complete, err := l.writeLines(&n)
	if cap(n.bytes) <= 2*maxBatch {
		l.buffer = n.bytes
	}
	l.prelude = l.prelude[min(len(l.prelude), max(0, complete-(before-len(l.prelude)))):]
	return max(0, complete-before), err
}

// writeLines writes, and takes it that the chain goes as far as it was written. It returns how many lines are complete.
func (l *Log) writeLines(n *lines) (complete int, err error) {
	written, err := l.file.Write(n.bytes)
	if err == nil && written < len(n.bytes) {
		err = unix.ENOSPC // the rest did not fit (write(2)); the next write would say so
	}
	if err != nil {
		err = fmt.Errorf("writing the audit: %w", err)
		if size, serr := l.file.Size(); serr != nil || size != l.file.size+int64(written) {
			err = l.fail(errors.Join(err, serr, errors.New("the content of the file is not known now")))
			written = 0
		}
	}
	l.file.size += int64(written)
	l.file.reserve()
	for complete < len(n.ends) && n.ends[complete] <= written {
		complete++
	}
	rest := n.bytes[:written]
	if complete > 0 {
		l.seq, l.hash, l.torn = n.first+uint64(complete)-1, n.hashes[complete-1], nil
		rest = rest[n.ends[complete-1]:]
	}
	if len(rest) > 0 {
		if l.torn == nil {
			l.torn = &torn{digest: sha256.New()}
		}
		l.torn.add(rest)
	}
	return complete, err
}
