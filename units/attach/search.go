package attach

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/time/rate"

	"github.com/pfar/pfar/units"
)

// What a server writes to stderr is searched for secrets by pfard, which knows them all; its launcher knows none. The
// lines go there in a sealed file (units.Sealed) with "\n" between them, and as many come back in another one, as they
// may be logged but for their control characters.

const (
	MaxLine   = 4 << 10                      // bytes of a line that are logged
	MaxBehind = 1 << 20                      // bytes behind those that are searched, so that no secret which begins in them is cut
	MaxSearch = MaxBehind + MaxLine + 16<<10 // bytes of a file of lines: the longest one, with room for what was read with its end
)

// Search comes with the lines. A launcher asks the next when it has the answer.
type Search struct {
	Cut bool `json:"cut,omitempty"` // the last line goes on, but not here
}

// Found comes with the lines as they may be logged; without a file, none of them may.
type Found struct {
	Secrets []string `json:"secrets,omitempty"` // names of some that were replaced
	Behind  int      `json:"behind,omitempty"`  // of a line, so many bytes behind MaxLine are searched: the rest need not be sent
}

// Searcher is what Searches asks. It returns as many lines as the text has.
type Searcher func(text []byte, cut bool) (lines []byte, found Found)

// Searches answers one launcher, its questions one after the other. A server can make them costly, and a launcher that
// was taken over can ask without end: the next one waits until the budget allows for it, and what comes meanwhile has
// no answer.
type Searches struct {
	conn   *Conn
	search Searcher
	asked  chan question
	budget *rate.Limiter // in bytes
}

type question struct {
	Search
	file *os.File
}

// The budget of one server. A MiB of escapes within escapes takes a second of one core, so it can cost some 6 % of one.
// A launcher lets 1000 lines through in half a minute.
const (
	searchedPerSecond = 64 << 10 // bytes
	searchedAtOnce    = 1 << 20
	lineCost          = 512 // bytes that a line counts for beside its own
)

// NewBudget returns a whole one.
func NewBudget() *rate.Limiter { return rate.NewLimiter(searchedPerSecond, searchedAtOnce) }

// Refill is the time within which any budget is whole again: one question may take as much as there is beyond it.
const Refill = 2 * searchedAtOnce / searchedPerSecond * time.Second

// Searches begins to answer, until ctx ends, what a budget allows for.
func (c *Conn) Searches(ctx context.Context, search Searcher, budget *rate.Limiter) *Searches {
	s := &Searches{c, search, make(chan question, 1), budget}
	go s.run(ctx)
	return s
}

// Take takes a question with its files, and does not wait. It must not be called after ctx has ended.
func (s *Searches) Take(m Search, files []*os.File) {
	if len(files) == 1 {
		select {
		case s.asked <- question{m, files[0]}:
			return
		default:
		}
	}
	CloseAll(files)
}

func (s *Searches) run(ctx context.Context) {
	for {
		select {
		case q := <-s.asked:
			if s.budget.WaitN(ctx, 0) != nil { // until what was asked before is paid for
				q.file.Close()
				continue
			}
			s.answer(q)
		case <-ctx.Done():
			select {
			case q := <-s.asked:
				q.file.Close()
			default:
			}
			return
		}
	}
}

// answer takes the price of a question, and then answers: who hangs up then and comes again has paid.
func (s *Searches) answer(q question) {
	text, err := units.ReadSealed(q.file, MaxSearch)
	cost := len(text) + lineCost*(1+bytes.Count(text, newline)) // in bytes
	s.budget.ReserveN(time.Now(), min(cost, s.budget.Burst()))
	if err == nil {
		var f *os.File
		lines, found := s.search(text, q.Cut)
		if f, err = units.Sealed("found", lines); err == nil {
			err = s.conn.Send(Message{Found: &found}, f)
			f.Close()
		}
	}
	if err != nil { // of what no launcher sends, or it has ended
		_ = s.conn.Send(Message{Found: &Found{}})
	}
}

var newline = []byte("\n")

// Sealed returns the file of a Search.
func Sealed(lines [][]byte) (*os.File, error) {
	return units.Sealed("search", bytes.Join(lines, newline))
}

// Lines reads and closes the files that came with Found, in answer to so many lines.
func (f *Found) Lines(files []*os.File, count int) ([]string, error) {
	if len(files) != 1 {
		CloseAll(files)
		return nil, fmt.Errorf("reading what may be logged: %d files came, want 1", len(files))
	}
	text, err := units.ReadSealed(files[0], int64(count)*(MaxLine+1<<10))
	if err != nil {
		return nil, err
	}
	var lines []string
	for line := range bytes.SplitSeq(text, newline) {
		lines = append(lines, string(line))
	}
	if len(lines) != count {
		return nil, fmt.Errorf("reading what may be logged: %d lines came, want %d", len(lines), count)
	}
	return lines, nil
}
