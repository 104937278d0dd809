package main

import (
	"context"
	"io"
	"os"
	"slices"
	"sync"

	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/operator/ask"
)

// archive asks pfard for the newest files of the audit: this process can open none.
type archive struct {
	asks func() error  // asks pfard for them
	turn chan struct{} // holds one while somebody waits for the answer

	mu    sync.Mutex
	waits chan archived // gets the answer; nil: nobody waits
}

func newArchive() *archive { return &archive{turn: make(chan struct{}, 1)} }

// archived are files of the audit, which are to be closed.
type archived struct {
	attach.Records
	files []*os.File
}

// answer passes on what pfard says.
func (a *archive) answer(r attach.Records, files []*os.File) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waits == nil {
		attach.CloseAll(files)
		return
	}
	a.waits <- archived{r, files} // it holds one
	a.waits = nil
}

var errNoAudit error = &ask.Refusal{Reason: "pfard does not hand over the audit: run pfar audit"}

// open returns the newest files.
func (a *archive) open(ctx context.Context) (archived, error) {
	ctx, cancel := ask.Within(ctx)
	defer cancel()
	select {
	case a.turn <- struct{}{}:
	case <-ctx.Done():
		return archived{}, errNoAudit
	}
	defer func() { <-a.turn }()
	waits := make(chan archived, 1)
	a.await(waits)
	defer func() { // the answer may just have come
		a.await(nil)
		select {
		case late := <-waits:
			attach.CloseAll(late.files)
		default:
		}
	}()
	if a.asks() != nil {
		return archived{}, errNoAudit
	}
	select {
	case got := <-waits:
		if got.Error == "" && len(got.files) == len(got.Chains) {
			return got, nil
		}
		attach.CloseAll(got.files)
		return archived{}, errNoAudit
	case <-ctx.Done():
		return archived{}, errNoAudit
	}
}

func (a *archive) await(waits chan archived) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waits = waits
}

// maxRead bounds what a page reads of each chain, in bytes.
const maxRead = 4 << 20

// newest reads the last records of each chain as one stream. all is false if there are older records.
func (a archived) newest() (stream *audit.Merged, all bool) {
	byChain := map[string][]*os.File{}
	for i, f := range a.files {
		byChain[a.Chains[i]] = append(byChain[a.Chains[i]], f)
	}
	var readers []*audit.Reader
	all = !a.More
	for _, files := range byChain {
		var parts []io.Reader
		left := int64(maxRead)
		for _, f := range slices.Backward(files) {
			info, err := f.Stat()
			if err != nil || left <= 0 {
				all = false
				break
			}
			from := max(0, info.Size()-left)
			all = all && from == 0
			left -= info.Size() - from
			parts = append(parts, io.NewSectionReader(f, from, info.Size()-from))
		}
		slices.Reverse(parts)
		readers = append(readers, audit.NewReader(func() (io.ReadCloser, error) {
			if len(parts) == 0 {
				return nil, nil
			}
			next := io.NopCloser(parts[0])
			parts = parts[1:]
			return next, nil
		}))
	}
	return audit.Merge(readers...), all
}

// read calls each with the newest records, oldest first.
func (a *archive) read(ctx context.Context, each func(*audit.Entry)) (all bool, err error) {
	got, err := a.open(ctx)
	if err != nil {
		return false, err
	}
	defer attach.CloseAll(got.files)
	stream, all := got.newest()
	for {
		e, err := stream.Next()
		if err != nil {
			return false, &ask.Refusal{Reason: "reading the audit: " + err.Error()}
		}
		if e == nil {
			return all, nil
		}
		each(e)
	}
}
