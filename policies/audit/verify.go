package audit

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
)

// File is one file of a chain.
type File struct {
	Name string
	io.Reader
}

// Problem is what is wrong with a chain, and where.
type Problem struct {
	File string `json:"file"`
	Line int    `json:"line"` // from 1
	Seq  uint64 `json:"seq,omitempty"`
	What string `json:"what"` // "edited", "deleted", "inserted", "duplicated", "reordered", "no record", "cut", "begins elsewhere"
	Why  string `json:"why"`  // in words
}

func (p Problem) String() string {
	return fmt.Sprintf("%s:%d: %s: %s", p.File, p.Line, p.What, p.Why)
}

// Unmatched is a call whose record was opened and never closed: its writer ended, or it is still under way.
type Unmatched struct {
	ID  string `json:"id"`
	Seq uint64 `json:"seq"`
}

// Report is what was found about one chain.
type Report struct {
	Chain     string      `json:"chain"`
	Records   uint64      `json:"records"`
	First     uint64      `json:"first"` // numbers of the first and the last record
	Last      uint64      `json:"last"`
	Hash      string      `json:"hash"` // of the last one
	Problems  []Problem   `json:"problems"`
	More      int         `json:"more,omitempty"` // problems beyond maxProblems
	Notes     []string    `json:"notes,omitempty"`
	MoreNotes int         `json:"more_notes,omitempty"` // notes beyond maxNotes
	Unmatched []Unmatched `json:"unmatched,omitempty"`
	Anchors   int         `json:"anchors"` // that were compared

	Told []Anchor `json:"-"` // what its records say of where chains may begin
}

// What a verification tells one by one, and what it keeps in memory, is bounded: a writer that was taken over writes
// what it likes.
const (
	maxProblems = 100
	maxNotes    = 100
	maxGaps     = 10 * maxProblems
	maxOpen     = 16 << 10 // calls that are open at one time
	maxTold     = 4 << 10  // records of where chains begin, of which the newest count
)

// Verify reads the files of a chain, oldest first, and compares them with what is known of it from elsewhere: bases are
// the records that it may follow, beside none at all, since older files have been deleted; anchors what its records
// were. The error is of the reading.
func Verify(chain string, files []File, bases, anchors []Anchor) (Report, error) {
	v := &verifier{report: Report{Chain: chain, Problems: []Problem{}}, calls: map[string]uint64{}, anchors: map[uint64][]string{}}
	for _, a := range anchors {
		if a.Chain == chain && !slices.Contains(v.anchors[a.Seq], a.Hash) {
			v.anchors[a.Seq] = append(v.anchors[a.Seq], a.Hash)
		}
	}
	v.bases = slices.DeleteFunc(slices.Clone(bases), func(a Anchor) bool { return a.Chain != chain })
	for _, f := range files {
		if err := v.file(f); err != nil {
			return v.report, fmt.Errorf("reading %q: %w", f.Name, err)
		}
	}
	v.end()
	return v.report, nil
}

// gap is a run of numbers that are missing.
type gap struct {
	from, to uint64
	problem  int // its place in the report; -1: it has none
}

type verifier struct {
	report  Report
	any     bool // the chain has a record
	bases   []Anchor
	last    head // number of the last record, and its line's digest
	gaps    []gap
	calls   map[string]uint64   // that are open
	full    bool                // there were more than maxOpen of them
	anchors map[uint64][]string // digests by number, not yet compared

	name   string // of the file
	line   int
	pieces []*garbage // what is no record, one piece of a file, and has not been told to be
}

// garbage is a piece of a file that is no record.
type garbage struct {
	file   string
	line   int
	bytes  int64
	digest hash.Hash
	ended  bool // a line break follows, which is not yet counted
}

// problem tells of the present line, and returns where in the report; -1: it is full.
func (v *verifier) problem(seq uint64, what, why string) int {
	return v.problemAt(v.line, seq, what, why)
}

func (v *verifier) problemAt(line int, seq uint64, what, why string) int {
	return v.problemIn(v.name, line, seq, what, why)
}

func (v *verifier) problemIn(file string, line int, seq uint64, what, why string) int {
	if len(v.report.Problems) == maxProblems {
		v.report.More++
		return -1
	}
	v.report.Problems = append(v.report.Problems, Problem{file, line, seq, what, why})
	return len(v.report.Problems) - 1
}

