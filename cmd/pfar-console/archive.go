package main

import (
	"context"
	"io"
	"os"
	"slices"
	"time"

	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/operator/ask"
)

// archive asks pfard for the newest files of the audit and for views: this process can open none. One page reads them
// at a time, so that few files are open. A page that has the audit verified waits beside it.
type archive struct {
	exchange[archived]
	asks     func(attach.Question) error // asks pfard for the audit
	asksView func(attach.View) error
	reads    chan struct{} // holds one while a page reads

	verifying verifying
}

// verifying is what an archive needs to have pfard verify the audit. One page does so at a time.
type verifying struct {
	drops func(attach.Question) error // tells pfard that nobody waits any more
	turn  chan struct{}               // holds one while a page waits
}

// archived are files of the audit, or the one of a view. Whoever gets them closes them.
type archived struct {
	attach.Records
	files []*os.File
}

func newArchive() *archive {
	drop := func(a archived) { attach.CloseAll(a.files) }
	return &archive{
		exchange: exchange[archived]{drop: drop, most: 2}, reads: make(chan struct{}, 1),
		verifying: verifying{turn: make(chan struct{}, 1)},
	}
}

// askTime is how long pfard may take to open the files, and the pages before this one to read them.
const askTime = 5 * time.Second

// unread is the error of an audit that cannot be read.
func unread(why string) error {
	return &ask.Refusal{Reason: "the audit cannot be read here: " + visible.Reveal(why) + "; run pfar audit"}
}

// open returns the newest files of the audit.
func (a *archive) open(ctx context.Context) (archived, error) {
	got, err := a.fetch(ctx, a.asks, unread)
	if err == nil && len(got.files) != len(got.Chains) {
		attach.CloseAll(got.files)
		return archived{}, unread("files are missing")
	}
	return got, err
}

// fetch returns the files that pfard hands over for a question.
func (a *archive) fetch(
	ctx context.Context, asks func(attach.Question) error, unread func(why string) error,
) (archived, error) {
	got, err := a.ask(ctx, func(number uint64) error { return asks(attach.Question{Number: number}) }, nil)
	switch {
	case err != nil:
		return archived{}, unread("pfard does not answer")
	case got.Error != "":
		attach.CloseAll(got.files)
		return archived{}, unread(got.Error)
	}
	return got, nil
}

// What a page reads of each chain, and the longest record that it reads, in bytes. What pfar writes is shorter; a
// gateway that was taken over could write a record that takes all memory.
const (
	maxRead   = 1 << 20
	maxRecord = 64 << 10
)

// newest reads the last records of each chain as one stream, from a time on at which no chain has been cut. all is
// false if there are older records.
func (a archived) newest() (stream *audit.Merged, from time.Time, all bool) {
	all = !a.More
	var readers []*audit.Reader
	for _, chain := range slices.Compact(slices.Clone(a.Chains)) {
		parts, cut := a.tail(chain)
		if cut {
			all = false
			first, _, ok, err := readerOf(parts).Next()
			if err == nil && ok && first.Time.After(from) && !first.Time.After(time.Now()) { // or others have none left
				from = first.Time
			}
		}
		readers = append(readers, readerOf(parts))
	}
	return audit.Merge(readers...), from, all
}

// section is a part of a file.
type section struct {
	file     *os.File
	from, to int64
}

// tail returns the last parts of a chain, oldest first, and whether there is more before them.
func (a archived) tail(chain string) (parts []section, cut bool) {
	left := int64(maxRead)
	for i, f := range slices.Backward(a.files) {
		if a.Chains[i] != chain {
			continue
		}
		info, err := f.Stat()
		if err != nil || left <= 0 {
			cut = true
			break
		}
		from := max(0, info.Size()-left)
		cut = cut || from > 0
		left -= info.Size() - from
		parts = append(parts, section{f, from, info.Size()})
	}
	slices.Reverse(parts)
	return parts, cut
}

func readerOf(parts []section) *audit.Reader {
	r := audit.NewReader(func() (io.ReadCloser, error) {
		if len(parts) == 0 {
			return nil, nil
		}
		p := parts[0]
		parts = parts[1:]
		return io.NopCloser(io.NewSectionReader(p.file, p.from, p.to-p.from)), nil
	})
	r.Longest = maxRecord
	return r
}

// turn waits until no other page reads, until ctx ends.
func (a *archive) turn(ctx context.Context, unread func(why string) error) (done func(), err error) {
	select {
	case a.reads <- struct{}{}:
		return func() { <-a.reads }, nil
	case <-ctx.Done():
		return nil, unread("another page reads files; load this page again")
	}
}

// read calls each with the newest records, oldest first.
func (a *archive) read(ctx context.Context, each func(*audit.Entry)) (all bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	done, err := a.turn(ctx, unread)
	if err != nil {
		return false, err
	}
	defer done()
	got, err := a.open(ctx)
	if err != nil {
		return false, err
	}
	defer attach.CloseAll(got.files)
	stream, from, all := got.newest()
	for {
		e, err := stream.Next()
		switch {
		case ctx.Err() != nil:
			return false, unread("it took too long")
		case err != nil:
			return false, unread(err.Error())
		case e == nil:
			return all, nil
		case !e.Time.Before(from):
			each(e)
		}
	}
}
