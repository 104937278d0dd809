// Package inspect has programs and models look at arguments and results, beside the inspector that is built in, and
// takes no answer for a clean one.
package inspect

import (
	"context"
	"errors"
	"path/filepath"
	"reflect"
	"sync"

	"github.com/pfar/pfar/policies/fence"
	"github.com/pfar/pfar/policies/inspect"
	"github.com/pfar/pfar/policies/inspector"
)

// Panel is all inspectors that are declared. The zero value knows of none, and so nothing is clean.
type Panel struct {
	Dir string // of their sockets, each called as it is

	mu  sync.RWMutex
	all map[string]*Inspector
}

// Learn takes those that are declared from now on.
func (p *Panel) Learn(declared []inspector.External) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.all
	p.all = make(map[string]*Inspector, len(declared))
	for _, e := range declared {
		if one := before[e.Name]; one != nil && reflect.DeepEqual(one.declared, e) {
			p.all[e.Name] = one // whom others have asked just now
		} else if one, err := New(e, filepath.Join(p.Dir, e.Name+".sock")); err == nil { // else it is missing
			p.all[e.Name] = one
		}
	}
}

// Inspect returns what the named ones say together. Each is asked, all at the same time; one that there is none of is
// missing.
func (p *Panel) Inspect(ctx context.Context, names []string, d inspector.Direction, about fence.Meta, value []byte) inspect.Report {
	reports := make([]inspect.Report, len(names))
	var wait sync.WaitGroup
	for i, name := range names {
		p.mu.RLock()
		one := p.all[name]
		p.mu.RUnlock()
		if one == nil {
			reports[i].Reason = inspect.Escape("inspector " + name + ": there is none")
			continue
		}
		if own := one.declared.Direction; own != inspector.Both && d != inspector.Both && own != d {
			reports[i].Outcome = inspect.Clean // it has no say
			continue
		}
		wait.Go(func() { reports[i] = one.Inspect(ctx, Request{about, d, value}) })
	}
	wait.Wait()
	report := inspect.Report{Outcome: inspect.Clean}
	for _, other := range reports {
		report = report.Join(other)
	}
	return report
}

// Request is a value of JSON that is to be looked at.
type Request struct {
	fence.Meta // whose it is, and how far to trust it
	Direction  inspector.Direction
	Value      []byte
}

// Inspector is an external one. It may be used by many at once.
type Inspector struct {
	declared inspector.External
	slots    chan struct{}
	ask      func(ctx context.Context, part part) (verdict, error)
}

// part is one piece of a text, of those that overlap.
type part struct {
	Request
	text   string
	number int // from 1
	of     int
}

// verdict is what an inspector says of a part.
type verdict struct {
	flagged bool
	kind    string
	reason  string
}

var errSize = errors.New("the text is longer than it looks at")

// Inspect has the whole of a text looked at. Its outcome is Missing unless every part was, and there was an answer to
// each; one that is flagged ends it.
func (i *Inspector) Inspect(ctx context.Context, r Request) inspect.Report {
	ctx, cancel := context.WithTimeout(ctx, i.declared.Timeout)
	defer cancel()
	text, ok := inspect.Render(r.Value, i.declared.Size)
	if !ok {
		return i.missing(errSize)
	}
	chunks := inspect.Chunks(text, i.declared.Chunk, i.declared.Overlap)
	type answer struct {
		verdict verdict
		err     error
	}
	answers := make(chan answer, len(chunks))
	for n, c := range chunks {
		go func() {
			v, err := i.one(ctx, part{r, c, n + 1, len(chunks)})
			answers <- answer{v, err}
		}()
	}
	var first error
	for range chunks {
		a := <-answers
		if a.err == nil && a.verdict.flagged {
			return i.flagged(a.verdict)
		}
		if a.err != nil && first == nil {
			first = a.err
			cancel() // it cannot become clean, and only a flag would be stricter: what has been asked is not worth the wait
		}
	}
	if first != nil {
		return i.missing(first)
	}
	return inspect.Report{Outcome: inspect.Clean}
}

// one asks about one part, when it is its turn.
func (i *Inspector) one(ctx context.Context, p part) (verdict, error) {
	select {
	case i.slots <- struct{}{}:
		defer func() { <-i.slots }()
	case <-ctx.Done():
		return verdict{}, ctx.Err()
	}
	if err := ctx.Err(); err != nil {
		return verdict{}, err
	}
	return i.ask(ctx, p)
}

func (i *Inspector) missing(err error) inspect.Report {
	return inspect.Report{Reason: inspect.Escape("inspector " + i.declared.Name + ": " + err.Error())}
}

func (i *Inspector) flagged(v verdict) inspect.Report {
	return inspect.Report{Outcome: inspect.Flagged, Findings: []inspect.Finding{{
		Inspector: i.declared.Name, Kind: inspect.Escape(v.kind), Severity: inspect.Suspicious, Excerpt: inspect.Escape(v.reason),
	}}}
}