// note tells what is no error.
func (v *verifier) note(format string, args ...any) {
	if len(v.report.Notes) == maxNotes {
		v.report.MoreNotes++
		return
	}
	v.report.Notes = append(v.report.Notes, fmt.Sprintf(format, args...))
}

// file reads one file.
func (v *verifier) file(f File) error {
	v.name, v.line = f.Name, 0
	r := bufio.NewReaderSize(f, 64<<10)
	for {
		line, ended, err := readLine(r)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if len(line) > 0 || ended {
			v.line++
			v.take(line, ended)
		}
		if err != nil {
			break
		}
	}
	if g := v.piece(); g != nil {
		g.finish()
	}
	return nil
}

// readLine reads a line; one that is longer than any record comes in parts.
func readLine(r *bufio.Reader) (line []byte, ended bool, err error) {
	for len(line) <= MaxLine {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		if err == nil {
			return line[:len(line)-1], true, nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, false, err
		}
	}
	return line, false, nil
}

// take takes one line.
func (v *verifier) take(line []byte, ended bool) {
	h, ok := headOf(line)
	var r Record
	if ok = ok && ended && json.Unmarshal(line, &r) == nil; !ok {
		v.spoil(line, ended)
		return
	}
	v.explain(r)
	v.link(h, Hash(line))
	v.content(r)
}

// explain compares what is no record before a record with what that says.
func (v *verifier) explain(r Record) {
	i := slices.IndexFunc(v.pieces, func(g *garbage) bool { return r.Torn != nil && g.is(*r.Torn) })
	switch {
	case i >= 0:
		v.note("%s:%d: %d bytes of a record that was cut, as record %d says",
			v.pieces[i].file, v.pieces[i].line, r.Torn.Bytes, r.Seq)
		v.pieces = slices.Delete(v.pieces, i, i+1)
	case r.Torn != nil && len(v.pieces) == 0:
		v.problem(r.Seq, "deleted", fmt.Sprintf("the %d bytes before it that it tells of, which were no record", r.Torn.Bytes))
	}
	if r.Kind == Torn && i >= 0 { // of what is in the file before, the next one tells
		return
	}
	for _, g := range v.pieces {
		v.problemIn(g.file, g.line, 0, "no record", fmt.Sprintf("%d bytes, and the record behind them does not say why", g.bytes))
	}
	v.pieces = nil
}

// spoil takes what is no record.
func (v *verifier) spoil(line []byte, ended bool) {
	g := v.piece()
	if g == nil {
		g = &garbage{file: v.name, line: v.line, digest: sha256.New()}
		v.pieces = append(v.pieces, g)
	}
	g.finish()
	g.add(line)
	g.ended = ended
}

// piece is what is no record at the end of what has been read of the present file; nil: nothing.
func (v *verifier) piece() *garbage {
	if n := len(v.pieces); n > 0 && v.pieces[n-1].file == v.name {
		return v.pieces[n-1]
	}
	return nil
}

func (g *garbage) add(b []byte) {
	g.digest.Write(b)
	g.bytes += int64(len(b))
}

// finish adds the line break behind what was taken last. In one file with the record that describes the piece it is no
// part of it: the writer of that has begun a line of its own.
func (g *garbage) finish() {
	if g.ended {
		g.add([]byte{'\n'})
	}
	g.ended = false
}

// is reports whether that is what a record describes.
func (g *garbage) is(d Damage) bool {
	return d.Bytes == g.bytes && d.SHA256 == hex.EncodeToString(g.digest.Sum(nil))
}

// link compares a record's place with where the chain is.
func (v *verifier) link(h head, sum [32]byte) {
	before := Anchor{v.report.Chain, h.seq - 1, hex.EncodeToString(h.prev[:])}
	if !v.any && slices.Contains(v.bases, before) {
		v.last = head{h.seq - 1, h.prev}
	}
	next := v.last.seq + 1
	switch {
	case !v.any && (h.seq != next || h.prev != v.last.prev):
		v.problem(h.seq, "begins elsewhere", fmt.Sprintf("nothing says that the chain begins with record %d: older ones are gone", h.seq))
	case h.seq > next:
		at := v.problem(h.seq, "deleted", fmt.Sprintf("records %d to %d are missing before it", next, h.seq-1))
		v.lacks(gap{next, h.seq - 1, at})
	case h.seq < next && v.fills(h.seq):
		v.problem(h.seq, "reordered", fmt.Sprintf("record %d comes after record %d", h.seq, v.last.seq))
		return
	case h.seq == v.last.seq && sum != v.last.prev:
		v.problem(h.seq, "inserted", fmt.Sprintf("there are two records with number %d", h.seq))
	case h.seq < next:
		v.problem(h.seq, "duplicated", fmt.Sprintf("record %d comes again after record %d", h.seq, v.last.seq))
		return
	case h.prev != v.last.prev:
		v.edited(h)
	}
	if !v.any {
		v.any, v.report.First = true, h.seq
	}
	v.last = head{h.seq, sum}
	v.report.Records++
	if want := v.anchors[h.seq]; want != nil {
		v.report.Anchors++
		delete(v.anchors, h.seq)
		if has := hex.EncodeToString(sum[:]); slices.ContainsFunc(want, func(w string) bool { return w != has }) {
			v.problem(h.seq, "edited", fmt.Sprintf("it is not the record %d that was told to the journal: an old copy, or another chain", h.seq))
		}
	}
}

func (v *verifier) edited(h head) {
	switch {
	case v.line == 1:
		v.problem(h.seq, "edited", "it does not follow the last record of the file before: that was edited, or this one was")
	default:
		v.problemAt(v.line-1, v.last.seq, "edited", fmt.Sprintf("the record after it, %d, follows another one: one of both was edited", h.seq))
	}
}

// lacks remembers numbers that are missing. Beyond maxGaps it forgets them: what comes there later is told as
// duplicated.
func (v *verifier) lacks(g gap) {
	if len(v.gaps) < maxGaps {
		v.gaps = append(v.gaps, g)
	}
}

// fills reports whether a number was missing, and has it so no more. Of what was all there, only elsewhere, nothing is
// told as deleted.
func (v *verifier) fills(seq uint64) bool {
	for i, g := range v.gaps {
		if g.from > seq || seq > g.to {
			continue
		}
		v.gaps = slices.Delete(v.gaps, i, i+1)
		for _, rest := range []gap{{g.from, seq - 1, g.problem}, {seq + 1, g.to, g.problem}} {
			if rest.from <= rest.to {
				v.lacks(rest)
			}
		}
		if g.problem >= 0 && !slices.ContainsFunc(v.gaps, func(o gap) bool { return o.problem == g.problem }) {
			v.report.Problems[g.problem].What = ""
		}
		return true
	}
	return false
}

// content takes what a record says.
func (v *verifier) content(r Record) {
	switch {
	case r.Writer != v.report.Chain:
		v.problem(r.Seq, "inserted", fmt.Sprintf("%.40q has written it, and not %q", r.Writer, v.report.Chain))
	case r.Kind == Open && r.ID != "" && r.Outcome == "":
		v.open(r)
	case r.Kind == Close:
		delete(v.calls, r.ID)
	}
	v.report.Told = append(v.report.Told, r.Anchors...)
	if over := len(v.report.Told) - maxTold; over > maxTold {
		v.report.Told = slices.Delete(v.report.Told, 0, over)
	}
}

// open remembers a call that has begun. With maxOpen of them under way it notes the first that it does not remember.
func (v *verifier) open(r Record) {
	switch _, known := v.calls[r.ID]; {
	case known || len(v.calls) < maxOpen:
		v.calls[r.ID] = r.Seq
	case !v.full:
		v.full = true
		v.note("more than %d calls are open at record %d: which of the later ones were closed is not told", maxOpen, r.Seq)
	}
}

// end looks for what should have come. What lies behind the last record is not an error: it may be being written.
func (v *verifier) end() {
	for _, g := range v.pieces {
		v.note("%s:%d: %d bytes behind the last record are none: one that is being written, or was cut; the next writer "+
			"says so", g.file, g.line, g.bytes)
	}
	v.report.Last, v.report.Hash = v.last.seq, hex.EncodeToString(v.last.prev[:])
	var beyond uint64
	for seq := range v.anchors {
		if seq > v.last.seq {
			beyond = max(beyond, seq)
		}
	}
	if beyond > 0 {
		v.report.Anchors++
		v.problem(v.last.seq, "cut", fmt.Sprintf("it ends with record %d, and record %d has been told to the journal", v.last.seq, beyond))
	}
	for id, seq := range v.calls {
		v.report.Unmatched = append(v.report.Unmatched, Unmatched{id, seq})
	}
	v.report.Problems = slices.DeleteFunc(v.report.Problems, func(p Problem) bool { return p.What == "" })
	slices.SortFunc(v.report.Unmatched, func(a, b Unmatched) int { return cmp.Compare(a.Seq, b.Seq) })
}
